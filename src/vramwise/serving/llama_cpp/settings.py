"""llama.cpp's and ollama's own values for what a scenario leaves open."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vramwise.models import Model
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.lengths import model_length
from vramwise.units import round_up

LATEST_BUILD = 10**6
WINDOWED_CACHE_BUILD = 5427  # PR 13194 (May 2025): sliding-window layers get a cache of their own size
LATENT_CACHE_BUILD = 5130  # PR 12801 (April 2025): multi-head latent attention keeps the latent
NO_LATENT_VALUES_BUILD = 5390  # values are read from the keys' latent; b5331 still printed 576 + 512 elements
AUTO_CONTEXT_BUILD = 6895  # context starts from the model's own length
AUTO_FLASH_BUILD = 6325  # flash attention on where it is supported (logs of b7342 and later say auto)
FOUR_SLOTS_BUILD = 7400  # llama-server: four slots over one cache where -np is not given
TWO_INPUT_COPIES_BUILD = 8000  # host buffers of b8211 and later hold two embedding inputs, b7342 one
HALF_MASK_BUILD = 9000  # after b8571 the mask is f16 with flash attention (public log of a 15-point sweep)

DEFAULT_CONTEXT = 4096
DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512
OLLAMA_BATCH = 512
DEFAULT_QUANT = "Q4_K_M"  # what llama.cpp's -hf and ollama fetch when none is named
PADDING = 256
OLD_PADDING = 32  # without flash attention, before the unified cache

_WINDOWED_TYPES = frozenset(
    {"gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt_oss", "cohere2",
     "llama4", "llama4_text", "exaone4", "olmo3"}
)  # fmt: skip
"""Architectures whose windows llama.cpp implements (src/llama-hparams.cpp users); it ignores Mistral's."""

_BUILD = re.compile(r"\bb(\d{3,5})\b")
_NEEDS_IMATRIX = ("IQ1", "IQ2", "IQ3_XXS")


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings with nothing left open."""

    settings: ServeSettings
    build: int
    is_ik: bool
    file_type: str
    imatrix: bool
    n_ctx: int
    n_batch: int
    n_ubatch: int
    flash: bool
    type_k: str
    type_v: str
    gpu_layers: int
    num_layers: int
    slots: int
    unified: bool
    swa_full: bool
    latent: int | None
    devices: int

    @property
    def cells(self) -> int:
        """Cells of one stream of a full-attention layer."""
        context = self.n_ctx if self.unified else -(-self.n_ctx // self.slots)
        old = self.build < WINDOWED_CACHE_BUILD and not self.flash
        return round_up(context, OLD_PADDING if old else PADDING)

    @property
    def streams(self) -> int:
        return 1 if self.unified else self.slots

    @property
    def experts_on_host(self) -> bool:
        """Whether routed experts, or some of them, are told to stay on the host."""
        settings = self.settings
        return bool(settings.cpu_moe or settings.n_cpu_moe or any("=CPU" in rule for rule in settings.override_tensor))

    @property
    def output_on_gpu(self) -> bool:
        return self.gpu_layers > self.num_layers

    def on_gpu(self, layer: int) -> bool:
        """Layers go to the GPU from the end."""
        return layer >= self.num_layers - self.gpu_layers


def reads_windows(model: Model) -> bool:
    """Whether llama.cpp makes a mask of its own for windowed layers of this architecture."""
    return model.config.model_type in _WINDOWED_TYPES and any(cache.window for cache in model.caches)


def build_of(version: str | None) -> int:
    """Build number in a version such as `b5863 (a4575513)`; the latest where there is none."""
    found = _BUILD.search(version or "")
    return int(found.group(1)) if found else LATEST_BUILD


def resolve_plan(scenario: Scenario, model: Model) -> Plan:
    """Defaults of common/common.h, tools/server and ollama, by build."""
    given = scenario.serve
    ollama = given.engine == "ollama"
    is_ik = given.variant == "ik_llama.cpp"
    build = build_of(given.engine_version)
    file_type = given.gguf_quant or DEFAULT_QUANT
    imatrix = given.imatrix if given.imatrix is not None else file_type.startswith(_NEEDS_IMATRIX)
    auto_context = build >= AUTO_CONTEXT_BUILD and not ollama and not is_ik
    n_ctx = given.n_ctx or given.max_model_len or (model_length(model) if auto_context else DEFAULT_CONTEXT)
    n_batch = min(given.n_batch or (OLLAMA_BATCH if ollama else DEFAULT_BATCH), n_ctx)
    n_ubatch = min(given.n_ubatch or DEFAULT_UBATCH, n_batch)
    flash = given.flash_attn if given.flash_attn is not None else build >= AUTO_FLASH_BUILD and not is_ik
    slots, unified = _slots(given, build, ollama or is_ik)
    layers = model.num_layers
    gpu_layers = 0 if scenario.num_gpus == 0 else layers + 1 if given.n_gpu_layers is None else given.n_gpu_layers
    settings = given.replace(
        gguf_quant=file_type,
        imatrix=imatrix,
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        flash_attn=flash,
        cache_type_k=given.cache_type_k or "f16",
        cache_type_v=given.cache_type_v or "f16",
        n_gpu_layers=gpu_layers,
        n_parallel=slots,
        kv_unified=unified,
        swa_full=_keeps_whole_windows(given, model, build, ollama or is_ik),
    )
    return Plan(
        settings=settings,
        build=build,
        is_ik=is_ik,
        file_type=file_type,
        imatrix=imatrix,
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        flash=flash,
        type_k=(settings.cache_type_k or "f16").upper(),
        type_v=(settings.cache_type_v or "f16").upper(),
        gpu_layers=gpu_layers,
        num_layers=layers,
        slots=slots,
        unified=unified,
        swa_full=bool(settings.swa_full),
        latent=_latent_mode(given, build, ollama, is_ik),
        devices=scenario.num_gpus,
    )


def _slots(given: ServeSettings, build: int, single: bool) -> tuple[int, bool]:
    """Slots, and whether they share one cache."""
    if given.n_parallel is None and build >= FOUR_SLOTS_BUILD and not single:
        return 4, True if given.kv_unified is None else given.kv_unified
    slots = given.n_parallel or 1
    if given.variant == "ik_llama.cpp":  # its slots always share one cache
        return slots, True
    unified = given.kv_unified if given.kv_unified is not None else build < WINDOWED_CACHE_BUILD or single
    return slots, unified or slots == 1


def _keeps_whole_windows(given: ServeSettings, model: Model, build: int, without: bool) -> bool:
    if model.config.model_type not in _WINDOWED_TYPES or build < WINDOWED_CACHE_BUILD or without:
        return True
    return bool(given.swa_full)


def _latent_mode(given: ServeSettings, build: int, ollama: bool, is_ik: bool) -> int | None:
    """ik's -mla mode, or mainline's: None keeps full heads, 3 the latent alone, 2 the latent and values."""
    if given.mla_attn is not None:
        return given.mla_attn or None
    if is_ik:
        return 3
    if ollama or build < LATENT_CACHE_BUILD:
        return None
    return 3 if build >= NO_LATENT_VALUES_BUILD else 1
