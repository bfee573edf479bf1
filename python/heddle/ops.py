"""Layers as operations of torch, which torch.compile goes through and whose gradients come back.

An operation names its layer by a number, so that graphs hold no objects. Rows that arrive are copies here: windows are written again by the next
round, and torch may keep what an operation returned.
"""

import itertools
import weakref
from typing import Any, Optional, Tuple

import torch

from .errors import ArgumentError
from .layers import ExpertParallel, Experts, SortedRows

_numbers = itertools.count()
_layers: "weakref.WeakValueDictionary[int, ExpertParallel]" = weakref.WeakValueDictionary()


def handle(layer: ExpertParallel) -> int:
    """The number by which operations know a layer."""
    number = next(_numbers)
    _layers[number] = layer
    return number


@torch.library.custom_op("heddle::layer", mutates_args=())
def _layer(x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, of: int) -> torch.Tensor:
    layer = _layers[of]
    assert isinstance(layer, Experts)
    return layer.forward(x, topk_ids, topk_weights)


@_layer.register_fake
def _(x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, of: int) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("heddle::dispatch", mutates_args=())
def _dispatch(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, of: int
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A round whose experts leave nothing: what arrived. Slots without an expert here are 0."""
    layer = _layers[of]
    received = layer.dispatch(x, topk_ids, topk_weights)
    experts = received["experts"].clone()
    here = (experts >= 0).any(-1, keepdim=True)
    rows = torch.where(here, received["payloads.x"], 0)
    weights = received["weights"].clone()
    layer.combine()
    return rows, experts, weights


@_dispatch.register_fake
def _(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, of: int
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = _layers[of].buffers.shape
    slots = (shape.ranks, shape.max_tokens)
    return (
        x.new_empty(*slots, shape.hidden),
        topk_ids.new_empty(*slots, shape.top_k),
        topk_weights.new_empty(*slots, shape.top_k),
    )


@torch.library.custom_op("heddle::combine", mutates_args=())
def _combine(rows: torch.Tensor, topk_ids: torch.Tensor, of: int) -> torch.Tensor:
    """A round whose tokens bring nothing: the sums of rows over the same routes."""
    layer = _layers[of]
    shape, device = layer.buffers.shape, layer.buffers.device
    slots = [shape.ranks, shape.max_tokens, shape.hidden]
    if list(rows.shape) != slots:
        raise ArgumentError("rows", list(rows.shape), f"{slots}, as dispatch gave them")
    x = torch.zeros(topk_ids.shape[0], shape.hidden, dtype=rows.dtype, device=device)
    received = layer.dispatch(x, topk_ids, torch.zeros(topk_ids.shape, dtype=torch.float32, device=device))
    received["output"].copy_(rows)
    return layer.combine()


@_combine.register_fake
def _(rows: torch.Tensor, topk_ids: torch.Tensor, of: int) -> torch.Tensor:
    return rows.new_empty(topk_ids.shape[0], rows.shape[-1])


def _keep_dispatch(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[torch.Tensor, ...]) -> None:
    _, topk_ids, _, ctx.of = inputs
    ctx.save_for_backward(topk_ids, output[1])
    ctx.mark_non_differentiable(output[1])


def _dispatch_backward(
    ctx: Any, of_rows: torch.Tensor, _: Any, of_weights: torch.Tensor
) -> Tuple[Optional[torch.Tensor], ...]:
    """Gradients of what was copied to several ranks are summed where it came from: a combine over the same routes."""
    topk_ids, experts = ctx.saved_tensors
    x = torch.ops.heddle.combine(of_rows.contiguous(), topk_ids, ctx.of) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[2]:
        return x, None, None, None
    beside = gradients(_layers[ctx.of])
    width = beside.buffers.shape.hidden
    rows = torch.zeros(*experts.shape[:2], width, dtype=torch.float32, device=of_weights.device)
    # A route's gradient lives where its expert does.
    rows[..., : experts.shape[-1]] = torch.where(experts >= 0, of_weights, 0)
    sums = torch.ops.heddle.combine(rows, topk_ids, beside._handle)
    return x, None, sums[:, : experts.shape[-1]], None


def _keep_combine(ctx: Any, inputs: Tuple[Any, ...], output: torch.Tensor) -> None:
    _, topk_ids, ctx.of = inputs
    ctx.save_for_backward(topk_ids)


def _combine_backward(ctx: Any, of_out: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
    """The gradient of a sum goes to all that it was made of: a dispatch over the same routes."""
    (topk_ids,) = ctx.saved_tensors
    weights = torch.zeros(topk_ids.shape, dtype=torch.float32, device=of_out.device)
    rows, _, _ = torch.ops.heddle.dispatch(of_out.contiguous(), topk_ids, weights, ctx.of)
    return rows, None, None


torch.library.register_autograd("heddle::dispatch", _dispatch_backward, setup_context=_keep_dispatch)
torch.library.register_autograd("heddle::combine", _combine_backward, setup_context=_keep_combine)


def gradients(layer: ExpertParallel) -> ExpertParallel:
    """The layer that brings gradients of router weights home, rows of top-k f32. It is made with Buffers whose `gradients` are true."""
    found = layer.buffers.gradients
    assert found is not None
    if found not in _beside:
        _beside[found] = ExpertParallel(found)
    return _beside[found]


_beside: "weakref.WeakKeyDictionary[Any, ExpertParallel]" = weakref.WeakKeyDictionary()


def dispatch(
    layer: ExpertParallel, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What arrives for this rank's experts, as copies with gradients: rows [ranks, max_tokens, hidden], ids and weights of their routes.

    Slots without an expert of this rank are 0, and −1 where a route's expert is elsewhere. Gradients come back to `x` and `topk_weights`.
    """
    if isinstance(layer, (Experts, SortedRows)) or layer.buffers.shape.dispatch != "same":
        what = f"{type(layer).__name__}, of dispatch={layer.buffers.shape.dispatch!r}"
        raise ArgumentError("layer", what, "an ExpertParallel whose Buffers carry rows as they are")
    if topk_weights.requires_grad and layer.buffers.gradients is None:
        raise ArgumentError("gradients", False, "True, for Buffers through which a router is trained")
    return torch.ops.heddle.dispatch(x, topk_ids, topk_weights, layer._handle)  # type: ignore[no-any-return]


def combine(layer: ExpertParallel, rows: torch.Tensor, topk_ids: torch.Tensor) -> torch.Tensor:
    """The sums of rows over the routes of this rank's tokens, with gradients. `topk_ids` are those of the dispatch."""
    return torch.ops.heddle.combine(rows, topk_ids, layer._handle)  # type: ignore[no-any-return]
