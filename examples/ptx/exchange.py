"""Two GPUs give each other a block of numbers: a kernel of Triton's, for the race detector."""
import triton
import triton.language as tl


@triton.jit
def exchange(input, theirs, mine, their_flag, my_flag, output, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(theirs + at, tl.load(input + at))
    tl.debug_barrier()
    tl.atomic_xchg(their_flag, 1, sem='release', scope='sys')
    while tl.atomic_cas(my_flag, 1, 0, sem='acquire', scope='sys') != 1:
        pass
    tl.store(output + at, tl.load(mine + at))


if __name__ == '__main__':
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pointers = ['input', 'theirs', 'mine', 'their_flag', 'my_flag', 'output']
    source = ASTSource(
        exchange, {**{name: '*i32' for name in pointers}, 'BLOCK': 'constexpr'}, {(6,): 128}
    )
    kernel = triton.compile(source, target=GPUTarget('cuda', 90, 32))
    print(kernel.asm['ptx'])
