/**
 * Heddle: Mixture-of-Experts dispatch and combine. Join a world, create an ExpertParallel for a layer's shape, then
 * for each round dispatch, run the experts, combine; or create a MoeLayer, which does all of that.
 */

export {
  ArgumentError,
  DisposedError,
  HeddleError,
  RankLostError,
  RendezvousError,
  UnavailableError,
} from './base/errors.js';
export type { Device, Event, Graph, Launcher, Memory, Program, Stream, Window } from './gpu/index.js';
export type { Tuning } from './moe/families/index.js';
export {
  type Combining,
  DenseMlp,
  type DenseMlpOptions,
  type Dispatched,
  type DispatchInputs,
  type DlpackView,
  dlpack,
  ExpertParallel,
  type ExpertParallelOptions,
  type ExpertSizes,
  ExpertsMlp,
  type ExpertsMlpOptions,
  ExpertsPlan,
  type ExpertsPlanOptions,
  emptyTensor,
  type Gemm,
  type Input,
  type MemoryOptions,
  type MemoryPart,
  type MemoryUse,
  type MlpWeights,
  MoeLayer,
  type MoeLayerOptions,
  type MoeLayerSizes,
  type OwnedTensor,
  type PlannedRows,
  type Received,
  type RoutedModel,
  type RoutedTokens,
  Router,
  type RouterWeights,
  type Row,
  read,
  row,
  type Tensor,
  type TensorData,
  tensorFrom,
  wrap,
  write,
} from './moe/index.js';
export type {
  Alignment,
  Bits,
  Dtype,
  ExpertForm,
  MoeModel,
  Routing,
  RowDtype,
  RowFormatName,
} from './moe/layer/index.js';
export {
  type DeviceChoice,
  type JoinWorldOptions,
  type LocalWorldOptions,
  type SharedWindow,
  type Topology,
  World,
} from './net/world/index.js';
