/** The reference comparison of test/suite over NVSHMEM, with a process for each GPU. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { probe } from '../../src/base/native/index.js';
import { casesOverNvshmem } from './cases.js';
import { needs, runRanks } from './machine.js';

const installed = probe(['libnvshmem_host.so.3']).ok;

for (const ranks of [2, 4, 8]) {
  const { skip, timeout } = needs(ranks, 120_000);
  const options = { timeout, skip: installed ? skip : 'needs libnvshmem_host.so.3' };
  test(`a process a rank, over NVSHMEM: ${ranks}`, options, async (context) => {
    interface Report {
      readonly name: string;
      readonly error?: string;
    }
    const { result, reports, stderr } = await runRanks<Report>(ranks, 'nvshmem-rank.js', [], 90_000);
    for (const { name, error } of reports) {
      await context.test(name, () => assert.equal(error, undefined));
    }
    assert.equal(result.exitCode, 0, stderr);
    assert.deepEqual(
      reports.map(({ name }) => name),
      casesOverNvshmem(ranks).map(({ name }) => name),
    );
  });
}
