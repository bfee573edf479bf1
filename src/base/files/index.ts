/** Files that other processes may read and write at the same time: written whole, read without waiting. */
export { readRegular, requireUnshared } from './read.js';
export { warnOnce } from './warn.js';
export { isTemporary, makeFolder, requireFolder, requireWritable, writeOutput, writeWhole } from './write.js';
