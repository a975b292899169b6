"""How many tokens a model was made for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vramwise.memo import of_model
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.model import Model
from vramwise.models.operations.simple import Embedding
from vramwise.models.type_facts import fact_value, has_fact

UNSTATED_LENGTH = 2048  # vLLM config/model.py: length of a model whose config states none


def text_config(model: Model) -> Config:
    """The table of the language model: the config itself, or the one inside a multimodal config."""
    config = model.config
    for _ in range(2):
        nested = config.table("text_config") or config.table("llm_config") or config.table("language_config")
        if nested is None:
            thinker = config.table("thinker_config")
            nested = thinker.table("text_config") if thinker is not None else None
        if nested is None or nested is config:
            return config
        config = nested
    return config


def rope_scaling(model: Model) -> Mapping[str, object]:
    """`rope_scaling` (`rope_parameters` in newer configs); empty without one."""
    config = text_config(model)
    for key in ("rope_scaling", "rope_parameters"):
        table = config.get(key)
        if isinstance(table, Mapping):
            return table
    return {}


def rope_scaling_of(model: Model, table: str) -> Mapping[str, object]:
    """The scaling of one table of cosines and sines, by the kind of layer that reads it.

    Newer configs state one a kind; where one stands for all, layers with a window turn by an unscaled table.
    Source: transformers 5.23 modeling_gemma3.py and modeling_olmo3.py (rope_type "default" for sliding attention).
    """
    scaling = rope_scaling(model)
    is_sliding = "sliding" in table
    own = scaling.get("sliding_attention" if is_sliding else "full_attention")
    if isinstance(own, Mapping):
        return own
    return {} if is_sliding else scaling


def stated_positions(config: Config) -> int | None:
    """Positions that a language model's config states, or its class where the config leaves them out; None without."""
    names = (
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
        "max_target_positions",
    )  # fmt: skip
    stated = next((config.size(name) for name in names if config.has(name)), None)
    own = fact_value("transformers", "length_of_class", config.model_type) if stated is None else None
    return stated if own is None else int(own)


@lru_cache(maxsize=512)
def model_length(model: Model) -> int:
    """Tokens of the longest request by default: positions · factor of YaRN, linear or dynamic scaling.

    YaRN scales `original_max_position_embeddings` where the config states them. Raises SourceError for more than 2^40.
    Source: vLLM config/model.py _get_and_verify_max_len.
    """
    config = text_config(model)
    positions = stated_positions(config) or UNSTATED_LENGTH
    if has_fact("vllm", "length_has_scaling", config.model_type):
        return positions
    scaling = rope_scaling(model)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "")
    factor = scaling.get("factor")
    if isinstance(factor, int | float) and factor > 0 and kind in ("yarn", "linear", "dynamic"):
        original = scaling.get("original_max_position_embeddings")
        base = original if kind == "yarn" and isinstance(original, int) and original > 0 else positions
        if not (base <= LARGEST_SIZE and factor <= LARGEST_SIZE and base * factor <= LARGEST_SIZE):
            raise config.error(f"rope_scaling: expected at most 2^40 positions, got {base!r:.40} × {factor!r:.40}")
        return round(base * factor)
    return positions


@lru_cache(maxsize=512)
def rows_of_positions(model: Model) -> int | None:
    """Tokens for which a text model's tables of learned or fixed positions have rows; None without such a table.

    Tables whose positions are counted from the padding's on lose its rows (transformers 5.23 modeling_roberta.py
    create_position_ids_from_input_ids: padding_idx + 1; modeling_opt.py: an offset of 2, for pad_token_id 1).
    """
    found = []
    for block in model.blocks:
        for op in block.operations(Embedding):
            if "position" in op.ids and block.modality == "text" and op.parameters:
                before = model.config.size("pad_token_id", default=1, least=0) + 1 if "counted" in op.ids else 0
                found.append(op.parameters[0].shape[0] - before)
    if not found:
        return None
    stated = [
        model.config.size(name)
        for name in ("max_position_embeddings", "max_target_positions")
        if model.config.has(name)
    ]
    return max(1, min(*found, *stated)) if stated else max(1, min(found))


@of_model
def reads_tokens(model: Model) -> bool:
    """Whether a batch is of sequences of tokens, not of images alone: it embeds them (in a way of its own, XLNet and
    CPM-Ant), or tells the next or a hidden one."""
    tells_tokens = model.head in ("causal-lm", "masked-lm", "seq2seq-lm")
    return tells_tokens or any("input_ids" in op.ids for op in model.operations(Embedding))
