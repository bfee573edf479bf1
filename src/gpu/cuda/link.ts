/** Code that a kernel calls and others define: the driver's linker brings the two together. */
import { allocate, readString, view } from '../../base/native/index.js';
import { type Context, failure } from './driver.js';

// Values of CUDA's enums CUjit_option and CUjitInputType.
const errorLog = 5;
const errorLogBytes = 6;
const cubinInput = 0;
const logBytes = 8192;

/** One image of several that were compiled to be linked, the kernel's own first. */
export function link(context: Context, kernel: string, cubins: readonly Uint8Array[]): Uint8Array {
  context.use();
  const { cuLinkCreate, cuLinkAddData, cuLinkComplete, cuLinkDestroy } = context.driver;
  // The linker writes into it as long as it lives: two options, their values, a result and its length, the log.
  const memory = allocate(64 + logBytes, 64);
  const words = new BigUint64Array(memory.buffer, 0, 8);
  new Int32Array(memory.buffer).set([errorLog, errorLogBytes]);
  const { address } = memory;
  const [values, result, log] = [address + 8, address + 24, address + 64];
  words.set([BigInt(log), BigInt(logBytes)], 1);
  const check = (status: number, call: string): void => {
    if (status !== 0) throw failure(call, status, `linking ${kernel}: ${readString(log)?.trim() ?? ''}`);
  };
  let linker = 0;
  try {
    check(cuLinkCreate(2, address, values, result), 'cuLinkCreate');
    linker = Number(words[3]);
    for (const [i, cubin] of cubins.entries()) {
      const name = i === 0 ? kernel : `${kernel}, part ${i}`;
      check(cuLinkAddData(linker, cubinInput, cubin, cubin.length, name, 0, 0, 0), 'cuLinkAddData');
    }
    check(cuLinkComplete(linker, result, result + 8), 'cuLinkComplete');
    // The memory that it gives is its own.
    return new Uint8Array(view(Number(words[3]), Number(words[4]))).slice();
  } finally {
    if (linker !== 0) cuLinkDestroy(linker);
    memory.free();
  }
}
