import { expect } from 'vitest';
import {
  type Finding,
  formatFinding,
  type MachineOptions,
  type PtxExtent,
  SimMachine,
} from '../../../../src/gpu/sim/index.js';
import { type PtxKernelOptions, ptx } from '../../../../src/lang/ptx/index.js';

/** A file with one kernel `k`, whose first parameter is a pointer that `%out` holds when its body begins. */
export const fileOf = (body: string, { declarations = '', params = '' } = {}): string => `.version 8.0
.target sm_90
.address_size 64
${declarations}
.visible .entry k(.param .u64 out${params === '' ? '' : `, ${params}`})
{
  .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<40>; .reg .f64 %fd<20>;
  .reg .b64 %out;
  ld.param.u64 %out, [out];
${body}
  ret;
}
`;

export interface Shape {
  readonly grid?: PtxExtent;
  readonly block?: PtxExtent;
  readonly mode?: 'fast' | 'checked';
  readonly seed?: string;
  readonly assume?: MachineOptions['assume'];
  readonly cooperative?: boolean;
  readonly options?: PtxKernelOptions;
  /** Bytes of `out`. */
  readonly bytes?: number;
  /** Parameters, behind `out`, that are addresses of such bytes. */
  readonly memory?: Readonly<Record<string, Uint8Array>>;
  readonly set?: Readonly<Record<string, number | bigint | Uint8Array>>;
  /** So many times the stream fills `out` with zeros before the launch. */
  readonly fills?: number;
}

export interface Ran {
  readonly words: Uint32Array;
  readonly floats: Float32Array;
  readonly findings: readonly Finding[];
  readonly error: unknown;
}

/** Runs `k` on one rank; gives what it wrote to `out`. */
export async function run(text: Parameters<typeof ptx>[0], shape: Shape = {}): Promise<Ran> {
  const { grid = 1, block = 1, mode = 'checked', seed = '0', bytes = 256, set = {}, options = {} } = shape;
  const { fills = 0, cooperative = false, memory = {}, assume = [] } = shape;
  const machine = SimMachine.create({ ranks: 1, mode, seed, assume });
  const device = machine.device(0);
  const stream = device.createStream();
  const out = device.allocateWindow(bytes, 'out');
  const program = await device.load(
    ptx(text, 'k.ptx').kernel('k', {
      params: ['out', ...Object.keys(memory), ...Object.keys(set)],
      ...options,
    }),
  );
  const launcher = program.launcher({ grid, block, cooperative, rank: 0 });
  launcher.set('out', out.address);
  for (const [name, bytes] of Object.entries(memory)) {
    const { address } = device.allocate(bytes.length, name);
    stream.copyIn(address, bytes);
    launcher.set(name, address);
  }
  for (const [name, value] of Object.entries(set)) {
    if (value instanceof Uint8Array) launcher.setBytes(name, value);
    else launcher.set(name, value);
  }
  let error: unknown = null;
  let result = new Uint8Array(bytes);
  machine.hostEntered(0);
  try {
    for (let i = 0; i < fills; i++) stream.fill(out.address, bytes, 0);
    launcher.launch(stream);
    result = (await stream.copyOut(out.address, bytes)).slice();
  } catch (thrown) {
    error = thrown;
  }
  machine.hostLeft(0);
  return {
    words: new Uint32Array(result.buffer),
    floats: new Float32Array(result.buffer),
    findings: machine.findings,
    error,
  };
}

/** What it wrote, of a run that nothing is wrong with. */
export async function clean(...given: Parameters<typeof run>): Promise<Ran> {
  const ran = await run(...given);
  expect([ran.error, ran.findings.map(formatFinding)]).toEqual([null, []]);
  return ran;
}
