/**
 * The inputs of a round. Inputs that cannot work are refused before anything is allocated or launched: every error names the argument,
 * what it was and what it must be. Mistakes that only the device can see (ids in device memory) are made harmless there instead.
 */
import { ArgumentError, requireInteger, requireMembers, requireObject } from '../../base/errors.js';
import type { Device, Stream } from '../../gpu/index.js';
import { type Round, unitBytes, widestUnit } from '../families/index.js';
import {
  type Bits,
  combineWeighs,
  type Dtype,
  dtypes,
  type Layer,
  outputRowBytes,
  type Shape,
  sharing,
} from '../layer/index.js';
import { type Row, rowBytes } from './options.js';
import {
  bytesOf,
  describe,
  elements,
  emptyTensor,
  isContiguous,
  isOfType,
  type OwnedTensor,
  requireVectors,
  type Tensor,
} from './tensor.js';

/** Device memory as a tensor, or elements that the host still holds; those are looked at one by one. */
export type Input = Tensor | Bits;

/**
 * The inputs of one rank's round, with payloads of these names. Tensors stay where they are; host arrays are checked and copied to
 * the device.
 */
export interface DispatchInputs<P extends string = string> {
  /** i32 `[tokens, topK]`; -1: no expert. */
  readonly topkIds: Input;
  /** f32 `[tokens, topK]`. Required unless the ExpertParallel was created with `weights: false`. */
  readonly topkWeights?: Input;
  /**
   * By name: `[tokens, …]`, a row a token. A tensor is of the row's type, and of any for a row of `u8`; a host array is as that type
   * is stored, or its bytes.
   */
  readonly payloads: Readonly<Record<P, Input>>;
}

const knownInputs: Readonly<Record<keyof DispatchInputs, true>> = {
  topkIds: true,
  topkWeights: true,
  payloads: true,
};

/** What is staged beside payloads, by names that no payload may have. */
const staged = { ids: 'ids of experts', weights: 'router weights' } as const;

/**
 * The inputs of a round as addresses: tensors stay where they are, what the host holds is copied to the device first. The next round
 * in the same memory writes over the copies, behind this round's combine.
 */
export class Inputs {
  readonly #staging = new Map<string, OwnedTensor>();
  readonly #device: Device;
  readonly #layer: Layer;
  readonly #rows: Readonly<Record<string, Row>>;

  /** `rows`: the payloads as the caller named their types. */
  constructor(device: Device, layer: Layer, rows: Readonly<Record<string, Row>>) {
    this.#device = device;
    this.#layer = layer;
    this.#rows = { ...rows };
  }

  /** Checks what a dispatch was given, and notes it in `round`. */
  take(inputs: DispatchInputs, round: Round, stream: Stream): void {
    const layer = this.#layer;
    round.tokens = requireDispatchInputs(layer, this.#rows, inputs);
    round.topkIds = this.#address(staged.ids, inputs.topkIds, 'i32', layer.topK, stream);
    round.topkWeights = layer.weights
      ? this.#address(staged.weights, inputs.topkWeights!, 'f32', layer.topK, stream)
      : 0;
    let i = 0;
    for (const name in this.#rows) {
      const row = this.#rows[name]!;
      const address = this.#address(name, inputs.payloads[name]!, 'u8', rowBytes(row), stream);
      round.rows[i++] = address;
      // Dispatch makes two of it: rounded rows, and their scales.
      if (row.rounds !== undefined) round.rows[i++] = address;
    }
  }

  free(): void {
    for (const tensor of this.#staging.values()) tensor.free();
  }

  /** The device address of an input; what the host holds is copied to a buffer of its own first. */
  #address(name: string, input: Input, dtype: Dtype, rowLength: number, stream: Stream): number {
    if ('data' in input) return input.data;
    let staging = this.#staging.get(name);
    if (staging === undefined) {
      staging = emptyTensor(this.#device, dtype, [this.#layer.maxTokens, rowLength], `staged ${name}`);
      this.#staging.set(name, staging);
    }
    if (input.length > 0) stream.copyIn(staging.data, bytesOf(input));
    return staging.data;
  }
}

/**
 * Requires inputs that fit the shape and each other; returns how many tokens they bring. `rows`: the payloads as they were
 * asked for, for messages.
 */
export function requireDispatchInputs(
  shape: Shape & Partial<Pick<Layer, 'weights' | 'placed'>>,
  rows: Readonly<Record<string, Row>>,
  inputs: DispatchInputs,
): number {
  requireObject('inputs', inputs);
  for (const name in inputs)
    if (!Object.hasOwn(knownInputs, name)) requireMembers('inputs', inputs, knownInputs);
  const { topkIds, topkWeights, payloads } = inputs;
  const tokens = requireTokens(shape, topkIds);
  requireElements('topkIds', topkIds, 'i32', tokens, shape.topK);
  if (!isTensor(topkIds)) requireIds(shape, topkIds);

  if (topkWeights !== undefined) {
    requireElements('topkWeights', topkWeights, 'f32', tokens, shape.topK);
    if (!isTensor(topkWeights)) requireFinite('topkWeights', topkWeights);
  } else if (combineWeighs(shape)) {
    const why = `given, because output.weighting is '${shape.output.weighting}'`;
    throw new ArgumentError('topkWeights', topkWeights, why);
  } else if (shape.weights) {
    const possible = 'given; create the ExpertParallel with weights: false to do without';
    throw new ArgumentError('topkWeights', topkWeights, possible);
  }

  requireObject('payloads', payloads);
  for (const name in rows) requireRows(name, rows[name]!, payloads[name], tokens);
  for (const name in payloads) {
    if (!Object.hasOwn(rows, name)) {
      const names = Object.keys(rows).join(', ');
      const possible = `absent: this ExpertParallel was created with ${names || 'no payloads'}`;
      throw new ArgumentError(`payloads.${name}`, showInput(payloads[name]), possible);
    }
  }
  return tokens;
}

/**
 * Rows that experts made, one a route, and where they lie: what combine takes where it weighs. `made` of an ExpertsPlan or of an
 * ExpertsMlp gives it.
 */
export interface MadeRows {
  /** [rows, hidden], as the output is. */
  readonly rows: Tensor;
  /** i32 [sources, maxTokens, topK]: the row of each route; −1, or a number too large, where it has none. */
  readonly scatter: Tensor;
  /** f32 likewise, in memory that no dispatch writes, unlike `received.weights`. */
  readonly weights: Tensor;
}

/** Requires rows that combine can take, where it takes any. */
export function requireMadeRows(layer: Layer, made: MadeRows | undefined): void {
  const { weighting } = layer.output;
  if (!combineWeighs(layer)) {
    if (made === undefined) return;
    throw new ArgumentError('made', made, "absent, unless weighting is 'plan' or 'source'");
  }
  requireObject(
    'made',
    made,
    `rows of a plan, because weighting is '${weighting}': what plan.made(rows) gives`,
  );
  const { rows, scatter, weights } = made!;
  const { topK, output } = layer;
  requireVectors('made.rows', rows, [output.dtype], [[0, Infinity], output.hidden]);
  const routes = [sharing(layer).groups, layer.maxTokens, topK];
  requireVectors('made.scatter', scatter, ['i32'], routes);
  requireVectors('made.weights', weights, ['f32'], routes);
}

/** Requires a tensor for what combine returns: `[tokens, hidden]` of the output's dtype. */
export function requireCombineOutput(shape: Shape, tokens: number, out: Tensor): void {
  if (!isTensor(out)) throw new ArgumentError('out', out, 'a tensor');
  requireElements('out', out, shape.output.dtype, tokens, shape.output.hidden);
  requireMultiple('out', out, outputRowBytes(shape) % 16 === 0 ? 16 : 1);
}

function requireTokens(shape: Shape, topkIds: Input): number {
  if (!isTensor(topkIds) && !ArrayBuffer.isView(topkIds)) {
    throw new ArgumentError('topkIds', topkIds, 'a tensor or an Int32Array');
  }
  const tokens = isTensor(topkIds) ? topkIds.shape[0] : topkIds.length / shape.topK;
  if (tokens === undefined || !Number.isInteger(tokens)) {
    throw new ArgumentError('topkIds', showInput(topkIds), `[tokens, ${shape.topK}] (tokens × topK ids)`);
  }
  if (tokens > shape.maxTokens) {
    const possible = `at most maxTokens, ${shape.maxTokens} (topkIds has one row a token); create the ExpertParallel with more`;
    throw new ArgumentError('tokens', tokens, possible);
  }
  return tokens;
}

function requireIds({ topK, experts, placed = experts }: Shape & Pick<Layer, 'placed'>, ids: Bits): void {
  for (let i = 0; i < ids.length; i++) {
    requireInteger(`topkIds[${Math.floor(i / topK)}, ${i % topK}]`, ids[i], -1, placed - 1);
  }
}

function requireFinite(argument: string, values: Bits): void {
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i]))
      throw new ArgumentError(`${argument}[${i}]`, values[i], 'a finite number');
  }
}

// Every dispatch and combine comes through the following with tensors: texts are made only for errors.

/** Requires `dtype` elements `[rows, columns]`, without gaps. */
function requireElements(argument: string, input: Input, dtype: Dtype, rows: number, columns: number): void {
  if (isTensor(input)) {
    const { shape } = input;
    const fits = shape.length === 2 && shape[0] === rows && shape[1] === columns;
    if (input.dtype !== dtype || !fits || !isContiguous(input)) {
      throw new ArgumentError(argument, describe(input), `${dtype} [${rows}, ${columns}], contiguous`);
    }
    requireAddress(argument, input);
    return;
  }
  const { storage } = dtypes[dtype];
  if (!(input instanceof storage) || input.length !== rows * columns) {
    const possible = `${dtype} [${rows}, ${columns}]: a tensor, or a ${storage.name} of length ${rows * columns}`;
    throw new ArgumentError(argument, input, possible);
  }
}

/** Requires rows of the payload's type, with any further dimensions. A payload of `u8` is opaque bytes: it takes rows of any type. */
function requireRows(name: string, row: Row, input: Input | undefined, tokens: number): void {
  const { dtype, length } = row;
  const ofRow = rowBytes(row);
  const bytes = tokens * ofRow;
  const { storage } = dtypes[dtype];
  if (isTensor(input)) {
    const own = elements(input.shape) * dtypes[input.dtype].size;
    const fits = isOfType(input, dtype) && input.shape[0] === tokens && own === bytes;
    if (fits && isContiguous(input)) {
      if (!isAddress(input.data)) requireAddress(`payloads.${name}`, input);
      // Rows are moved by the widest unit that divides their bytes.
      if (input.data % 16 !== 0) requireMultiple(`payloads.${name}`, input, unitBytes[widestUnit(ofRow)]);
      return;
    }
  } else if (ArrayBuffer.isView(input) && input.byteLength === bytes) {
    if (dtype === 'u8' || input instanceof storage || input instanceof Uint8Array) return;
  }
  const opaque = dtype === 'u8';
  const wanted = `${dtype} [${tokens}, ${length}]${opaque ? `, or ${tokens} other rows of ${ofRow} bytes` : ''}`;
  const array = opaque
    ? `typed array of ${bytes} bytes`
    : `${storage.name} of length ${tokens * length}, or its bytes as a Uint8Array of length ${bytes}`;
  const possible =
    input === undefined
      ? `given: ${wanted}`
      : isTensor(input)
        ? `${wanted}, contiguous`
        : `${wanted}: a tensor, or a ${array}`;
  throw new ArgumentError(`payloads.${name}`, showInput(input), possible);
}

/** A tensor without elements may lie at 0. */
function requireAddress(argument: string, { data, shape }: Tensor): void {
  if (isAddress(data) || (data === 0 && elements(shape) === 0)) return;
  throw new ArgumentError(`${argument}.data`, data, 'a device address');
}

function requireMultiple(argument: string, { data }: Tensor, unit: number): void {
  if (data % unit !== 0) throw new ArgumentError(`${argument}.data`, data, `a multiple of ${unit}`);
}

const isAddress = (data: number): boolean => Number.isInteger(data) && data > 0 && data < 2 ** 48;

function isTensor(input: unknown): input is Tensor {
  return (
    typeof input === 'object' &&
    input !== null &&
    !ArrayBuffer.isView(input) &&
    'data' in input &&
    typeof input.data === 'number' &&
    'dtype' in input &&
    typeof input.dtype === 'string' &&
    Object.hasOwn(dtypes, input.dtype) &&
    'shape' in input &&
    Array.isArray(input.shape) &&
    input.shape.every(Number.isInteger)
  );
}

function showInput(input: Input | undefined): unknown {
  return isTensor(input) ? describe(input) : input;
}
