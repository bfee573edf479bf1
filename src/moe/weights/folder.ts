/** The folder of a model: in which file each of its tensors is. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { FileError, WeightsError } from '../../base/errors.js';
import {
  isObject,
  openRegular,
  parseObject,
  readInto,
  type StoredTensor,
  TensorFile,
} from './safetensors.js';

/** Maps a tensor's name to that of its file. */
export type Places = ReadonlyMap<string, string>;

const index = 'model.safetensors.index.json';
const single = 'model.safetensors';

/** The most bytes of an index or a config: DeepSeek-V3's index has 9 MB. */
const mostBytes = 100_000_000;

/** Finds the file of each tensor: by the index where there is one; else from the headers of `model.safetensors`, or of all files of the format. */
export async function placesOf(folder: string): Promise<Places> {
  let names: string[];
  try {
    names = await readdir(folder);
  } catch (error) {
    throw new FileError(folder, 'read', error);
  }
  if (names.includes(index)) {
    const path = join(folder, index);
    return parseIndex(path, await readText(path));
  }
  const files = names.includes(single)
    ? [single]
    : names.filter((name) => name.endsWith('.safetensors')).sort();
  if (files.length === 0) {
    const wrong = 'no file in it ends in .safetensors';
    throw new WeightsError(folder, null, wrong, "give the folder of a model's files");
  }
  const places = new Map<string, string>();
  for (const file of files) {
    const opened = await TensorFile.open(join(folder, file));
    await opened.close();
    for (const name of opened.tensors.keys()) {
      const other = places.get(name);
      if (other !== undefined) {
        const mend = 'keep the files of one model only';
        throw new WeightsError(join(folder, file), name, `${other} has it too`, mend);
      }
      places.set(name, file);
    }
  }
  return places;
}

async function readText(path: string): Promise<Buffer> {
  const { handle, bytes } = await openRegular(path);
  try {
    if (bytes > mostBytes) {
      const wrong = `it has ${bytes} bytes, too many for such a file`;
      throw new WeightsError(path, null, wrong, 'download it again');
    }
    const text = Buffer.alloc(bytes);
    await readInto(handle, path, 0, text);
    return text;
  } finally {
    await handle.close();
  }
}

/** What `config.json` says of a model; nothing where there is no such file. */
export async function configOf(folder: string): Promise<Readonly<Record<string, unknown>>> {
  const path = join(folder, 'config.json');
  try {
    return parseObject(path, 'it', await readText(path));
  } catch (error) {
    if (error instanceof FileError && error.reason.startsWith('ENOENT')) return {};
    throw error;
  }
}

/** Reads an index: for each tensor's name the name of the file that has it. */
export function parseIndex(path: string, text: Uint8Array): Places {
  const { weight_map: map } = parseObject(path, 'it', text);
  if (!isObject(map)) throw new WeightsError(path, null, 'its weight_map is no object', 'download it again');
  const places = new Map<string, string>();
  for (const [name, file] of Object.entries(map)) {
    // The index comes from somebody else, and must not lead to files of another folder.
    if (typeof file !== 'string' || !/^[^/\\\0]+\.safetensors$/.test(file))
      throw new WeightsError(path, name, 'it names no .safetensors file of this folder', 'download it again');
    places.set(name, file);
  }
  return places;
}

export interface Located {
  readonly file: TensorFile;
  readonly tensor: StoredTensor;
}

/** The files of a folder that one call reads: each is opened when the first of its tensors is asked for. */
export function openFiles(folder: string, places: Places) {
  const open = new Map<string, TensorFile>();
  return {
    async find(name: string): Promise<Located> {
      const place = places.get(name);
      if (place === undefined) throw new WeightsError(folder, name, 'no file has it', complete);
      let file = open.get(place);
      if (file === undefined) {
        file = await openFor(name, join(folder, place));
        open.set(place, file);
      }
      const tensor = file.tensors.get(name);
      if (tensor !== undefined) return { file, tensor };
      throw new WeightsError(file.path, name, 'it is not in this file, though the index says so', complete);
    },
    async close(): Promise<void> {
      for (const file of open.values()) await file.close();
    },
  };
}

export type OpenFiles = ReturnType<typeof openFiles>;

async function openFor(name: string, path: string): Promise<TensorFile> {
  try {
    return await TensorFile.open(path);
  } catch (cause) {
    if (!(cause instanceof FileError && cause.reason.startsWith('ENOENT'))) throw cause;
    const wrong = 'the index says that it is in this file, which is not there';
    throw new WeightsError(path, name, wrong, complete, { cause });
  }
}

const complete = 'complete the folder: it must hold one whole model';
