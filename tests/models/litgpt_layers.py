"""What each block of litgpt's real GPT keeps for backward, small and on a CPU, by `saved_tensors_hooks`.

python tests/models/litgpt_layers.py        writes tests/golden/litgpt_layers.jsonl; needs litgpt and lightning
"""

from __future__ import annotations

import json
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parents[1] / "golden" / "litgpt_layers.jsonl"
BATCH, SEQUENCE = 2, 32
PARTS = ("query", "key", "value", "projection", "mlp", "head")
SIZES = {"n_layer": 3, "n_head": 4, "n_embd": 64, "vocab_size": 256, "padded_vocab_size": 256, "block_size": 64}
LLAMA = {
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 172, "bias": False,
    "parallel_residual": False, "rotary_percentage": 1.0,
}  # fmt: skip
GEMMA = {**LLAMA, "name": "Gemma", "mlp_class_name": "GemmaMLP", "scale_embeddings": True, "head_size": 32}
GEMMA_2 = {
    **GEMMA, "post_attention_norm": True, "post_mlp_norm": True, "attention_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0, "n_query_groups": 2,
}  # fmt: skip
NEOX = {"intermediate_size": 256, "rotary_percentage": 0.25}
HF = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256, "pad_token_id": 0}
HF_LLAMA = {**HF, "model_type": "llama", "intermediate_size": 172, "num_key_value_heads": 4}
HF_NEOX = {**HF, "model_type": "gpt_neox", "intermediate_size": 256}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (HF_LLAMA, LLAMA),
    "grouped": ({**HF_LLAMA, "num_key_value_heads": 2}, {**LLAMA, "n_query_groups": 2}),
    "qwen2": ({**HF_LLAMA, "model_type": "qwen2", "num_key_value_heads": 1}, {**LLAMA, "n_query_groups": 1,
                                                                             "attn_bias": True}),
    "phi3": ({**HF_LLAMA, "model_type": "phi3", "num_key_value_heads": 2}, {**LLAMA, "n_query_groups": 2}),
    "gemma": ({**HF_LLAMA, "model_type": "gemma", "head_dim": 32, "num_key_value_heads": 1},
              {**GEMMA, "n_query_groups": 1}),
    "gemma2": ({**HF_LLAMA, "model_type": "gemma2", "head_dim": 32, "num_key_value_heads": 2}, GEMMA_2),
    "phi": ({**HF, "model_type": "phi", "intermediate_size": 256},
            {"intermediate_size": 256, "rotary_percentage": 0.5, "shared_attention_norm": True, "lm_head_bias": True,
             "gelu_approximate": "tanh"}),
    "gpt_neox": (HF_NEOX, NEOX),
    "gpt_neox-in-turn": ({**HF_NEOX, "use_parallel_residual": False}, {**NEOX, "parallel_residual": False}),
    "falcon": ({**HF, "model_type": "falcon", "ffn_hidden_size": 256},
               {"n_query_groups": 1, "intermediate_size": 256, "bias": False, "rotary_percentage": 1.0,
                "shared_attention_norm": True}),
    "falcon-40b": ({**HF, "model_type": "falcon", "ffn_hidden_size": 256, "new_decoder_architecture": True,
                    "num_kv_heads": 2},
                   {"n_query_groups": 2, "intermediate_size": 256, "bias": False, "rotary_percentage": 1.0}),
}  # fmt: skip
ADAPTED: dict[str, tuple[str, ...] | None] = {
    "full": None, "queries and values": ("query", "value"), "everything": PARTS,
}  # fmt: skip


def kept(settings: dict[str, Any], adapted: tuple[str, ...] | None, dtype: str = "bf16") -> dict[str, list[int]]:
    """Bytes of each storage that a block is the first to save, by block; parameters and buffers left out."""
    import torch

    model: Any = import_module("litgpt.model")
    lora: Any = import_module("litgpt.lora")
    of = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    if adapted is None:
        gpt = model.GPT(model.Config(**SIZES, **settings)).to(of)
    else:
        flags = {f"lora_{part}": part in adapted for part in PARTS}
        gpt = lora.GPT(lora.Config(**SIZES, **settings, lora_r=8, lora_alpha=16, lora_dropout=0.05, **flags)).to(of)
        lora.mark_only_lora_as_trainable(gpt)
    gpt.cos, gpt.sin = gpt.rope_cache()  # finetune/*.py: fabric.init_module leaves fp32 tables
    ids = torch.randint(0, 256, (BATCH, SEQUENCE))
    stored = [*gpt.parameters(), *gpt.buffers(), ids]
    seen = {tensor.untyped_storage().data_ptr() for tensor in stored}
    alive: list[Any] = []
    sizes: dict[str, list[int]] = defaultdict(list)
    place = "embedding"

    def entering(name: str) -> Any:
        def hook(*_: Any) -> None:
            nonlocal place
            place = name

        return hook

    for i, block in enumerate(gpt.transformer.h):
        block.register_forward_pre_hook(entering(f"layer {i}"))
    gpt.transformer.ln_f.register_forward_pre_hook(entering("head"))

    def save(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and tensor.ndim:
            seen.add(storage.data_ptr())
            alive.append(tensor)
            sizes[place].append(storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        out = gpt(ids, lm_head_chunk_size=128)
    del out
    return {name: sorted(sizes[name]) for name in ("layer 1", "head")}


def measured() -> list[dict[str, Any]]:
    """A row for each model and each way to train it."""
    return [
        {"model": name, "trains": trains, "dtype": dtype, **kept(settings, adapted, dtype)}
        for name, (_, settings) in MODELS.items()
        for trains, adapted in ADAPTED.items()
        for dtype in ("bf16", "fp32")
    ]


if __name__ == "__main__":
    ROWS.write_text("".join(f"{json.dumps(row)}\n" for row in measured()))
