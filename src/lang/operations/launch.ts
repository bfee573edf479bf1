/** Programmatic dependent launch. */
import { operation } from './operation.js';

export const launch = {
  /** Waits until the kernels before this one on its stream have ended, and their writes are visible. */
  awaitPrevious: operation({
    cuda: 'DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }',
    simulate: (_, machine) => machine.pause('previous'),
    removable: true,
  }),
  /** Lets the next kernel start early. It may not read what this one writes before its own `awaitPrevious`. */
  releaseNext: operation({
    cuda: 'DEVICE void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }',
    simulate: (_, machine) => machine.call('releaseNext'),
  }),
};
