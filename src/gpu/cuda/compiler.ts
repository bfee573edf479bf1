import { ArgumentError, messageOf, UnavailableError } from '../../base/errors.js';
import { cached, cacheFolder, cacheKey } from './cache.js';
import type { Compiler } from './compilers.js';
import { CompileError, type LineOf, parseDiagnostics } from './diagnostics.js';
import { findNvcc } from './nvcc.js';
import { openNvrtc } from './nvrtc.js';

/** CUDA C++ text with one kernel in it, or with what kernels call. */
export interface KernelSource {
  readonly text: string;
  /** The kernel's name, declared extern "C"; of what others call, its own. */
  readonly entry: string;
  /** The compiler's options for an architecture ('sm_90a'). Those of Heddle's own kernels are the same for both. */
  readonly options: (architecture: string, compiler: Compiler['kind']) => readonly string[];
  /** For messages: the lines of the files that `#line` names. */
  readonly lineOf?: LineOf;
}

export const compilerRemedy =
  'Install one of them: `pip install nvidia-cuda-nvrtc` and put its lib folder on LD_LIBRARY_PATH, or the CUDA ' +
  'toolkit with CUDA_HOME set to it';

let chosen: Promise<Compiler> | undefined;

/** The machine's compiler: NVRTC, else nvcc. HEDDLE_COMPILER=nvrtc or nvcc asks for one of them. */
export function findCompiler(): Promise<Compiler> {
  chosen ??= choose().catch((error) => {
    chosen = undefined;
    throw error;
  });
  return chosen;
}

async function choose(): Promise<Compiler> {
  const wanted = process.env.HEDDLE_COMPILER ?? 'auto';
  if (!['auto', 'nvrtc', 'nvcc'].includes(wanted)) {
    throw new ArgumentError('HEDDLE_COMPILER', wanted, 'auto, nvrtc or nvcc');
  }
  const reasons: string[] = [];
  for (const [kind, find] of [
    ['nvrtc', async () => openNvrtc()],
    ['nvcc', findNvcc],
  ] as const) {
    if (wanted !== 'auto' && wanted !== kind) continue;
    try {
      return await find();
    } catch (error) {
      reasons.push(messageOf(error));
    }
  }
  throw new UnavailableError(`No CUDA compiler was found (${reasons.join('; ')})`, compilerRemedy);
}

// Devices of one process ask for the same kernels at the same time.
const inFlight = new Map<string, Promise<Uint8Array>>();

/**
 * The kernel as a cubin for `architecture`, or as PTX where it is a virtual one ('compute_90'); from the cache where it is there.
 * @throws CompileError with the TypeScript lines that the compiler complained about.
 */
export async function compileKernel(source: KernelSource, architecture: string): Promise<Uint8Array> {
  const compiler = await findCompiler();
  const options = source.options(architecture, compiler.kind);
  const key = cacheKey({
    compiler: `${compiler.kind} ${compiler.version}`,
    architecture,
    options,
    text: source.text,
  });
  let image = inFlight.get(key);
  if (image === undefined) {
    image = cached(cacheFolder(), key, async () => {
      const to = architecture.startsWith('compute_') ? 'ptx' : 'cubin';
      const compiled = await compiler.compile(source.text, options, to);
      if (compiled.ok) return compiled.image;
      throw new CompileError(
        source.entry,
        parseDiagnostics(compiled.log),
        compiled.log,
        source.lineOf ?? (() => null),
      );
    }).then(({ bytes }) => bytes);
    inFlight.set(key, image);
    // Kept while others may ask for it at once, not for ever: the disk has it.
    image.finally(() => inFlight.delete(key)).catch(() => {});
  }
  return image;
}
