"""Mixture-of-Experts dispatch, experts and combine between GPUs, on torch tensors.

    buffers = heddle.Buffers(experts=128, top_k=8, max_tokens=128, hidden=4096, inner=1536)  # all ranks, once for a model
    experts = heddle.Experts(buffers, gate_up, down)                                         # for each layer
    out = experts(x, topk_ids, topk_weights)

docs/python.md begins from nothing. What needs torch is imported when it is asked for: `python -m heddle compile` does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._check import Window, check
from ._shape import Shape
from .errors import ArgumentError, DisposedError, HeddleError, RankLostError, UnavailableError

if TYPE_CHECKING:
    from .buffers import Buffers
    from .layers import ExpertParallel, Experts, SortedRows
    from .ops import combine, dispatch

__all__ = [
    "ArgumentError",
    "Buffers",
    "DisposedError",
    "ExpertParallel",
    "Experts",
    "HeddleError",
    "RankLostError",
    "Shape",
    "SortedRows",
    "UnavailableError",
    "Window",
    "check",
    "combine",
    "dispatch",
]

_with_torch = {
    "Buffers": ".buffers",
    "ExpertParallel": ".layers",
    "Experts": ".layers",
    "SortedRows": ".layers",
    "combine": ".ops",
    "dispatch": ".ops",
}


def __getattr__(name: str) -> Any:
    if name in _with_torch:
        return getattr(import_module(_with_torch[name], __name__), name)
    raise AttributeError(f"module 'heddle' has no attribute '{name}'")
