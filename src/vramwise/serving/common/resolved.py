"""Settings of a server with nothing left open: as given, or the engine's own values by version, card and model."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from vramwise.formats import dtype
from vramwise.records import record
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.packed_heads import is_packed, packed_element_bytes
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import Version

AS_THE_MODEL = "auto"


@record(kw_only=True)
class ResolvedServe:
    """What a server runs with. Each engine's `resolve` fills it in once; nothing after it asks what was given.

    `settings`: the same as the answer states them. `batched_tokens`: tokens in one step, whatever the engine calls
    them. `share`: the engine's share of the card. `capability`: the card's CUDA compute capability where it has one.
    """

    settings: ServeSettings
    version: Version
    storage: Storage
    max_model_len: int
    batched_tokens: int
    max_num_seqs: int
    block_size: int
    share: float
    capability: float | None = None

    @property
    def cache_element_bytes(self) -> float:
        """Bytes an element of the KV cache: of the weights' dtype where no other is asked for."""
        return cache_element_bytes(self.settings.kv_cache_dtype, self.storage)

    def limited_to(self, tokens: int) -> Self:
        """The same with requests of so many tokens at most."""
        return replace(self, max_model_len=tokens, settings=self.settings.replace(max_model_len=tokens))


def cache_element_bytes(kv_cache_dtype: str, storage: Storage) -> float:
    """Bytes an element of a KV cache of that dtype; `auto` is the dtype of what stays in high precision."""
    if is_packed(kv_cache_dtype):
        return packed_element_bytes(kv_cache_dtype)
    return storage.bytes_per_element if kv_cache_dtype == AS_THE_MODEL else dtype(kv_cache_dtype).bits / 8
