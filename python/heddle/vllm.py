"""Heddle in vLLM: the dispatch and combine of its modular MoE kernel.

    buffers = heddle.Buffers(group, experts=…, top_k=…, max_tokens=…, hidden=…, sort="masked", alignment=128)
    kernel = FusedMoEKernel(PrepareAndFinalize(heddle.SortedRows(buffers)), experts)

Experts take the batched format: [local experts, capacity, hidden], and how many rows each has. With `dispatch="fp8"` of the Buffers rows are rounded as
they are sent, in blocks of 128. With `split=True` the asynchronous calls work, too.
"""

from typing import Any, Callable, Optional

import torch
from vllm.model_executor.layers.fused_moe import modular_kernel as vllm  # type: ignore[import-not-found]

from .errors import ArgumentError
from .layers import SortedRows


class PrepareAndFinalize(vllm.FusedMoEPrepareAndFinalizeModular):  # type: ignore[misc]
    """A layer of Heddle's between vLLM's router and its experts. Layers of a model may share its Buffers."""

    def __init__(self, layer: SortedRows) -> None:
        if layer.buffers.shape.sort != "masked":
            raise ArgumentError("sort", layer.buffers.shape.sort, "'masked', the format of vLLM's batched experts")
        self.layer = layer

    @property
    def activation_format(self) -> Any:
        return vllm.FusedMoEActivationFormat.BatchedExperts

    def topk_indices_dtype(self) -> torch.dtype:
        return torch.int32

    def max_num_tokens_per_rank(self) -> int:
        return self.layer.buffers.shape.max_tokens

    def num_dispatchers(self) -> int:
        return self.layer.buffers.ranks

    def output_is_reduced(self) -> bool:
        return True

    def supports_async(self) -> bool:
        return self.layer.buffers.shape.split

    def prepare(self, *brought: Any, **named: Any) -> Any:
        self.layer.dispatch(*self._brought(*brought, **named))
        return self._prepared()

    def prepare_async(self, *brought: Any, **named: Any) -> Callable[[], Any]:
        self.layer.dispatch_send(*self._brought(*brought, **named))

        def receive() -> Any:
            self.layer.dispatch_recv()
            self.layer.sort()
            return self._prepared()

        return receive

    def finalize(self, output: torch.Tensor, fused_expert_output: torch.Tensor, *_: Any, **__: Any) -> None:
        self._made(fused_expert_output)
        self.layer.combine(output)

    def finalize_async(self, output: torch.Tensor, fused_expert_output: torch.Tensor, *_: Any, **__: Any) -> Callable[[], None]:
        self._made(fused_expert_output)
        self.layer.combine_send(output)

        def receive() -> None:
            self.layer.combine_recv()

        return receive

    def _brought(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> Any:
        shape = self.layer.buffers.shape
        if num_experts != shape.experts:
            raise ArgumentError("num_experts", num_experts, f"{shape.experts}, as the Buffers are made for")
        wanted = None if defer_input_quant else getattr(quant_config, "quant_dtype", None)
        if (wanted is not None) != (shape.dispatch == "fp8") or wanted not in (None, torch.float8_e4m3fn):
            raise ArgumentError("dispatch", shape.dispatch, "'fp8' where experts take e4m3 in blocks of 128, and else 'same'")
        if apply_router_weight_on_input:
            a1, topk_weights = a1 * topk_weights.to(a1.dtype), torch.ones_like(topk_weights)
        return a1.contiguous(), topk_ids.int(), topk_weights.float().contiguous()

    def _prepared(self) -> Any:
        planned = self.layer.buffers.planned
        tokens = vllm.ExpertTokensMetadata(expert_num_tokens=planned["counts"], expert_num_tokens_cpu=None)
        return planned["rows.x"], planned.get("rows.scales"), tokens, None, None

    def _made(self, rows: torch.Tensor) -> None:
        """Combine weights rows and adds them up. Experts that write into `planned['made']` save a copy; theirs may end at other rows of an expert."""
        made = self.layer.buffers.planned["made"]
        if rows.data_ptr() != made.data_ptr():
            made[:, : rows.shape[1]].copy_(rows[:, : made.shape[1]])
