"""SGLang's settings with its defaults filled in."""

from __future__ import annotations

from vramwise.engines.sglang import RECORD
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.records import record
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import capability_of, gfx_of, server_storage
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.serving.common.versions import version_of
from vramwise.serving.sglang.compressed import PAGE, RUNNING, compresses_keys
from vramwise.serving.sglang.defaults import (
    attention_share,
    batch_defaults,
    cache_dtype,
    latent_scales,
    static_fraction,
)
from vramwise.units import GIB

DEFAULT_VERSION = RECORD.newest
DEFAULT_MAX_RUNNING = 2048


@record(kw_only=True)
class SglangResolved(ResolvedServe):
    """`batched_tokens` is chunked_prefill_size; batches of up to `cuda_graph_max_bs` are captured.

    `share`: what the attention kernels leave of `mem_fraction_static` (`attention_share`).

    `latent_scales`: whether 8-bit rows of sparse latent attention have scales here.
    """

    cuda_graph_max_bs: int
    latent_scales: bool


def resolve(given: ServeSettings, model: Model, gpu: Gpu | None, total: int | None) -> SglangResolved:
    """Defaults by version and by the card's size; without a card those of 80 GiB."""
    text, storage = given.engine_version or DEFAULT_VERSION, server_storage(model, given, gpu)
    version, card = version_of(text), total or 80 * GIB
    capability, gfx = capability_of(gpu), gfx_of(gpu)
    chunk, batch = batch_defaults(given, version, card)
    length = given.max_model_len or model_length(model)
    running, page = (RUNNING, PAGE) if compresses_keys(model) else (DEFAULT_MAX_RUNNING, given.block_size or 1)
    seqs, block = given.max_num_seqs or running, page
    fraction = given.mem_fraction_static or static_fraction(given, model, version, card, chunk, batch)
    share = round(fraction * attention_share(model, version, gfx, given.tensor_parallel_size, length), 6)
    settings = given.replace(
        engine_version=text, dtype=storage.dtype,
        kv_cache_dtype=cache_dtype(model, given, storage, version, capability),
        max_model_len=length, max_num_seqs=seqs, chunked_prefill_size=chunk, cuda_graph_max_bs=batch, block_size=block,
        mem_fraction_static=fraction,
    )  # fmt: skip
    return SglangResolved(
        settings=settings, version=version, storage=storage, max_model_len=length, batched_tokens=chunk,
        max_num_seqs=seqs, block_size=block, share=share, cuda_graph_max_bs=batch,
        latent_scales=latent_scales(model, version, capability, gfx),
    )  # fmt: skip
