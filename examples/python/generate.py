"""transformers generates with Heddle's experts, each rank from its own prompts: a small model of random weights, beside one process.

    torchrun --standalone --nproc-per-node 4 examples/python/generate.py --model qwen3_moe

Every rank first generates with all experts by itself, then with its share of them, and compares the tokens: with `--dtype float32` all are the
same. bf16 rounds sums in another order, so a token whose logits are close may differ; the page says how many did.
"""

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, DeepseekV3Config, GptOssConfig, Qwen3MoeConfig

import heddle.transformers

SMALL = dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, vocab_size=512)
EXPERTS = dict(num_experts_per_tok=4)
CONFIGS = {
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **SMALL, **EXPERTS, num_key_value_heads=2, head_dim=64, intermediate_size=256, moe_intermediate_size=128, num_experts=16
    ),
    "deepseek_v3": lambda: DeepseekV3Config(
        **SMALL,
        **EXPERTS,
        num_key_value_heads=4,
        intermediate_size=256,
        moe_intermediate_size=128,
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
    "gpt_oss": lambda: GptOssConfig(
        **SMALL, **EXPERTS, num_key_value_heads=2, head_dim=64, intermediate_size=128, num_local_experts=16
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CONFIGS, default="qwen3_moe")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--tokens", type=int, default=24)
    given = parser.parse_args()
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[given.model](), dtype=getattr(torch, given.dtype), experts_implementation="eager").eval()
    with torch.no_grad():
        for name, of in model.named_parameters():
            # Routes that are far apart.
            if "gate.weight" in name or "router.weight" in name:
                of.normal_(0, 0.5)
    model = model.cuda()
    # Ranks differ in prompts, their number and their length.
    prompts = torch.randint(0, 512, (1 + rank % 3, 5 + rank), generator=torch.Generator().manual_seed(rank)).cuda()
    how = dict(max_new_tokens=given.tokens, min_new_tokens=given.tokens, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        alone, logits = model.generate(prompts, **how), model(prompts).logits.float()
        heddle.transformers.shard(model)
        buffers = heddle.transformers.use(model, max_tokens=64)
        differ = (model(prompts).logits.float() - logits).norm() / logits.norm()
        shared = model.generate(prompts, **how)
    buffers.check()
    same = (alone == shared).float().mean()
    print(f"rank {rank}: {given.model}, {len(prompts)} prompts: logits differ by {differ:.1e}, {100 * same:.1f} % of tokens are the same", flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    buffers.destroy()
    dist.destroy_process_group()
    assert differ < 2e-2 and (same == 1 or given.dtype == "bfloat16")


if __name__ == "__main__":
    main()
