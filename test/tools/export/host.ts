/** A host that knows nothing but a launch plan and its kernels by name: rounds whose experts are the plan's, or give back what they get. */
import type { Device, Launcher, Stream } from '../../../src/gpu/index.js';
import { hybridProxyModule } from '../../../src/moe/families/index.js';
import { bytesOf } from '../../../src/moe/index.js';
import type { Bits, Source } from '../../../src/moe/layer/index.js';
import type { World } from '../../../src/net/world/index.js';
import type { Exported, LaunchPlan } from '../../../src/tools/export/index.js';

const networkMemory = (device: Device, { name, bytes, front, allOnes }: NonNullable<LaunchPlan['wire']>) =>
  device.allocateWire(
    { bytes, front, side: 'host' },
    name,
    allOnes.map((of) => ({ ...of, value: 255 })),
  );

export class PlanHost {
  readonly #launchers: readonly Launcher[];

  private constructor(
    readonly world: World,
    readonly plan: LaunchPlan,
    launchers: readonly Launcher[],
    readonly addressOf: (name: string) => number,
  ) {
    this.#launchers = launchers;
  }

  /** `weights`: addresses of those that the plan names. */
  static async create(
    world: World,
    { plan, kernels }: Exported,
    weights: Readonly<Record<string, number>> = {},
  ): Promise<PlanHost> {
    const { device, rank, topology } = world;
    const windows = new Map(
      await Promise.all(
        plan.windows.map(async ({ name, bytes, sections }) => {
          const fills = sections
            .filter(({ start }) => start !== 0)
            .map(({ offset, bytes, start }) => ({ offset, bytes, value: start }));
          return [name, await world.createWindow(bytes, name, fills)] as const;
        }),
      ),
    );
    const buffers = new Map(plan.buffers.map(({ name, bytes }) => [name, device.allocate(bytes, name)]));
    const { wire } = plan;
    const memory = wire && networkMemory(device, wire);
    await world.barrier('preparing windows');
    if (wire && memory)
      await world.startProxy({ ...hybridProxyModule, ...wire.proxies[rank]!, memory, timeoutMs: 10_000 });
    const launchers = await Promise.all(
      plan.launches.map(async ({ kernel, grid, block, parameters }) => {
        const program = await device.load(kernels.get(kernel)!);
        const launcher = program.launcher({ grid, block, rank: topology.localRank });
        for (const { name, value } of parameters) {
          if (value.from === 'window') launcher.setWindow(name, windows.get(value.window)!);
          if (value.from === 'wire')
            launcher.setWindow(name, { rank: 0, bases: [memory!.address], bytes: memory!.bytes });
          if (value.from === 'own')
            launcher.set(name, windows.get(value.window)!.own.address + (value.offset ?? 0));
          if (value.from === 'buffer')
            launcher.set(name, buffers.get(value.buffer)!.address + (value.offset ?? 0));
          if (value.from === 'weights') launcher.set(name, weights[value.weights]!);
          if (value.from === 'constants') launcher.set(name, value.values[rank]!);
          if (value.from === 'limit') launcher.set(name, 10_000_000);
          if (value.from === 'constant') launcher.set(name, value.value);
        }
        return launcher;
      }),
    );
    const addressOf = (name: string): number => windows.get(name)?.own.address ?? buffers.get(name)!.address;
    return new PlanHost(world, plan, launchers, addressOf);
  }

  /** Enqueues a round; returns where its sums will be. `places`: where routes go, of experts that are placed. */
  round({ tokens, topkIds, topkWeights, payloads }: Source, stream: Stream, places?: Int32Array): number {
    const put = (bits: Bits): number => {
      const { address } = this.world.device.allocate(Math.max(16, bits.byteLength), 'input');
      stream.copyIn(address, bytesOf(bits));
      return address;
    };
    const { hidden, dtype } = this.plan.layer.output;
    const outBytes = tokens * hidden * (dtype === 'f32' ? 4 : 2);
    const given: Record<string, number> = {
      tokens,
      topkIds: put(topkIds),
      topkWeights: put(topkWeights!),
      out: put(new Uint8Array(outBytes)),
      ...(places && { places: put(places), routed: put(new Uint8Array(8 * this.plan.layer.placed!)) }),
    };
    const rowsAt = new Map(Object.entries(payloads).map(([name, rows]) => [name, put(rows)]));
    this.plan.launches.forEach(({ phase, parameters, tokens: range = [0, tokens] }, i) => {
      if (tokens < range[0] || range[1] < tokens) return;
      const before = this.plan.launches[i - 1]?.phase ?? '';
      if (phase === 'combineSend' && before.startsWith('dispatch')) this.#experts(stream);
      if (phase === 'combineSend' && before === 'experts' && this.plan.weights === undefined) {
        const { 'rows.x': rows, made } = this.plan.planned!;
        const [to, from] = [made!, rows!].map(({ in: name, offset }) => this.addressOf(name) + offset);
        stream.copy(to!, from!, rows!.bytes);
      }
      for (const { name, value } of parameters) {
        if (value.from === 'rows') this.#launchers[i]!.set(name, rowsAt.get(value.payload)!);
        else if (value.from in given) this.#launchers[i]!.set(name, given[value.from]!);
      }
      this.#launchers[i]!.launch(stream);
    });
    return given.out!;
  }

  /** Every route's row is its token's. */
  #experts(stream: Stream): void {
    const { received, layer } = this.plan;
    const x = received['payloads.x']!;
    const output = received.output!;
    const slots = layer.ranks * layer.maxTokens;
    const row = x.bytes / slots;
    const copies = output.bytes / x.bytes;
    for (let slot = 0; slot < slots; slot++) {
      for (let k = 0; k < copies; k++) {
        const to = this.addressOf(output.in) + output.offset + (slot * copies + k) * row;
        stream.copy(to, this.addressOf(x.in) + x.offset + slot * row, row);
      }
    }
  }
}
