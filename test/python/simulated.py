"""A rank of a layer whose GPU is simulated: `simulated.py RANK RANKS DATA OPTIONS`, of Buffers in JSON. Tensors of the CPU lie in the GPU's memory, which
processes see. Experts are those of weights in DATA; without, they give back what they get.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import heddle
from heddle.buffers import _wrap

rank, ranks, data = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
# Read before the driver is opened: a rank knows its own GPU alone.
os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
dist.init_process_group("gloo", init_method=f"file://{data}/store", rank=rank, world_size=ranks)
cuda = ctypes.CDLL("libcuda.so.1")
cpu = torch.device("cpu")


def done(result):
    assert result == 0, f"CUDA error {result}"


context = ctypes.c_void_p()
done(cuda.cuInit(0))
done(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
done(cuda.cuCtxSetCurrent(context))


def on_gpu(tensor):
    address = ctypes.c_uint64()
    done(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(tensor.nbytes + 16)))
    done(cuda.cuMemcpyHtoD_v2(address, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)))
    return _wrap(address.value, tensor.nbytes, cpu).view(tensor.dtype).view(tensor.shape)


buffers = heddle.Buffers(device=cpu, **json.loads(sys.argv[4]))


def weights(of):
    raw = bytearray((data / f"{of['name']}-{rank}").read_bytes())
    return on_gpu(torch.frombuffer(raw, dtype=heddle.buffers.dtypes[of["dtype"]]).view(of["shape"]))


names = {"gateUp": "gate_up", "down": "down", "gateUpScales": "gate_up_scales", "downScales": "down_scales"}
given = {names[of["name"]]: weights(of) for of in buffers._weights}
layer = heddle.Experts(buffers, **given) if given else heddle.ExpertParallel(buffers)
for file in sorted(data.glob(f"in-*-{rank}")):
    raw = bytearray(file.read_bytes())
    tokens = int.from_bytes(raw[:4], "little")
    parts = [torch.int32, torch.float32, torch.bfloat16]
    ends = [4, 4 + 8 * tokens, 4 + 16 * tokens, len(raw)]
    ids, scores, x = (
        torch.frombuffer(raw[start:end] or bytearray(16), dtype=dtype)[: (end - start) // dtype.itemsize]
        for dtype, start, end in zip(parts, ends, ends[1:])
    )
    x, ids, scores = (on_gpu(of.clone()) for of in (x.view(tokens, 256), ids.view(tokens, 2), scores.view(tokens, 2)))
    out = on_gpu(torch.zeros(tokens, 256, dtype=torch.bfloat16))
    if given:
        layer.forward(x, ids, scores, out)
    else:
        received = layer.dispatch(x, ids, scores)
        done(cuda.cuCtxSynchronize())
        # The host sees what came, and gives it back.
        received["output"].copy_(received["payloads.x"])
        layer.combine(out=out)
    done(cuda.cuCtxSynchronize())
    buffers.check()
    Path(str(file).replace("in-", "out-")).write_bytes(bytes(out.view(torch.uint8).flatten().tolist()))
dist.barrier()
buffers.destroy()
dist.destroy_process_group()
