/** Programmatic dependent launch. */
import { operation } from './operation.js';

export const launch = {
  // Until the grids before have ended and their writes are visible.
  awaitPrevious: operation({
    takes: {},
    returns: 'void',
    cuda: {
      name: 'await_previous',
      text: 'DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }',
    },
    removable: true,
  }),
  // The next grid may start early. It may not read what this one writes before its own awaitPrevious.
  releaseNext: operation({
    takes: {},
    returns: 'void',
    cuda: {
      name: 'release_next',
      text: 'DEVICE void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }',
    },
  }),
};
