"""Heddle in SGLang: a dispatcher in the format of DeepEP's low-latency mode, which SGLang's masked GEMMs take.

    buffers = heddle.Buffers(group, experts=…, top_k=…, max_tokens=…, hidden=…, sort="masked", alignment=128)
    dispatcher = Dispatcher(heddle.SortedRows(buffers))

With `dispatch="fp8"` of the Buffers rows are rounded as they are sent, with an f32 for every 128.
"""

from typing import Any

import torch
from sglang.srt.layers.moe.token_dispatcher.base import BaseDispatcher  # type: ignore[import-not-found]
from sglang.srt.layers.moe.token_dispatcher.deepep import DeepEPLLDispatchOutput  # type: ignore[import-not-found]

from .errors import ArgumentError
from .layers import SortedRows


class Dispatcher(BaseDispatcher):  # type: ignore[misc]
    """A layer of Heddle's between SGLang's router and its experts. Layers of a model may share its Buffers."""

    def __init__(self, layer: SortedRows) -> None:
        super().__init__()
        if layer.buffers.shape.sort != "masked":
            raise ArgumentError("sort", layer.buffers.shape.sort, "'masked', the format of SGLang's masked GEMMs")
        self.layer = layer

    def dispatch(self, hidden_states: torch.Tensor, topk_output: Any, **_: Any) -> Any:
        shape = self.layer.buffers.shape
        ids, weights = topk_output.topk_ids, topk_output.topk_weights
        planned = self.layer.dispatch(hidden_states.contiguous(), ids.int(), weights.float().contiguous())
        return DeepEPLLDispatchOutput(
            hidden_states=planned["rows.x"],
            hidden_states_scale=planned.get("rows.scales"),
            topk_ids=ids,
            topk_weights=weights,
            masked_m=planned["counts"],
            # Of an expert, if all ranks bring as many tokens as this one and routes are even.
            expected_m=-(-len(hidden_states) * shape.ranks * shape.top_k // shape.experts),
        )

    def combine(self, combine_input: Any, **_: Any) -> torch.Tensor:
        """Weights rows and adds them up. Experts that write into `planned['made']` save a copy."""
        made = self.layer.buffers.planned["made"]
        if combine_input.hidden_states.data_ptr() != made.data_ptr():
            made.copy_(combine_input.hidden_states.view_as(made))
        return self.layer.combine()
