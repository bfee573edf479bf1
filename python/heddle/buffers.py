"""Buffers: the windows, memory and kernels that all layers of a model share on a rank."""

import ctypes
import os
import weakref
from dataclasses import asdict
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple, Union

import torch
import torch.distributed as dist
import torch.utils.dlpack

from . import _cache
from ._player import Player
from ._proxy import Proxy
from ._shape import Shape
from .errors import ArgumentError, HeddleError, UnavailableError

dtypes: Dict[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "i32": torch.int32,
    "u32": torch.int32,
    "u8": torch.uint8,
}


class Buffers:
    """What the layers of a model share: made once, by all ranks of the group together.

    Rounds of layers follow each other on a stream, so one set serves any number of them. Two micro-batches at a time need two
    sets. `options` are those of `heddle.Shape` but for `ranks`, `arch` and `multiprocessors`, which the group and the GPU say.
    With `inner`, the experts between dispatch and combine are Heddle's (`heddle.Experts`); without, the caller's.

    group: ranks that share the experts, by default all; it carries the rendezvous only. device: by default the current GPU, and the CPU where torch
    has none: then GPUs are simulated, tensors are the CPU's, and every call waits for what it enqueues.
    wait_ms: how long a kernel waits for a peer before it gives up. gradients: rounds are trained (`heddle.dispatch`): then another set
    brings the gradients of router weights home.
    """

    def __init__(
        self,
        group: Optional[dist.ProcessGroup] = None,
        *,
        device: Union[torch.device, str, None] = None,
        wait_ms: int = 10_000,
        gradients: bool = False,
        **options: Any,
    ) -> None:
        alone = group is None and not dist.is_initialized()
        self.rank = 0 if alone else dist.get_rank(group)
        self.ranks = 1 if alone else dist.get_world_size(group)
        if self.rank < 0:
            raise ArgumentError("group", "one that this process is not in", "one that it is in")
        if type(wait_ms) is not int or not 1 <= wait_ms <= 4_000_000:
            raise ArgumentError("wait_ms", wait_ms, "an integer from 1 to 4000000")
        self.device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
        if self.device.type not in ("cuda", "cpu"):
            raise ArgumentError("device", self.device, "a CUDA device, or the CPU where GPUs are simulated")
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.shape = Shape(ranks=self.ranks, **{**_here(self.device), **options})
        beside = self.shape.of_router_gradients() if gradients else None
        if self.shape.nodes > 1 and self.shape.masks:
            raise ArgumentError("masks", True, "left out between nodes: Python’s proxies leave no rank out")

        def all_gather(mine: bytes) -> List[bytes]:
            if alone:
                return [mine]
            everyones: List[bytes] = [b""] * self.ranks
            dist.all_gather_object(everyones, mine, group)
            return everyones

        self._simulated = _Simulated(0 if alone else dist.get_rank()) if self.device.type == "cpu" else None
        ordinal = self.device.index if self._simulated is None else self._simulated.ordinal
        # A failure of one rank is told to all, so that none waits for it.
        file, error = None, ""
        try:
            file = _cache.compiled(self.shape)
        except Exception as failure:
            error = f"{getattr(failure, 'code', 'HEDDLE_UNAVAILABLE')} {failure}"
        for rank, said in enumerate(all_gather(error.encode())):
            if said:
                code, _, message = said.decode().partition(" ")
                raise HeddleError(code, message if rank == self.rank else f"rank {rank}: {message}")
        assert file is not None
        self._own: List[torch.Tensor] = []

        def allocate(size: int) -> int:
            self._own.append(torch.empty(size, dtype=torch.uint8, device=self.device))
            return self._own[-1].data_ptr()

        torchs = allocate if self._simulated is None else None
        self._player = Player(file, self.rank, ordinal, all_gather, wait_ms, torchs)
        _alive.add(self)
        description = self._player.description
        self._proxy: Optional[Proxy] = None
        #: The set for gradients of router weights.
        self.gradients: Optional[Buffers] = None
        try:
            if "wire" in description:
                self._proxy = Proxy(description["wire"], self._player.wire, self.rank, all_gather, wait_ms)
            if beside is not None:
                kept = {name: of for name, of in asdict(beside).items() if name != "ranks"}
                self.gradients = Buffers(group, device=self.device, wait_ms=wait_ms, **kept)
        except BaseException:
            self.destroy()
            raise
        self._weights: List[Dict[str, Any]] = description["weights"]
        self._arguments = len(description["arguments"])
        self._stages = {name: i for i, name in enumerate(description["stages"])}
        self._round = Round()
        self._group = None if alone else (group or dist.group.WORLD)
        self._told = {name: self._tensor(view) for name, view in description["told"].items()}
        #: The ranks that rounds leave out.
        self.masked: FrozenSet[int] = frozenset()
        #: What dispatch leaves, by name, until the next dispatch: 'experts', 'weights', 'payloads.x', …; and 'output', where the
        #: experts leave their rows. Slots of [ranks, max_tokens]: those without an expert of this rank hold anything.
        self.received: Dict[str, torch.Tensor] = {
            name: self._tensor(view) for name, view in description["received"].items()
        }
        #: What a plan leaves, where there is one: 'counts', 'offsets', 'total', 'routes', … of this rank's experts; and of sorted rows
        #: 'rows.x', and 'made', where the caller's experts leave theirs.
        self.planned: Dict[str, torch.Tensor] = {
            name: self._tensor(view) for name, view in description["planned"].items()
        }
        #: Bytes of this rank's memory by purpose. torch's allocator gives and counts all but windows, which other ranks map.
        self.memory: Dict[str, int] = {of["name"]: of["bytes"] for of in description["memory"]}
        # Rows travel as bytes.
        for name, dtype in _rows(self.shape).items():
            self.received[f"payloads.{name}"] = self.received[f"payloads.{name}"].view(dtype)
            if self.shape.sort is not None:
                self.planned[f"rows.{name}"] = self.planned[f"rows.{name}"].view(dtype)
        if self.shape.sort == "masked":
            each = len(self.local_experts)
            for name in [name for name in self.planned if name == "made" or name.startswith("rows.")]:
                self.planned[name] = self.planned[name].view(each, -1, self.planned[name].shape[-1])

    @property
    def local_experts(self) -> range:
        """The ids of this rank's experts; or, where experts are placed, of its places."""
        each, extra = divmod(self.shape.places or self.shape.experts, self.ranks)
        first = [rank * each + min(rank, extra) for rank in (self.rank, self.rank + 1)]
        return range(*first)

    def check(self) -> None:
        """Raises RankLostError where a wait for a rank gave up, or a rank's proxy is gone. It does not wait for rounds: call it behind one
        that has ended.
        """
        if self._proxy is not None:
            self._proxy.check()
        self._player.check()

    def mask(self, ranks: Iterable[int], group: Optional[dist.ProcessGroup] = None) -> None:
        """Has rounds leave out these ranks, and those of graphs that are captured, too: routes to their experts count as −1, and nobody
        waits for them. They stay out.

        The engine decides who is out, and says it on all others: they call this with the same ranks, and then make the rounds anew that
        did not end. Nobody has a round under way: it waits for this GPU, and then for the others of `group`, those that stay; by default that
        of the Buffers, whose ranks then all live.
        """
        self._require("masks")
        out = self.masked | frozenset(ranks)
        if self.rank in out or not out <= frozenset(range(self.ranks)):
            raise ArgumentError("ranks", sorted(out), f"some of 0 to {self.ranks - 1}, and not this one, {self.rank}")
        self._meet(group)
        self._player.mask([sum(1 << rank % 32 for rank in out if rank // 32 == word) for word in range(4)])
        self._meet(group)
        self._round.stage = "combined"
        self.masked = out
        if self.gradients is not None:
            self.gradients.mask(out, group)

    def waits(self) -> Dict[str, torch.Tensor]:
        """Microseconds that this rank's kernels waited for each rank in 'dispatch' and in 'combine': means of the last 64 rounds that ended."""
        self._require("waits")
        words = self._told["waited"].cpu().view(torch.int64).squeeze(-1)
        # Rounds are counted from all bits set on.
        numbers = (self._told["waiters"].cpu()[:, 0].long() + 1) % 2**32
        last = words[:, numbers.topk(64).indices]
        came = last >= 0
        means = torch.where(came, last, 0).sum(1) / came.sum(1).clamp_min(1) / 1000
        return {"dispatch": means[0], "combine": means[1]}

    def destroy(self) -> None:
        """Frees all. Every rank calls it when the last round of every rank has ended; views of `received` end with it."""
        if self._proxy is not None:
            self._proxy.stop()
        self._player.destroy()
        self.received, self.planned, self._own = {}, {}, []
        _alive.discard(self)
        if self.gradients is not None:
            self.gradients.destroy()

    def _require(self, option: str) -> None:
        self._player._open()
        if not getattr(self.shape, option):
            raise ArgumentError(option, getattr(self.shape, option), "given when the Buffers are made")

    def _meet(self, group: Optional[dist.ProcessGroup]) -> None:
        """Waits until the GPUs of the group have nothing to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self._group is not None:
            dist.barrier(group or self._group)

    def _stream(self) -> int:
        if self.device.type != "cuda":
            return 1
        # Some microseconds less than torch.cuda.current_stream, which makes an object.
        return int(torch._C._cuda_getCurrentRawStream(self.device.index))

    def _run(self, first: str, last: str, values: Any) -> None:
        self._player.run((self._stages[first], self._stages[last]), values, self._stream())
        if self._simulated is not None:
            self._simulated.wait()

    def on_gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor where kernels reach it: of a simulated GPU, a copy."""
        return tensor if self._simulated is None else self._simulated.copy(tensor)

    def _tensor(self, view: Dict[str, Any]) -> torch.Tensor:
        if view["bytes"] == 0:
            return torch.empty(view["shape"], dtype=dtypes[view["dtype"]], device=self.device)
        address = self._player.address(view["memory"]) + view["offset"]
        return _wrap(address, view["bytes"], self.device).view(dtypes[view["dtype"]]).view(view["shape"])


#: Those that are not destroyed. Graphs may name their memory when nothing of Python's does.
_alive: Set[Buffers] = set()


class Round:
    """Where the round of a set stands: one at a time, of whichever layer."""

    def __init__(self) -> None:
        self.stage = "combined"
        self.layer: Any = None

    def step(self, call: str, layer: Any, before: str, after: str) -> None:
        """Takes the round from one stage to the next."""
        if self.stage != before:
            code = "HEDDLE_ROUND_OPEN" if before == "combined" else "HEDDLE_NO_ROUND"
            raise HeddleError(
                code, f"{call} was called out of order: the round is {self.stage}; a round is dispatch, experts, combine"
            )
        if before != "combined" and layer is not self.layer:
            raise HeddleError("HEDDLE_OTHER_ROUND", f"{call} was called on another layer than the one that dispatched")
        self.stage, self.layer = after, layer


def _here(device: torch.device) -> Dict[str, Any]:
    """The architecture and the multiprocessors of a GPU. Simulated ones have few, which is faster."""
    if device.type != "cuda":
        return {"arch": "compute_90a", "multiprocessors": 2}
    major, minor = torch.cuda.get_device_capability(device)
    letter = "a" if major >= 9 else ""
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return {"arch": f"sm_{major}{minor}{letter}", "multiprocessors": multiprocessors}


def _rows(shape: Shape) -> Dict[str, torch.dtype]:
    """What the rows are that arrive. Scales of mxfp8 are the bytes of exponents."""
    if shape.dispatch == "same":
        return {"x": dtypes[shape.dtype]}
    scales = torch.float32 if shape.dispatch == "fp8" else torch.uint8
    return {"x": torch.float8_e4m3fn, "scales": scales}


class _DLTensor(ctypes.Structure):
    """DLPack's DLManagedTensor: memory that is not torch's, as torch takes it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("own", ctypes.c_void_p * 2),
    ]


# What torch holds pointers to: a few bytes for each view of a set.
_kept: List[_DLTensor] = []
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _wrap(address: int, size: int, device: torch.device) -> torch.Tensor:
    """The bytes at an address as a tensor, which owns nothing."""
    where: Tuple[int, int] = (2, device.index or 0) if device.type == "cuda" else (1, 0)
    unsigned_bytes = (1, 8, 1, 0)
    of = _DLTensor(address, where, 1, unsigned_bytes, ctypes.pointer(ctypes.c_int64(size)), None, 0)
    _kept.append(of)
    return torch.utils.dlpack.from_dlpack(_capsule(ctypes.addressof(of), b"dltensor", None))


class _Simulated:
    """The GPU of a rank where torch has none: one of a simulated machine, whose memory tensors of the CPU may lie in."""

    def __init__(self, rank: int) -> None:
        if "HEDDLE_PROGRAM" not in os.environ:
            what = "torch sees no GPU here, and none is simulated"
            raise UnavailableError(what, "Run under `heddle run --device sim --gpus 2 --`; or compare torch.version.cuda, which a torch for CPUs lacks")
        self._cuda = ctypes.CDLL("libcuda.so.1")
        count, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        self.ordinal = rank % count.value
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self.ordinal)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise HeddleError("HEDDLE_CUDA", f"{name} failed with {result}")

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy where kernels reach it, as long as somebody holds it."""
        # As far from a multiple, so that a GPU's kernels refuse the same.
        at, size, beyond = ctypes.c_uint64(), max(tensor.nbytes, 16), tensor.data_ptr() % 16
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size + beyond))
        address = at.value + beyond
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes))
        made = _wrap(address, size, tensor.device)[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        weakref.finalize(made, self._cuda.cuMemFree_v2, at).atexit = False
        return made

    def wait(self) -> None:
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuCtxSynchronize")


def require_tensor(
    name: str, tensor: Any, dtype: torch.dtype, shape: Tuple[int, ...], device: torch.device
) -> torch.Tensor:
    """Requires a contiguous tensor of a type and a shape."""
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(name, type(tensor).__name__, "a torch.Tensor")
    if tensor.dtype != dtype or tensor.shape != shape or tensor.device != device or not tensor.is_contiguous():
        was = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}{'' if tensor.is_contiguous() else ', with gaps'}"
        raise ArgumentError(name, was, f"{dtype} {list(shape)} on {device}, contiguous")
    return tensor
