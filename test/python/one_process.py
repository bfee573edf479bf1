"""Small models in f32 over ranks beside one process that has all experts: the gradients of a training step, and the tokens that they generate. Gradients
through `heddle.dispatch` and `heddle.combine` also beside finite differences in f64. On CPUs a stand-in, which torch's collectives make, takes the place
of Heddle's rounds.

    python3 test/python/one_process.py [--ranks 2] [--device cuda]
"""

import argparse
import copy
import os
import socket
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import AutoModelForCausalLM, DeepseekV3Config, GptOssConfig, MixtralConfig, Qwen3MoeConfig

import heddle
import heddle.ops
import heddle.transformers

#: Of the models; and their numbers of tokens, which differ.
SMALL = dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=512, num_experts_per_tok=4)
MODELS = [
    Qwen3MoeConfig(**SMALL, num_key_value_heads=2, head_dim=64, intermediate_size=256, moe_intermediate_size=128, num_experts=16),
    DeepseekV3Config(
        **SMALL,
        moe_intermediate_size=128,
        num_key_value_heads=4,
        intermediate_size=256,
        n_routed_experts=16,
        n_group=4,
        topk_group=2,
        first_k_dense_replace=1,
        q_lora_rank=64,
        kv_lora_rank=32,
        qk_rope_head_dim=32,
        qk_nope_head_dim=32,
        v_head_dim=64,
    ),
    *(of(**SMALL, num_key_value_heads=2, head_dim=64, intermediate_size=128, num_local_experts=16) for of in (GptOssConfig, MixtralConfig)),
]
SHAPES = [dict(experts=16, top_k=4, max_tokens=64, hidden=hidden, dtype="f32") for hidden in (256, 4)]


class Buffers:
    """What heddle.Buffers say of themselves."""

    def __init__(self, group=None, *, gradients=False, dtype="f32", **options):
        self.rank, self.ranks, self.device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
        self.shape = SimpleNamespace(ranks=self.ranks, dtype=dtype, dispatch="same", **options)
        each = self.shape.experts // self.ranks
        self.local_experts = range(self.rank * each, (self.rank + 1) * each)
        self.gradients = Buffers(**{**options, "hidden": -(-self.shape.top_k // 4) * 4}) if gradients else None
        if self.gradients is not None:
            heddle.ops._beside[self.gradients] = Rounds(self.gradients)

    def check(self):
        pass

    destroy = check


class Rounds:
    """heddle.ExpertParallel by all-gathers: dispatch leaves the slots with an expert here, and combine sums over all ranks."""

    def __init__(self, buffers):
        self._handle = heddle.ops.handle(self)
        self.buffers = buffers

    def dispatch(self, x, ids, weights):
        shape, here = self.buffers.shape, self.buffers.local_experts
        self.tokens = len(x)

        def everyones(mine, nothing):
            padded = mine.new_full((shape.max_tokens, mine.shape[1]), nothing)
            padded[: len(mine)] = mine
            all_ranks = [torch.empty_like(padded) for _ in range(shape.ranks)]
            dist.all_gather(all_ranks, padded)
            return torch.stack(all_ranks)

        ids = everyones(ids, -1)
        experts = torch.where((ids >= here.start) & (ids < here.stop), ids, -1)
        weights = torch.where(experts >= 0, everyones(weights, 0), 0)
        self.here = (experts >= 0).any(-1, keepdim=True)
        rows = everyones(x, 0)
        self.received = {"experts": experts, "weights": weights, "payloads.x": rows, "output": torch.full_like(rows, float("nan"))}
        return self.received

    def combine(self):
        sums = torch.where(self.here, self.received["output"], 0)
        dist.all_reduce(sums)
        return sums[self.buffers.rank, : self.tokens].clone()


def differences():
    """The largest difference of a gradient from finite differences, of the largest gradient: of rows, router weights and experts, in f64."""
    heddle.ops._layers.clear()
    buffers = Buffers(experts=6, top_k=3, max_tokens=4, hidden=4, gradients=True)
    layer, rank = Rounds(buffers), buffers.rank
    torch.manual_seed(1)
    weights = torch.randn(6, 4, 4, dtype=torch.float64).requires_grad_()
    torch.manual_seed(2 + rank)
    tokens = 4 - rank
    x = torch.randn(tokens, 4, dtype=torch.float64).requires_grad_()
    scores = torch.rand(tokens, 3, dtype=torch.float64).requires_grad_()
    ids = torch.rand(tokens, 6).topk(3).indices.int()
    ids[0, 1] = -1
    goal = torch.randn(tokens, 4, dtype=torch.float64)

    def loss():
        rows, experts, shares = heddle.dispatch(layer, x, ids, scores)
        made = torch.zeros_like(rows)
        for e in buffers.local_experts:
            made = made + (shares * (experts == e)).sum(-1, keepdim=True) * torch.tanh(rows @ weights[e])
        return (heddle.combine(layer, made, ids) * goal).sum()

    def whole():
        """The loss of all ranks together, as all of them know it."""
        with torch.no_grad():
            total = loss()
            dist.all_reduce(total)
        return total.item()

    loss().backward()
    dist.all_reduce(weights.grad)
    worst, step = 0.0, 1e-6
    # Ranks take turns with what is their own; weights all change alike.
    of = [(who, tensor) for who in range(buffers.ranks) for tensor in (x, scores)] + [(None, weights)]
    for who, tensor in of:
        mine = who in (None, rank)
        size = torch.tensor(tensor.numel() if mine else 0)
        dist.all_reduce(size, op=dist.ReduceOp.MAX)
        found = []
        for i in range(int(size)):
            sides = []
            for change in (step, -2 * step, step):
                if mine:
                    tensor.data.view(-1)[i] += change
                sides.append(whole())
            found.append((sides[0] - sides[1]) / (2 * step))
        if mine:
            worst = max(worst, ((torch.tensor(found) - tensor.grad.view(-1)).abs().max() / tensor.grad.abs().max()).item())
    return worst


def model_of(config, device):
    """The same on all ranks."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager").eval()
    with torch.no_grad():
        for name, of in model.named_parameters():
            # Routes that are far apart.
            if "gate.weight" in name or "router.weight" in name:
                of.normal_(0, 0.5)
    return model.to(device)


def ended(buffers):
    buffers.check()
    if buffers.device.type == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
    buffers.destroy()


@torch.no_grad()
def generated(config, device, batches):
    """The share of tokens that are others than those of one process. A rank has so many prompts, and prompts of its own length."""
    rank, tokens = dist.get_rank(), 16
    model = model_of(config, device)
    mine = batches[rank % len(batches)]
    prompts = torch.randint(0, 512, (mine, 5 + 2 * rank), generator=torch.Generator().manual_seed(rank)).to(device)
    how = dict(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    alone = model.generate(prompts, **how) if mine > 0 else prompts
    heddle.transformers.shard(model)
    buffers = heddle.transformers.use(model, max_tokens=64)
    shared = prompts
    if mine > 0:
        shared = model.generate(prompts, **how)
    else:
        heddle.transformers.idle(model, tokens)
    ended(buffers)
    return (alone != shared).float().mean().item() if mine > 0 else 0


def trained(config, device):
    """The largest relative difference of a parameter's gradient from that of one process."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    alone = model_of(config, device)
    shared = copy.deepcopy(alone)
    batch = torch.randint(0, 512, (ranks, 3, 12), generator=torch.Generator().manual_seed(5)).to(device)

    def step(model, tokens):
        logits = model(tokens[:, :-1]).logits
        (torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum") / batch.numel()).backward()

    step(alone, batch.flatten(0, 1))
    heddle.transformers.shard(shared)
    buffers = heddle.transformers.use(shared, max_tokens=64, gradients=True)
    step(shared, batch[rank])
    worst, known = 0.0, dict(alone.named_parameters())
    for name, of in shared.named_parameters():
        expected = known[name].grad
        if ".experts." in name:
            expected = expected[buffers.local_experts.start : buffers.local_experts.stop]
        else:
            dist.all_reduce(of.grad)
        worst = max(worst, ((of.grad - expected).norm() / expected.norm().clamp_min(1e-12)).item())
    ended(buffers)
    return worst


def be(rank, port, given):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    device = torch.device(given.device, rank) if given.device == "cuda" else torch.device("cpu")
    if given.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if given.device == "cuda" else "gloo", rank=rank, world_size=given.ranks)
    parts = []
    if given.device == "cpu":
        heddle.transformers.Buffers, heddle.transformers.ExpertParallel = Buffers, Rounds
        parts.append(("finite differences: gradients", differences, 1e-6))
    for config in MODELS:
        name = config.model_type
        if name != "gpt_oss":
            parts.append((f"{name}: gradients", lambda config=config: trained(config, device), 2e-5))
        for batches in ([2, 3], [2, 0]):
            parts.append((f"{name}: tokens of {batches} prompts", lambda config=config, batches=batches: generated(config, device, batches), 0))
    for name, run, most in parts:
        worst = [None] * given.ranks
        dist.all_gather_object(worst, run())
        if rank == 0:
            print(f"{name} {'agree' if max(worst) <= most else 'DIFFER'}" + f" ({max(worst):.1e})" * given.figures, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--figures", action="store_true", help="says how far they differ")
    parser.add_argument("--compile", action="store_true", help="compiles what Heddle needs, without a GPU")
    given = parser.parse_args()
    if given.compile:
        from heddle import _cache

        for shape in SHAPES:
            print(_cache.compiled(heddle.Shape(ranks=given.ranks, **shape)))
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        mp.spawn(be, (port, given), nprocs=given.ranks)
