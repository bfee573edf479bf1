"""`python -m heddle compile`: compiles a shape ahead, for an image in which neither Node.js nor a compiler is. `python -m heddle verify`: a layer
on the GPUs of this machine.
"""

import argparse
import sys
from dataclasses import fields
from typing import List, get_args

from . import _cache
from ._shape import VERSION, Shape, about
from .errors import HeddleError, UnavailableError


def main(words: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m heddle")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("compile", help="compiles a shape into the cache, and says where it is")
    for field in fields(Shape):
        flag = "--" + field.name.replace("_", "-")
        required = isinstance(field.default, type(fields(Shape)[0].default))
        if field.type is bool:
            command.add_argument(flag, action="store_true", help=about.get(field.name))
        else:
            kind = int if field.type is int or int in get_args(field.type) else str
            default = None if required else field.default
            command.add_argument(flag, type=kind, required=required, default=default, help=about.get(field.name))
    command.add_argument("--gradients", action="store_true", help="that of Buffers made with gradients=True, too")
    tried = commands.add_parser("verify", help="runs a layer on the GPUs of this machine, beside torch")
    tried.add_argument("--ranks", type=int, help="of them; all by default")
    given = vars(parser.parse_args(words))
    try:
        if given.pop("command") == "verify":
            try:
                from ._verify import device_count, verify
            except ModuleNotFoundError as error:
                raise UnavailableError(f"a layer runs on tensors of torch: {error}", "Run `pip install torch`") from None
            ranks = device_count() if given["ranks"] is None else given["ranks"]
            if not 1 <= ranks <= device_count():
                what = f"torch sees {device_count()} GPUs here, and a layer runs on {given['ranks'] or 'at least 1'}"
                raise UnavailableError(what, "Compare nvidia-smi, and torch.version.cuda, which a torch for CPUs lacks")
            return 0 if verify(ranks) else 1
        gradients, shape = given.pop("gradients"), Shape(**given)
        for of in [shape, shape.of_router_gradients()] if gradients else [shape]:
            print(_cache.compiled(of))
        return 0
    except HeddleError as error:
        print(f"heddle: {error} ({error.code})", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
