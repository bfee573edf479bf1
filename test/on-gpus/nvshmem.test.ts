/** The reference comparison of test/suite over NVSHMEM, with a process for each GPU. */
import { test } from 'node:test';
import { probe } from '../../src/base/native/index.js';
import { casesOverNvshmem } from './cases.js';
import { needs, runCases } from './machine.js';

const installed = probe(['libnvshmem_host.so.3']).ok;

for (const ranks of [2, 4, 8]) {
  const { skip, timeout } = needs(ranks, 120_000);
  const options = { timeout, skip: installed ? skip : 'needs libnvshmem_host.so.3' };
  test(`a process a rank, over NVSHMEM: ${ranks}`, options, (context) =>
    runCases(context, ranks, casesOverNvshmem(ranks), '', 'nvshmem'),
  );
}
