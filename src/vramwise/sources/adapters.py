"""Adapters (peft's adapter_config.json): the model is their base, and they come along with it.

Keys: peft 0.21.2 config.py and tuners/lora/config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol

from vramwise.errors import SourceError, clipped, in_one
from vramwise.formats.ranged import shown_in
from vramwise.formats.safetensors import stored_weights
from vramwise.sources.reference import name_in_path
from vramwise.sources.repository import (
    LARGEST_CONFIG_BYTES,
    Adapter,
    Base,
    ModelSource,
    Repository,
    parsed_config,
)  # fmt: skip

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ALL_LINEAR = "all-linear"
MOST_TARGETS = 512
LARGEST_RANK = 2**16
_looking_for_a_base: ContextVar[bool] = ContextVar("_looking_for_a_base", default=False)
_DTYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


class Resolve(Protocol):
    """`resolve.resolve`, which is above this module and hands itself down."""

    def __call__(self, model: str, *, revision: str | None = None, network: bool = True) -> ModelSource: ...


def adapter_alone(repository: Repository, model_id: str) -> ModelSource:
    """An adapter whose base is still to be looked for. Raises SourceError where it names none."""
    shown = shown_in(repository, ADAPTER_CONFIG)
    config = parsed_config(repository.read(ADAPTER_CONFIG, LARGEST_CONFIG_BYTES), shown)
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base.strip():
        raise SourceError(f"{shown}: names no base model (base_model_name_or_path)")
    revision = config.get("revision")
    named = Base(base.strip(), revision if isinstance(revision, str) and revision != "main" else None)
    adapter = _adapter(config, repository, model_id)
    return ModelSource(model_id, {}, repository.origin, repository=repository, adapter=adapter, base=named)


def on_base(found: ModelSource, base: Base, resolve: Resolve) -> ModelSource:
    """The base model of an adapter, with the adapter. Raises SourceError where the base is not to be had."""
    adapter, repository = found.adapter, found.repository
    assert adapter is not None
    assert repository is not None
    if _looking_for_a_base.get():
        raise SourceError(f"{found.id} is an adapter itself")
    before = _looking_for_a_base.set(True)
    try:
        model = _looked_for(base, repository, resolve)
    except SourceError as problem:
        raise SourceError(f"{found.id} is an adapter, and its base model is not to be had: {problem}") from None
    finally:
        _looking_for_a_base.reset(before)
    what = f"{adapter.method.upper()} of rank {adapter.rank}" if adapter.rank else adapter.method
    note = f"{found.id} is an adapter ({what}) of {model.id}: {repository.origin}"
    return replace(model, note=in_one(note, model.note, found.note), adapter=adapter)


def _looked_for(base: Base, repository: Repository, resolve: Resolve) -> ModelSource:
    """What an adapter from elsewhere calls a path is one of the machine that trained it, and none of this one."""
    is_path = base.name.startswith(("/", ".", "~")) or "\\" in base.name or "://" in base.name
    if repository.at_once == 1 or not is_path:
        return resolve(base.name, revision=base.revision)
    name = name_in_path(base.name)
    try:
        known = name is not None and not resolve(name, network=False).others
    except SourceError:
        known = False
    if name is None or not known:
        raise SourceError(f"{clipped(base.name, 120)} is a place on the machine that trained it")
    return resolve(name)


def _adapter(config: Mapping[str, object], repository: Repository, name: str) -> Adapter:
    rank, dropout = config.get("r"), config.get("lora_dropout")
    dtype, stored = _stored(repository)
    return Adapter(
        name=name,
        method=clipped(str(config.get("peft_type") or "adapter")).lower(),
        rank=rank if type(rank) is int and 0 < rank <= LARGEST_RANK else 0,
        targets=_targets(config.get("target_modules")),
        dropout=float(dropout) if isinstance(dropout, int | float) and 0 <= dropout < 1 else 0.0,
        dora=config.get("use_dora") is True,
        dtype=dtype,
        stored_bytes=stored,
    )


def _targets(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (ALL_LINEAR,) if given == ALL_LINEAR else ()
    if not isinstance(given, list) or not all(isinstance(one, str) and 0 < len(one) < 200 for one in given):
        return ()
    return tuple(given) if len(given) <= MOST_TARGETS else ()


def _stored(repository: Repository) -> tuple[str | None, int | None]:
    """The dtype of most of the adapter's tensors and the bytes of all."""
    if ADAPTER_WEIGHTS not in repository.files():
        return None, repository.size("adapter_model.bin")
    weights = stored_weights(repository, ADAPTER_WEIGHTS)
    sizes: dict[str, int] = {}
    for tensor in weights.tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
    dtype = max(sizes, key=sizes.__getitem__, default="")
    return _DTYPES.get(dtype), weights.bytes
