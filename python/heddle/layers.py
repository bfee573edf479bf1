"""Layers over Buffers: dispatch and combine around the caller's experts, or Heddle's experts between them."""

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .buffers import Buffers, dtypes, require_tensor
from ._places import LOTS, place_table
from .errors import ArgumentError, HeddleError

#: The first arguments of every shape, in their order.
_TOKENS, _IDS, _WEIGHTS, _OUT, _ROWS = range(5)


class ExpertParallel:
    """Dispatch and combine of one layer: a round is `dispatch`, the caller's experts, `combine`. Any number of them may be enqueued.

    With `split` of the Buffers each is also a send and a receive, with other work between them. Every rank makes the same rounds, those
    without tokens too. Work is enqueued on torch's current stream, and may be captured as a CUDA graph.
    """

    #: The option of its Buffers that says what experts take; None where they take slots.
    _made_with: Optional[str] = None

    def __init__(self, buffers: Buffers, places: Optional[Sequence[int]] = None) -> None:
        if not isinstance(buffers, Buffers):
            raise ArgumentError("buffers", type(buffers).__name__, "heddle.Buffers")
        for option in ("inner", "sort"):
            if (getattr(buffers.shape, option) is not None) != (option == self._made_with):
                was, must = ("without", "with") if option == self._made_with else ("with", "without")
                raise ArgumentError("buffers", f"made {was} {option}", f"made {must} {option}, for this layer")
        self.buffers = buffers
        self._values = (ctypes.c_uint64 * buffers._arguments)()
        self._held: Tuple[torch.Tensor, ...] = ()
        #: Of a simulated GPU: copies of what a round brings, and of where its sums go.
        self._copies: List[torch.Tensor] = []
        from .ops import handle  # Which imports this module.

        #: By which operations of torch know it.
        self._handle = handle(self)
        if (places is None) != (buffers.shape.places is None):
            raise ArgumentError("places", places, "given, as the Buffers’ places are" if places is None else "left out")
        if places is not None:
            experts, first = buffers.shape.experts, buffers._arguments - len(buffers._weights) - 2
            self._table = buffers.on_gpu(torch.empty(experts, LOTS, dtype=torch.int32, device=buffers.device))
            #: int32 [2, experts]: this rank's routes that went to a place of the expert; those that went nowhere. They wrap.
            self.routed = buffers.on_gpu(torch.zeros(2, experts, dtype=torch.int32, device=buffers.device))
            self._values[first], self._values[first + 1] = self._table.data_ptr(), self.routed.data_ptr()
            self.place(places)

    def place(self, places: Sequence[int]) -> None:
        """Has the experts live elsewhere, in rounds that follow on the stream: of each place its expert, −1 for none. Places are numbered
        rank by rank. Every rank calls it with the same, and brings the weights itself.
        """
        shape = self.buffers.shape
        if len(places) != shape.places or not all(-1 <= expert < shape.experts for expert in places):
            raise ArgumentError("places", list(places), f"{shape.places} experts, of −1 to {shape.experts - 1}")
        self._table.copy_(torch.tensor(place_table(places, shape.experts, shape.ranks)[self.buffers.rank], dtype=torch.int32))

    def dispatch(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Sends rows to the ranks that own their experts. Returns `buffers.received`: when the stream has passed this, all has arrived.

        x: [tokens, hidden]; topk_ids: int32 [tokens, top_k], −1 for no expert; topk_weights: float32 [tokens, top_k]. They stay as they
        are until combine has run.
        """
        return self._dispatch("dispatch", "dispatchSend", "dispatchRecv", "dispatched", (x, topk_ids, topk_weights))

    def dispatch_send(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> None:
        """The first half of `dispatch`: sends, and waits for nobody."""
        self._require_split("dispatch_send")
        self._dispatch("dispatch_send", "dispatchSend", "dispatchSend", "dispatch sent", (x, topk_ids, topk_weights))

    def dispatch_recv(self) -> Dict[str, torch.Tensor]:
        """The second half of `dispatch`."""
        self._require_split("dispatch_recv")
        self.buffers._round.step("dispatch_recv", self, "dispatch sent", "dispatched")
        self.buffers._run("dispatchRecv", "dispatchRecv", self._values)
        return self.buffers.received

    def combine(self, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Brings back, for every token of this rank, the sum of the rows that its experts left in `received['output']`: [tokens, hidden]."""
        self.buffers._round.step("combine", self, "dispatched", "dispatched")
        out = self._out(out)
        self.buffers._run("combineSend", "combineRecv", self._values)
        self.buffers._round.stage = "combined"
        self._held = ()
        return self._take(out)

    def combine_send(self, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The first half of `combine`. Returns `out`, which `combine_recv` fills."""
        self._require_split("combine_send")
        self.buffers._round.step("combine_send", self, "dispatched", "dispatched")
        out = self._out(out)
        self.buffers._run("combineSend", "combineSend", self._values)
        self.buffers._round.stage = "combine sent"
        self._held += (out,)
        return out

    def combine_recv(self) -> torch.Tensor:
        """The second half of `combine`: when the stream has passed this, what `combine_send` returned holds the sums."""
        self._require_split("combine_recv")
        self.buffers._round.step("combine_recv", self, "combine sent", "combined")
        self.buffers._run("combineRecv", "combineRecv", self._values)
        out = self._held[-1]
        self._held = ()
        return self._take(out)

    def _dispatch(
        self, call: str, first: str, last: str, stage: str, brought: Tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ) -> Dict[str, torch.Tensor]:
        self.buffers._round.step(call, self, "combined", stage)
        try:
            self._bring(*brought)
            self.buffers._run(first, last, self._values)
        except BaseException:
            self.buffers._round.stage = "combined"
            raise
        self._held = brought
        return self.buffers.received

    def _bring(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> int:
        """Notes what a round brings; returns how many tokens."""
        buffers = self.buffers
        shape, device = buffers.shape, buffers.device
        tokens = x.shape[0] if isinstance(x, torch.Tensor) and x.dim() > 0 else 0
        if tokens > shape.max_tokens:
            raise ArgumentError("x", f"{tokens} tokens", f"at most max_tokens, {shape.max_tokens}")
        require_tensor("x", x, dtypes[shape.dtype], (tokens, shape.hidden), device)
        require_tensor("topk_ids", topk_ids, torch.int32, (tokens, shape.top_k), device)
        require_tensor("topk_weights", topk_weights, torch.float32, (tokens, shape.top_k), device)
        values = self._values
        if buffers._simulated is not None:
            self._copies = topk_ids, topk_weights, x = [buffers.on_gpu(of) for of in (topk_ids, topk_weights, x)]
        values[_TOKENS] = tokens
        values[_IDS], values[_WEIGHTS] = topk_ids.data_ptr(), topk_weights.data_ptr()
        values[_ROWS] = x.data_ptr()
        return tokens

    def _out(self, out: Optional[torch.Tensor]) -> torch.Tensor:
        shape, device = self.buffers.shape, self.buffers.device
        wanted = (int(self._values[_TOKENS]), shape.hidden)
        if out is None:
            out = torch.empty(wanted, dtype=dtypes[shape.dtype], device=device)
        else:
            require_tensor("out", out, dtypes[shape.dtype], wanted, device)
        self._point(out)
        return out

    def _point(self, out: torch.Tensor) -> None:
        """Has combine write here; or, on a simulated GPU, to a copy, which `_take` brings."""
        if self.buffers._simulated is not None:
            self._copies[3:] = [out := self.buffers.on_gpu(out)]
        self._values[_OUT] = out.data_ptr()

    def _take(self, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(self._copies[3]) if self._copies else out

    def _require_split(self, call: str) -> None:
        if not self.buffers.shape.split:
            raise HeddleError("HEDDLE_NOT_SPLIT", f"{call} needs phases that are split; make the Buffers with split=True")


class SortedRows(ExpertParallel):
    """Dispatch and combine around GEMMs that take rows sorted by expert. The Buffers are made with `sort`.

    'masked': `buffers.planned` has 'rows.x' [local experts, capacity, hidden] and 'counts', the rows of each expert: DeepGEMM's masked_m.
    'contiguous': 'rows.x' [rows, hidden], 'counts' and 'offsets'; `owners` gives the expert of each row. Rows go back, unweighted, as
    `planned['made']` of the same shape; combine weights and adds them up.
    """

    _made_with = "sort"

    def dispatch(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> Dict[str, torch.Tensor]:
        """As that of ExpertParallel, and sorts what has arrived. Returns `buffers.planned`."""
        super().dispatch(x, topk_ids, topk_weights)
        return self.sort()

    def sort(self) -> Dict[str, torch.Tensor]:
        """Sorts what `dispatch_recv` brought."""
        self.buffers._round.step("sort", self, "dispatched", "dispatched")
        self.buffers._run("plan", "experts", self._values)
        return self.buffers.planned

    def column_scales(self) -> torch.Tensor:
        """A copy of planned['rows.scales'], f32, column by column as DeepGEMM's kernels for Hopper read them: the same shape, with a stride of 1 from row
        to row, and columns that begin at multiples of 16 bytes.
        """
        if self.buffers.shape.dispatch != "fp8":
            raise ArgumentError("dispatch", self.buffers.shape.dispatch, "'fp8', whose rows have scales of f32")
        scales = self.buffers.planned["rows.scales"]
        rows = scales.shape[-2]
        columns = scales.new_empty(*scales.shape[:-2], scales.shape[-1], -(-rows // 4) * 4)
        columns[..., :rows].copy_(scales.transpose(-1, -2))
        return columns.transpose(-1, -2)[..., :rows, :]

    def owners(self) -> torch.Tensor:
        """int32 [rows]: the expert of each contiguous row, counted from this rank's first; −1 where none is. DeepGEMM's m_indices."""
        planned = self.buffers.planned
        rows = torch.arange(planned["routes"].shape[0], device=self.buffers.device, dtype=torch.int32)
        found = torch.searchsorted(planned["offsets"][1:].contiguous(), rows, right=True, out_int32=True)
        return torch.where((rows < planned["total"]) & (planned["routes"] >= 0), found, -1)


class Experts(ExpertParallel):
    """A layer whose experts are Heddle's: dispatch, plan, both GEMMs and combine as one call, on weights that stay the caller's.

    gate_up: [local experts, 2 · inner, hidden], the gates' rows first; down: [local experts, hidden, inner]. With weights of e4m3 an f32
    for every 128 × 128: gate_up_scales and down_scales. Weights of MXFP4 are uint8, two e2m1 a byte, the first in the lower half: [local experts,
    2 · inner, hidden / 2] and [local experts, hidden, inner / 2]; scales are uint8, a ue8m0 for every 32 of a row: [local experts, hidden / 32, 2 · inner]
    and [local experts, inner / 32, hidden]. Biases are bf16, [local experts, 2 · inner] and [local experts, hidden].
    """

    _made_with = "inner"

    def __init__(
        self,
        buffers: Buffers,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        *,
        gate_up_scales: Optional[torch.Tensor] = None,
        down_scales: Optional[torch.Tensor] = None,
        gate_up_bias: Optional[torch.Tensor] = None,
        down_bias: Optional[torch.Tensor] = None,
        places: Optional[Sequence[int]] = None,
    ) -> None:
        super().__init__(buffers, places)
        given: Dict[str, Any] = {
            "gateUp": ("gate_up", gate_up),
            "down": ("down", down),
            "gateUpScales": ("gate_up_scales", gate_up_scales),
            "downScales": ("down_scales", down_scales),
            "gateUpBias": ("gate_up_bias", gate_up_bias),
            "downBias": ("down_bias", down_bias),
        }
        wanted = {of["name"]: of for of in buffers._weights}
        self._weights: List[torch.Tensor] = []
        for name, (argument, tensor) in given.items():
            if name not in wanted and tensor is not None:
                raise ArgumentError(argument, "given", "left out, as the Buffers are made")
        for i, of in enumerate(buffers._weights):
            argument, tensor = given[of["name"]]
            require_tensor(argument, tensor, dtypes[of["dtype"]], tuple(of["shape"]), buffers.device)
            tensor = buffers.on_gpu(tensor)
            self._values[buffers._arguments - len(buffers._weights) + i] = tensor.data_ptr()
            self._weights.append(tensor)

    def __call__(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        """Σ weight · expert(x) over each token's experts, wherever they live: [tokens, hidden]. Every rank calls it, with or without tokens.

        torch.compile goes through it. It has no gradient: backward says so.
        """
        trained = getattr(x, "requires_grad", False) or getattr(topk_weights, "requires_grad", False)
        if (trained and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return torch.ops.heddle.layer(x, topk_ids, topk_weights, self._handle)  # type: ignore[no-any-return]
        return self.forward(x, topk_ids, topk_weights)

    def forward(
        self,
        x: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor,
        out: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """As a call, into `out` where it is given."""
        self.buffers._round.step("a layer", self, "combined", "combined")
        self._bring(x, topk_ids, topk_weights)
        if out is None:
            # Checked already, and made in half the time.
            out = torch.empty_like(x)
            self._point(out)
        else:
            self._out(out)
        self.buffers._run("dispatchSend", "combineRecv", self._values)
        return self._take(out)

    def run(self) -> None:
        """The experts alone, between `dispatch` and `combine`: plan and both GEMMs."""
        self.buffers._round.step("run", self, "dispatched", "dispatched")
        self.buffers._run("plan", "experts", self._values)
