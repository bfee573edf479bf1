/** For processes that simulate GPUs: to optimise a kernel takes V8 longer than the few rounds of it that a test runs. */
export const kernelsStayBytecode = '--max-optimized-bytecode-size=3000';
