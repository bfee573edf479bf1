"""heddle.check: a kernel of Triton's, or any PTX, under the race detector. It needs Node.js, and neither a GPU, torch nor Triton."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ._cache import find_node, javascript
from .errors import ArgumentError, HeddleError

_types = {
    **{"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "bool": "u8"},
    **{f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)},
}


class Window:
    """Memory of every rank that all can address, with the same values at first. `window[rank]` is the argument that points to a rank's."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self.type, self.values = _elements(values, dtype)

    def __getitem__(self, rank: int) -> Tuple["Window", int]:
        return (self, rank)


Arguments = Union[Sequence[Any], Callable[[int], Sequence[Any]]]


def check(
    kernel: Any,
    args: Arguments,
    *,
    grid: Union[int, Sequence[int]] = 1,
    ranks: int = 1,
    launches: int = 1,
    expected: Optional[Callable[[int], Dict[int, Any]]] = None,
    num_warps: int = 4,
    shared: int = 0,
    options: Sequence[str] = (),
    folder: Optional[str] = None,
) -> str:
    """Runs a launch on simulated GPUs under many schedules; returns the report, or raises HeddleError with it where something was found.

    `kernel` is what Triton compiled (what a launch or `warmup` returns), or PTX as text; then `num_warps` and `shared` say what the launch has.
    `args` are those of the launch, or a function of the rank: numbers, tensors (anything with `tolist` and `dtype`), and places in windows.
    `expected` gives, for a rank, what arguments must hold at the end, by their numbers. `options` are more words for `heddle check`, such as
    `--mutants`. The PTX and the host are written to `folder`, where it is given: `heddle check` runs them again.
    """
    names, kept = _signature(kernel)
    metadata = getattr(kernel, "metadata", None)
    windows: List[Window] = []
    each = [_arguments(_of_rank(args, rank), windows, kept, names) for rank in range(ranks)]
    wanted = [{} if expected is None else expected(rank) for rank in range(ranks)]
    places = {original: at for at, original in enumerate(kept)} if kept is not None else None
    plan = {
        "name": getattr(metadata, "name", None) or getattr(kernel, "name", None),
        "ranks": ranks,
        "launches": launches,
        "grid": list(grid) if isinstance(grid, (list, tuple)) else grid,
        "block": 32 * int(getattr(metadata, "num_warps", num_warps)),
        "shared": int(getattr(metadata, "shared", shared)),
        "windows": [{"type": one.type, "values": one.values} for one in windows],
        "hosts": each,
        "expected": [{(places or {}).get(at, at): _elements(of, "float64")[1] for at, of in one.items()} for one in wanted],
    }
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return _run(Path(folder), _ptx_of(kernel), plan, options)
    with tempfile.TemporaryDirectory() as made:
        return _run(Path(made), _ptx_of(kernel), plan, options)


def _run(folder: Path, ptx: str, plan: Dict[str, Any], options: Sequence[str]) -> str:
    file, host = folder / "kernel.ptx", folder / "host.mjs"
    file.write_text(ptx)
    door = (javascript.parents[1] / "verify" / "check" / "public.js").as_uri()
    host.write_text(f"import {{ everyRank }} from '{door}';\nconst plan = {json.dumps(plan)};\n{_host}")
    command = [find_node(), str(javascript), "check", "--ptx", str(file), "--host", str(host), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise HeddleError("HEDDLE_CHECK", done.stdout.strip() or done.stderr.strip())
    return done.stdout


#: Plays a plan: the memory of a rank, its windows, the launches, and what they leave.
_host = """
export default (kernels) => {
  const name = plan.name ?? kernels.kernels[0];
  const kernel = kernels.kernel(name, { sharedBytes: plan.shared });
  return [
    everyRank(name, { ranks: plan.ranks }, async (host) => {
      const { memory, args } = plan.hosts[host.rank];
      const windows = [];
      for (const [i, { type, values }] of plan.windows.entries()) {
        windows.push(await host.windows(`window ${i}`, type, values.length));
        host.write(windows[i][host.rank], type, values);
      }
      const buffers = memory.map(({ name, type, values }) => host.buffer(name, type, values));
      await host.meet();
      const given = args.map(({ number, buffer, window }) => number ?? buffers[buffer] ?? windows[window[0]][window[1]]);
      // Behind the arguments Triton has pointers to scratch memory of its own.
      const values = Object.fromEntries(kernel.params.map(({ name }, i) => [name, given[i] ?? 0]));
      for (let i = 0; i < plan.launches; i++) host.launch(kernel, { grid: plan.grid, block: plan.block }, values);
      for (const [at, wanted] of Object.entries(plan.expected[host.rank])) await host.expect(given[at], (i) => wanted[i], 1e-3);
    }),
  ];
};
"""


def _ptx_of(kernel: Any) -> str:
    text = kernel if isinstance(kernel, str) else getattr(kernel, "asm", {}).get("ptx")
    if not isinstance(text, str) or ".entry" not in text:
        raise ArgumentError("kernel", type(kernel).__name__, "a compiled kernel of Triton's, with asm['ptx'], or PTX as text")
    return text


def _signature(kernel: Any) -> Tuple[Optional[List[str]], Optional[List[int]]]:
    """The names of a kernel's parameters, and which arguments they are: constants are none."""
    signature = getattr(getattr(kernel, "src", None), "signature", None)
    if not isinstance(signature, dict):
        return (None, None)
    kept = [i for i, of in enumerate(signature.values()) if of != "constexpr"]
    return ([list(signature)[i] for i in kept], kept)


def _of_rank(args: Arguments, rank: int) -> Sequence[Any]:
    return args(rank) if callable(args) else args


def _arguments(given: Sequence[Any], windows: List[Window], kept: Optional[List[int]], names: Optional[List[str]]) -> Dict[str, Any]:
    memory: List[Dict[str, Any]] = []
    known: Dict[int, int] = {}
    args: List[Dict[str, Any]] = []
    for place, at in enumerate(range(len(given)) if kept is None else kept):
        if at >= len(given):
            raise ArgumentError("args", f"{len(given)} values", f"at least {at + 1}, as the kernel's signature has them")
        value = given[at]
        if isinstance(value, (int, float)):
            args.append({"number": value})
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Window):
            if value[0] not in windows:
                windows.append(value[0])
            args.append({"window": [windows.index(value[0]), value[1]]})
        else:
            if id(value) not in known:
                known[id(value)] = len(memory)
                kind, values = _elements(value, None)
                memory.append({"name": names[place] if names else f"argument {at}", "type": kind, "values": values})
            args.append({"buffer": known[id(value)]})
    return {"memory": memory, "args": args}


def _elements(values: Any, dtype: Any) -> Tuple[str, List[Any]]:
    """The type and the elements of a tensor, or of a list with a type."""
    name = str(getattr(values, "dtype", None) or dtype).split(".")[-1]
    if name not in _types:
        raise ArgumentError("dtype", name, f"one of {', '.join(sorted(_types))}")
    flat = values.flatten() if hasattr(values, "flatten") else values
    return (_types[name], list(flat.tolist() if hasattr(flat, "tolist") else flat))
