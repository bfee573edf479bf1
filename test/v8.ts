/** Node.js 20 alone takes it; newer ones have a quick compiler in between, and refuse the flag. */
const takesBudget = Number.parseInt(process.versions.node, 10) < 22;

/**
 * For processes that simulate GPUs: to optimise a kernel takes V8 longer than the few rounds of it that a test runs, and what runs
 * for long is optimised early enough after six times as much as V8 waits for.
 */
export const kernelsStayBytecode = [
  '--max-optimized-bytecode-size=3000',
  // What threads of kernels make is garbage after a few of their steps: most of it is gone by the time so much has been made.
  '--min-semi-space-size=32',
  '--max-semi-space-size=32',
  ...(takesBudget ? ['--interrupt-budget=400000'] : []),
];
