import { Command } from 'commander';
import { register } from '../../../../src/cli/run.js';

const program = new Command('heddle');
register(program);
await program.parseAsync();
