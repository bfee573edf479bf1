"""heddle.transformers with experts of torch in place of Heddle's, on one rank: the weights that it hands over and the calls that it makes."""

import copy
import os
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, FineGrainedFP8Config, GptOssConfig, MixtralConfig, Mxfp4Config, Qwen3MoeConfig
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

import heddle.transformers


def known(small, scales):
    """What weights of e4m3 with a scale for every 128 × 128 stand for."""
    return small.float() * scales.repeat_interleave(128, 1).repeat_interleave(128, 2)


def halves(bytes, scales):
    """What weights of MXFP4 stand for: two a byte, the first in the lower half, and a power of two for every 32 of a row."""
    assert scales.is_contiguous() and scales.dtype == bytes.dtype == torch.uint8
    half = torch.stack([bytes & 15, bytes >> 4], -1).flatten(2).long()
    size = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[half & 7] * (1 - 2 * (half >> 3))
    return size * torch.exp2(scales.float() - 127).transpose(1, 2).repeat_interleave(32, 2)


class Experts:
    """What heddle.Experts computes, in torch."""

    def __init__(self, buffers, gate_up, down, gate_up_bias=None, down_bias=None, **scales):
        if buffers.options.get("weights") == "mxfp4":
            assert buffers.options["inner"] == 32 and gate_up.is_contiguous() and gate_up_bias.dtype == torch.bfloat16
            gate_up, down = [halves(of, scales[f"{name}_scales"]) for name, of in (("gate_up", gate_up), ("down", down))]
        elif scales:
            assert buffers.options["weights"] == "e4m3" and buffers.options["dispatch"] == "fp8"
            gate_up, down = [known(of, scales[f"{name}_scales"]) for name, of in (("gate_up", gate_up), ("down", down))]
        weights = (gate_up, down, gate_up_bias, down_bias)
        self.options, self.weights = buffers.options, [of if of is None else of.float() for of in weights]

    def __call__(self, x, ids, scores):
        assert ids.dtype == torch.int32 and scores.dtype == torch.float32 and x.is_contiguous()
        gate_up, down, gate_up_bias, down_bias = self.weights
        out = torch.zeros(x.shape)
        for e in range(len(gate_up)):
            both = x @ gate_up[e].T + (0 if gate_up_bias is None else gate_up_bias[e])
            gate, up = both.chunk(2, -1)
            if self.options["activation"] == "clamped-swiglu":
                gate, up = gate.clamp(max=7), up.clamp(-7, 7) + 1
                inner = up * gate * torch.sigmoid(1.702 * gate)
            else:
                inner = torch.nn.functional.silu(gate) * up
            made = inner @ down[e].T + (0 if down_bias is None else down_bias[e])
            out += (scores * (ids == e)).sum(-1, keepdim=True) * made
        return out.to(x.dtype)


class Buffers:
    def __init__(self, group, **options):
        self.options = options


heddle.transformers.Experts, heddle.transformers.Buffers = Experts, Buffers
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=128, num_experts_per_tok=4)
keys = dict(num_key_value_heads=2, head_dim=16)
latent = dict(q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16)
configs = [
    Qwen3MoeConfig(**small, **keys, intermediate_size=96, moe_intermediate_size=32, num_experts=16),
    DeepseekV3Config(
        **small, **latent, intermediate_size=96, moe_intermediate_size=32, n_routed_experts=16, n_group=4, topk_group=2, first_k_dense_replace=1
    ),
    MixtralConfig(**small, num_key_value_heads=2, intermediate_size=32, num_local_experts=16),
    GptOssConfig(**small, **keys, intermediate_size=32, num_local_experts=16),
]
for config in configs:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager").eval()
    with torch.no_grad():
        for of in model.parameters():
            of.add_(torch.randn(of.shape) / 16)
        # Heddle multiplies experts of bf16; all else of the model stays f32, so that nothing but a wrong weight is far off.
        experts = [of for module in heddle.transformers.experts_of(model) for of in module.parameters()]
        for of in experts:
            of.data = of.bfloat16().float()
        ids = torch.randint(0, 128, (2, 7))
        expected = model(ids).logits
        for of in experts:
            of.data = of.bfloat16()
        heddle.transformers.shard(model)
        heddle.transformers.use(model, max_tokens=64)
        found = model(ids).logits
    print(config.model_type, "agrees" if torch.allclose(found, expected, atol=1e-4) else (found - expected).abs().max())

# Fine-grained fp8: experts of e4m3 with scales, beside the same weights in f32.
wide = dict(small, hidden_size=128)
config = DeepseekV3Config(**wide, **latent, moe_intermediate_size=128, n_routed_experts=16, n_group=4, topk_group=2, first_k_dense_replace=0)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager").eval()
fp8 = copy.deepcopy(model)
replace_with_fp8_linear(fp8, [name for name, of in fp8.named_modules() if type(of) is torch.nn.Linear], FineGrainedFP8Config())
with torch.no_grad():
    for module, of in zip(heddle.transformers.experts_of(model), heddle.transformers.experts_of(fp8)):
        for name in ("gate_up_proj", "down_proj"):
            weights = getattr(module, name)
            scales = torch.rand(16, weights.shape[1] // 128, weights.shape[2] // 128) / 16
            small_ones = torch.randn(weights.shape).to(torch.float8_e4m3fn)
            weights.copy_(known(small_ones, scales))
            setattr(of, name, torch.nn.Parameter(small_ones, requires_grad=False))
            setattr(of, f"{name}_scale_inv", torch.nn.Parameter(scales, requires_grad=False))
    heddle.transformers.shard(fp8)
    try:
        heddle.transformers.use(fp8, max_tokens=64, gradients=True)
    except heddle.ArgumentError as error:
        assert error.argument == "gradients"
    heddle.transformers.use(fp8, max_tokens=64)
    found, expected = fp8(ids).logits, model(ids).logits
print("fp8", "agrees" if torch.allclose(found, expected, atol=1e-4) else (found - expected).abs().max())

# gpt-oss as it is published: experts in four bits, beside what transformers makes of the same files.
torch.manual_seed(0)
config = configs[-1]
config.quantization_config = {"quant_method": "mxfp4"}
model = AutoModelForCausalLM.from_config(GptOssConfig(**{**config.to_dict(), "quantization_config": None}))
stored = {name: torch.randn(of.shape) / 16 for name, of in model.state_dict().items() if not name.endswith(("gate_up_proj", "down_proj"))}
for layer in range(2):
    for name, rows, columns in (("gate_up_proj", 64, 64), ("down_proj", 64, 32)):
        of = f"model.layers.{layer}.mlp.experts.{name}"
        stored[f"{of}_blocks"] = torch.randint(0, 256, (16, rows, columns // 32, 16), dtype=torch.uint8)
        stored[f"{of}_scales"] = torch.randint(120, 126, (16, rows, columns // 32), dtype=torch.uint8)
        stored[f"{of}_bias"] = stored[f"{of}_bias"].bfloat16()
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    config.save_pretrained(folder)
    save_file(stored, f"{folder}/model.safetensors")
    load = lambda how: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=how, experts_implementation="eager")
    expected = load(Mxfp4Config(dequantize=True)).float()(ids).logits
    fours = load(heddle.transformers.Mxfp4Config())
    heddle.transformers.shard(fours)
    # The second is for another number of tokens.
    for max_tokens in (64, 128):
        heddle.transformers.use(fours, max_tokens=max_tokens)
    found = fours(ids).logits
    assert sum(of.numel() for of in fours.model.layers[0].mlp.experts.parameters()) == 0
print("mxfp4", "agrees" if torch.allclose(found, expected, atol=1e-4) else (found - expected).abs().max())
