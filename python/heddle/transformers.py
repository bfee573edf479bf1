"""Heddle under transformers: `experts_implementation='heddle'`.

    import heddle.transformers
    model = AutoModelForCausalLM.from_pretrained(…, dtype=torch.bfloat16)      # on the CPU or the meta device, if it is large
    heddle.transformers.shard(model)                                           # each rank keeps its experts
    heddle.transformers.use(model.cuda(), max_tokens=1024)

Each rank brings its own batch. Qwen3-MoE, DeepSeek-V3, Mixtral, gpt-oss and all others whose experts are a module with `gate_up_proj` and `down_proj`.
"""

from typing import Any, Dict, Iterator, Optional

import torch
import torch.distributed as dist
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from .buffers import Buffers
from .errors import ArgumentError
from .layers import Experts

_weights = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


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
        mine = slice(rank * (experts // ranks), (rank + 1) * (experts // ranks))
        for name in _weights:
            if hasattr(module, name):
                whole = getattr(module, name)
                # A copy, so that the whole can go.
                setattr(module, name, torch.nn.Parameter(whole.detach()[mine].clone(), requires_grad=whole.requires_grad))


def use(
    model: Any, *, max_tokens: int, group: Optional[dist.ProcessGroup] = None, **options: Any
) -> Buffers:
    """Has Heddle run the experts of a model that is on the GPU, in bf16. All ranks call it; returns what its layers share.

    max_tokens: the most tokens that a rank brings to a forward: batch times length at prefill. options: those of Buffers.
    """
    modules = list(experts_of(model))
    if not modules:
        raise ArgumentError("model", type(model).__name__, "a model with modules of experts")
    first = _as_heddle_takes(modules[0])
    local, twice_inner, hidden = first["gate_up"].shape
    config = model.config.get_text_config()
    buffers = Buffers(
        group,
        experts=local * dist.get_world_size(group),
        top_k=config.num_experts_per_tok,
        max_tokens=max_tokens,
        hidden=hidden,
        inner=twice_inner // 2,
        activation="clamped-swiglu" if _is_clamped(modules[0]) else "swiglu",
        biases=hasattr(modules[0], "gate_up_proj_bias"),
        **options,
    )
    for module in modules:
        module.heddle = Experts(buffers, **_as_heddle_takes(module))
    model.set_experts_implementation("heddle")
    return buffers


def _is_clamped(module: Any) -> bool:
    """Whether its activation is gpt-oss's, whose gates also take turns with what they scale."""
    return hasattr(module, "limit") and hasattr(module, "alpha")


def _as_heddle_takes(module: Any) -> Dict[str, torch.Tensor]:
    """Weights as [experts, rows, columns], the gates' rows first. Those of most models lie so, and are not copied."""
    gate_up, down = module.gate_up_proj.detach(), module.down_proj.detach()
    bias = module.gate_up_proj_bias.detach() if hasattr(module, "gate_up_proj_bias") else None
    if getattr(module, "is_transposed", False):
        gate_up, down = gate_up.transpose(1, 2).contiguous(), down.transpose(1, 2).contiguous()
    # Gates and what they scale take turns.
    if not getattr(module, "is_concatenated", not _is_clamped(module)):
        gate_up = torch.cat([gate_up[:, 0::2], gate_up[:, 1::2]], 1)
        bias = None if bias is None else torch.cat([bias[:, 0::2], bias[:, 1::2]], 1)
    found = {"gate_up": gate_up, "down": down}
    if bias is not None:
        found.update(gate_up_bias=bias.contiguous(), down_bias=module.down_proj_bias.detach())
    return found


def _forward(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    layer: Experts = self.heddle
    return layer(hidden_states.contiguous(), top_k_index.int(), top_k_weights.float().contiguous())


ALL_EXPERTS_FUNCTIONS.register("heddle", _forward)
