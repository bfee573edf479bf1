import { Command } from '../../../../src/cli/commander.js';
import { register } from '../../../../src/cli/run.js';

const program = new Command('heddle').enablePositionalOptions();
register(program.command('run'));
await program.parseAsync();
