import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cudaTool } from '../../../needs.js';

/** Compiles a file of CUDA to one of PTX, with its lines; returns where that is. */
export function nvccPtx(source: string, to: string, ...options: readonly string[]): string {
  execFileSync(cudaTool('nvcc')!, ['-ptx', '-arch=sm_90a', '-lineinfo', ...options, source, '-o', to]);
  return to;
}

/** The line of a file that ends with such a comment. */
export const lineMarked = (file: string, mark: string): number =>
  readFileSync(file, 'utf8')
    .split('\n')
    .findIndex((line) => line.endsWith(`// ${mark}`)) + 1;
