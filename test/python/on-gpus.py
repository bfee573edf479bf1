"""The Python package on GPUs: rounds and layers beside torch, then what they take. A process a GPU; nothing else is needed.

    python3 test/python/on-gpus.py [--ranks 4] [--nodes 2] [--json figures.json]
"""

import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import heddle

#: One layer of Qwen3-235B.
QWEN = dict(experts=128, top_k=8, hidden=4096, inner=1536)
#: One of gpt-oss-20b, in bf16 and as it is published.
GPT = [dict(experts=32, top_k=4, hidden=2880, inner=2880, activation="clamped-swiglu", weights=weights) for weights in ("bf16", "mxfp4")]
TOKENS = (8, 32, 128, 512, 4096)
SMALL = dict(experts=16, top_k=4, max_tokens=64, hidden=1024)
#: What is verified, beside a reference in f32.
ROUNDS = [dict(), dict(split=True), dict(dispatch="fp8"), dict(family="portable"), dict(combine="mxfp8")]
SORTS = [dict(sort="masked", alignment=16), dict(sort="contiguous", alignment=128)]
LAYERS = [dict(), dict(max_tokens=1024), dict(biases=True, activation="clamped-swiglu"), dict(dispatch="fp8", weights="e4m3"), dict(split=True)]
LAYERS += [dict(weights="mxfp4"), dict(weights="mxfp4", max_tokens=1024, biases=True, activation="clamped-swiglu")]
MASKED = [dict(masks=True, waits=True), dict(masks=True, waits=True, family="portable")]
PLACED = [dict(places=24)]
TRAINED = dict(experts=16, top_k=4, max_tokens=64, hidden=256, dtype="f32")
#: Those of examples/python/generate.py.
GENERATED = [dict(SMALL, hidden=256, inner=128), dict(SMALL, hidden=256, inner=128, biases=True, activation="clamped-swiglu")]
#: Buffers for as many tokens as come; and large ones, to which few come.
TIMED = [(dict(QWEN, max_tokens=tokens), (tokens,)) for tokens in TOKENS[:-1]] + [(dict(QWEN, max_tokens=TOKENS[-1]), TOKENS)]
TIMED += [(dict(of, max_tokens=1024), (8, 32, 128, 1024)) for of in GPT]

#: With --nodes: what is verified, and DeepSeek-V3's layer, as `heddle bench --nodes` has it.
ACROSS = [("rounds", dict()), ("rounds", dict(split=True)), ("rounds", dict(dispatch="fp8")), ("layers", dict())]
TIMED_ACROSS = [(dict(experts=256, top_k=8, hidden=7168, inner=2048, max_tokens=tokens), (tokens,)) for tokens in (8, 128)]


def shapes(ranks, nodes):
    """Every shape of this page."""
    options = [{**SMALL, **of} for of in ROUNDS + SORTS + MASKED + PLACED] + [{**SMALL, "inner": 256, **of} for of in LAYERS]
    options += [of for of, _ in TIMED] + GENERATED
    options += [TRAINED, {**TRAINED, "hidden": 4}]
    if nodes > 1:
        inner = {"rounds": {}, "layers": {"inner": 256}}
        options = [{**SMALL, **inner[name], **of} for name, of in ACROSS] + [of for of, _ in TIMED_ACROSS]
    return [heddle.Shape(ranks=ranks, nodes=nodes, **of) for of in options]


def inputs(shape, rank, tokens, seed):
    torch.manual_seed(1000 * seed + rank)
    x = torch.randn(tokens, shape.hidden, device="cuda").bfloat16()
    ids = torch.rand(tokens, shape.experts, device="cuda").topk(shape.top_k).indices.int()
    ids[torch.rand(tokens, shape.top_k, device="cuda") < 0.05] = -1
    return x, ids, torch.rand(tokens, shape.top_k, device="cuda")


def difference(out, expected):
    torch.cuda.synchronize()
    return ((out.float() - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def rounds(options):
    """Rounds whose experts are matrices of torch's, which every rank knows."""
    buffers = heddle.Buffers(**{**SMALL, **options})
    shape, received = buffers.shape, buffers.received
    torch.manual_seed(1)
    weights = torch.randn(shape.experts, shape.hidden, shape.hidden, device="cuda") / shape.hidden**0.5
    layer, found = heddle.ExpertParallel(buffers), []
    for seed, tokens in enumerate([shape.max_tokens, 7, 0 if buffers.rank else 3, 1]):
        x, ids, scores = inputs(shape, buffers.rank, tokens, seed)
        if shape.split:
            layer.dispatch_send(x, ids, scores)
            layer.dispatch_recv()
        else:
            layer.dispatch(x, ids, scores)
        here = received["experts"]
        rows = received["payloads.x"].float()
        if shape.dispatch == "fp8":
            scales = received["payloads.scales"].view(torch.float32)
            rows = (rows.unflatten(-1, (-1, 128)) * scales.unsqueeze(-1)).flatten(-2)
        rows = torch.where((here >= 0).any(-1, keepdim=True), rows, 0)
        total = torch.zeros(received["output"].shape, device="cuda")
        for e in buffers.local_experts:
            total += (received["weights"] * (here == e)).sum(-1, keepdim=True) * (rows @ weights[e])
        received["output"].copy_(total)
        if shape.split:
            layer.combine_send()
            out = layer.combine_recv()
        else:
            out = layer.combine()
        chosen = torch.where(ids < 0, 0, scores)
        routes = torch.zeros(tokens, shape.experts, device="cuda").scatter_add_(1, ids.clamp_min(0).long(), chosen)
        expected = sum(routes[:, e, None] * (x.float() @ weights[e]) for e in range(shape.experts))
        found.append(difference(out, expected) if tokens else 0)
    buffers.check()
    end(buffers)
    return max(found)


def sorts(options):
    """Rounds around batched GEMMs of torch, on rows that a plan sorted."""
    buffers = heddle.Buffers(**{**SMALL, **options})
    shape, planned = buffers.shape, buffers.planned
    torch.manual_seed(1)
    weights = (torch.randn(shape.experts, shape.hidden, shape.hidden, device="cuda") / shape.hidden**0.5).bfloat16()
    mine = weights[buffers.local_experts.start : buffers.local_experts.stop]
    layer, found = heddle.SortedRows(buffers), []
    for seed, tokens in enumerate([shape.max_tokens, 7, 0 if buffers.rank else 3]):
        x, ids, scores = inputs(shape, buffers.rank, tokens, seed)
        rows = layer.dispatch(x, ids, scores)["rows.x"]
        if shape.sort == "masked":
            planned["made"].copy_(rows @ mine)
        else:
            owners = layer.owners()
            for e in range(len(mine)):
                here = owners == e
                assert int(here.sum()) == int(planned["counts"][e])
                planned["made"][here] = rows[here] @ mine[e]
        out = layer.combine()
        chosen = torch.where(ids < 0, 0, scores)
        routes = torch.zeros(tokens, shape.experts, device="cuda").scatter_add_(1, ids.clamp_min(0).long(), chosen)
        expected = sum(routes[:, e, None] * (x.float() @ weights[e].float()) for e in range(shape.experts))
        found.append(difference(out, expected) if tokens else 0)
    buffers.check()
    end(buffers)
    return max(found)


def quantised(weights):
    """e4m3 with an f32 for every 128 × 128; and what they stand for."""
    experts, rows, columns = weights.shape
    blocks = weights.view(experts, rows // 128, 128, columns // 128, 128)
    scales = blocks.abs().amax((2, 4)) / 448
    small = (blocks / scales[:, :, None, :, None]).to(torch.float8_e4m3fn)
    return small.view(weights.shape), scales, (small.float() * scales[:, :, None, :, None]).view(weights.shape)


def packed(weights):
    """MXFP4, with a power of two for every 32 of a row; and what they stand for."""
    blocks = weights.unflatten(-1, (-1, 32))
    powers = blocks.abs().amax(-1).log2().floor() - 2
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=weights.device)
    scaled = blocks / torch.exp2(powers)[..., None]
    nearest = torch.bucketize(scaled.abs(), (sizes[1:] + sizes[:-1]) / 2)
    known = (sizes[nearest] * scaled.sign() * torch.exp2(powers)[..., None]).flatten(-2)
    halves = (nearest + 8 * (scaled < 0)).flatten(-2).to(torch.uint8)
    return halves[..., 0::2] | halves[..., 1::2] << 4, (powers + 127).to(torch.uint8).transpose(1, 2).contiguous(), known


def random_layer(shape):
    """The weights of all experts in f32, as the layer has them, and how `heddle.Experts` takes those of this rank."""
    torch.manual_seed(2)
    made = dict(gate_up=torch.randn(shape.experts, 2 * shape.inner, shape.hidden, device="cuda") / shape.hidden**0.5)
    made["down"] = torch.randn(shape.experts, shape.hidden, shape.inner, device="cuda") / shape.inner**0.5
    if shape.biases:
        made["gate_up_bias"] = torch.randn(shape.experts, 2 * shape.inner, device="cuda") / 4
        made["down_bias"] = torch.randn(shape.experts, shape.hidden, device="cuda") / 4
    given = {name: of.bfloat16() for name, of in made.items()}
    known = {name: of.float() for name, of in given.items()}
    if shape.weights != "bf16":
        for name in ("gate_up", "down"):
            given[name], given[f"{name}_scales"], known[name] = (packed if shape.weights == "mxfp4" else quantised)(made[name])
    return known, given


def expert(shape, weights, e, x):
    both = x @ weights["gate_up"][e].T
    if shape.biases:
        both = both + weights["gate_up_bias"][e]
    gate, up = both[:, : shape.inner], both[:, shape.inner :]
    if shape.activation == "swiglu":
        inner = torch.nn.functional.silu(gate) * up
    else:  # gpt-oss's.
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        inner = (up + 1) * gate * torch.sigmoid(1.702 * gate)
    out = inner @ weights["down"][e].T
    return out + weights["down_bias"][e] if shape.biases else out


def layers(options):
    """Layers whose experts are Heddle's; two of them over one set, and a CUDA graph of both."""
    buffers = heddle.Buffers(**{**SMALL, "inner": 256, **options})
    shape = buffers.shape
    known, given = random_layer(shape)
    mine = slice(buffers.local_experts.start, buffers.local_experts.stop)
    first = heddle.Experts(buffers, **{name: of[mine].contiguous() for name, of in given.items()})
    # The second has the weights in another order.
    turned = {name: torch.cat([of[-1:], of[:-1]]) for name, of in given.items()}
    second = heddle.Experts(buffers, **{name: of[mine].contiguous() for name, of in turned.items()})
    swapped = {name: of.roll(1, 0) for name, of in known.items()}

    def reference(weights, x, ids, scores):
        out = torch.zeros(x.shape, device="cuda")
        for e in range(shape.experts):
            share = (scores * (ids == e)).sum(-1, keepdim=True)
            out += share * expert(shape, weights, e, x.float())
        return out

    found = []
    for seed, tokens in enumerate([shape.max_tokens, 5, 0 if buffers.rank else 3]):
        x, ids, scores = inputs(shape, buffers.rank, tokens, seed)
        one, two = first(x, ids, scores), second(x, ids, scores)
        if tokens:
            found += [difference(one, reference(known, x, ids, scores)), difference(two, reference(swapped, x, ids, scores))]
    x, ids, scores = inputs(shape, buffers.rank, shape.max_tokens, 9)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one = first(x, ids, scores)
        two = second(one, ids, scores)
    for seed in range(10, 13):
        for to, new in zip((x, ids, scores), inputs(shape, buffers.rank, shape.max_tokens, seed)):
            to.copy_(new)
        graph.replay()
        expected = reference(known, x, ids, scores)
        found += [difference(one, expected), difference(two, reference(swapped, one, ids, scores))]
    buffers.check()
    del graph
    end(buffers)
    return max(found)


def trained(_):
    """Gradients of rows, router weights and experts, beside a process that has all experts; and a compiled layer."""
    buffers = heddle.Buffers(**TRAINED, gradients=True)
    shape, layer = buffers.shape, heddle.ExpertParallel(buffers)
    torch.manual_seed(1)
    weights = (torch.randn(shape.experts, shape.hidden, shape.hidden, device="cuda") / shape.hidden**0.5).requires_grad_()
    alone = weights.detach().clone().requires_grad_()
    x, ids, scores = inputs(shape, buffers.rank, shape.max_tokens - 8 * buffers.rank, 3)
    mine, theirs = ([of.float().detach().clone().requires_grad_() for of in (x, scores)] for _ in range(2))
    ids = torch.rand(len(x), shape.experts, device="cuda").topk(shape.top_k).indices.int()
    goal = torch.randn(len(x), shape.hidden, device="cuda")
    rows, experts, shares = heddle.dispatch(layer, mine[0], ids, mine[1])
    made = torch.zeros_like(rows)
    for e in buffers.local_experts:
        made = made + (shares * (experts == e)).sum(-1, keepdim=True) * torch.tanh(rows @ weights[e])
    out = heddle.combine(layer, made, ids)
    (out * goal).sum().backward()
    expected = torch.zeros_like(out)
    for e in range(shape.experts):
        expected = expected + (theirs[1] * (ids == e)).sum(-1, keepdim=True) * torch.tanh(theirs[0] @ alone[e])
    (expected * goal).sum().backward()
    everyones = alone.grad.cpu()
    dist.all_reduce(everyones)
    here = slice(buffers.local_experts.start, buffers.local_experts.stop)
    pairs = [(out.detach(), expected.detach()), (mine[0].grad, theirs[0].grad), (mine[1].grad, theirs[1].grad)]
    pairs.append((weights.grad[here], everyones[here].cuda()))
    found = [difference(one, other) for one, other in pairs]
    buffers.check()
    end(buffers)
    return max(found)


def masked(options):
    """The last rank stays away. The others' waits give up and name it; they leave it out, and repeat the round, in a graph that was captured before, too."""
    buffers = heddle.Buffers(**{**SMALL, **options}, wait_ms=2000)
    shape, last = buffers.shape, buffers.ranks - 1
    staying = dist.new_group(list(range(last)))
    layer, received = heddle.ExpertParallel(buffers), buffers.received
    places = shape.places or shape.experts
    torch.manual_seed(1)
    weights = torch.randn(places, device="cuda")
    x, ids, scores = inputs(shape, buffers.rank, 9, 3)
    out = torch.empty_like(x)

    def run():
        layer.dispatch(x, ids, scores)
        here = received["experts"]
        factors = (received["weights"] * torch.where(here < 0, 0, weights[here.clamp_min(0).long()])).sum(-1, keepdim=True)
        received["output"].copy_(torch.where(factors == 0, 0, factors * received["payloads.x"].float()))
        layer.combine(out)

    def differs(out_too):
        there = torch.where(ids.clamp_min(0) // (places // buffers.ranks) == last, 0, 1) if out_too else 1
        chosen = torch.where(ids < 0, 0, scores) * there * weights[ids.clamp_min(0).long()]
        return difference(out, x.float() * chosen.sum(-1, keepdim=True))

    run()
    found = [differs(False)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    found.append(differs(False))
    waited = buffers.waits()
    assert all(of.shape == (buffers.ranks,) and (of >= 0).all() for of in waited.values())
    dist.barrier()
    if buffers.rank != last:
        run()
        torch.cuda.synchronize()
        try:
            buffers.check()
            raise AssertionError("nobody was missed")
        except heddle.RankLostError as error:
            assert error.rank == last or buffers.ranks > 2, error
        buffers.mask([last], group=staying)
        run()
        found.append(differs(True))
        graph.replay()
        found.append(differs(True))
        buffers.check()
    del graph
    end(buffers)
    return max(found)


def placed(options):
    """Experts in several places, which change: a row gets what its expert makes of it, wherever that lives."""
    buffers = heddle.Buffers(**{**SMALL, **options})
    shape, received = buffers.shape, buffers.received
    many = shape.places - shape.experts
    both = [[*range(shape.experts), *range(many)], [*range(many), *reversed(range(shape.experts))]]
    layer, found = heddle.ExpertParallel(buffers, places=both[0]), []
    torch.manual_seed(1)
    weights = torch.randn(shape.experts, device="cuda")
    for seed, now in enumerate([both[0], both[1]]):
        layer.place(now)
        x, ids, scores = inputs(shape, buffers.rank, 50, seed)
        layer.dispatch(x, ids, scores)
        here = received["experts"]
        experts = torch.tensor(now, device="cuda")[here.clamp_min(0).long()]
        factors = (received["weights"] * torch.where(here < 0, 0, weights[experts])).sum(-1, keepdim=True)
        received["output"].copy_(torch.where(factors == 0, 0, factors * received["payloads.x"].float()))
        chosen = torch.where(ids < 0, 0, scores) * weights[ids.clamp_min(0).long()]
        found.append(difference(layer.combine(), x.float() * chosen.sum(-1, keepdim=True)))
    assert int(layer.routed[0].sum()) > 0 and int(layer.routed[1].sum()) == 0
    buffers.check()
    end(buffers)
    return max(found)


def compiled(options):
    """A compiled model of two layers makes what it makes uncompiled."""
    buffers = heddle.Buffers(**{**SMALL, "inner": 256, **options})
    _, given = random_layer(buffers.shape)
    mine = slice(buffers.local_experts.start, buffers.local_experts.stop)
    layer = heddle.Experts(buffers, **{name: of[mine].contiguous() for name, of in given.items()})

    def model(x, ids, scores):
        x = x + layer(x, ids, scores)
        return x + layer(x, ids, scores)

    brought = inputs(buffers.shape, buffers.rank, 7, 5)
    found = difference(torch.compile(model, fullgraph=True, backend="aot_eager")(*brought), model(*brought).float())
    end(buffers)
    return found


def end(buffers):
    torch.cuda.synchronize()
    dist.barrier()
    buffers.destroy()


def slowest(value):
    everyones = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, value)
    return max(everyones)


def timed(options, all_tokens):
    """µs of a layer, and of what it consists of, with each number of tokens: enqueued one by one, in a CUDA graph, and what Python alone
    takes. Ranks bring tokens of their own: `heddle bench layer` gives all the same, which reach fewer experts where they are few.
    """
    buffers = heddle.Buffers(**options)
    shape = buffers.shape
    each = len(buffers.local_experts)
    gate_up = torch.randn(each, 2 * shape.inner, shape.hidden, device="cuda", dtype=torch.bfloat16) / shape.hidden**0.5
    down = torch.randn(each, shape.hidden, shape.inner, device="cuda", dtype=torch.bfloat16) / shape.inner**0.5
    given = dict(gate_up=gate_up, down=down)
    if shape.weights == "mxfp4":
        for name, of in list(given.items()):
            given[name], given[f"{name}_scales"], _ = packed(of.float())
    layer = heddle.Experts(buffers, **given)
    all_figures = [times(buffers, layer, tokens) for tokens in all_tokens]
    buffers.check()
    end(buffers)
    return all_figures


def times(buffers, layer, tokens):
    shape = buffers.shape
    x, ids, scores = inputs(shape, buffers.rank, tokens, 1)
    ids = torch.rand(tokens, shape.experts, device="cuda").topk(shape.top_k).indices.int()
    out = torch.empty_like(x)

    def whole():
        layer.forward(x, ids, scores, out)

    def parts():
        layer.dispatch(x, ids, scores)
        layer.combine(out)

    def launches():
        """What the whole layer enqueues, without what Python does before."""
        buffers._run("dispatchSend", "combineRecv", layer._values)

    figures = {"hidden": shape.hidden, "weights": shape.weights, "tokens": tokens, "max_tokens": shape.max_tokens}
    many = 20
    for name, run in (("layer", whole), ("launches", launches), ("dispatch_combine", parts)):
        for _ in range(10):
            run()
        torch.cuda.synchronize()
        dist.barrier()
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        samples, host = [], []
        for _ in range(9):
            dist.barrier()
            begun.record()
            start = time.perf_counter()
            for _ in range(many):
                run()
            host.append((time.perf_counter() - start) / many * 1e6)
            ended.record()
            torch.cuda.synchronize()
            samples.append(begun.elapsed_time(ended) / many * 1e3)
        graph = torch.cuda.CUDAGraph()
        dist.barrier()
        with torch.cuda.graph(graph):
            for _ in range(many):
                run()
        graphed = []
        for _ in range(12):
            dist.barrier()
            begun.record()
            graph.replay()
            ended.record()
            torch.cuda.synchronize()
            graphed.append(begun.elapsed_time(ended) / many * 1e3)
        median = lambda all: sorted(all)[len(all) // 2]
        figures[f"{name}_eager_us"] = slowest(median(samples))
        figures[f"{name}_graph_us"] = slowest(median(graphed[3:]))
        figures[f"{name}_python_us"] = slowest(min(host))
        del graph
    return figures


def be(rank, ranks, port, json_file, untimed, nodes):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    say = print if rank == 0 else lambda *_, **__: None
    figures, wrong = {"gpu": torch.cuda.get_device_name(), "ranks": ranks, "verified": {}, "timed": []}, 0
    runs = dict(rounds=rounds, sorts=sorts, layers=layers, placed=placed, masked=masked, trained=trained, compiled=compiled)
    parts, all_timed = dict(rounds=ROUNDS, sorts=SORTS, layers=LAYERS, placed=PLACED, masked=MASKED, trained=[{}], compiled=[{}]), TIMED
    if nodes > 1:
        parts = {name: [dict(of, nodes=nodes) for other, of in ACROSS if other == name] for name in ("rounds", "layers")}
        all_timed = [(dict(of, nodes=nodes), tokens) for of, tokens in TIMED_ACROSS]
    for name, all_options in parts.items():
        run = runs[name]
        for options in all_options:
            worst = slowest(run(options))
            most = 8e-2 if "fp8" in str(options) or "mxfp8" in str(options) else 1e-2
            wrong += worst > most
            figures["verified"][f"{name} {options}"] = worst
            say(f"{name} {options}: {worst:.1e} from torch{'' if worst <= most else ', which is WRONG'}", flush=True)
    for options, tokens in [] if untimed else all_timed:
        for one in timed(options, tokens):
            figures["timed"].append(one)
            say({key: round(value, 1) if isinstance(value, float) else value for key, value in one.items()}, flush=True)
    if rank == 0 and json_file:
        with open(json_file, "w") as file:
            json.dump(figures, file, indent=2)
    dist.destroy_process_group()
    if wrong:
        raise SystemExit(f"{wrong} are wrong")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    parser.add_argument("--nodes", type=int, default=1, help="ranks are of so many, all on this host: their rows cross its network")
    parser.add_argument("--json")
    parser.add_argument("--untimed", action="store_true", help="verifies only")
    parser.add_argument("--compile", action="store_true", help="compiles every shape of this page, which needs no GPU")
    given = parser.parse_args()
    if given.compile:
        from heddle import _cache

        for shape in shapes(given.ranks, given.nodes):
            print(_cache.compiled(shape))
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        mp.spawn(be, (given.ranks, port, given.json, given.untimed, given.nodes), nprocs=given.ranks)
