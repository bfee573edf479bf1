"""The player in C (src/tools/export/player.h), by ctypes: a rank that carries a compiled shape out. It knows nothing of torch."""

import ctypes
import json
import mmap
import struct
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from .errors import DisposedError, HeddleError, RankLostError

_Allocate = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
_Gather = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Host(ctypes.Structure):
    _fields_ = [
        ("rank", ctypes.c_uint32),
        ("device", ctypes.c_int),
        ("limit_us", ctypes.c_uint32),
        ("all_gather", _Gather),
        ("context", ctypes.c_void_p),
    ]


class _Lost(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int32), ("round", ctypes.c_uint32)]


#: Words before the tables of a shape, and the number of the table of its description.
_HEAD, _TEXT = 12, 12


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(__file__).parent / "libheddle_player.so"))
    pointer, u32 = ctypes.c_void_p, ctypes.c_uint32
    library.heddle_player_create.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.POINTER(_Host), _Allocate]
    library.heddle_player_address.argtypes = [pointer, u32]
    library.heddle_player_address.restype = ctypes.c_uint64
    library.heddle_player_wire.argtypes = [pointer]
    library.heddle_player_run.argtypes = [pointer, u32, u32, pointer, pointer]
    library.heddle_player_failure.argtypes = [pointer, ctypes.POINTER(_Lost)]
    library.heddle_player_mask.argtypes = [pointer, pointer]
    library.heddle_player_destroy.argtypes = [pointer]
    library.heddle_player_destroy.restype = None
    for name in ("create", "run", "failure", "mask"):
        getattr(library, f"heddle_player_{name}").restype = ctypes.c_char_p
    return library


class Player:
    """A rank of a shape. Every rank of the group makes one at the same time. allocate: gives the address of memory that only this rank reaches."""

    def __init__(
        self,
        file: Path,
        rank: int,
        device: int,
        all_gather: Callable[[bytes], List[bytes]],
        limit_ms: int = 10_000,
        allocate: Optional[Callable[[int], int]] = None,
    ) -> None:
        with open(file, "rb") as opened:
            # Written pages are this process's own; nothing is written.
            self._bytes = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
        #: What a host wants to know of the shape: arguments, stages, and where tensors lie. The player refuses a file that is not whole.
        self.description: Dict[str, Any] = {}
        if len(self._bytes) == struct.unpack_from("<2Q", self._bytes)[1]:
            at, length = struct.unpack_from("<2Q", self._bytes, 8 * (_HEAD + 2 * _TEXT))
            self.description = json.loads(self._bytes[at : at + length])
        self._library = _library()
        self._run = self._library.heddle_player_run
        failed: List[BaseException] = []

        def gather(_: None, mine: int, everyones: int, size: int) -> int:
            try:
                everything = b"".join(all_gather(ctypes.string_at(mine, size)))
                ctypes.memmove(everyones, everything, size * int(self.description["layer"]["ranks"]))
                return 0
            except BaseException as error:  # It must not pass through C.
                failed.append(error)
                return 1

        def own(_: None, size: int) -> int:
            try:
                assert allocate is not None
                return allocate(size)
            except BaseException as error:
                failed.append(error)
                return 0

        #: The driver's own memory where nothing allocates.
        allocating = _Allocate(0) if allocate is None else _Allocate(own)
        self._shape = (ctypes.c_char * len(self._bytes)).from_buffer(self._bytes)
        self._handle = ctypes.c_void_p()
        host = _Host(rank, device, 1000 * limit_ms, _Gather(gather), None)
        wrong = self._library.heddle_player_create(
            ctypes.byref(self._handle), ctypes.addressof(self._shape), len(self._bytes), ctypes.byref(host), allocating
        )
        if failed:
            raise failed[0]
        _require(wrong, "HEDDLE_UNAVAILABLE")

    def address(self, memory: int) -> int:
        """Where a memory of the description lies on the GPU."""
        return int(self._library.heddle_player_address(self._open(), memory))

    @property
    def wire(self) -> int:
        """The descriptor of the memory that networks reach, which the player closes."""
        return int(self._library.heddle_player_wire(self._open()))

    def run(self, stages: Tuple[int, int], values: Any, stream: int) -> None:
        """Enqueues stages, from the first to the last. `values` is an array of 64-bit words, in the order of the arguments."""
        wrong = self._run(self._open(), stages[0], stages[1], values, stream)
        if wrong is not None:
            _require(wrong, "HEDDLE_ARGUMENT")

    def mask(self, words: List[int]) -> None:
        """Has rounds leave out ranks, a bit for each, and windows be as before the first round. No rank has a round under way."""
        _require(self._library.heddle_player_mask(self._open(), (ctypes.c_uint32 * 4)(*words)), "HEDDLE_ARGUMENT")

    def check(self) -> None:
        """Raises RankLostError where a wait gave up. It waits for no round."""
        lost = _Lost()
        wrong: Optional[bytes] = self._library.heddle_player_failure(self._open(), ctypes.byref(lost))
        if wrong is not None and lost.rank >= 0:
            raise RankLostError(wrong.decode(), lost.rank, lost.round)
        _require(wrong, "HEDDLE_CUDA")

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise DisposedError("this Buffers")
        return self._handle

    def destroy(self) -> None:
        """Waits for what was enqueued, and frees all. No rank may still use it."""
        if self._handle:
            self._library.heddle_player_destroy(self._handle)
            self._handle = ctypes.c_void_p()


def _require(wrong: Optional[bytes], code: str) -> None:
    if wrong is not None:
        raise HeddleError(code, wrong.decode())
