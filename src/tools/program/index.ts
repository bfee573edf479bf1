/** CUDA programs as they are, whose calls the simulated machine answers. */
export { programSubject, runProgram } from './subject.js';
