/** Kernels in PTX as GPUs run them today, where PTX's memory model says less. */
import type { PtxInstruction, PtxKernel } from '../../../lang/ptx/index.js';
import type { Assumption } from '../detector/detector.js';

/** A part that no compiler writes: an atomic access of a vector is one access. */
export const whole = 'whole';

/** Another: a load comes behind all that its block has seen. */
export const behind = 'behind';

/** Each kernel once, for compiled kernels are kept: by what is assumed. */
const known = new Map<string, WeakMap<PtxKernel, PtxKernel>>();

export function assuming(kernel: PtxKernel, assume: readonly Assumption[]): PtxKernel {
  const [waits, vectors] = [assume.includes('volatile'), assume.includes('vectors')];
  const blocks = assume.includes('clusters') && kernel.cluster > 1;
  if (!waits && !vectors && !blocks) return kernel;
  const key = `${waits} ${vectors} ${blocks}`;
  const made = known.get(key) ?? new WeakMap<PtxKernel, PtxKernel>();
  known.set(key, made);
  const change = (one: PtxInstruction): PtxInstruction => {
    const [name] = one.parts;
    if (blocks && name === 'mbarrier' && /^(try|test)_wait$/.test(one.parts[1]!))
      return { ...one, parts: [...one.parts.filter((part) => part !== 'cta'), 'cluster'] };
    if (name !== 'ld' && name !== 'st') return one;
    const parts = one.parts.flatMap((part) => {
      if (waits && name === 'ld' && part === 'volatile') return ['acquire', 'sys', behind];
      return vectors && /^v\d$/.test(part) ? [part, whole] : [part];
    });
    return { ...one, parts };
  };
  const { entry } = kernel;
  const changed = made.get(kernel) ?? {
    ...{ ...kernel, entry: { ...entry, instructions: entry.instructions.map(change) } },
  };
  made.set(kernel, changed);
  return changed;
}
