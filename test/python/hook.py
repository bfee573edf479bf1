"""heddle.transformers with experts of torch in place of Heddle's, on one rank: the weights that it hands over and the calls that it makes."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, DeepseekV3Config, GptOssConfig, MixtralConfig, Qwen3MoeConfig

import heddle.transformers


class Experts:
    """What heddle.Experts computes, in torch."""

    def __init__(self, buffers, gate_up, down, gate_up_bias=None, down_bias=None):
        self.options, self.weights = buffers.options, (gate_up, down, gate_up_bias, down_bias)

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
        ids = torch.randint(0, 128, (2, 7))
        expected = model(ids).logits
        heddle.transformers.shard(model)
        heddle.transformers.use(model, max_tokens=64)
        found = model(ids).logits
    print(config.model_type, "agrees" if torch.allclose(found, expected, atol=1e-4) else (found - expected).abs().max())
