"""A rank of a layer whose GPU is simulated: `simulated.py RANK RANKS DATA OPTIONS`, of Buffers in JSON. Experts are those of weights in DATA; without,
they give back what they get.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import heddle

rank, ranks, data = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{data}/store", rank=rank, world_size=ranks)
buffers = heddle.Buffers(**json.loads(sys.argv[4]))


def weights(of):
    raw = bytearray((data / f"{of['name']}-{rank}").read_bytes())
    return torch.frombuffer(raw, dtype=heddle.buffers.dtypes[of["dtype"]]).view(of["shape"])


names = {"gateUp": "gate_up", "down": "down", "gateUpScales": "gate_up_scales", "downScales": "down_scales"}
given = {names[of["name"]]: weights(of) for of in buffers._weights}
layer = heddle.Experts(buffers, **given) if given else heddle.ExpertParallel(buffers)
for file in sorted(data.glob(f"in-*-{rank}")):
    raw = bytearray(file.read_bytes())
    tokens = int.from_bytes(raw[:4], "little")
    parts = [torch.int32, torch.float32, torch.bfloat16]
    ends = [4, 4 + 8 * tokens, 4 + 16 * tokens, len(raw)]
    ids, scores, x = (
        torch.frombuffer(raw[start:end] or bytearray(16), dtype=dtype)[: (end - start) // dtype.itemsize].view(tokens, width)
        for dtype, width, start, end in zip(parts, (2, 2, 256), ends, ends[1:])
    )
    if given:
        out = layer(x, ids, scores)
    else:
        received = layer.dispatch(x, ids, scores)
        received["output"].copy_(received["payloads.x"])
        out = layer.combine()
    buffers.check()
    Path(str(file).replace("in-", "out-")).write_bytes(bytes(out.view(torch.uint8).flatten().tolist()))
dist.barrier()
buffers.destroy()
dist.destroy_process_group()
