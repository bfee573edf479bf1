"""The shape of a layer: what its kernels are compiled for."""

import hashlib
import inspect
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Dict, List, Optional, get_args

from .errors import ArgumentError

#: The version of the package. `npm run wheel` writes the one of Heddle's JavaScript here.
VERSION = "0"


#: Options that have an effect beside another alone.
_belongs_to = {"weights": "inner", "activation": "inner", "biases": "inner", "alignment": "sort", "capacity": "sort"}


@dataclass(frozen=True)
class Shape:
    """All that the kernels of a layer depend on. The same on all ranks."""

    #: Ranks that share the experts.
    ranks: int
    #: Experts of all ranks together. With `inner`, a multiple of the ranks.
    experts: int
    #: Routes of a token.
    top_k: int
    #: The most tokens that a rank brings to a round.
    max_tokens: int
    #: Elements of a row.
    hidden: int
    #: Elements of a row between the GEMMs of an expert. None: the experts are the caller's.
    inner: Optional[int] = None
    #: Of rows: 'bf16', 'f16' or 'f32'.
    dtype: str = "bf16"
    #: How dispatch carries rows: 'same', or as 'fp8' or 'mxfp8' with scales, to which it rounds bf16.
    dispatch: str = "same"
    #: How combine carries rows: 'rows', as they are; or 'e4m3' or 'mxfp8'.
    combine: str = "rows"
    #: Of the weights of Heddle's experts: 'bf16'; 'e4m3' with an f32 for every 128 × 128; or 'mxfp4', four bits with a power of two for every 32.
    weights: str = "bf16"
    #: 'swiglu', or gpt-oss's 'clamped-swiglu'.
    activation: str = "swiglu"
    #: Heddle's experts have biases.
    biases: bool = False
    #: For experts of the caller's: rows sorted by expert, 'masked' ([experts, capacity]) or 'contiguous'. None: they take slots as they arrive.
    sort: Optional[str] = None
    #: The rows of each expert begin at a multiple of it: 1, 16, 64 or 128.
    alignment: int = 1
    #: Rows of all experts together; of each in the masked form. None: what no round exceeds whose tokens name no expert twice.
    capacity: Optional[int] = None
    #: Routes are counted, for each expert of this rank.
    counts: bool = False
    #: Ranks may be left out (`Buffers.mask`).
    masks: bool = False
    #: Kernels count how long they wait for each rank (`Buffers.waits`).
    waits: bool = False
    #: Places in which the experts live, a multiple of the ranks and at least as many as there are experts. None: each has its own.
    places: Optional[int] = None
    #: Sends and receives are launches of their own.
    split: bool = False
    #: The most multiprocessors that a launch of dispatch or combine takes. None: as many as are fastest.
    sms: Optional[int] = None
    #: Hosts, or NVLink domains, of as many ranks each, one after the other. Between them rows cross a network, which a process of Node.js beside
    #: each rank drives.
    nodes: int = 1
    #: The family of kernels. None: one-sided, or hybrid between nodes.
    family: Optional[str] = None
    #: CUDA's name of the GPU's architecture.
    arch: str = "sm_90a"
    #: Multiprocessors of the GPU.
    multiprocessors: int = 132

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kinds = getattr(self, field.name), get_args(field.type) or (field.type,)
            if type(value) not in kinds:
                names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise ArgumentError(field.name, repr(value), f"of type {names}")
            of = _belongs_to.get(field.name)
            if of is not None and getattr(self, of) is None and value != field.default:
                raise ArgumentError(field.name, value, f"left out without {of}")
        if self.inner is not None and self.sort is not None:
            raise ArgumentError("sort", self.sort, "left out with inner, whose experts find their rows themselves")
        if self.inner is not None and self.weights == "e4m3" and self.dispatch != "fp8":
            raise ArgumentError("dispatch", self.dispatch, "fp8, which weights of e4m3 take")

    def of_router_gradients(self) -> "Shape":
        """The shape of the small set that brings gradients of router weights home, rows of top-k f32, of 16 bytes or a multiple."""
        for option in ("inner", "sort", "places"):
            if getattr(self, option) is not None:
                raise ArgumentError(option, getattr(self, option), "left out with gradients")
        kept = ("ranks", "experts", "top_k", "max_tokens", "masks", "sms", "nodes", "family", "arch", "multiprocessors")
        return Shape(hidden=-(-self.top_k // 4) * 4, dtype="f32", **{name: getattr(self, name) for name in kept})

    @property
    def key(self) -> str:
        """Names the compiled file: another shape, or another version of Heddle, has another key."""
        text = json.dumps({**asdict(self), "heddle": VERSION}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def command(self) -> List[str]:
        """The arguments of `heddle export`, but for where to write."""
        keys: Dict[str, Any] = {
            "ranks": self.ranks,
            "tokens": self.max_tokens,
            "hidden": self.hidden,
            "experts": self.experts if self.places is None else self.places,
            "topk": self.top_k,
            "dtype": self.dtype,
            "combineFormat": self.combine,
        }
        keys.update({name: "yes" for name in ("counts", "masks", "waits") if getattr(self, name)})
        if self.places is not None:
            keys["placed"] = self.experts
        if self.nodes > 1:
            keys["nodes"] = self.nodes
        if self.dispatch != "same":
            keys.update(format=self.dispatch, rounded="yes")
        if self.inner is not None or self.sort is not None:
            keys["weighting"] = "plan"
        family = self.family or ("one-sided" if self.nodes == 1 else "hybrid")
        arguments = ["export", family, "--shape", ",".join(f"{key}={value}" for key, value in keys.items())]
        arguments += ["--format", "shape", "--arch", self.arch, "--multiprocessors", str(self.multiprocessors)]
        if self.inner is not None:
            arguments += ["--experts", str(self.inner), "--weights", self.weights, "--activation", self.activation]
            arguments += ["--biases"] if self.biases else []
        if self.sort is not None:
            masked = -(-self.ranks * self.max_tokens // self.alignment) * self.alignment if self.sort == "masked" else None
            capacity = masked if self.capacity is None else self.capacity
            arguments += ["--sort", self.sort, "--alignment", str(self.alignment)]
            arguments += [] if capacity is None else ["--capacity", str(capacity)]
        arguments += ["--split"] if self.split else []
        return arguments + ([] if self.sms is None else ["--sms", str(self.sms)])

    def __str__(self) -> str:
        parts = "dispatch, experts and combine" if self.inner is not None else "dispatch and combine"
        return f"{parts} for {self.ranks} rank{'' if self.ranks == 1 else 's'}, hidden {self.hidden}, {self.max_tokens} tokens, {self.arch}"


try:
    _source = inspect.getsource(Shape)
except OSError:  # Compiled modules may come alone.
    _source = ""
#: What each option is: the comments above, which `help` and `--help` show.
about = {name: re.sub(r"\s+#:", "", text) for text, name in re.findall(r"#: (.*(?:\n +#:.*)*)\n    (\w+):", _source)}
Shape.__doc__ = f"{Shape.__doc__}\n\n" + "\n".join(f"{name}: {text}" for name, text in about.items())
