"""heddle.Buffers and its layers on a stub of the driver, whose GPU is the host: calls, their order and what they refuse, on CPU tensors."""

import torch

import heddle

cpu = torch.device("cpu")
options = dict(experts=4, top_k=2, max_tokens=8, hidden=128, device=cpu)


def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except heddle.HeddleError as error:
        return f"{error.code}: {error}"
    raise AssertionError(f"{call} was not refused")


def brought(tokens):
    ids = torch.zeros(tokens, 2, dtype=torch.int32)
    return torch.zeros(tokens, 128, dtype=torch.bfloat16), ids, torch.ones(tokens, 2)


buffers = heddle.Buffers(**options, split=True)
first, second = heddle.ExpertParallel(buffers), heddle.ExpertParallel(buffers)
received = first.dispatch(*brought(8))
assert received["payloads.x"].shape == (1, 8, 128) and received["payloads.x"].dtype == torch.bfloat16
assert received["experts"].shape == (1, 8, 2) and received["weights"].dtype == torch.float32
received["output"].fill_(1)
# What is refused leaves the open round as it was.
print(refused(first.dispatch, *brought(1)))
print(refused(second.combine))
misplaced = torch.zeros(8 * 128 + 1, dtype=torch.bfloat16)[1:].view(8, 128)
for step in (first.combine, first.combine_send):
    print(refused(step, misplaced).partition(" 0x")[0])
assert first.combine().shape == (8, 128)
print(refused(first.combine))
second.dispatch_send(*brought(0))
second.dispatch_recv()
out = second.combine_send()
refused(second.combine)
assert out.shape == (0, 128)
second.combine_recv()
print(refused(first.dispatch, *brought(9)))
x, ids, weights = brought(3)
print(refused(first.dispatch, x.float(), ids, weights))
print(refused(first.dispatch, x, ids.long(), weights))
print(refused(first.dispatch, x, ids, weights[:, :1]))
print(refused(first.dispatch, [x], ids, weights))
print(refused(heddle.Experts, buffers, x, x))
print(refused(heddle.ExpertParallel, None))
buffers.check()
buffers.destroy()
buffers.destroy()
print(refused(first.dispatch, x, ids, weights))
print(refused(buffers.check))
print(refused(buffers.mask, [0]))
print(refused(heddle.Buffers, **options, wait_ms=0))
print(refused(heddle.Buffers, torch.distributed.GroupMember.NON_GROUP_MEMBER, **options))
print(refused(heddle.Buffers, **{**options, "device": "meta"}))
print(refused(heddle.Buffers, **options, biases=True))
print(refused(heddle.Buffers, **options, dtype=torch.bfloat16))
print(refused(heddle.Buffers, **options, inner=64, sort="masked"))
print(refused(heddle.Buffers, **options, inner=128, weights="e4m3"))
print(refused(heddle.Buffers, **options, inner=64, gradients=True))

buffers = heddle.Buffers(**options)
print(refused(buffers.mask, []))
layer = heddle.ExpertParallel(buffers)
x, ids, weights = brought(3)
rows, experts, shares = heddle.dispatch(layer, x.requires_grad_(), ids, weights)
assert rows.shape == (1, 8, 128) and experts.shape == shares.shape == (1, 8, 2)
sums = heddle.combine(layer, rows, ids)
assert sums.shape == (3, 128) and sums.requires_grad
sums.sum().backward()
assert x.grad is not None and x.grad.shape == x.shape
# Compiled, it is one graph.
around = torch.compile(
    lambda *brought: heddle.combine(layer, heddle.dispatch(layer, *brought)[0], brought[1]), fullgraph=True, backend="aot_eager"
)
x.grad = None
around(x, ids, weights).sum().backward()
assert x.grad is not None and x.grad.shape == x.shape
print(refused(heddle.dispatch, layer, x, ids, weights.requires_grad_()))
print(refused(heddle.combine, layer, rows[0], ids))
buffers.destroy()

buffers = heddle.Buffers(**options, sort="masked", alignment=16)
layer = heddle.SortedRows(buffers)
planned = layer.dispatch(*brought(8))
assert planned["rows.x"].shape == planned["made"].shape == (4, 16, 128) and planned["counts"].shape == (4,)
# Three rows of the first expert, one that aligns, two of the third.
planned["offsets"].copy_(torch.tensor([0, 4, 4, 6, 6]))
planned["routes"].copy_(torch.tensor([0, 2, 5, -1, 1, 7] + [99] * 58))
planned["total"].fill_(6)
assert layer.owners().tolist() == [0, 0, 0, -1, 2, 2] + [-1] * 58
assert layer.combine().shape == (8, 128)
print(refused(layer.column_scales))
print(refused(heddle.dispatch, layer, *brought(8)))
buffers.destroy()

buffers = heddle.Buffers(**{**options, "hidden": 256}, sort="contiguous", capacity=18, dispatch="fp8")
layer, scales = heddle.SortedRows(buffers), buffers.planned["rows.scales"]
assert scales.shape == (18, 2) and buffers.planned["rows.x"].shape == (18, 256)
scales.copy_(torch.arange(36).view(18, 2))
# As DeepGEMM on Hopper takes them; FlashInfer takes them as they are, and offsets.
assert scales.is_contiguous() and scales.dtype == torch.float32
assert buffers.planned["offsets"].shape == (5,) and buffers.planned["offsets"].dtype == torch.int32
assert layer.column_scales().equal(scales) and layer.column_scales().stride() == (1, 20)
buffers.destroy()

buffers = heddle.Buffers(**options, inner=64)
gate_up, down = torch.zeros(4, 128, 128, dtype=torch.bfloat16), torch.zeros(4, 128, 64, dtype=torch.bfloat16)
layers = [heddle.Experts(buffers, gate_up, down), heddle.Experts(buffers, gate_up.clone(), down.clone())]
for layer in layers:
    assert layer(*brought(5)).shape == (5, 128)
print(refused(heddle.Experts, buffers, gate_up, down.transpose(1, 2)))
print(refused(heddle.Experts, buffers, gate_up, down, down_bias=down))
print(refused(heddle.ExpertParallel, buffers))
# Experts of Heddle's have no gradient, which is said, not lost.
x, ids, weights = brought(5)
try:
    layers[0](x.requires_grad_(), ids, weights).sum().backward()
except RuntimeError as error:
    print(str(error).partition(".")[0])
x, ids, weights = brought(5)
# A compiled model calls the same, as one graph, and its shapes are known ahead.
model = torch.compile(lambda *brought: layers[1](*brought) + 1, fullgraph=True, backend="aot_eager")
assert model(*brought(4)).shape == (4, 128)
assert list(buffers.local_experts) == [0, 1, 2, 3] and buffers.memory["inner rows"] > 0
buffers.destroy()

buffers = heddle.Buffers(**options, counts=True, masks=True, waits=True, places=6)
layer = heddle.ExpertParallel(buffers, places=[0, 1, 2, 3, 0, -1])
assert layer.dispatch(*brought(3))["counts"].shape == (6,) and list(buffers.local_experts) == list(range(6))
print(refused(layer.place, [0, 1, 2, 3]))
print(refused(heddle.ExpertParallel, buffers))
print(refused(buffers.mask, [0]))
assert layer.routed.shape == (2, 4) and buffers.masked == frozenset()
# A mask gives up the round, and windows are as they were before the first; the words of a larger world's ranks show which are out.
told = buffers._told["masked"].fill_(7)
buffers.ranks = 96
buffers.mask([31, 64])
assert told.tolist() == [-(2**31), 0, 1, 0] and buffers.masked == {31, 64}
buffers.ranks = 1
layer.dispatch(*brought(2))
layer.combine()
assert [of.tolist() for of in buffers.waits().values()] == [[0], [0]]
waited, rounds = buffers._told["waited"], buffers._told["waiters"]
waited.fill_(-1)
rounds.fill_(-1)
# Of rounds 1 and 2 only the second waited in combine.
rounds[0, 0], rounds[1, 0] = 0, 1
waited.view(torch.int64)[0, :2, 0, 0] = torch.tensor([1000, 3000])
waited.view(torch.int64)[1, 1, 0, 0] = 5000
assert [of.tolist() for of in buffers.waits().values()] == [[2], [5]]
buffers.destroy()
