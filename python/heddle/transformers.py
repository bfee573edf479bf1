"""Heddle under transformers: `experts_implementation='heddle'`.

    import heddle.transformers
    model = AutoModelForCausalLM.from_pretrained(…, dtype=torch.bfloat16)      # on the CPU or the meta device, if it is large
    heddle.transformers.shard(model)                                           # each rank keeps its experts
    heddle.transformers.use(model.cuda(), max_tokens=1024)

Each rank brings its own batch. Qwen3-MoE, DeepSeek-V3, Mixtral, gpt-oss and all others whose experts are a module with `gate_up_proj` and `down_proj`;
in bf16, or in fp8 with a scale for every 128 × 128 (transformers' fine-grained fp8). Then rows travel as fp8, too. In f32 or f16 the experts are torch's.
"""

from typing import Any, Dict, Iterator, Optional

import torch
import torch.distributed as dist
from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from .buffers import Buffers, dtypes
from .errors import ArgumentError
from .layers import ExpertParallel, Experts
from .ops import combine, dispatch

_parts = ("", "_bias", "_scale_inv")
_weights = tuple(name + part for name in ("gate_up_proj", "down_proj") for part in _parts)


def experts_of(model: torch.nn.Module) -> Iterator[Any]:
    """The modules that hold a layer's experts."""
    for module in model.modules():
        if isinstance(getattr(module, "gate_up_proj", None), torch.nn.Parameter) and hasattr(module, "down_proj"):
            yield module


def shard(model: torch.nn.Module, group: Optional[dist.ProcessGroup] = None) -> None:
    """Leaves each module of experts those of this rank, in order: rank 0 has the first."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    for module in experts_of(model):
        experts = module.gate_up_proj.shape[0]
        if experts % ranks != 0:
            raise ArgumentError("experts", experts, f"a multiple of the ranks, {ranks}")
        module.num_experts = experts // ranks
        mine = slice(rank * module.num_experts, (rank + 1) * module.num_experts)
        for name in _weights:
            whole = getattr(module, name, None)
            if whole is not None:
                # A copy, so that the whole can go.
                setattr(module, name, torch.nn.Parameter(whole.detach()[mine].clone(), requires_grad=whole.requires_grad))


def use(
    model: Any, *, max_tokens: int, group: Optional[dist.ProcessGroup] = None, gradients: bool = False, **options: Any
) -> Buffers:
    """Has Heddle run the experts of a model that is on the GPU. All ranks call it; returns what its layers share.

    max_tokens: the most tokens that a rank brings to a forward: batch times length at prefill. gradients: the model is trained. The experts between
    dispatch and combine are then torch's, as they are for weights of f32 and f16. options: those of Buffers.
    """
    modules = list(experts_of(model))
    if not modules:
        raise ArgumentError("model", type(model).__name__, "a model with modules of experts")
    first = _as_heddle_takes(modules[0])
    local, twice_inner, hidden = first["gate_up"].shape
    shape: Dict[str, Any] = dict(
        experts=local * dist.get_world_size(group),
        top_k=model.config.get_text_config().num_experts_per_tok,
        max_tokens=max_tokens,
        hidden=hidden,
    )
    by_torch = gradients or first["gate_up"].dtype in (torch.float32, torch.float16)
    if by_torch:
        shape.update(gradients=gradients, dtype=next(name for name, of in dtypes.items() if of == first["gate_up"].dtype))
    else:
        clamped = _is_clamped(modules[0])
        shape.update(inner=twice_inner // 2, activation="clamped-swiglu" if clamped else "swiglu", biases="gate_up_bias" in first)
    if "gate_up_scales" in first:
        shape.update(weights="e4m3", dispatch="fp8")
    buffers = Buffers(group, **{**shape, **options})
    for module in modules:
        module.heddle = ExpertParallel(buffers) if by_torch else Experts(buffers, **_as_heddle_takes(module))
    model.set_experts_implementation("heddle")
    return buffers


def idle(model: torch.nn.Module, forwards: int = 1) -> None:
    """Makes the rounds of forwards to which this rank brings no tokens: transformers' models take no empty batch. `generate` makes one for
    each new token.
    """
    for module in list(experts_of(model)) * forwards:
        buffers = module.heddle.buffers
        rows, routes = (torch.empty(0, width, device=buffers.device) for width in (buffers.shape.hidden, buffers.shape.top_k))
        _forward(module, rows.to(dtypes[buffers.shape.dtype]), routes, routes)


def _is_clamped(module: Any) -> bool:
    """Whether its activation is gpt-oss's, whose gates also take turns with what they scale."""
    return hasattr(module, "limit") and hasattr(module, "alpha")


def _as_heddle_takes(module: Any) -> Dict[str, Any]:
    """Weights as [experts, rows, columns], the gates' rows first. Those of most models lie so, and are not copied."""
    fixed = getattr(module, "activation_scheme", "dynamic")
    if fixed != "dynamic" or getattr(module, "swiglu_limit", None) is not None:
        raise ArgumentError("model", f"of fp8 with scales of rows that are {fixed}, or clamped", "dynamic, with plain SwiGLU")
    found: Dict[str, Any] = {
        name + part.replace("_scale_inv", "_scales"): getattr(module, f"{name}_proj{part}").detach()
        for name in ("gate_up", "down")
        for part in _parts
        if getattr(module, f"{name}_proj{part}", None) is not None
    }
    if getattr(module, "is_transposed", False):
        found.update({name: found[name].transpose(1, 2).contiguous() for name in ("gate_up", "down")})
    # Gates and what they scale take turns.
    if not getattr(module, "is_concatenated", not _is_clamped(module)):
        for name in found.keys() & {"gate_up", "gate_up_bias"}:
            found[name] = torch.cat([found[name][:, 0::2], found[name][:, 1::2]], 1)
    return found


def _forward(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    brought = hidden_states.contiguous(), top_k_index.int(), top_k_weights.float().contiguous()
    if isinstance(self.heddle, Experts):
        return self.heddle(*brought)
    rows, experts, weights = dispatch(self.heddle, *brought)
    # Routes to experts elsewhere name one behind the last, which torch leaves out.
    first = self.heddle.buffers.local_experts.start
    here = torch.where(experts < 0, self.num_experts, experts - first).long()
    made = grouped_mm_experts_forward(self, rows.flatten(0, 1), here.flatten(0, 1), weights.flatten(0, 1))
    return combine(self.heddle, made.view(rows.shape), brought[1])


for _functions in (ALL_EXPERTS_FUNCTIONS, ALL_FP8_EXPERTS_FUNCTIONS):
    _functions.register("heddle", _forward)
