"""`python -m heddle verify`: a layer on all GPUs of this machine, a process each, beside torch."""

import tempfile
import time

import torch
import torch.distributed as dist
from torch.cuda import device_count as device_count
from torch.multiprocessing.spawn import spawn

from .buffers import Buffers
from .layers import Experts


def verify(ranks: int) -> bool:
    """Runs a layer over so many GPUs, and says how it went. True where it agrees with torch."""
    differences = torch.zeros(ranks).share_memory_()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        spawn(_be, (ranks, f"file://{folder}/store", differences), nprocs=ranks)  # type: ignore[no-untyped-call]
    worst = float(differences.max())
    print(f"a layer over {ranks} × {torch.cuda.get_device_name(0)} differs from torch by {worst:.1e}")
    return worst < 2e-2


def _be(rank: int, ranks: int, store: str, differences: torch.Tensor) -> None:
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    torch.cuda.set_device(rank)
    begun = time.perf_counter()
    hidden, inner = 256, 128
    buffers = Buffers(experts=4 * ranks, top_k=2, max_tokens=16, hidden=hidden, inner=inner)
    if rank == 0:
        print(f"{buffers.shape}: ready in {time.perf_counter() - begun:.1f} s", flush=True)
    # All ranks know all weights, for the reference.
    torch.manual_seed(1)
    gate_up = (torch.randn(4 * ranks, 2 * inner, hidden, device="cuda") / 16).bfloat16()
    down = (torch.randn(4 * ranks, hidden, inner, device="cuda") / 16).bfloat16()
    mine = slice(buffers.local_experts.start, buffers.local_experts.stop)
    layer = Experts(buffers, gate_up[mine].contiguous(), down[mine].contiguous())
    torch.manual_seed(2 + rank)
    # Ranks differ in how many tokens they bring.
    tokens = 16 - rank % 16
    x = torch.randn(tokens, hidden, device="cuda").bfloat16()
    ids = torch.rand(tokens, 4 * ranks, device="cuda").topk(2).indices.int()
    weights = torch.rand(tokens, 2, device="cuda")
    out = layer(x, ids, weights).float()
    torch.cuda.synchronize()
    buffers.check()
    expected = torch.zeros_like(out)
    for e in range(4 * ranks):
        gate, up = (x.float() @ gate_up[e].float().T).chunk(2, -1)
        share = (weights * (ids == e)).sum(-1, keepdim=True)
        expected += share * (torch.nn.functional.silu(gate) * up @ down[e].float().T)
    differences[rank] = float((out - expected).norm() / expected.norm())
    dist.barrier()
    buffers.destroy()
    dist.destroy_process_group()
