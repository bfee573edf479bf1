// A process that is a node of one world after the other, as it is told. In a world with a fall, the victim's process falls at its
// point of the third round; the others go on until a call throws.
import { spawnSync } from 'node:child_process';
import { connect } from 'node:net';
import { RankLostError, RepeatRoundsError } from '../../../src/base/errors.js';
import { ExpertParallel, emptyTensor, readBits, row } from '../../../src/moe/index.js';
import { type Region, TransferEngine } from '../../../src/net/fabric/index.js';
import { Circle } from '../../../src/net/world/circle.js';
import { World } from '../../../src/net/world/index.js';
import { makeRoutes } from '../../../src/verify/testing/index.js';
import type { Case, Report, Thrown } from '../cases.js';

/** Started by a launcher, it is told a single case, and by its environment who it is; and says at this socket what came of it. */
const launched = process.env.HEDDLE_TEST_CASE;
let me = Number(process.argv[2]);
const tokens = 4;
const hidden = 16;
const topK = 3;
/** Rounds that end well, and the most that others make behind them. */
const [goodRounds, more] = [2, 4];

type Fall = NonNullable<Case['fall']>;

/** What happens at the next write, at the next turn of a proxy, or when something has come; and the regions that peers write to. */
let onWrite = (): void => {};
let onTurn = (): void => {};
let onArrival = (): void => {};
/** Whether this process's ranks keep to themselves whom they miss. */
let silent = false;
const regions: { readonly engine: TransferEngine; readonly region: Region }[] = [];
const { write, nextImmediate, register } = TransferEngine.prototype;
Object.assign(TransferEngine.prototype, {
  write(this: TransferEngine, ...args: Parameters<typeof write>) {
    onWrite();
    return write.apply(this, args);
  },
  nextImmediate(this: TransferEngine) {
    onTurn();
    const tag = nextImmediate.apply(this);
    if (tag >= 0) onArrival();
    return tag;
  },
  register(this: TransferEngine, ...args: Parameters<typeof register>) {
    const region = register.apply(this, args);
    regions.push({ engine: this, region });
    return region;
  },
});

const { accuse } = Circle.prototype;
Circle.prototype.accuse = function (...args) {
  if (!silent) accuse.apply(this, args);
};

const disarm = () => {
  onWrite = onTurn = onArrival = () => {};
};

/** It happens once. */
function fall({ fault, cut, launcher = false }: Fall): void {
  disarm();
  switch (fault) {
    case 'killed':
      if (launcher) process.kill(process.ppid, 'SIGKILL');
      process.kill(process.pid, 'SIGKILL');
      return;
    case 'stopped':
      process.kill(process.pid, 'SIGSTOP');
      return;
    case 'cut off':
      spawnSync(cut[0]!, cut.slice(1));
      return;
    case 'left by its proxy':
      throw new Error('the proxy falls');
    case 'robbed of its memory':
      // It serves on under another key, which the peers do not know. A refused write may end the connection for both sides, and
      // the first to accuse the other is believed: here that is never the victim.
      silent = true;
      for (const { engine, region } of regions) {
        engine.driver.call('deregister', region.index);
        const { address, bytes } = region;
        engine.driver.call('register', region.index, { address, bytes, reach: { kind: 'host' } });
      }
  }
}

/** From now on what it does brings the process to its point. */
function arm(what: Fall): void {
  let writes = 0;
  if (what.point.endsWith('Send')) {
    onWrite = () => {
      if (++writes === 2) fall(what);
    };
  } else if (what.point.endsWith('Recv')) onArrival = () => fall(what);
  else if (what.fault === 'left by its proxy') onTurn = () => fall(what);
  else fall(what);
}

async function oneRank(world: World, { waitMs, masks = false, fall: planned }: Case): Promise<Report> {
  const ep = await ExpertParallel.create(world, {
    experts: 2 * world.ranks,
    topK,
    maxTokens: tokens,
    payloads: { x: row('f32', hidden) },
    output: row('f32', hidden),
    split: true,
    family: 'hybrid',
    waitMs,
    onLoss: masks ? 'mask' : 'throw',
    tuning,
  });
  const { device } = world;
  const stream = device.createStream();
  const { topkIds, topkWeights } = makeRoutes(ep.shape, world.rank, tokens, 7);
  const x = new Float32Array(tokens * hidden).fill(1 + world.rank);
  const out = emptyTensor(device, 'f32', [tokens, hidden]);
  /** Every owner that is not left out gives the row back as it is. */
  const expectedOf = (token: number): number => {
    const ids = topkIds.subarray(token * topK, (token + 1) * topK);
    const owners = [...ids].map((id) => Math.floor(id / 2)).filter((rank) => !world.masked.includes(rank));
    return new Set(owners).size * (1 + world.rank);
  };
  const dispatch = () => {
    const sent = ep.dispatchSend({ topkIds, topkWeights, payloads: { x } }, stream);
    const received = ep.dispatchRecv(sent, stream);
    stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
    return received;
  };
  const round = async () => {
    ep.combineRecv(ep.combineSend(dispatch(), stream), out, stream);
    await ep.synchronize(stream);
  };
  /** The round of the fall: nobody comes to its point before the victim is ready for it. */
  const lastRound = async (what: Fall) => {
    await world.barrier('rounds without a fault');
    const falls = what.process === me && world.topology.localRank === 0;
    if (falls && what.point.startsWith('dispatch')) arm(what);
    await world.barrier('before the last dispatch');
    const received = dispatch();
    if (!what.point.startsWith('dispatch')) {
      await ep.synchronize(stream);
      await world.barrier('after the last dispatch');
      if (falls && what.point.startsWith('combine')) arm(what);
      await world.barrier('before the last combine');
      if (falls && what.point === 'experts') arm(what);
    }
    ep.combineRecv(ep.combineSend(received, stream), out, stream);
    await ep.synchronize(stream);
  };

  let wrong = 0;
  const look = async () => {
    const sums = await readBits(out, stream);
    for (const [i, sum] of sums.entries()) if (sum !== expectedOf(Math.floor(i / hidden))) wrong++;
  };
  for (let n = 0; n < goodRounds; n++) {
    await round();
    await look();
  }
  if (planned === null) {
    await ep.dispose();
    return { rank: world.rank, first: null, again: null, ms: 0, wrong };
  }
  let since = performance.now();
  let nextMs = 0;
  /** All rounds behind the good ones, the first as that of the fall; repeated where the layer says so. Of each, who was left out. */
  const persist = async (what: Fall) => {
    const masked: (readonly number[])[] = [];
    let fell = false;
    for (let n = 0; ; ) {
      try {
        if (n === more) {
          await world.barrier('the rounds are done');
          return masked;
        }
        masked[n] = world.masked;
        if (!fell) {
          fell = true;
          since = performance.now();
          await lastRound(what);
        } else await round();
        if (nextMs === 0 && world.masked.length > 0) nextMs = performance.now() - since;
        await look();
        n++;
      } catch (thrown) {
        // A barrier that a rank did not come to. The layer says which rounds count.
        const told =
          thrown instanceof RankLostError ? await ep.synchronize(stream).catch((told) => told) : thrown;
        if (told === undefined) continue;
        if (!(told instanceof RepeatRoundsError)) throw told;
        n = told.round - 1 - goodRounds;
      }
    }
  };
  if (masks) {
    let masked: readonly (readonly number[])[] = [];
    const first = await persist(planned).then((all) => {
      masked = all;
      return null;
    }, thrown);
    const ms = Math.round(performance.now() - since);
    await ep.dispose();
    return { rank: world.rank, first, again: null, ms, nextMs, wrong, masked };
  }
  const rounds = async () => {
    await lastRound(planned);
    for (let n = 0; n < more; n++) {
      since = performance.now();
      await round();
    }
  };
  const first = await rounds().then(() => null, thrown);
  const ms = Math.round(performance.now() - since);
  const again = await round().then(() => null, thrown);
  if (planned.process !== me) await allAreTold();
  await ep.dispose();
  return { rank: world.rank, first, again, ms, wrong };
}

/** This process's ranks, and how many of them were told of the fall; what ends their wait for those of the others. */
let ranksHere = 0;
let toldHere = 0;
let leave = (): void => {};
let left = Promise.resolve();

/** Whoever leaves its world is missed too, by those that do not know yet because of whom. */
function allAreTold(): Promise<void> {
  if (++toldHere === ranksHere) process.send!('told');
  return left;
}

const tuning = {
  dispatch: { blocks: 2, threads: 32, chunk: 2 },
  combine: { blocks: 2, threads: 32, parts: 1 },
} as const;

function thrown(error: unknown): Thrown {
  const why: string[] = [];
  for (let at = error; at instanceof Error; at = at.cause) if (at !== error) why.push(at.message);
  const lost = error instanceof RankLostError ? error : null;
  return {
    name: error instanceof Error ? error.constructor.name : typeof error,
    message: error instanceof Error ? error.message : String(error),
    ranks: lost?.ranks ?? [],
    operation: lost?.operation ?? null,
    epoch: lost?.epoch ?? null,
    why,
  };
}

function run(told: Case): Promise<readonly Report[]> {
  const { processes, meeting, fabric, lossTimeoutMs } = told;
  ({ ranksHere } = told);
  toldHere = 0;
  left = new Promise((resolve) => {
    leave = resolve;
  });
  regions.length = 0;
  silent = false;
  disarm();
  const place = { rank: me * ranksHere, ranks: processes * ranksHere, secret: 'known to the crew alone' };
  const options = { device: 'sim', ranksHere, fabric, ...(lossTimeoutMs && { lossTimeoutMs }) } as const;
  return World.join({ ...options, ...(meeting !== null && { ...place, ...meeting }) }, (world) =>
    oneRank(world, told),
  );
}

if (launched === undefined) {
  process.on('message', (told: Case | 'leave') => {
    if (told === 'leave') return leave();
    run(told).then(
      (reports) => process.send!({ reports }),
      (error: unknown) => process.send!({ failed: thrown(error) }),
    );
  });
  process.send!('here');
} else {
  const told: Case = JSON.parse(launched);
  me = Number(process.env.HEDDLE_RANK) / told.ranksHere;
  // The test is over where the socket closes.
  const socket = connect(process.env.HEDDLE_TEST_SOCKET!).on('close', () => process.exit());
  run(told).then(
    (reports) => socket.end(JSON.stringify({ me, reports })),
    (error: unknown) => socket.end(JSON.stringify({ me, failed: thrown(error) })),
  );
}
