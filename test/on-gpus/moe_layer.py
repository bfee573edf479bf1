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


def load(name, dtype, *shape):
    data = bytearray((folder / f"{name}.bin").read_bytes())
    return torch.frombuffer(data, dtype=dtype).reshape(*shape).to(device)


def mlp(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, dim=-1)
    return (F.silu(gate) * up) @ down.T


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


f32, bf16 = torch.float32, torch.bfloat16
torch.backends.cuda.matmul.allow_tf32 = False
router = load("router", f32, experts, hidden)
correction = load("correction", f32, experts)
gate_up = load("gate_up", bf16, experts, 2 * inner, hidden).to(f32)
down = load("down", bf16, experts, hidden, inner).to(f32)
shared_inner = model["sharedInner"]
shared = (
    load("shared_gate_up", bf16, 2 * shared_inner, hidden).to(f32),
    load("shared_down", bf16, hidden, shared_inner).to(f32),
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
# Rows are rounded to bf16 a handful of times on their way.
if worst > 2**-7:
    sys.exit(f"the layers differ by {worst:.2e} of the largest value; at most {2**-7:.2e} is rounding")
print("the same layer")
