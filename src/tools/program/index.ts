/** CUDA programs as they are, whose calls the simulated machine answers. */
export { programSubject } from './subject.js';
