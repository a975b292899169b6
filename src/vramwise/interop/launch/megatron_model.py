"""The model that Megatron-LM's arguments describe, as a config table of the family with the same layers."""

from __future__ import annotations

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.values import whole, whole_in

READ_FOR_THE_MODEL = frozenset({
    "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--group-query-attention",
    "--num-query-groups", "--kv-channels", "--max-position-embeddings", "--position-embedding-type",
    "--use-rotary-position-embeddings", "--rotary-base", "--rotary-percent", "--normalization", "--swiglu",
    "--squared-relu", "--untie-embeddings-and-output-weights", "--disable-bias-linear", "--add-qkv-bias",
    "--qk-layernorm", "--vocab-size", "--padded-vocab-size", "--make-vocab-size-divisible-by", "--tokenizer-type",
    "--tokenizer-model", "--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size",
    "--moe-shared-expert-intermediate-size", "--moe-layer-freq", "--multi-latent-attention", "--q-lora-rank",
    "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim", "--attention-dropout",
    "--hidden-dropout", "--vocab-file", "--merge-file",
})  # fmt: skip
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "BertWordPieceLowerCase": 30522}
_DIVISOR = 128
_DEFAULT_DROPOUT = 0.1


def model_of(words: Words) -> dict[str, object]:
    """A config table. Raises UsageError for a size that the arguments leave open."""
    layers, hidden, heads = (
        _needed(words, flag) for flag in ("--num-layers", "--hidden-size", "--num-attention-heads")
    )
    groups = (_number(words, "--num-query-groups") or 1) if _is_on(words, "--group-query-attention") else heads
    gated = _is_on(words, "--swiglu")
    wide = _number(words, "--ffn-hidden-size") or (4 * hidden * 2 // 3 // 64 * 64 if gated else 4 * hidden)
    common: dict[str, object] = {
        "vocab_size": _vocabulary(words), "hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups,
        "head_dim": _number(words, "--kv-channels") or hidden // heads,
        "max_position_embeddings": _number(words, "--max-position-embeddings") or _needed(words, "--seq-length"),
        "tie_word_embeddings": not _is_on(words, "--untie-embeddings-and-output-weights"),
        "rope_theta": _number(words, "--rotary-base") or 10000,
    }  # fmt: skip
    if _is_on(words, "--multi-latent-attention"):
        return common | _latent(words, layers, wide)
    if _number(words, "--num-experts"):
        return common | _experts(words, layers, wide)
    return common | (_gated(words) if gated else _plain(words, groups < heads))


def vocabulary_note(words: Words) -> list[str]:
    """How many rows the embedding has, where the arguments do not say so."""
    if _number(words, "--vocab-size") or _number(words, "--padded-vocab-size"):
        return []
    return [f"vocabulary of {_vocabulary(words):,}: that of the tokenizer, padded"]


def _gated(words: Words) -> dict[str, object]:
    has_biases = not _is_on(words, "--disable-bias-linear")
    if _is_on(words, "--qk-layernorm"):
        return {"model_type": "qwen3", "attention_bias": has_biases}
    if _is_on(words, "--add-qkv-bias") and not has_biases:
        return {"model_type": "qwen2"}
    return {"model_type": "llama", "attention_bias": has_biases, "mlp_bias": has_biases}


def _plain(words: Words, is_grouped: bool) -> dict[str, object]:
    """Two products around an activation: GPT-2 with positions of its own, else a family with rotary ones."""
    rotary = _value(words, "--position-embedding-type") == "rope" or _is_on(words, "--use-rotary-position-embeddings")
    share = float(_value(words, "--rotary-percent") or 1)
    if _is_on(words, "--squared-relu"):
        return {"model_type": "nemotron", "hidden_act": "relu2", "partial_rotary_factor": share}
    if is_grouped:
        return {"model_type": "starcoder2", "use_bias": not _is_on(words, "--disable-bias-linear"),
                "hidden_act": "gelu_pytorch_tanh"}  # fmt: skip
    attention, rest = (_dropout(words, flag) for flag in ("--attention-dropout", "--hidden-dropout"))
    if rotary:
        return {"model_type": "gpt_neox", "rotary_pct": share, "use_parallel_residual": False,
                "attention_dropout": attention, "hidden_dropout": rest}  # fmt: skip
    return {
        "model_type": "gpt2", "n_embd": _needed(words, "--hidden-size"), "n_layer": _needed(words, "--num-layers"),
        "n_head": _needed(words, "--num-attention-heads"), "n_inner": _number(words, "--ffn-hidden-size"),
        "n_positions": _number(words, "--max-position-embeddings") or _needed(words, "--seq-length"),
        "attn_pdrop": attention, "resid_pdrop": rest, "embd_pdrop": rest,
    }  # fmt: skip


def _experts(words: Words, layers: int, wide: int) -> dict[str, object]:
    inner = _number(words, "--moe-ffn-hidden-size") or wide
    shared = _number(words, "--moe-shared-expert-intermediate-size")
    dense = [layer for layer, has in enumerate(_layers_with_experts(words, layers)) if not has]
    chosen = {"num_experts_per_tok": _number(words, "--moe-router-topk") or 2}
    count = _number(words, "--num-experts")
    if not shared and not dense and not _is_on(words, "--qk-layernorm"):
        return {"model_type": "mixtral", "num_local_experts": count, "intermediate_size": inner, **chosen}
    routed = {"num_experts": count, "moe_intermediate_size": inner, "mlp_only_layers": dense, **chosen}
    if not shared:
        return {"model_type": "qwen3_moe", **routed}
    return {"model_type": "qwen2_moe", "shared_expert_intermediate_size": shared, **routed}


def _latent(words: Words, layers: int, wide: int) -> dict[str, object]:
    inner = _number(words, "--moe-ffn-hidden-size") or wide
    shared = _number(words, "--moe-shared-expert-intermediate-size") or 0
    with_experts = _layers_with_experts(words, layers)
    count = _number(words, "--num-experts")
    return {
        "model_type": "deepseek_v3", "q_lora_rank": _number(words, "--q-lora-rank"),
        "kv_lora_rank": _number(words, "--kv-lora-rank") or 32, "v_head_dim": _number(words, "--v-head-dim") or 128,
        "qk_nope_head_dim": _number(words, "--qk-head-dim") or 128,
        "qk_rope_head_dim": _number(words, "--qk-pos-emb-head-dim") or 64, "moe_intermediate_size": inner,
        "n_routed_experts": count or 1, "n_shared_experts": shared // inner, "n_group": 1, "topk_group": 1,
        "num_experts_per_tok": _number(words, "--moe-router-topk") or 2 if count else 1,
        "first_k_dense_replace": with_experts.index(True) if count and True in with_experts else layers,
        "num_key_value_heads": _needed(words, "--num-attention-heads"),
    }  # fmt: skip


def _layers_with_experts(words: Words, layers: int) -> list[bool]:
    """`--moe-layer-freq N` (every N-th layer, the first one on) or a list such as `[0]*3+[1]*58`."""
    text = (_value(words, "--moe-layer-freq") or "1").replace(" ", "")
    if text.isdecimal():
        return [layer % max(1, int(text)) == 0 for layer in range(layers)]
    pattern: list[bool] = []
    for part in text.strip("()").split("+"):
        ones, _, times = part.strip("()").partition("*")
        values = ones.strip("[]").split(",")
        if not all(value in ("0", "1") for value in values) or (times and not times.isdecimal()):
            raise UsageError(
                f'--moe-layer-freq: expected a number or a list such as [0]*3+[1]*58, got "{clipped(text)}"'
            )
        pattern += [value == "1" for value in values] * (int(times) if times else 1)
    if len(pattern) != layers:
        raise UsageError(f"--moe-layer-freq: {len(pattern)} entries for {layers} layers")
    return pattern


def _vocabulary(words: Words) -> int:
    """Rows of the embedding: padded to a multiple of --make-vocab-size-divisible-by times the tensor-parallel ranks."""
    padded = _number(words, "--padded-vocab-size")
    if padded:
        return padded
    size = _number(words, "--vocab-size") or _of_tokenizer(words)
    ranks = _number(words, "--tensor-model-parallel-size") or 1
    multiple = (_number(words, "--make-vocab-size-divisible-by") or _DIVISOR) * ranks
    return -(-size // multiple) * multiple


def _of_tokenizer(words: Words) -> int:
    kind, name = _value(words, "--tokenizer-type") or "", _value(words, "--tokenizer-model")
    if kind in _VOCABULARIES:
        return _VOCABULARIES[kind]
    if name:
        from vramwise.sources import resolve

        try:
            size = whole_in(resolve(name).config, "vocab_size", 0)
        except (SourceError, UsageError):
            size = 0
        if size:
            return size
    raise UsageError("--vocab-size is missing: the tokenizer's size is not known here")


def _value(words: Words, flag: str) -> str | None:
    values = words.given.get(flag)
    return values[-1] if values else None


def _is_on(words: Words, flag: str) -> bool:
    return _value(words, flag) == "true"


def _number(words: Words, flag: str) -> int | None:
    text = _value(words, flag)
    try:
        return None if text is None else whole(text)
    except UsageError as problem:
        raise UsageError(f"{flag}: {problem}") from None


def _needed(words: Words, flag: str) -> int:
    found = _number(words, flag)
    if not found:
        raise UsageError(f"{flag} is missing: Megatron's arguments describe the model")
    return found


def _dropout(words: Words, flag: str) -> float:
    text = _value(words, flag)
    if text is None:
        return _DEFAULT_DROPOUT
    try:
        return float(text)
    except ValueError:
        raise UsageError(f'{flag}: expected a number, got "{clipped(text)}"') from None
