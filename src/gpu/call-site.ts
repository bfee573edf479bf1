/** A kernel loaded and ready to be launched from one place in the host's program, its parameters settable by name. */
import type { Kernel, ListParam, ParamSpecs, PeersParam, TensorMapParam } from '../lang/index.js';
import type { Device, Launcher, LaunchShape, Program, Stream, Tensor, Window } from './device.js';
import { inRange } from './ranges.js';

/** `set.tokens(128)`, `set.win(window)`, `set.rows(0, address)`: a function for each of a kernel's parameters. */
export type Setters<P extends ParamSpecs> = {
  readonly [N in keyof P]: P[N] extends PeersParam
    ? (window: Window) => void
    : P[N] extends TensorMapParam
      ? (tensor: Tensor) => void
      : P[N] extends ListParam<TensorMapParam>
        ? (index: number, tensor: Tensor) => void
        : P[N] extends ListParam
          ? (index: number, value: number | bigint) => void
          : (value: number | bigint) => void;
};

export interface CallSite<P extends ParamSpecs = ParamSpecs> extends Pick<Launcher, 'setGrid' | 'launch'> {
  readonly program: Program;
  /** Parameters keep their values from launch to launch; setting one allocates nothing. */
  readonly set: Setters<P>;
}

/** Compiles a kernel, or finds it compiled, and makes a call site of it. */
export async function callSite<P extends ParamSpecs>(
  device: Pick<Device, 'load'>,
  kernel: Kernel<P>,
  shape: LaunchShape,
): Promise<CallSite<P>> {
  const program = await device.load(kernel.ir());
  const launcher = program.launcher(shape);
  const { name } = program.module;
  const launch = (stream: Stream): void => launcher.launch(stream);
  return {
    program,
    set: setters(kernel.params, launcher),
    setGrid: (grid) => launcher.setGrid(grid),
    launch: (stream) => inRange(name, stream, launch),
  };
}

function setters<P extends ParamSpecs>(params: P, launcher: Launcher): Setters<P> {
  const made = Object.entries(params).map(([name, spec]) => {
    if (typeof spec === 'string' || spec.kind === 'pointer')
      return [name, (value: number | bigint) => launcher.set(name, value)];
    if (spec.kind === 'peers') return [name, (window: Window) => launcher.setWindow(name, window)];
    if (spec.kind === 'tensorMap') return [name, (tensor: Tensor) => launcher.setTensor(name, tensor)];
    // A list's items are parameters of their own: rows_0, rows_1 …
    const items = Array.from({ length: spec.length }, (_, i) => `${name}_${i}`);
    if (typeof spec.of === 'object' && spec.of.kind === 'tensorMap')
      return [name, (index: number, tensor: Tensor) => launcher.setTensor(items[index]!, tensor)];
    return [name, (index: number, value: number | bigint) => launcher.set(items[index]!, value)];
  });
  // The types of the functions follow from the specs, which the loop above can tell apart and the compiler cannot.
  return Object.fromEntries(made) as Setters<P>;
}
