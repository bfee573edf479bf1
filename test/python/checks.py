"""heddle.check on the PTX that Triton made of examples/ptx/exchange.py, with stand-ins for its kernel and for tensors."""

import sys
from types import SimpleNamespace

import heddle


class Tensor:
    dtype = "torch.int32"

    def __init__(self, values):
        self.values = values

    def flatten(self):
        return self

    def tolist(self):
        return self.values


ptx = open(sys.argv[1]).read()
pointers = ["input", "theirs", "mine", "their_flag", "my_flag", "output"]


def compiled(text):
    signature = {**{name: "*i32" for name in pointers}, "BLOCK": "constexpr"}
    metadata = SimpleNamespace(name="exchange", num_warps=4, shared=16)
    return SimpleNamespace(asm={"ptx": text}, src=SimpleNamespace(signature=signature), metadata=metadata)


def checked(kernel, expected, **more):
    inbox, flag = heddle.Window([0] * 128, "int32"), heddle.Window([0], "int32")

    def args(rank):
        peer = 1 - rank
        given = [Tensor([10 + rank] * 128), inbox[peer], inbox[rank], flag[peer], flag[rank], Tensor([0] * 128)]
        return given if isinstance(kernel, str) else [*given, 128]

    try:
        print(heddle.check(kernel, args, ranks=2, expected=expected, options=["--seeds", "4"], **more))
    except heddle.HeddleError as error:
        print(error.code, error)


checked(compiled(ptx), lambda rank: {5: [11 - rank] * 128})
checked(ptx, lambda rank: {5: [11 - rank] * 128}, shared=16)
checked(compiled(ptx.replace("sys.release.exch", "sys.relaxed.exch")), None, folder=sys.argv[2])
checked(compiled(ptx), lambda rank: {5: [10 + rank] * 128})
checked(compiled("no PTX"), None)
