/**
 * What callers can call, by name: every function that a door exports, every method of its classes, and of what they are
 * given. A name that stands in no table, neither called nor excused, does not compile.
 */

import type * as cuda from '../../src/gpu/cuda/index.js';
import type * as heddle from '../../src/index.js';
import type * as lang from '../../src/lang/index.js';
import type * as fabric from '../../src/net/fabric/index.js';
import type * as worlds from '../../src/net/world/index.js';
import type * as checking from '../../src/verify/check/public.js';
import type * as testing from '../../src/verify/testing/public.js';

type Callable = (...args: never) => unknown;

/** How many arguments it takes: 0, another number, or several. */
type Takes<F> = F extends (...args: infer P extends readonly unknown[]) => unknown ? P['length'] : never;

/** Its methods that take something: `'barrier'`, `'allGather'`. Private ones are no keys. */
type Methods<T> = {
  [K in keyof T & string]: T[K] extends Callable ? (Takes<T[K]> extends 0 ? never : K) : never;
}[keyof T & string];

/** One export of a door: `'wrap'`, or `'World.local'` and `'World.barrier'`. Errors are made by Heddle. */
type Exported<Name extends string, Value> = 'prototype' extends keyof Value
  ? Value['prototype'] extends Error
    ? never
    : `${Name}.${Methods<Omit<Value, 'prototype'>> | Methods<Value['prototype']>}`
  : Value extends Callable
    ? Takes<Value> extends 0
      ? never
      : Name
    : Value extends readonly unknown[]
      ? never
      : Value extends object
        ? `${Name}.${Methods<Value>}`
        : never;

type AllOf<Door> = { [Name in keyof Door & string]: Exported<Name, Door[Name]> }[keyof Door & string];

/** What callers are given that no door exports as a value. */
interface Given {
  Counter: fabric.Counter;
  Device: heddle.Device;
  Event: heddle.Event;
  FabricConnection: worlds.FabricConnection;
  Graph: heddle.Graph;
  Circle: worlds.Circle;
  HostView: ReturnType<heddle.Device['allocateMapped']>['host'];
  ImmediateCounter: fabric.ImmediateCounter;
  Kernel: lang.Kernel;
  Launch: worlds.Launch;
  Launcher: heddle.Launcher;
  OwnedTensor: heddle.OwnedTensor;
  Peer: fabric.Peer;
  PeerGroup: fabric.PeerGroup;
  PeerMemory: Awaited<ReturnType<heddle.Device['openWindow']>>;
  Program: heddle.Program;
  Random: testing.Random;
  RemoteRegion: fabric.RemoteRegion;
  RunningProxy: worlds.RunningProxy;
  SharedWindow: heddle.SharedWindow;
  SimMachine: checking.SimMachine;
  Stream: heddle.Stream;
  WindowMemory: heddle.SharedWindow['own'];
}

export type PublicName =
  | AllOf<typeof checking>
  | AllOf<typeof cuda>
  | AllOf<typeof fabric>
  | AllOf<typeof heddle>
  | AllOf<typeof lang>
  | AllOf<typeof testing>
  | AllOf<typeof worlds>
  | AllOf<Given>;

/** Why something public is not called wrongly, and what. */
interface Reasons {
  'takes parts of IR, which only the compiler makes':
    | 'bodies'
    | 'changedBy'
    | 'children'
    | 'dynamicSharedBytes'
    | 'expressionsOf'
    | 'foreignSources'
    | 'hardwareOf'
    | 'isLeftEarly'
    | 'operands'
    | 'requireHardware'
    | 'rewriteEffects'
    | 'rewriteStatements'
    | 'sharedLayout'
    | 'walkExpression'
    | 'walkStatements';
  'takes what only Heddle reports': 'formatDiagnostic';
  'needs a GPU or its libraries before it looks at anything; test/on-gpus and test/gpu/cuda have them':
    | 'compileKernel'
    | 'hasPeerAtomics'
    | Exclude<Of<'Cublas' | 'CudaDevice' | 'CudaStream' | 'NvshmemHeap'>, 'CudaDevice.open'>;
  'is for the world to call: a configuration only hands its machine on': Of<'SimMachine'>;
  'is called at every step of a simulated machine':
    | 'Random.below'
    | 'dealMatrices'
    | 'multiplyMatrices'
    | Of<'shuffles'>;
  'is for Heddle itself, and says so':
    | 'Circle.fail'
    | 'ExpertsPlan.requirePlanned'
    | 'LocalCircle.fail'
    | 'LocalCircle.waitOutside'
    | 'ProcessCircle.enter'
    | 'ProcessCircle.fail'
    | 'TransferEngine.probe'
    | 'World.startAnew'
    | 'allOrNone'
    | 'createOut'
    | 'isTile'
    | 'nvrtcCandidates'
    | 'swizzled';
  'is what `World.startProxy` does, which is called: for benchmarks without a world': 'proxyInThread';
  'is of processes that were started, which `Launch.start` here never does': 'Launch.signal';
}

/** All methods of a class. */
type Of<Class extends string> = Extract<PublicName, `${Class}.${string}`>;

export type Excused = Reasons[keyof Reasons];
