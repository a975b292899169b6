"""Tokens of a block of vLLM's KV cache where none are asked for: as the kernels of latent attention want them.

Source: platforms/cuda.py check_and_update_config of 0.8.5 to 0.17.1; from 0.18 on platforms/interface.py
update_block_size_for_backend, the first of _get_backend_priorities that runs here, and that backend's
get_supported_kernel_block_sizes (0.18.1, 0.22.1, 0.28.0 and 0.33.0): 16 where it takes them, else its smallest.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.serving.common.versions import Version
from vramwise.serving.vllm.compressed import BLOCK, compresses_keys

DEFAULT_BLOCK_SIZE = 16
FLASH_MLA, CUTLASS_MLA, FLASHINFER_MLA = 64, 128, 32
LATENT_VERSION, CUTLASS_VERSION, FLASHINFER_VERSION = (0, 8), (0, 10, 2), (0, 15)
ASKS_THE_BACKEND = (0, 18)
HOPPER, BLACKWELL_SERVER = 9, 10
FLASHINFER_NOPE_DIM, FLASHINFER_NOPE_DIMS = 128, frozenset({64, 128})


def default_block_size(model: Model, version: Version, capability: float | None, element_bytes: float) -> int:
    """`element_bytes`: of the cache. Beside states the block follows their size, worked out with the groups."""
    if compresses_keys(model):
        return BLOCK
    kinds = {cache.kind for cache in model.caches}
    if "latent" not in kinds or "recurrent" in kinds or capability is None or version < LATENT_VERSION:
        return DEFAULT_BLOCK_SIZE
    if model.has_indexer:
        return FLASH_MLA  # the indexer's kernels are the first that are asked
    if int(capability) == BLACKWELL_SERVER:
        return _on_blackwell_servers(model, version)
    if int(capability) != HOPPER:
        return DEFAULT_BLOCK_SIZE
    # FlashAttention 3 takes any multiple of 16, and no cache in 8 bits
    return DEFAULT_BLOCK_SIZE if version >= ASKS_THE_BACKEND and element_bytes >= 2 else FLASH_MLA


def _on_blackwell_servers(model: Model, version: Version) -> int:
    if version < CUTLASS_VERSION:
        return DEFAULT_BLOCK_SIZE
    width = text_config(model).get("qk_nope_head_dim")
    if version >= ASKS_THE_BACKEND:
        return FLASHINFER_MLA if width in FLASHINFER_NOPE_DIMS else CUTLASS_MLA
    # FlashInfer's, which are asked for 64 then
    return FLASH_MLA if version >= FLASHINFER_VERSION and width == FLASHINFER_NOPE_DIM else CUTLASS_MLA
