"""A layer of gpt-oss in PyTorch, from the file that programs/gpt-oss-files.ts wrote, beside what Heddle made of it.

python3 gpt_oss.py FOLDER
"""

import json
import struct
import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
model = json.loads((folder / "model.json").read_text())
hidden, top_k = model["hidden"], model["topK"]
f32, bf16 = torch.float32, torch.bfloat16
types = {"U8": torch.uint8, "BF16": bf16}
data = bytearray((folder / "model.safetensors").read_bytes())
(length,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8 : 8 + length])


def stored(name):
    entry = header[f"model.layers.0.mlp.{name}"]
    start, end = (8 + length + offset for offset in entry["data_offsets"])
    return torch.frombuffer(data[start:end], dtype=types[entry["dtype"]]).reshape(entry["shape"])


def matrices(name):
    """[experts, rows, columns]: two numbers a byte, the lower half first, and a power of two for every 32."""
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = torch.cat([numbers, -numbers])
    blocks = stored(f"experts.{name}_blocks").int()
    pairs = torch.stack([numbers[blocks & 15], numbers[blocks >> 4]], dim=-1).flatten(-2)
    return torch.ldexp(pairs, stored(f"experts.{name}_scales").int().unsqueeze(-1) - 127).flatten(-2)


def rows(name, tokens):
    return torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=bf16).reshape(tokens, hidden).to(f32)


def expert(x, e):
    both = x @ gate_up[e].T + gate_up_bias[e]
    gate, up = both[..., ::2].clamp(max=7), both[..., 1::2].clamp(-7, 7)
    clamped[0] += int((both[..., ::2] > 7).sum() + (both[..., 1::2].abs() > 7).sum())
    return ((up + 1) * gate * torch.sigmoid(1.702 * gate)) @ down[e].T + down_bias[e]


gate_up, down = matrices("gate_up_proj"), matrices("down_proj")
gate_up_bias, down_bias = (stored(f"experts.{name}_bias").to(f32) for name in ("gate_up_proj", "down_proj"))
router, router_bias = stored("router.weight").to(f32), stored("router.bias").to(f32)
worst, clamped = 0.0, [0]
for rank, tokens in enumerate(model["tokens"]):
    x, out = rows(f"x{rank}.bin", tokens), rows(f"out{rank}.bin", tokens)
    logits, ids = (x @ router.T + router_bias).topk(top_k, dim=-1)
    weights = logits.softmax(dim=-1)
    expected = torch.zeros_like(x)
    for token in range(tokens):
        for k in range(top_k):
            expected[token] += weights[token, k] * expert(x[token], ids[token, k])
    error = ((out - expected).abs() / expected.abs().max()).max().item()
    worst = max(worst, error)
    print(f"rank {rank}: {tokens} tokens, largest error {error:.2e} of the largest value")
print(f"{clamped[0]} numbers were clamped")
# Rows are rounded to bf16 a handful of times on their way.
if worst > 2**-7:
    sys.exit(f"the layers differ by {worst:.2e} of the largest value; at most {2**-7:.2e} is rounding")
print("the same layer")
