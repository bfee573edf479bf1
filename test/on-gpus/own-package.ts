/**
 * Makes what `npm run build:gpu-test` compiled a package of its own: examples import Heddle by its name, and find what was
 * compiled beside them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const tree = join(import.meta.dirname, '../..');
const manifest = readFileSync(join(tree, '../package.json'), 'utf8');
writeFileSync(join(tree, 'package.json'), manifest.replaceAll('./dist/', './src/'));
