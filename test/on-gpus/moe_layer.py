"""A PyTorch layer of the weights that programs/moe-layer-files.ts wrote, beside what Heddle made of them.

python3 moe_layer.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

folder = Path(sys.argv[1])
model = json.loads((folder / "model.json").read_text())
hidden, experts, top_k, inner = (model[name] for name in ("hidden", "experts", "topK", "inner"))
device = "cuda" if torch.cuda.is_available() else "cpu"
f32, bf16 = torch.float32, torch.bfloat16
scaled = model["weights"] == "fp8"


def load(name, dtype, *shape):
    data = bytearray((folder / f"{name}.bin").read_bytes())
    return torch.frombuffer(data, dtype=dtype).reshape(*shape).to(device)


def matrices(name, experts, rows, columns):
    """The weights of experts in f32: of e4m3 every 128 x 128 have a scale."""
    if not scaled:
        return load(name, bf16, experts, rows, columns).to(f32)
    values = load(name, torch.uint8, experts, rows, columns).view(torch.float8_e4m3fn).to(f32)
    scales = load(f"{name}_scales", f32, experts, rows // 128, columns // 128)
    return values * scales.repeat_interleave(128, 1).repeat_interleave(128, 2)


def rounded(x):
    """Rows as e4m3, where the layer rounds them: every 128 elements share the least power of two that lets them fit."""
    if not scaled:
        return x
    blocks = x.unflatten(-1, (-1, 128))
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    scale = torch.exp2(torch.ceil(torch.log2(largest / 448)))
    return ((blocks / scale).to(torch.float8_e4m3fn).to(f32) * scale).flatten(-2)


def mlp(x, gate_up, down):
    gate, up = (rounded(x) @ gate_up.T).chunk(2, dim=-1)
    return rounded(F.silu(gate) * up) @ down.T


def route(x, weights, correction):
    """DeepSeek-V3's gate: sigmoid scores, corrected for choosing, the best groups by their two best experts."""
    scores = (x @ weights.T).sigmoid()
    choice = scores + correction
    groups = model["routing"]["groups"]
    grouped = choice.view(-1, groups["count"], experts // groups["count"])
    best = grouped.topk(2, dim=-1).values.sum(-1).topk(groups["top"], dim=-1).indices
    kept = torch.zeros(best.shape[0], groups["count"], dtype=torch.bool, device=device).scatter_(1, best, True)
    choice = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(1)
    ids = choice.topk(top_k, dim=-1).indices
    taken = scores.gather(1, ids)
    return ids, taken / taken.sum(-1, keepdim=True) * model["routing"]["scale"]


torch.backends.cuda.matmul.allow_tf32 = False
router = load("router", f32, experts, hidden)
correction = load("correction", f32, experts)
gate_up = matrices("gate_up", experts, 2 * inner, hidden)
down = matrices("down", experts, hidden, inner)
shared_inner = model["sharedInner"]
shared = (
    matrices("shared_gate_up", 1, 2 * shared_inner, hidden)[0],
    matrices("shared_down", 1, hidden, shared_inner)[0],
)
worst = 0.0
for rank, tokens in enumerate(model["tokens"]):
    x = load(f"x{rank}", f32, tokens, hidden)
    out = load(f"out{rank}", bf16, tokens, hidden).to(f32)
    ids, weights = route(x, router, correction)
    expected = mlp(x, *shared)
    for k in range(top_k):
        for token in range(tokens):
            e = ids[token, k]
            expected[token] += weights[token, k] * mlp(x[token], gate_up[e], down[e])
    error = ((out - expected).abs() / expected.abs().max()).max().item()
    worst = max(worst, error)
    print(f"rank {rank}: {tokens} tokens, largest error {error:.2e} of the largest value")
# Rows are rounded to bf16 a handful of times on their way. Hopper adds up products of e4m3 with about 14 bits, so that a number between the
# two products may be rounded to the next one, which is up to 1/8 away; the simulated GPU, which adds exactly, agrees as in bf16.
most = 2**-5 if scaled else 2**-7
if worst > most:
    sys.exit(f"the layers differ by {worst:.2e} of the largest value; at most {most:.2e} is rounding")
print("the same layer")
