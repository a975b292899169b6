"""A config.json's keys from the metadata of a GGUF file.

Names of the metadata: gguf 0.19.0 constants.py (`{arch}.embedding_length` and so on). Architectures that describe more
than these keys tell are refused with what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UnsupportedModelError, clipped
from vramwise.formats.gguf_file import GgufHeader

# general.architecture -> model_type of transformers
TYPES = {
    "llama": "llama", "qwen2": "qwen2", "qwen2moe": "qwen2_moe", "qwen3": "qwen3", "qwen3moe": "qwen3_moe",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3", "gpt-oss": "gpt_oss",
    "glm4": "glm4", "command-r": "cohere", "cohere2": "cohere2", "starcoder2": "starcoder2", "olmo2": "olmo2",
    "stablelm": "stablelm", "granite": "granite", "deepseek2": "deepseek_v3", "mistral3": "mistral",
}  # fmt: skip
_PLAIN = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_LATENT = {
    "attention.q_lora_rank": "q_lora_rank", "attention.kv_lora_rank": "kv_lora_rank",
    "rope.dimension_count": "qk_rope_head_dim", "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "n_shared_experts",
}  # fmt: skip
_EXPERTS = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "deepseek_v3": "n_routed_experts"}
GGUF_KEY = "gguf_tensors"


def config_of(header: GgufHeader, shown: str) -> dict[str, object]:
    """The configuration, with the file's tensors under `gguf_tensors`. Raises UnsupportedModelError."""
    metadata = header.metadata
    arch = str(metadata.get("general.architecture") or "")
    model_type = TYPES.get(arch)
    if model_type is None:
        raise UnsupportedModelError(
            f'{shown}: GGUF architecture "{clipped(arch)}" is not described from its header yet; give the model by its '
            "name or config.json, and gguf_quant for its file type"
        )
    experts = _number(metadata, f"{arch}.expert_count")
    if model_type == "llama" and experts:
        model_type = "mixtral"
    config: dict[str, object] = {"model_type": model_type, "torch_dtype": "bfloat16"}
    config.update(_numbers(metadata, arch, _PLAIN))
    if experts:
        config[_EXPERTS.get(model_type, "num_experts")] = experts
    config.setdefault("vocab_size", _vocabulary(header))
    names = {tensor.name for tensor in header.tensors}
    config["tie_word_embeddings"] = "output.weight" not in names
    if model_type == "deepseek_v3":
        _latent(config, metadata, arch)
    if model_type == "qwen2" or "blk.0.attn_q.bias" in names:
        config["attention_bias"] = True
    name = metadata.get("general.name")
    if isinstance(name, str) and name:
        config["_name_or_path"] = clipped(name, 80)
    return config | tensors_of(header)


def tensors_of(header: GgufHeader) -> dict[str, object]:
    """The file's tensors as rows of name, shape, type and bytes, under the key that llama.cpp's estimate reads."""
    return {GGUF_KEY: [[tensor.name, list(tensor.shape), tensor.type, tensor.bytes] for tensor in header.tensors]}


def _number(metadata: Mapping[str, object], key: str) -> int:
    value = metadata.get(key)
    if isinstance(value, list):  # by layer: the largest
        value = max((one for one in value if type(one) is int), default=0)
    return value if type(value) is int and value > 0 else 0


def _numbers(metadata: Mapping[str, object], arch: str, keys: Mapping[str, str]) -> dict[str, int]:
    pairs = ((name, _number(metadata, f"{arch}.{key}")) for key, name in keys.items())
    return {name: value for name, value in pairs if value}


def _vocabulary(header: GgufHeader) -> int:
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is not None and embedding.shape:
        return embedding.shape[0]
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return tokens if isinstance(tokens, int) else len(tokens) if isinstance(tokens, list) else 0


def _latent(config: dict[str, object], metadata: Mapping[str, object], arch: str) -> None:
    """DeepSeek's latent attention: head widths are those of the unfolded heads (`_mla` in newer files)."""
    found = _numbers(metadata, arch, _LATENT)
    config.update(found)
    rope = found.get("qk_rope_head_dim", 0)
    key = _number(metadata, f"{arch}.attention.key_length_mla") or _number(metadata, f"{arch}.attention.key_length")
    value = _number(metadata, f"{arch}.attention.value_length_mla") or _number(
        metadata, f"{arch}.attention.value_length"
    )
    config["qk_nope_head_dim"], config["v_head_dim"] = key - rope, value
    config["num_key_value_heads"] = config.get("num_attention_heads", 0)
    config.pop("head_dim", None)
