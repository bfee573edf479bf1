"""Whole models of transformers with random weights: tokens a second with Heddle, with transformers' own expert parallelism, and with an all-to-all
of torch. A process a GPU, and a line of JSON for each figure as it is made; a part that takes too long ends its model, not the others.

    python3 test/python/models.py --ranks 2 [--models qwen3_30b gpt_oss_20b deepseek_v3] [--layers 48] [--out figures.jsonl]

heddle      each rank its own batch, by `experts_implementation='heddle'`
masked      transformers' expert parallelism: every rank has the whole batch, leaves out what others' experts do, and all add up
exchanged   each rank its own batch, rows by NCCL's all-to-all, experts by torch's grouped GEMMs; how many come the host must know, so no graph
"""

import argparse
import copy
import json
import os
import socket
import sys
import threading
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, DeepseekV3Config, FineGrainedFP8Config, GptOssConfig, MixtralConfig, Qwen3MoeConfig, StaticCache
from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, _grouped_linear, grouped_mm_experts_forward

import heddle
from heddle.transformers import _PackedExperts, experts_of, use

#: Sequences that a rank decodes, and those that it prefills.
DECODED, PREFILLED = 32, 4
#: Tokens of a sequence that is decoded.
CACHED = 64
WAYS = ("masked", "exchanged", "heddle")
CONFIGS = {
    "qwen3_30b": lambda layers: Qwen3MoeConfig(
        hidden_size=2048,
        num_hidden_layers=layers or 48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_experts=128,
        num_experts_per_tok=8,
        norm_topk_prob=True,
        vocab_size=151936,
    ),
    "gpt_oss_20b": lambda layers: GptOssConfig(
        hidden_size=2880,
        num_hidden_layers=layers or 24,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=2880,
        num_local_experts=32,
        num_experts_per_tok=4,
        vocab_size=201088,
    ),
    # The same in the four bits in which it is published, which only Heddle runs.
    "gpt_oss_20b_mxfp4": lambda layers: CONFIGS["gpt_oss_20b"](layers),
    "mixtral_8x7b": lambda layers: MixtralConfig(num_hidden_layers=layers or 32),
    # As many layers as fit, all of them with experts, which are fp8; the others are bf16. torch's ways need kernels from the network.
    "deepseek_v3": lambda layers: DeepseekV3Config(
        num_hidden_layers=layers or 4, first_k_dense_replace=0, num_nextn_predict_layers=0
    ),
}
#: Small ones, to try the page with.
SMALL = {
    "gpt_oss_20b_mxfp4": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=128),
    "qwen3_30b": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=256),
    "gpt_oss_20b": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=128),
    "mixtral_8x7b": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=128),
    "deepseek_v3": dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=4, intermediate_size=256),
}


def config_of(name, given):
    config = CONFIGS[name](given.layers)
    if given.small:
        for key, value in {**SMALL[name], "moe_intermediate_size": 128, "vocab_size": 512}.items():
            setattr(config, key, value)
    return config


def shapes(name, given):
    """The shapes that Heddle compiles for a model."""
    config, fp8 = config_of(name, given), name == "deepseek_v3"
    gpt = name.startswith("gpt_oss")
    inner = config.intermediate_size if gpt or name == "mixtral_8x7b" else config.moe_intermediate_size
    kind = dict(activation="clamped-swiglu", biases=True) if gpt else {}
    if name == "gpt_oss_20b_mxfp4":
        kind.update(weights="mxfp4")
    if fp8:
        kind = dict(weights="e4m3", dispatch="fp8")
    experts = getattr(config, "num_experts", None) or config.num_local_experts
    common = dict(ranks=given.ranks, experts=experts, top_k=config.num_experts_per_tok, hidden=config.hidden_size, inner=inner, **kind)
    return [heddle.Shape(**common, max_tokens=tokens) for tokens in (DECODED, PREFILLED * given.length)]


def build(config, rank, ranks, device, fp8, mxfp4):
    """A model whose weights are random: the same on all ranks, but for the experts, of which each has its own."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, experts_implementation="eager")
        if fp8:
            others = [name for name, of in model.named_modules() if type(of) is torch.nn.Linear]
            replace_with_fp8_linear(model, others, FineGrainedFP8Config())
    for name, module in list(model.named_modules()):
        if mxfp4 and module in list(experts_of(model)):
            model.set_submodule(name, _PackedExperts(module))
    for module in experts_of(model):
        for name, of in list(module.named_parameters(recurse=False)):
            part = torch.empty(of.shape[0] // ranks, *of.shape[1:], dtype=of.dtype, device="meta")
            setattr(module, name, torch.nn.Parameter(part, requires_grad=False))
        module.num_experts //= ranks
        module._is_expert_parallel = True
    model.to_empty(device=device)
    torch.manual_seed(0)
    model.init_weights()
    torch.manual_seed(1000 + rank)
    for module in experts_of(model):
        for name, of in module.named_parameters(recurse=False):
            if of.dtype == torch.uint8:
                # Scales of 2^-7: values up to 0.05.
                of.data.random_(0, 256) if "scale" not in name else of.data.fill_(120)
            elif of.dtype == torch.float8_e4m3fn:
                for expert in of.data:
                    expert.copy_(torch.randn(expert.shape, device=device).to(of.dtype))
            else:
                of.data.normal_(0, 0.02) if "scale" not in name else of.data.fill_(0.02)
    return model.eval()


def masked(self, x, ids, weights, *_):
    """The experts of transformers' expert parallelism (`moe_tp_experts`); the router's hook left out what is elsewhere."""
    out = grouped_mm_experts_forward(self, x, ids, weights).contiguous()
    dist.all_reduce(out)
    return out


def exchanged(self, x, ids, weights, *_):
    ranks, each, top_k = dist.get_world_size(), self.num_experts, ids.shape[1]
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=ranks * each)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    sent, came = counts.view(ranks, each).sum(1).tolist(), theirs.view(ranks, each)
    counted = came.sum(1).tolist()
    rows = x.new_empty(sum(counted), x.shape[1])
    dist.all_to_all_single(rows, x[order // top_k], counted, sent)
    owners = torch.repeat_interleave(torch.arange(each, device=x.device).repeat(ranks), came.flatten())
    by_expert = torch.argsort(owners, stable=True)
    owners, offsets = owners[by_expert], came.sum(0).cumsum(0).to(torch.int32)
    how = dict(is_transposed=self.is_transposed)
    biases = [getattr(self, f"{name}_proj_bias")[owners] if self.has_bias else None for name in ("gate_up", "down")]
    inner = self._apply_gate(_grouped_linear(rows[by_expert], self.gate_up_proj, offsets, biases[0], **how))
    made = torch.empty_like(rows)
    made[by_expert] = _grouped_linear(inner, self.down_proj, offsets, biases[1], **how)
    back = x.new_empty(len(order), x.shape[1])
    dist.all_to_all_single(back, made, sent, counted)
    back = back * weights.flatten()[order, None].to(x.dtype)
    return torch.zeros_like(x).index_add_(0, order // top_k, back)


class Bench:
    def __init__(self, rank, name, given):
        self.rank, self.name, self.given = rank, name, given
        self.cuda = given.device == "cuda"
        self.device = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        self.config = config_of(name, given)
        begun = time.perf_counter()
        self.model = build(self.config, rank, given.ranks, self.device, name == "deepseek_v3", "mxfp4" in name)
        self.mesh = init_device_mesh(given.device, (given.ranks,))
        self.way, self.buffers, self.made = "", None, {}
        # Of gpt-oss Heddle keeps its own form alone, so torch's ways come first.
        first = next(experts_of(self.model))
        self.first = copy.copy(first)
        self.first._parameters = dict(first._parameters)
        for module in self.model.modules():
            if type(module).__name__.endswith("Router"):
                module.register_forward_hook(self.routed)
        for way in (masked, exchanged):
            ALL_EXPERTS_FUNCTIONS.register(way.__name__, way)
        self.synchronize()
        self.say(phase="build", seconds=time.perf_counter() - begun)

    def routed(self, module, _, out):
        return ALL_PARALLEL_STYLES["ep_router"].transform_output_post_forward(module, out, self.mesh) if self.way == "masked" else None

    def say(self, **line):
        if self.rank == 0:
            text = json.dumps({"model": self.name, "layers": self.config.num_hidden_layers, "ranks": self.given.ranks, **line})
            print(text, flush=True)
            if self.given.out:
                with open(self.given.out, "a") as file:
                    file.write(text + "\n")

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()
        dist.barrier()

    def slowest(self, value):
        everyones = [None] * self.given.ranks
        dist.all_gather_object(everyones, value)
        return max(everyones)

    def use(self, way, max_tokens):
        self.way = way
        if way != "heddle":
            self.model.set_experts_implementation(way)
            return
        old, self.buffers = self.buffers, use(self.model, max_tokens=max_tokens)
        if old is not None:
            self.synchronize()
            old.destroy()

    def batch(self, sequences, length, seed):
        """This rank's tokens; with the whole batch on every rank those of all."""
        all_tokens = torch.randint(0, self.config.vocab_size, (self.given.ranks, sequences, length), generator=torch.Generator().manual_seed(seed))
        mine = all_tokens.flatten(0, 1) if self.way == "masked" else all_tokens[self.rank]
        return mine.to(self.device)

    def part(self, phase, run, **line):
        """Runs a part within its time, and says what it found or why it did not. Ranks fail together, or the time ends it."""

        def late():
            self.say(phase=phase, way=self.way, error=f"more than {self.given.seconds} s", **line)
            sys.stdout.flush()
            os._exit(3)

        watch = threading.Timer(self.given.seconds, late)
        watch.start()
        try:
            with torch.no_grad():
                found = run()
            self.say(phase=phase, way=self.way, **line, **found)
        except Exception as error:
            self.say(phase=phase, way=self.way, error=f"{type(error).__name__}: {error}"[:500], **line)
            if self.cuda:
                torch.cuda.empty_cache()
        watch.cancel()

    def time(self, run, times):
        """Milliseconds of the slowest rank, the median."""
        samples = []
        for _ in range(times):
            self.synchronize()
            begun = time.perf_counter()
            run()
            if self.cuda:
                torch.cuda.synchronize()
            samples.append(1e3 * (time.perf_counter() - begun))
        return self.slowest(sorted(samples)[times // 2])

    def rate(self, tokens, milliseconds):
        return {"ms": round(milliseconds, 3), "tokens_per_s": round(self.given.ranks * tokens / milliseconds * 1e3)}

    def decode(self, graphed):
        """A step of all sequences, with a cache of 1,024 tokens of which few are there: full layers look at all of it, and those with a window,
        which a graph takes only as long as the window is not full, at all of the window.
        """
        cache = StaticCache(config=self.config, max_cache_len=self.given.length)
        ids = self.batch(DECODED, 1, 1)
        positions = torch.full_like(ids, CACHED)
        # transformers makes masks of gpt-oss by a copy from the host, which no graph takes: so they are made here.
        masks = None
        if self.name.startswith("gpt_oss"):
            masks = {}
            for kind, length in (("full_attention", self.given.length), ("sliding_attention", self.config.sliding_window)):
                later = torch.arange(length, device=self.device) > CACHED
                masks[kind] = torch.where(later, torch.finfo(torch.bfloat16).min, 0).bfloat16().view(1, 1, 1, -1)

        def step():
            how = dict(position_ids=positions, attention_mask=masks, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return self.model(ids, **how).logits

        step()
        for layer in cache.layers:
            layer.cumulative_length.fill_(CACHED)
        if not graphed:
            step()
            return self.rate(DECODED, self.time(step, 7))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for _ in range(3):
            graph.replay()
        found = self.rate(DECODED, self.time(graph.replay, 15))
        del graph
        return found

    def prefill(self):
        ids = self.batch(PREFILLED, self.given.length, 2)
        run = lambda: self.model(ids, use_cache=False, logits_to_keep=1).logits
        self.made[self.way] = self.seen(ids)
        differ = {}
        for way, made in self.made.items():
            if way != self.way:
                both = zip(self.made[self.way].items(), made.items())
                differ[way] = {name: self.slowest(((one - other).norm() / other.norm()).item()) for (name, one), (_, other) in both}
        run()
        return {**self.rate(PREFILLED * self.given.length, self.time(run, 5)), "differ": differ}

    def seen(self, ids):
        """What some layers leave of this rank's first sequence, and its logits."""
        found, hooks = {}, []
        layers = self.model.model.layers
        mine = PREFILLED * self.rank if self.way == "masked" else 0

        def keep(name):
            def hook(_, __, out):
                found[name] = (out[0] if isinstance(out, tuple) else out)[mine].float()

            return hook

        for n in sorted({0, 1, 3, len(layers) // 2, len(layers) - 1} & set(range(len(layers)))):
            hooks.append(layers[n].register_forward_hook(keep(f"layer {n + 1}")))
        logits = self.model(ids, use_cache=False, logits_to_keep=1).logits
        for hook in hooks:
            hook.remove()
        return {**found, "logits": logits[mine].float()}

    def layer(self, tokens):
        """The experts of the first layer on the same rows, by Heddle and by torch's all-to-all: how far they differ, without what a model makes of it."""
        module = next(experts_of(self.model))
        shape = self.buffers.shape
        torch.manual_seed(self.rank)
        x = torch.randn(tokens, shape.hidden, device=self.device).bfloat16()
        ids = torch.rand(tokens, shape.experts, device=self.device).topk(shape.top_k).indices
        weights = torch.rand(ids.shape, device=self.device)
        ours, theirs = module.heddle(x, ids.int(), weights).float(), exchanged(self.first, x, ids, weights).float()
        return {"tokens": tokens, "differs": self.slowest(((ours - theirs).norm() / theirs.norm()).item())}

    def experts(self, tokens):
        """Dispatch, experts and combine of all layers alone, in a graph: µs of a layer."""
        layers = [module.heddle for module in experts_of(self.model)]
        shape = self.buffers.shape
        torch.manual_seed(self.rank)
        x = torch.randn(tokens, shape.hidden, device=self.device).bfloat16()
        ids = torch.rand(tokens, shape.experts, device=self.device).topk(shape.top_k).indices.int()
        weights = torch.full(ids.shape, 1 / shape.top_k, device=self.device)
        out = torch.empty_like(x)

        def run():
            for layer in layers:
                layer.forward(x, ids, weights, out)

        run()
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
        graph.replay()
        found = {"us_per_layer": round(1e3 * self.time(graph.replay, 15) / len(layers), 1), "tokens": tokens}
        del graph
        return found

    def run(self):
        alone = self.name in ("deepseek_v3", "gpt_oss_20b_mxfp4")
        for way in sorted(self.given.ways, key=WAYS.index):
            if alone and way != "heddle" or not self.cuda and way == "heddle":
                continue
            self.part("use", lambda: self.use(way, DECODED) or {}, buffers_for=DECODED)
            if self.cuda and way != "exchanged":
                self.part("decode in a graph", lambda: self.decode(True))
            self.part("decode", lambda: self.decode(False))
            if way == "heddle":
                self.part("experts alone", lambda: self.experts(DECODED))
                if not alone:
                    self.part("a layer beside torch", lambda: self.layer(DECODED))
                self.part("use", lambda: self.use(way, PREFILLED * self.given.length) or {}, buffers_for=PREFILLED * self.given.length)
                self.part("decode in a graph, large buffers", lambda: self.decode(True))
                for tokens in (8, DECODED, 128, PREFILLED * self.given.length):
                    self.part("experts alone, large buffers", lambda: self.experts(tokens))
                if not alone:
                    self.part("a layer beside torch", lambda: self.layer(PREFILLED * self.given.length))
            self.part("prefill", self.prefill)
            if way == "heddle":
                self.buffers.check()


def be(rank, port, name, given):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if given.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if given.device == "cuda" else "gloo", rank=rank, world_size=given.ranks)
    Bench(rank, name, given).run()
    # Graphs and communicators end with the process.
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--models", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--layers", type=int, help="of each model; by default its own, of DeepSeek-V3 four")
    parser.add_argument("--length", type=int, default=1024, help="of the sequences that are prefilled, and of caches")
    parser.add_argument("--seconds", type=float, default=45, help="that a part may take")
    parser.add_argument("--out", help="a file to which lines are added, too")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="rows and vocabularies are short")
    parser.add_argument("--compile", action="store_true", help="compiles what Heddle needs, without a GPU")
    given = parser.parse_args()
    for name in given.models:
        if given.compile:
            from heddle import _cache

            for shape in shapes(name, given):
                print(_cache.compiled(shape))
            continue
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            mp.spawn(be, (port, name, given), nprocs=given.ranks)
        except Exception as error:
            print(json.dumps({"model": name, "error": str(error)[-800:]}), flush=True)
