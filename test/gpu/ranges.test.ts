import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { openNvtx } from '../../src/gpu/cuda/nvtx.js';
import { inRange, listenToRanges, type Stream } from '../../src/gpu/index.js';
import { needing } from '../needs.js';
import { temporaryFolder } from '../temporary.js';
import { transpiled } from '../tree.js';

const stream = {} as Stream;

describe('ranges', () => {
  it('nest, end where what they enqueue throws, and are heard for a while', () => {
    const heard: string[] = [];
    const listener = { enter: (name: string) => heard.push(name), leave: () => heard.push('.') };
    const fails = () => inRange('fails', stream, () => expect.unreachable());
    expect(() => listenToRanges(listener, () => inRange('combine', stream, fails))).toThrow();
    expect(inRange('unheard', stream, (on) => [on])).toEqual([stream]);
    expect(heard).toEqual(['combine', 'fails', '.', '.']);
  });

  it.each([undefined, '', '0'])('open no library where HEDDLE_NVTX is %j', (asked) => {
    expect(openNvtx(asked)).toBeNull();
  });

  it.each([
    ['/nowhere/libnvtx.so', /nowhere\/libnvtx.so.*set HEDDLE_NVTX to the path of the library, or unset it/],
    ['libc.so.6', /^libc.so.6 has no ranges of NVTX\. .*set HEDDLE_NVTX/],
  ])('say what to do where %s is not there, or another library', (asked, message) => {
    expect(() => openNvtx(asked)).toThrow(message);
  });
});

describe('ranges for a profiler', needing('cc'), () => {
  const folder = temporaryFolder();
  beforeAll(() => {
    const text = `#include <stdio.h>
#include <stdlib.h>
static void say(const char *name) { FILE *to = fopen(getenv("SAID"), "a"); fprintf(to, "%s ", name); fclose(to); }
int nvtxRangePushA(const char *name) { say(name); return 0; }
int nvtxRangePop(void) { say("."); return 0; }`;
    writeFileSync(join(folder, 'nvtx.c'), text);
    execFileSync('cc', ['-shared', '-fPIC', join(folder, 'nvtx.c'), '-o', join(folder, 'libnvtx.so')]);
  });

  it('are the calls of a round and their launches, where HEDDLE_NVTX names the library', () => {
    const layer = ['--profile', 'custom', '--hidden', '64', '--experts', '2', '--top-k', '1'];
    const bench = ['bench', '--device', 'sim', '--ep', '1', '--tokens', '1', ...layer];
    const said = join(folder, 'said');
    const env = { ...process.env, HEDDLE_NVTX: join(folder, 'libnvtx.so'), SAID: said };
    execFileSync(process.execPath, [transpiled('src/cli/main.ts'), ...bench], { env, stdio: 'pipe' });
    const round = 'dispatch one_sided_dispatch . . combine one_sided_combine . . ';
    expect(readFileSync(said, 'utf8')).toMatch(new RegExp(`^(${round}){2}`));
  });
});
