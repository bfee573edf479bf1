/**
 * Heddle: Mixture-of-Experts dispatch and combine. Join a world, create an ExpertParallel for a layer's shape, then
 * for each round dispatch, run the experts, combine.
 */

export type { Device, Event, Graph, Launcher, Memory, Program, Stream, Window } from './device/index.js';
export {
  ArgumentError,
  DisposedError,
  HeddleError,
  RankLostError,
  RendezvousError,
  UnavailableError,
} from './errors/index.js';
export type { Tuning } from './kernels/index.js';
export {
  type Alignment,
  type Bits,
  type Bytes,
  type Dtype,
  type ExpertForm,
  type FormatName,
  formats,
  fromF32,
  type Payload,
  type Profile,
  type ProfileName,
  payloadsFor,
  profile,
  profiles,
  type RowDtype,
  reference,
  type Shape,
  type Traffic,
  toF32,
  traffic,
} from './layer/index.js';
export {
  type Combining,
  type Dispatched,
  type DispatchInputs,
  type DlpackView,
  describe,
  dlpack,
  ExpertParallel,
  type ExpertParallelOptions,
  type ExpertSizes,
  ExpertsPlan,
  type ExpertsPlanOptions,
  emptyTensor,
  type Input,
  type MemoryOptions,
  type MemoryPart,
  type MemoryUse,
  type OwnedTensor,
  type PlannedRows,
  type Received,
  type Row,
  read,
  readBits,
  row,
  type Tensor,
  type TensorData,
  tensorFrom,
  wrap,
  write,
} from './moe/index.js';
export {
  ExampleExperts,
  type ExampleExpertsOptions,
  makeRoutes,
  type Routes,
  type RoutesOptions,
} from './testing/index.js';
export {
  connectFabric,
  type DeviceChoice,
  type Group,
  type GroupLoss,
  type GroupOptions,
  type JoinOptions,
  type JoinWorldOptions,
  type LocalWorldOptions,
  ProcessGroup,
  type SharedWindow,
  World,
} from './world/index.js';
