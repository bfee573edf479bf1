import { UnavailableError } from '../../base/errors.js';
import { type Address, addressOf, openLibrary, readString } from '../../base/native/index.js';
import { type Compiled, type Compiler, type ImageKind, libraryCandidates } from './compilers.js';
import { createOut, loadedDriverVersion } from './driver.js';
import { CudaError } from './errors.js';

/** A driver of CUDA 12 does not load what the compiler of CUDA 13 makes, so the driver's own generation comes first. */
export function nvrtcCandidates(driverVersion = loadedDriverVersion()): readonly string[] {
  const sonames = ['libnvrtc.so.13', 'libnvrtc.so.12'];
  if (driverVersion !== null && driverVersion < 13_000) sonames.reverse();
  return libraryCandidates(sonames);
}

const success = 0;
const compilationError = 6;
const noCubin = 'the compiler made no machine code; name a real architecture (sm_90a), not a virtual one';

export function openNvrtc(): Compiler {
  const library = openLibrary(nvrtcCandidates(), 'Put the folder of libnvrtc on LD_LIBRARY_PATH');
  const calls = library.functions({
    nvrtcVersion: ['i32', 'address', 'address'],
    nvrtcGetErrorString: ['address', 'i32'],
    // Out, text, name; headers: how many, their texts, their names.
    nvrtcCreateProgram: ['i32', 'address', 'string', 'string', 'i32', 'address', 'address'],
    nvrtcCompileProgram: ['i32', 'address', 'i32', 'address'],
    nvrtcGetCUBINSize: ['i32', 'address', 'address'],
    nvrtcGetCUBIN: ['i32', 'address', 'buffer'],
    nvrtcGetPTXSize: ['i32', 'address', 'address'],
    nvrtcGetPTX: ['i32', 'address', 'buffer'],
    nvrtcGetProgramLogSize: ['i32', 'address', 'address'],
    nvrtcGetProgramLog: ['i32', 'address', 'buffer'],
    nvrtcDestroyProgram: ['i32', 'address'],
  });

  const out = createOut(64);
  const check = (result: number, call: string) => {
    if (result === success) return;
    throw new CudaError(
      call,
      result,
      readString(calls.nvrtcGetErrorString(result)) ?? `nvrtcResult ${result}`,
      '',
    );
  };
  check(calls.nvrtcVersion(out.address, out.address + 4), 'nvrtcVersion');
  const found = `${out.i32[0]}.${out.i32[1]}`;
  if (out.i32[0]! < 12) {
    throw new UnavailableError(
      `${library.path} is NVRTC ${found}`,
      'Install NVRTC 12 or 13, or put one of them first on LD_LIBRARY_PATH',
    );
  }

  const read = (name: 'nvrtcGetCUBIN' | 'nvrtcGetPTX' | 'nvrtcGetProgramLog', program: Address) => {
    check(calls[`${name}Size`](program, out.address), `${name}Size`);
    const bytes = new Uint8Array(out.number());
    check(calls[name](program, bytes), name);
    return bytes;
  };
  // Compiling holds the thread for some tens of milliseconds: kernels are compiled when they are loaded, once.
  const compile = async (
    text: string,
    options: readonly string[],
    to: ImageKind = 'cubin',
  ): Promise<Compiled> => {
    check(calls.nvrtcCreateProgram(out.address, text, 'kernel.cu', 0, 0, 0), 'nvrtcCreateProgram');
    const program = out.number();
    try {
      const parameters = stringArray(options);
      const result = calls.nvrtcCompileProgram(program, options.length, addressOf(parameters));
      if (result === compilationError) {
        const bytes = read('nvrtcGetProgramLog', program);
        return { ok: false, log: Buffer.from(bytes).toString('utf8').replace(/\0+$/, '') };
      }
      check(result, 'nvrtcCompileProgram');
      // PTX comes with the zero that ends a string of C.
      if (to === 'ptx') return { ok: true, image: read('nvrtcGetPTX', program).slice(0, -1) };
      const image = read('nvrtcGetCUBIN', program);
      return image.length > 0 ? { ok: true, image } : { ok: false, log: noCubin };
    } finally {
      out.u64[0] = BigInt(program);
      calls.nvrtcDestroyProgram(out.address);
    }
  };
  return { kind: 'nvrtc', version: found, path: library.path, compile };
}

/** A C array of C strings, in one piece of memory that stays where it is: the pointers, then the texts. */
function stringArray(strings: readonly string[]): ArrayBuffer {
  const texts = strings.map((text) => Buffer.from(`${text}\0`, 'utf8'));
  const pointerBytes = 8 * texts.length;
  const memory = new ArrayBuffer(texts.reduce((sum, text) => sum + text.length, Math.max(pointerBytes, 128)));
  const start = addressOf(memory);
  const pointers = new BigUint64Array(memory, 0, texts.length);
  let at = pointerBytes;
  texts.forEach((text, i) => {
    new Uint8Array(memory).set(text, at);
    pointers[i] = BigInt(start + at);
    at += text.length;
  });
  return memory;
}
