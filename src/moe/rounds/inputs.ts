/** The inputs of a round as addresses: tensors stay where they are, what the host holds is copied to the device first. */

import { ArgumentError } from '../../base/errors.js';
import type { Device, Stream } from '../../gpu/index.js';
import { type Round, unitBytes, widestUnit } from '../families/index.js';
import type { Dtype, Layer } from '../layer/index.js';
import type { Row } from './options.js';
import { emptyTensor, type OwnedTensor } from './tensor.js';
import { type DispatchInputs, type Input, requireDispatchInputs } from './validate.js';

export class Inputs {
  readonly #staging = new Map<string, OwnedTensor>();
  /** What a row's address must be a multiple of: rows are moved by the widest unit that divides their bytes. */
  readonly #units: readonly number[];
  readonly #device: Device;
  readonly #layer: Layer;
  readonly #rows: Readonly<Record<string, Row>>;

  /** `rows`: the payloads as the caller named their types. */
  constructor(device: Device, layer: Layer, rows: Readonly<Record<string, Row>>) {
    this.#device = device;
    this.#layer = layer;
    this.#rows = rows;
    this.#units = layer.payloads.map(({ rowBytes }) => unitBytes[widestUnit(rowBytes)]);
  }

  /** Checks what a dispatch was given, and notes it in `round`. */
  take(inputs: DispatchInputs, round: Round, stream: Stream): void {
    const layer = this.#layer;
    round.tokens = requireDispatchInputs(layer, this.#rows, inputs);
    if (layer.weights && inputs.topkWeights === undefined) {
      const possible = 'given; create the ExpertParallel with weights: false to do without';
      throw new ArgumentError('topkWeights', undefined, possible);
    }
    for (let i = 0; i < layer.payloads.length; i++) {
      const { name } = layer.payloads[i]!;
      const input = inputs.payloads[name]!;
      const unit = this.#units[i]!;
      if ('data' in input && input.data % unit !== 0)
        throw new ArgumentError(`payloads.${name}.data`, input.data, `a multiple of ${unit}`);
    }
    round.topkIds = this.#address('topkIds', inputs.topkIds, 'i32', layer.topK, stream);
    round.topkWeights = layer.weights
      ? this.#address('topkWeights', inputs.topkWeights!, 'f32', layer.topK, stream)
      : 0;
    for (let i = 0; i < layer.payloads.length; i++) {
      const { name, rowBytes } = layer.payloads[i]!;
      round.rows[i] = this.#address(name, inputs.payloads[name]!, 'u8', rowBytes, stream);
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
    const bytes = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    if (bytes.length > 0) stream.copyIn(staging.data, bytes);
    return staging.data;
  }
}
