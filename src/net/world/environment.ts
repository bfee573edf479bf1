import { createHash } from 'node:crypto';
import { ArgumentError, integerIn, requireText, UnavailableError } from '../../base/errors.js';
import { type Address, parseAddress } from './address.js';
import type { CircleOptions } from './circle.js';
import { type EtcdAddress, parseEtcdAddress } from './etcd/address.js';
import { MAX_RANKS } from './exchange.js';

/** How to join. An option that is not given here comes from the environment. */
export interface JoinOptions extends CircleOptions {
  readonly rank?: number;
  readonly ranks?: number;
  readonly localRank?: number;
  /** How many places there are for ranks, default `ranks`: the first `ranks` begin, others may come. The same on every rank. */
  readonly places?: number;
  /**
   * How many equal nodes of consecutive ranks the places make, the same on every rank. Default: found out; 1 where places are empty,
   * or this process takes one.
   */
  readonly nodes?: number;
  /** 'host:port' of the rendezvous. */
  readonly address?: string;
  /** 'etcd://host:port/prefix': the ranks meet there instead. */
  readonly rendezvous?: string;
  /** Names the world; all its ranks must say the same. */
  readonly world?: string;
  /**
   * Takes the empty place `rank` of a world that runs. The text names this process. The world that is joined is one outside: layers are
   * made in it alone, and `World.rejoin` waits until the others admit it.
   */
  readonly rejoin?: string;
  /** At least 16 characters; required when the address is not loopback. */
  readonly secret?: string;
  /** Someone else hosts the rendezvous; otherwise rank 0 does. */
  readonly hosted?: boolean;
  /**
   * After how many ms without a sign of life this rank is lost to the others, and the rendezvous to it.
   * Must exceed the longest time that this process blocks its event loop. Default 30,000. (A process that
   * ends is noticed at once.)
   */
  readonly lossTimeoutMs?: number;
  /** Instead of process.env. */
  readonly environment?: Environment;
}

/** A process's place in its world, as its launcher's environment and these options tell it. */
export interface Membership
  extends Required<Pick<JoinOptions, 'rank' | 'ranks' | 'world' | 'hosted'>>,
    Told<'places' | 'nodes' | 'rejoin' | 'localRank' | 'secret'> {
  /** The name of the launcher, for messages. */
  readonly launcher: string;
  /** The kind of the ranks' devices, where it is given. */
  readonly device: 'cuda' | 'sim' | undefined;
  /** How many ranks this process is, from `rank` on: more than one only where their GPUs are simulated. */
  readonly ranksHere: number;
  readonly address: Address;
  /** Where the ranks meet instead, if somebody said so. */
  readonly etcd: EtcdAddress | undefined;
}

/** A membership with its defaults, and how long the process waits for the others. */
export interface Place extends Membership, Required<Pick<JoinOptions, 'timeoutMs' | 'lossTimeoutMs'>> {
  readonly places: number;
  /** The name of the process, by which its launcher knows it again when it comes back. */
  readonly name: string;
  /** It waits to be admitted. */
  readonly outside: boolean;
}

type Told<Name extends keyof JoinOptions> = { readonly [N in Name]: JoinOptions[N] | undefined };

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The launchers in order of precedence. A variable says little about who is nearest: a job script's SLURM_* are still there under an mpirun it
 * starts, and torchrun runs inside either; so the innermost kind of launcher comes first. Of several names for one thing the first that is set
 * counts. Where all ranks are `here`, on this machine, the rendezvous stays on loopback. The names of `job` together tell one start of one job.
 */
const LAUNCHERS = `
  name     | rank                 | ranks                                       | local rank                    | here                       | job
  HEDDLE_* | HEDDLE_RANK          | HEDDLE_WORLD                                |                               |                            |
  torchrun | RANK                 | WORLD_SIZE                                  | LOCAL_RANK                    | LOCAL_WORLD_SIZE           | TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
  Open MPI | OMPI_COMM_WORLD_RANK | OMPI_COMM_WORLD_SIZE                        | OMPI_COMM_WORLD_LOCAL_RANK    | OMPI_COMM_WORLD_LOCAL_SIZE | PMIX_NAMESPACE OMPI_MCA_ess_base_jobid
  PMI      | PMI_RANK             | PMI_SIZE                                    | MPI_LOCALRANKID SLURM_LOCALID | MPI_LOCALNRANKS            | SLURM_JOB_ID SLURM_STEP_ID
  PMIx     | PMIX_RANK            | PMIX_SIZE SLURM_STEP_NUM_TASKS SLURM_NTASKS | PMIX_LOCAL_RANK SLURM_LOCALID | PMIX_LOCAL_SIZE            | PMIX_NAMESPACE
  Slurm    | SLURM_PROCID         | SLURM_STEP_NUM_TASKS SLURM_NTASKS           | SLURM_LOCALID                 |                            | SLURM_JOB_ID SLURM_STEP_ID
`
  .trim()
  .split('\n')
  .slice(1)
  .map((line) => {
    const [name = '', rank = '', ...others] = line.split('|').map((cell) => cell.trim());
    const names = others.map((cell) => cell.split(' ').filter(Boolean));
    const [ranks = [], localRank = [], localRanks = [], job = []] = names;
    return { name, rank, ranks, localRank, localRanks, job };
  });
type Launcher = (typeof LAUNCHERS)[number];

/**
 * Reads this process's place from the environment: the first of HEDDLE_*, torchrun, Open MPI, PMI, PMIx and
 * Slurm whose rank variable is set. HEDDLE_RENDEZVOUS, HEDDLE_ADDRESS, HEDDLE_SECRET, HEDDLE_LOCAL_RANK, HEDDLE_PLACES, HEDDLE_NODES,
 * HEDDLE_DEVICE, HEDDLE_REJOIN, HEDDLE_RANKS_HERE and HEDDLE_WORLD_ID count under every launcher.
 */
export function readEnvironment(environment: Environment = process.env): Membership {
  const get = (name: string) => {
    const value = environment[name];
    return value === undefined ? undefined : requireText(name, value) || undefined;
  };
  const launcher = LAUNCHERS.find(({ rank }) => get(rank) !== undefined);
  if (launcher === undefined) {
    throw new UnavailableError(
      'this process was not started as a rank of a world: none of the variables of heddle run, torchrun, Open MPI, PMI or Slurm is set',
      'Start it with `heddle run -n 8 program.ts`, torchrun, mpirun or srun, or set HEDDLE_RANK, HEDDLE_WORLD and HEDDLE_ADDRESS',
    );
  }
  const first = (names: readonly string[]) => names.find((name) => get(name) !== undefined);
  const number = (name: string, min: number, max: number, because: string) => {
    const value = get(name)!;
    const n = integerIn(value, min, max);
    if (n === null) throw new ArgumentError(name, value, `an integer from ${min} to ${max}${because}`);
    return n;
  };
  const ifSet = (name: string, min: number, max: number, because = '') =>
    get(name) === undefined ? undefined : number(name, min, max, because);

  const sizeName = first(launcher.ranks);
  if (sizeName === undefined) {
    throw new ArgumentError(launcher.ranks[0]!, undefined, `set, because ${launcher.rank} is set`);
  }
  const ranks = number(sizeName, 1, MAX_RANKS, '');
  const places = ifSet('HEDDLE_PLACES', ranks, MAX_RANKS, `, because ${sizeName} is ${ranks}`);
  const rejoin = get('HEDDLE_REJOIN');
  const all = rejoin === undefined ? ranks : (places ?? ranks);
  const inWorld = `, because ${all === ranks ? sizeName : 'HEDDLE_PLACES'} is ${all}`;
  const rank = number(launcher.rank, 0, all - 1, inWorld);
  const localName = first(['HEDDLE_LOCAL_RANK', ...launcher.localRank]);
  const localRank = localName === undefined ? undefined : number(localName, 0, all - 1, inWorld);

  const device = get('HEDDLE_DEVICE');
  if (device !== undefined && device !== 'cuda' && device !== 'sim')
    throw new ArgumentError('HEDDLE_DEVICE', device, "'cuda' or 'sim'");
  const ranksHere = ifSet('HEDDLE_RANKS_HERE', 1, all - rank, `, the ranks from ${rank} on`) ?? 1;

  const job = launcher.job.map(get).filter((part) => part !== undefined);
  const world = get('HEDDLE_WORLD_ID') ?? (job.length > 0 ? `${launcher.name} ${job.join('.')}` : 'world');
  const localSize = first(launcher.localRanks);
  const oneMachine = localSize !== undefined && number(localSize, 1, Number.MAX_SAFE_INTEGER, '') >= ranks;
  const rendezvous = get('HEDDLE_RENDEZVOUS');
  const etcd = rendezvous === undefined ? undefined : parseEtcdAddress('HEDDLE_RENDEZVOUS', rendezvous);
  const address =
    etcd?.endpoints[0] ?? findAddress(get, launcher, oneMachine, job.length > 0 ? world : undefined);
  return {
    launcher: launcher.name,
    rank,
    ranks,
    places,
    nodes: ifSet('HEDDLE_NODES', 1, places ?? ranks),
    rejoin,
    localRank,
    device,
    ranksHere,
    address,
    etcd,
    world,
    secret: environment.HEDDLE_SECRET || undefined, // looked at where it is used, by what shows nothing of it
    hosted: get('HEDDLE_HOSTED') === '1',
  };
}

/**
 * How far above MASTER_PORT the rendezvous listens: that port itself is torch's own, and the ones right
 * after it are those that people give to their next job.
 */
const ABOVE_MASTER_PORT = 1000;

function findAddress(
  get: (name: string) => string | undefined,
  launcher: Launcher,
  oneMachine: boolean,
  job: string | undefined,
): Address {
  const given = get('HEDDLE_ADDRESS');
  if (given !== undefined) return parseAddress('HEDDLE_ADDRESS', given);
  if (launcher.rank === 'HEDDLE_RANK') {
    throw new ArgumentError(
      'HEDDLE_ADDRESS',
      undefined,
      `set to the 'host:port' of the rendezvous, because ${launcher.rank} is`,
    );
  }

  const [master, masterPort] = [get('MASTER_ADDR'), get('MASTER_PORT')];
  if (master !== undefined || masterPort !== undefined) {
    if (masterPort === undefined) {
      throw new ArgumentError('MASTER_PORT', undefined, 'set, because MASTER_ADDR is');
    }
    const theirs = integerIn(masterPort, 1, 65_535);
    if (theirs === null) throw new ArgumentError('MASTER_PORT', masterPort, 'a port number');
    const above = theirs + ABOVE_MASTER_PORT;
    const port = above > 65_535 ? theirs - ABOVE_MASTER_PORT : above;
    if (oneMachine) return { host: '127.0.0.1', port };
    if (master === undefined) {
      throw new ArgumentError('MASTER_ADDR', undefined, 'set, because MASTER_PORT is');
    }
    return { host: master, port };
  }

  const host = oneMachine ? '127.0.0.1' : slurmHost(get);
  if (host === undefined || job === undefined) {
    throw new ArgumentError(
      'HEDDLE_ADDRESS',
      undefined,
      `set to 'host:port' of rank 0's machine, the same on every rank, because ${launcher.name} does not tell it`,
    );
  }
  // Below the ports that systems hand out by themselves, and the same for all ranks of the job.
  const port = 20_000 + (createHash('sha256').update(job).digest().readUInt32LE(0) % 10_000);
  return { host, port };
}

/** The machine of Slurm's task 0: the first of the step's (else the job's) nodes. */
function slurmHost(get: (name: string) => string | undefined): string | undefined {
  if ((get('SLURM_STEP_NUM_NODES') ?? get('SLURM_NNODES')) === '1') return '127.0.0.1';
  const nodes = get('SLURM_STEP_NODELIST') ?? get('SLURM_JOB_NODELIST');
  // srun may run elsewhere than task 0, say on a login node, so where it was launched is only a last resort.
  return nodes === undefined ? get('SLURM_LAUNCH_NODE_IPADDR') : firstNode(nodes);
}

/** The first of Slurm's compact lists, such as rack[1-2]n[003-006,9],login. */
export function firstNode(list: string): string {
  const withRanges = /^(?:\[[^\]]*\]|[^,[])*/.exec(list)![0];
  return withRanges.replace(/\[([^\],-]*)[^\]]*\]/g, '$1');
}
