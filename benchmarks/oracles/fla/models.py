"""What autograd keeps of transformers' own classes around flash-linear-attention and causal-conv1d, as rows.

PYTHONPATH=../../../src:../../../tests/models python models.py --packages fla_core-0.6.0 causal_conv1d-1.6.1
"""

from __future__ import annotations

import argparse
import json
import sys

import stand_ins

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "tie_word_embeddings": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
DELTA = {
    "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
KIMI = {
    "linear_attn_config": {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1],
                           "full_attn_layers": [2]},
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16, "first_k_dense_replace": 2,
}  # fmt: skip
CONFIGS = {
    "qwen3_5_text": {**SIZES, **DELTA},
    "qwen3_next": {**SIZES, **DELTA, "num_experts": 0, "mlp_only_layers": [0, 1]},
    "olmo_hybrid": {**SIZES, **DELTA, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    "kimi_linear": {**SIZES, **KIMI, "num_key_value_heads": 4},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", nargs="+", required=True, help="folders with the released packages, unpacked")
    sys.path[:0] = parser.parse_args().packages
    stand_ins.install()
    stand_ins.as_on_a_card()
    from saved_by_autograd import saved_by_autograd

    for kind, sizes in CONFIGS.items():
        config = {"model_type": kind, **sizes}
        for precision in ("fp32", "bf16", "bf16-mixed"):
            for batch, sequence in ((1, 128), (2, 100), (2, 40)):
                kept = saved_by_autograd(
                    config, "causal-lm", attention="eager", precision=precision, batch=batch, sequence=sequence,
                    device="cpu",
                )  # fmt: skip
                row = {"config": config, "precision": precision, "batch": batch, "sequence": sequence, "bytes": kept}
                print(json.dumps(row, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
