"""Heddle's kernels in PyTorch: a process a GPU, one file of C, and no other dependency.

    heddle export one-sided --shape ranks=2,tokens=128,hidden=1024,experts=16,topk=4,format=fp8 --out decode
    gcc -O2 -shared -fPIC decode/heddle.c -o decode/heddle.so -ldl
    python3 -m torch.distributed.run --standalone --nproc-per-node 2 examples/export/engine.py decode

It checks rounds, and a CUDA graph of one, against torch. On every rank, so that each sees a failure.
"""

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, pointer
from pathlib import Path

import torch
import torch.distributed as dist

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "u8": torch.uint8}
TYPES |= {"i32": torch.int32, "u32": torch.int32, "e4m3": torch.float8_e4m3fn}
GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class Host(ctypes.Structure):
    _fields_ = [("rank", c_uint32), ("device", c_int), ("limit_us", c_uint32), ("all_gather", GATHER), ("context", c_void_p)]


class DLTensor(ctypes.Structure):
    """DLPack's DLManagedTensor: memory that is not torch's, as torch takes it."""

    _fields_ = [("data", c_void_p), ("device", c_int32 * 2), ("dimensions", c_int32), ("dtype", c_uint8 * 4)]
    _fields_ += [("shape", POINTER(c_int64)), ("strides", c_void_p), ("offset", c_uint64), ("own", c_void_p * 2)]


def on_gpu(address, of):
    """The tensor there that plan.json describes so."""
    cuda, unsigned_bytes = 2, (1, 8, 1, 0)
    shape = pointer(c_int64(of["bytes"]))
    tensor = DLTensor(address, (cuda, torch.cuda.current_device()), 1, unsigned_bytes, shape, None, 0)
    kept.append(tensor)
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
    found = torch.from_dlpack(capsule(ctypes.addressof(tensor), b"dltensor", None))
    return found.view(TYPES[of["dtype"]]).view(of["shape"])


kept = []  # What torch holds pointers to.


class Heddle:
    """A rank. `received` holds what dispatch leaves, and `output`, where the experts leave their rows: tensors that stay."""

    def __init__(self, folder, prefix="heddle", limit_us=0):
        plan = json.loads((Path(folder) / "plan.json").read_text())
        self.layer, payloads = plan["layer"], [payload["name"] for payload in plan["layer"]["payloads"]]
        self.row_bytes = [of["rowBytes"] for of in plan["rows"]]
        self.library, self.prefix = ctypes.CDLL(str(Path(folder) / f"{prefix}.so")), prefix
        rows = c_void_p * max(1, len(self.row_bytes))
        fields = ("topk_ids", c_void_p), ("topk_weights", c_void_p), ("rows", rows), ("out", c_void_p), ("tokens", c_uint32)
        self.Round = type("Round", (ctypes.Structure,), {"_fields_": fields})

        def gather(_, mine, everyones, size):
            card = torch.frombuffer(bytearray(ctypes.string_at(mine, size)), dtype=torch.uint8)
            cards = torch.empty(dist.get_world_size(), size, dtype=torch.uint8)
            dist.all_gather(list(cards), card)
            ctypes.memmove(everyones, cards.data_ptr(), cards.nbytes)
            return 0

        self.handle = c_void_p()
        host = Host(dist.get_rank(), torch.cuda.current_device(), limit_us, GATHER(gather), None)
        self.call("create", byref(self.handle), byref(host))
        fields = [("experts", c_void_p), ("weights", c_void_p), ("counts", c_void_p)]
        fields += [("payloads", c_void_p * max(1, len(payloads))), ("output", c_void_p)]
        Received = type("Received", (ctypes.Structure,), {"_fields_": fields})
        find = getattr(self.library, f"{prefix}_received")
        find.restype, find.argtypes = POINTER(Received), [c_void_p]
        found = find(self.handle).contents
        at = {"experts": found.experts, "weights": found.weights, "counts": found.counts, "output": found.output}
        at |= {f"payloads.{name}": found.payloads[i] for i, name in enumerate(payloads)}
        self.received = {name: on_gpu(at[name], of) for name, of in plan["received"].items()}

    def call(self, name, *arguments):
        function = getattr(self.library, f"{self.prefix}_{name}")
        function.restype = c_char_p
        wrong = function(*arguments)
        if wrong is not None:
            raise RuntimeError(f"{self.prefix}_{name}: {wrong.decode()}")

    def round(self, topk_ids, topk_weights, rows, out):
        """Tensors of a round, which must stay alive until it has ended: ids int32, weights float32, rows of each payload that an engine brings."""
        assert topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32
        assert all(tensor.is_contiguous() for tensor in (topk_ids, topk_weights, *rows, out))
        pointers = (c_void_p * max(1, len(rows)))(*(tensor.data_ptr() for tensor in rows))
        return self.Round(topk_ids.data_ptr(), topk_weights.data_ptr(), pointers, out.data_ptr(), topk_ids.shape[0])

    def dispatch(self, round):
        self.call("dispatch", self.handle, byref(round), c_void_p(torch.cuda.current_stream().cuda_stream))

    def combine(self, round):
        self.call("combine", self.handle, byref(round), c_void_p(torch.cuda.current_stream().cuda_stream))

    def failure(self):
        self.call("failure", self.handle, None)

    def destroy(self):
        torch.cuda.synchronize()
        dist.barrier()  # Nobody frees a window that another rank may still write.
        destroy = getattr(self.library, f"{self.prefix}_destroy")
        destroy.restype, destroy.argtypes = None, [c_void_p]
        destroy(self.handle)


def main(folder):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    heddle = Heddle(folder)
    layer, received = heddle.layer, heddle.received
    experts, top_k, most, hidden = layer["experts"], layer["topK"], layer["maxTokens"], layer["output"]["hidden"]
    assert ranks == layer["ranks"], f"the plan is for {layer['ranks']} ranks"
    dtype, fp8 = TYPES[layer["output"]["dtype"]], len(layer["payloads"]) == 2  # Made by --shape format=fp8.
    rounds = "rounded" in layer["payloads"][0]  # And with rounded=yes: dispatch makes the e4m3 of bf16.
    mine = range(*((experts // ranks * r + min(r, experts % ranks)) for r in (rank, rank + 1)))
    # All ranks make the weights of all experts, for the reference: an expert is a matrix.
    torch.manual_seed(1)
    weights = torch.randn(experts, hidden, hidden, device="cuda") / hidden**0.5

    def widened(x, scales=None):
        """Rows of any payload in f32: as they are, or e4m3 with a scale for every 128 elements."""
        if not fp8:
            return x.view(dtype).float()
        x = x.view(torch.float8_e4m3fn).float().unflatten(-1, (-1, 128))
        return (x * scales.view(torch.float32).unsqueeze(-1)).flatten(-2)

    def as_dispatch_rounds(x):
        """By the smallest powers of two with which no element exceeds e4m3's largest, 448."""
        parts = x.float().unflatten(-1, (-1, 128))
        scales = torch.exp2(torch.ceil(torch.log2(parts.abs().amax(-1, keepdim=True) / 448)))
        return ((parts / scales).to(torch.float8_e4m3fn).float() * scales).flatten(-2)

    def local_experts():
        """Fixed shapes, so that a graph can hold it: every expert of this rank on every slot, and the router's weight or 0."""
        ids, x = received["experts"], widened(*(received[f"payloads.{of['name']}"] for of in layer["payloads"]))
        x = torch.where((ids >= 0).any(-1, keepdim=True), x, 0)  # Other slots hold anything.
        received["output"].copy_(sum((received["weights"] * (ids == e)).sum(-1, keepdim=True) * (x @ weights[e]) for e in mine))

    rows = [torch.zeros(most, row_bytes, dtype=torch.uint8, device="cuda") for row_bytes in heddle.row_bytes]
    ids = torch.zeros(most, top_k, dtype=torch.int32, device="cuda")
    scores = torch.zeros(most, top_k, device="cuda")
    out = torch.zeros(most, hidden, dtype=dtype, device="cuda")

    def bring(seed):
        torch.manual_seed(seed * ranks + rank)
        x = torch.randn(most, hidden, device="cuda")
        if fp8 and not rounds:
            parts = x.unflatten(-1, (-1, 128))
            scales = parts.abs().amax(-1) / 448
            rows[1].view(torch.float32).copy_(scales)
            x = (parts / scales.unsqueeze(-1)).flatten(-2)
        rows[0].view(torch.float8_e4m3fn if fp8 and not rounds else dtype).copy_(x)
        ids.copy_(torch.rand(most, experts, device="cuda").topk(top_k).indices)
        scores.copy_(torch.rand(most, top_k, device="cuda"))

    def difference():
        torch.cuda.synchronize()
        heddle.failure()
        x = as_dispatch_rounds(rows[0].view(dtype)) if rounds else widened(*rows)
        routes = torch.zeros(most, experts, device="cuda").scatter_(1, ids.long(), scores)
        expected = sum(routes[:, e, None] * (x @ weights[e]) for e in range(experts))
        return ((out.float() - expected).norm() / expected.norm()).item()

    def run(round):
        heddle.dispatch(round)
        local_experts()
        heddle.combine(round)

    round = heddle.round(ids, scores, rows, out)
    found = []
    for seed in range(3):
        bring(seed)
        run(round)
        found.append(difference())
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(round)
    for seed in range(3, 8):
        bring(seed)
        graph.replay()
        found.append(difference())
    print(f"rank {rank}: 3 rounds and 5 replays of a graph differ from torch by {max(found):.2e}", flush=True)
    assert max(found) < 1e-2
    del graph
    heddle.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
