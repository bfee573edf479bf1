"""Heddle under transformers: `experts_implementation='heddle'`.

    import heddle.transformers
    model = AutoModelForCausalLM.from_pretrained(…, dtype=torch.bfloat16)      # on the CPU or the meta device, if it is large
    heddle.transformers.shard(model)                                           # each rank keeps its experts
    heddle.transformers.use(model.cuda(), max_tokens=1024)

Each rank brings its own batch. Qwen3-MoE, DeepSeek-V3, Mixtral, gpt-oss and all others whose experts are a module with `gate_up_proj` and `down_proj`;
in bf16, or in fp8 with a scale for every 128 × 128 (transformers' fine-grained fp8). Then rows travel as fp8, too. In f32 or f16 the experts are torch's.
`from_pretrained(…, quantization_config=heddle.transformers.Mxfp4Config())` leaves experts of gpt-oss in four bits, as they are published.
"""

from typing import Any, Dict, Iterator, List, Optional

import torch
import torch.distributed as dist
from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.utils.quantization_config import Mxfp4Config as _TheirConfig

from .buffers import Buffers, dtypes
from .errors import ArgumentError
from .layers import ExpertParallel, Experts
from .ops import combine, dispatch

_parts = ("", "_bias", "_scale_inv", "_blocks", "_scales")
_weights = tuple(name + part for name in ("gate_up_proj", "down_proj") for part in _parts)


def experts_of(model: torch.nn.Module) -> Iterator[Any]:
    """The modules that hold a layer's experts."""
    for module in model.modules():
        names = ("gate_up_proj", "gate_up_proj_blocks")
        if hasattr(module, "heddle") or any(isinstance(getattr(module, name, None), torch.nn.Parameter) for name in names):
            yield module


class Mxfp4Config(_TheirConfig):
    """Has `from_pretrained` leave experts of MXFP4 in four bits, for Heddle alone, on any device."""

    def get_loading_attributes(self) -> Dict[str, Any]:
        return {"dequantize": False, "by_heddle": True}


class _PackedExperts(torch.nn.Module):
    """Experts of gpt-oss as files have them."""

    is_concatenated = False

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.num_experts, self.alpha, self.limit = of.num_experts, of.alpha, of.limit
        for name in ("gate_up_proj", "down_proj"):
            experts, columns, rows = getattr(of, name).shape
            setattr(self, f"{name}_bias", getattr(of, f"{name}_bias"))
            for part, last in (("blocks", (columns // 32, 16)), ("scales", (columns // 32,))):
                stored = torch.empty(experts, rows, *last, dtype=torch.uint8, device="meta")
                setattr(self, f"{name}_{part}", torch.nn.Parameter(stored, requires_grad=False))

    def forward(self, *brought: torch.Tensor) -> torch.Tensor:
        return _forward(self, *brought)


_quantizers: Any = AUTO_QUANTIZER_MAPPING
_Theirs: Any = _quantizers["mxfp4"]


class _Mxfp4Quantizer(_Theirs):  # type: ignore[misc]
    """transformers' own, but for models that are loaded by Heddle's Mxfp4Config."""

    @property
    def _by_heddle(self) -> bool:
        return hasattr(self.quantization_config, "by_heddle")

    def validate_environment(self, *args: Any, **kwargs: Any) -> None:
        if not self._by_heddle:
            super().validate_environment(*args, **kwargs)

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        if not self._by_heddle:
            super()._process_model_before_weight_loading(model, **kwargs)
            return
        names = {module: name for name, module in model.named_modules()}
        for module in list(experts_of(model)):
            model.set_submodule(names[module], _PackedExperts(module))

    def get_weight_conversions(self) -> List[Any]:
        return [] if self._by_heddle else super().get_weight_conversions()


_quantizers["mxfp4"] = _Mxfp4Quantizer


def shard(model: torch.nn.Module, group: Optional[dist.ProcessGroup] = None) -> None:
    """Leaves each module of experts those of this rank, in order: rank 0 has the first."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    for module in experts_of(model):
        experts = module.num_experts
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
    in_fours = first["gate_up"].dtype == torch.uint8
    if "gate_up_scales" in first and gradients:
        raise ArgumentError("gradients", gradients, "left out: experts in fp8 or four bits are not trained")
    local, hidden, inner = first["gate_up"].shape[0], first["down"].shape[1], first["gate_up"].shape[1] // 2
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
        shape.update(inner=inner, activation="clamped-swiglu" if clamped else "swiglu", biases="gate_up_bias" in first)
    if in_fours:
        shape.update(weights="mxfp4")
    elif "gate_up_scales" in first:
        shape.update(weights="e4m3", dispatch="fp8")
    del first
    buffers = Buffers(group, **{**shape, **options})
    for module in modules:
        takes = {} if by_torch else _as_heddle_takes(module)
        module.heddle = Experts(buffers, **takes) if takes else ExpertParallel(buffers)
        module._is_expert_parallel = True  # transformers 5.18 then leaves out routes to experts elsewhere.
        if takes and _is_clamped(module):
            # What is on the GPU once: as Heddle takes it.
            module.packed = takes
            for name in _weights:
                setattr(module, name, None)
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
    if hasattr(module, "packed"):
        return dict(module.packed)
    fixed = getattr(module, "activation_scheme", "dynamic")
    if fixed != "dynamic" or getattr(module, "swiglu_limit", None) is not None:
        raise ArgumentError("model", f"of fp8 with scales of rows that are {fixed}, or clamped", "dynamic, with plain SwiGLU")
    found: Dict[str, Any] = {
        name + part.replace("_scale_inv", "_scales").replace("_blocks", ""): getattr(module, f"{name}_proj{part}").detach()
        for name in ("gate_up", "down")
        for part in _parts
        if getattr(module, f"{name}_proj{part}", None) is not None
    }
    in_fours = found["gate_up"].dtype == torch.uint8
    if getattr(module, "is_transposed", False) and not in_fours:
        found.update({name: found[name].transpose(1, 2).contiguous() for name in ("gate_up", "down")})
    # Gates and what they scale take turns.
    if not getattr(module, "is_concatenated", not _is_clamped(module)):
        for name in [name for name in found if name.startswith("gate_up")]:
            found[name] = torch.cat([found[name][:, 0::2], found[name][:, 1::2]], 1)
    if in_fours:
        # Files have [rows, columns / 32] blocks of 16 bytes and scales.
        found.update({name: found[name].flatten(2) for name in ("gate_up", "down")})
        found.update({f"{name}_scales": found[f"{name}_scales"].transpose(1, 2).contiguous() for name in ("gate_up", "down")})
        found.update({name: found[name].bfloat16() for name in found if name.endswith("_bias")})
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
