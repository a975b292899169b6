"""What a real model keeps between two calls: storages of its cache after a prefill and one token more, on CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput
from transformers_models import real_model

_NAMES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
_ENCODER_TOKENS = 6
_IDS = 3  # any token


@dataclass(frozen=True)
class RealCache:
    """Bytes after the prefill and after one more token, and the length of the encoder's output.

    Positions that an indexer keeps are one row for the whole batch after the prefill, and not counted then.
    """

    after_prefill: int
    after_one_more: int
    source_tokens: int


def real_cache(config: dict[str, Any], head: str, dtype: torch.dtype, *, batch: int, sequence: int) -> RealCache:
    """Run `sequence` tokens of every row, then one more; raises what the class raises where it cannot."""
    model = real_model(config, head, device="cpu", dtype=dtype).eval()
    ids = torch.full((batch, sequence), _IDS)
    inputs: dict[str, Any] = {"input_ids": ids}
    source = 0
    if head == "seq2seq-lm":
        inputs, source = _with_encoder(model, ids, dtype)
    cache = _own_cache(model, config)
    with torch.no_grad():
        first = model(**inputs, **cache, use_cache=True)
        before = _cache_bytes(first, model, cache)
        step = {"decoder_input_ids" if source else "input_ids": ids[:, :1], **_handed_on(first, cache)}
        if source:
            step["encoder_outputs"] = BaseModelOutput(last_hidden_state=first.encoder_last_hidden_state)
        after = _cache_bytes(model(**step, use_cache=True), model, cache)
    return RealCache(before, after, source)


def _with_encoder(model: Any, ids: torch.Tensor, dtype: torch.dtype) -> tuple[dict[str, Any], int]:
    batch = len(ids)
    if not hasattr(model.config, "num_mel_bins"):
        return {"input_ids": torch.full((batch, _ENCODER_TOKENS), _IDS), "decoder_input_ids": ids}, _ENCODER_TOKENS
    frames = model.config.max_source_positions
    sound = torch.zeros(batch, model.config.num_mel_bins, 2 * frames, dtype=dtype)
    return {"input_features": sound, "decoder_input_ids": ids}, frames


def _own_cache(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """RecurrentGemma does not hand its cache back, so that `generate` makes it."""
    if config["model_type"] != "recurrent_gemma":
        return {}
    return {"past_key_values": transformers.DynamicCache(config=model.config)}


def _handed_on(output: Any, cache: dict[str, Any]) -> dict[str, Any]:
    """What the next call takes: from 5.24 `cache`, to which the older names only point."""
    names = ("cache",) if output.get("cache") is not None else _NAMES
    return cache or {name: output[name] for name in names if output.get(name) is not None}


def _cache_bytes(output: Any, model: Any, cache: dict[str, Any]) -> int:
    held: list[Any] = list(_handed_on(output, cache).values())
    for module in model.modules():  # RecurrentGemma's states live in its modules
        held += [getattr(module, name, None) for name in ("recurrent_states", "conv1d_state")]
    tensors = [tensor for value in held for tensor in _tensors(value) if tensor.is_floating_point() or _are_ids(tensor)]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _are_ids(tensor: torch.Tensor) -> bool:
    """Whole numbers for every row: neither a counter nor one row of positions that is seen as many."""
    return tensor.ndim > 1 and 0 not in tensor.stride()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a cache object, its lists, tables and layers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif "Cache" in type(value).__name__ or "Layer" in type(value).__name__:
        yield from _tensors([part for name, part in vars(value).items() if name != "config"])
