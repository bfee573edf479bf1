"""heddle.vllm and heddle.sglang under stand-ins of what they take from those engines, written from its signatures, on a stub of the driver."""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import torch

import heddle

options = dict(experts=4, top_k=2, max_tokens=8, hidden=128, device=torch.device("cpu"))


def module(name, **holds):
    """Puts a module where an import finds it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), ModuleType(parts[end - 1]))
    sys.modules[name].__dict__.update(holds)
    setattr(sys.modules[name.rpartition(".")[0]], parts[-1], sys.modules[name])


def abstract(name, *methods):
    return type(name, (ABC,), {method: abstractmethod(lambda self: None) for method in methods})


class Format(Enum):
    Standard = "standard"
    BatchedExperts = "batched_experts"


@dataclass
class Metadata:
    expert_num_tokens: object
    expert_num_tokens_cpu: object


Base = abstract("Base", "activation_format", "topk_indices_dtype", "max_num_tokens_per_rank", "num_dispatchers", "output_is_reduced", "prepare", "finalize")


class LowLatency(NamedTuple):
    hidden_states: object
    hidden_states_scale: object
    topk_ids: object
    topk_weights: object
    masked_m: object
    expected_m: int


module(
    "vllm.model_executor.layers.fused_moe.modular_kernel",
    FusedMoEPrepareAndFinalizeModular=Base,
    FusedMoEActivationFormat=Format,
    ExpertTokensMetadata=Metadata,
)
module("sglang.srt.layers.moe.token_dispatcher.base", BaseDispatcher=abstract("BaseDispatcher", "dispatch", "combine"))
module("sglang.srt.layers.moe.token_dispatcher.deepep", DeepEPLLDispatchOutput=LowLatency)

import heddle.sglang
import heddle.vllm


def refused(call, *arguments):
    try:
        call(*arguments)
    except heddle.HeddleError as error:
        return f"{error.code}: {error}"
    raise AssertionError(f"{call} was not refused")


x, ids = torch.zeros(3, 128, dtype=torch.bfloat16), torch.zeros(3, 2, dtype=torch.int64)
weights = torch.ones(3, 2, dtype=torch.bfloat16)
unquantised, fp8 = SimpleNamespace(quant_dtype=None), SimpleNamespace(quant_dtype=torch.float8_e4m3fn)
for split in (False, True):
    buffers = heddle.Buffers(**options, sort="masked", alignment=16, split=split)
    made = buffers.planned["made"]
    adapter = heddle.vllm.PrepareAndFinalize(heddle.SortedRows(buffers))
    assert adapter.activation_format == Format.BatchedExperts and adapter.topk_indices_dtype() == torch.int32
    assert adapter.max_num_tokens_per_rank() == 8 and adapter.num_dispatchers() == 1 and adapter.output_is_reduced()
    assert adapter.supports_async() == split
    brought = (x, weights, ids, 4, None, False, unquantised)
    rows, scales, tokens, *others = adapter.prepare_async(*brought, False)() if split else adapter.prepare(*brought, defer_input_quant=False)
    assert rows.shape == (4, 16, 128) and scales is None and others == [None, None]
    assert tokens.expert_num_tokens.data_ptr() == buffers.planned["counts"].data_ptr()
    # Experts of vLLM have rows for tokens of all ranks, aligned to nothing.
    output, results = torch.empty_like(x), torch.full((4, 8, 128), 2, dtype=torch.bfloat16)
    if split:
        assert adapter.finalize_async(output, results, weights, ids, False, None)() is None
    else:
        adapter.finalize(output, results, weights, ids, False, None)
    assert (made[:, :8] == 2).all()
    if not split:
        print(refused(adapter.prepare, x, weights, ids, 8, None, False, unquantised, False))
        print(refused(adapter.prepare, x, weights, ids, 4, None, False, fp8, False))
        # Experts that round rows themselves.
        adapter.prepare(x, weights, ids, 4, None, False, fp8, True)
        adapter.finalize(output, made, weights, ids, False, None)
    dispatcher = heddle.sglang.Dispatcher(heddle.SortedRows(buffers))
    arrived = dispatcher.dispatch(hidden_states=x, topk_output=SimpleNamespace(topk_ids=ids, topk_weights=weights))
    assert arrived.hidden_states.shape == (4, 16, 128) and arrived.masked_m.shape == (4,) and arrived.expected_m == 2
    sums = dispatcher.combine(SimpleNamespace(hidden_states=torch.full_like(rows, 3), topk_ids=ids, topk_weights=weights))
    assert sums.shape == (3, 128) and (made == 3).all()
    buffers.destroy()
print("both")
