"""llama.cpp's and ollama's own values for what a scenario leaves open."""

from __future__ import annotations

from vramwise.hardware.room import rooms_of
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.result import Capacity
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.gguf.quantizer import published_in_mxfp4, typed_tensors
from vramwise.serving.common.versions import version_of
from vramwise.serving.llama_cpp.builds import (
    AUTO_CONTEXT_BUILD,
    AUTO_FLASH_BUILD,
    CACHE_COPIES_BUILD,
    FEW_OUTPUTS_BUILD,
    FOUR_SLOTS_BUILD,
    IK_BY_BYTES_BUILD,
    INDEXER_CACHE_BUILD,
    LATENT_CACHE_BUILD,
    LATEST_BUILD,
    NO_LATENT_VALUES_BUILD,
    OUTPUT_FIRST_BUILD,
    OWN_RUNNER_BUILD,
    WINDOWED_CACHE_BUILD,
    build_that_runs,
)
from vramwise.serving.llama_cpp.drafted import drafted_tokens
from vramwise.serving.llama_cpp.ollama import LLAMA_SERVER_VERSION, STREAMS_VERSION, ollama_values
from vramwise.serving.llama_cpp.own_engine import OwnEngine, own_engine
from vramwise.serving.llama_cpp.refusals import check
from vramwise.units import round_up

DEFAULT_CONTEXT = 4096
DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512
DEFAULT_QUANT = "Q4_K_M"  # what llama.cpp's -hf and ollama fetch when none is named

PADDING = 256
OLD_PADDING = 32  # without flash attention, before the unified cache


_TAKEN_BACK = ("mtp", "eagle3", "dflash", "dspark")
_NEEDS_IMATRIX = ("IQ1", "IQ2", "IQ3_XXS")


@record
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
    shares: tuple[float, ...]
    split_mode: str
    kv_on_gpu: bool
    backend: str = "cuda"
    """ggml's for the devices: cuda (of ROCm and MUSA too), vulkan, metal; "other" for the rest."""
    pipelined: bool = False
    own: OwnEngine | None = None
    """Where ollama's own engine runs it."""
    attention_pool: int = 0
    """Bytes that flash attention of ollama's own engine takes of CUDA's pool, where printed sizes hold it."""
    spread: str = ""
    """What is on the host because the engine found no room for it, in words."""

    @property
    def devices(self) -> int:
        """GPUs in use; 0 on the CPU alone."""
        return len(self.shares)

    @property
    def build_is_stated(self) -> bool:
        """ik_llama.cpp makes no releases: what changed there is charged only to a version that is given."""
        return self.settings.engine_version is not None

    @property
    def input_copies(self) -> int:
        """Copies of every input that pipeline parallelism keeps (ggml-backend.cpp GGML_SCHED_MAX_COPIES)."""
        return 4 if self.pipelined else 1

    @property
    def outputs(self) -> int:
        """Tokens of a batch that there is room for the logits of (tools/server/server-context.cpp
        server_output_limits). What only the newest llama-server saves is not assumed of a run that states no build.
        """
        given, tokens = self.settings.logits_all, min(self.n_ubatch, self.n_ctx)
        if self.own is not None and self.own.text_alone and given is None:
            return min(tokens, self.slots)
        few = not self.is_ik and FEW_OUTPUTS_BUILD <= self.build < LATEST_BUILD
        return tokens if (not few if given is None else given) else min(tokens, self.fewest_outputs)

    @property
    def may_keep_fewer_logits(self) -> bool:
        """Whether it may be one of the newest llama-servers: nothing says which build it is."""
        return self.settings.logits_all is None and self.build == LATEST_BUILD and not self.is_ik

    @property
    def fewest_outputs(self) -> int:
        """One token a slot, and those that a draft model proposes for it."""
        return self.slots * (1 + drafted_tokens(self.settings))

    @property
    def copied_caches(self) -> tuple[bool, bool]:
        """Whether CUDA's flash attention copies keys, and values, of all cells to 16 bit (ggml-cuda/fattn.cu
        ggml_cuda_flash_attn_ext_get_alloc_size)."""
        copies = self.flash and self.backend == "cuda" and not self.is_ik and self.build >= CACHE_COPIES_BUILD
        return copies and self.type_k != "F16", copies and self.type_v != "F16"

    @property
    def has_index_cache(self) -> bool:
        """Whether the keys of an indexer are kept, where a model has one."""
        return not self.is_ik and self.build >= INDEXER_CACHE_BUILD

    @property
    def states_kept(self) -> int:
        """Recurrent states of a sequence: its own and one for every drafted token that may be taken back
        (common/common.h need_n_rs_seq, src/llama-memory-recurrent.cpp).
        """
        method = str((self.settings.speculative or {}).get("method"))
        return 1 + (drafted_tokens(self.settings) if method in _TAKEN_BACK else 0)

    @property
    def output_goes_first(self) -> bool:
        """Whether `n_gpu_layers` counts the output, which then is the last to leave the GPU."""
        return self.build >= OUTPUT_FIRST_BUILD and not self.is_ik

    @property
    def first_gpu_layer(self) -> int:
        """Layers go to the GPU from the end."""
        return max(self.num_layers + self.output_goes_first - self.gpu_layers, 0)

    @property
    def splits_by_bytes(self) -> bool:
        return self.is_ik and self.build >= IK_BY_BYTES_BUILD and self.devices > 1

    @property
    def shares_tensors(self) -> bool:
        """Whether matrices are cut over the devices instead of layers being dealt out."""
        return self.devices > 1 and self.split_mode not in ("layer", "none")

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

    def sends_experts(self, layer: int | None) -> bool:
        """Whether a layer's routed experts are told to stay on the host by `cpu_moe` or `n_cpu_moe`."""
        return bool(self.settings.cpu_moe) or (layer is not None and layer < (self.settings.n_cpu_moe or 0))

    @property
    def copies_weights(self) -> bool:
        """Whether a device takes over products with weights that lie on the host."""
        return self.devices > 0 and (self.gpu_layers <= self.num_layers or self.experts_on_host)

    @property
    def output_on_gpu(self) -> bool:
        return self.gpu_layers > (0 if self.output_goes_first else self.num_layers)

    def on_gpu(self, layer: int) -> bool:
        """Whether a repeating layer is on a GPU."""
        return self.gpu_layers > 0 and layer >= self.first_gpu_layer


def reads_windows(model: Model) -> bool:
    """Whether llama.cpp makes a mask of its own for windowed layers of this architecture."""
    return has_fact("llama.cpp", "windows", model.config.model_type) and any(cache.window for cache in model.caches)


@record
class _Sizes:
    """Context, batches, slots and flash attention."""

    n_ctx: int
    n_batch: int
    n_ubatch: int
    slots: int
    unified: bool
    flash: bool


def resolve_plan(scenario: Scenario, model: Model, capacity: Capacity | None = None) -> Plan:
    """Defaults of common/common.h, tools/server and ollama, by build and, for ollama, by the GPUs' memory."""
    given = scenario.serve
    is_ik, own_runner = given.variant == "ik_llama.cpp", runs_itself(given)
    build = OWN_RUNNER_BUILD if own_runner else build_that_runs(given)
    check(scenario, model, build, is_ik)
    own = own_engine(model, version_of(given.engine_version)) if own_runner else None
    slides = own is not None and own.window_memory is not None
    file_type = given.gguf_quant or _usual_type(given, model)
    imatrix = given.imatrix if given.imatrix is not None else file_type.startswith(_NEEDS_IMATRIX)
    if given.engine == "ollama":
        sizes = _ollama_sizes(scenario, model, capacity, build, file_type, imatrix)
    else:
        sizes = _llama_sizes(given, model, build)
    unified = sizes.unified or own is not None  # it has one cache for all slots
    layers = model.num_layers
    gpu_layers = 0 if scenario.num_gpus == 0 else layers + 1 if given.n_gpu_layers is None else given.n_gpu_layers
    settings = given.replace(
        gguf_quant=file_type,
        imatrix=imatrix,
        n_ctx=sizes.n_ctx,
        n_batch=sizes.n_batch,
        n_ubatch=sizes.n_ubatch,
        flash_attn=sizes.flash,
        cache_type_k=given.cache_type_k or "f16",
        cache_type_v=given.cache_type_v or "f16",
        n_gpu_layers=gpu_layers,
        n_parallel=sizes.slots,
        kv_unified=unified,
        swa_full=not slides and _keeps_whole_windows(given, model, build, own_runner or is_ik),
    )
    return Plan(
        settings=settings,
        build=build,
        is_ik=is_ik,
        file_type=file_type,
        imatrix=imatrix,
        n_ctx=sizes.n_ctx,
        n_batch=sizes.n_batch,
        n_ubatch=sizes.n_ubatch,
        flash=sizes.flash,
        type_k=(settings.cache_type_k or "f16").upper(),
        type_v=(settings.cache_type_v or "f16").upper(),
        gpu_layers=gpu_layers,
        num_layers=layers,
        slots=sizes.slots,
        unified=unified,
        swa_full=bool(settings.swa_full),
        latent=_latent_mode(given, build, given.engine == "ollama", is_ik),
        shares=_shares(scenario),
        split_mode=given.split_mode or "layer",
        kv_on_gpu=not given.no_kv_offload,
        own=own,
    )


def _usual_type(given: ServeSettings, model: Model) -> str:
    """What is fetched when no type is named; experts that are published in MXFP4 stay so, and ollama leaves the rest of
    that file in BF16 (convert/convert_gptoss.go), llama.cpp's own has it in Q8_0."""
    if not published_in_mxfp4(model):
        return DEFAULT_QUANT
    return "BF16" if given.engine == "ollama" else "MXFP4_MOE"


def runs_itself(given: ServeSettings) -> bool:
    """Whether it is an ollama that runs the model itself, not in a llama-server."""
    return given.engine == "ollama" and version_of(given.engine_version) < LLAMA_SERVER_VERSION


def _llama_sizes(given: ServeSettings, model: Model, build: int) -> _Sizes:
    is_ik = given.variant == "ik_llama.cpp"
    auto_context = build >= AUTO_CONTEXT_BUILD and not is_ik
    n_ctx = given.n_ctx or given.max_model_len or (model_length(model) if auto_context else DEFAULT_CONTEXT)
    n_batch = min(given.n_batch or DEFAULT_BATCH, n_ctx)
    flash = given.flash_attn if given.flash_attn is not None else build >= AUTO_FLASH_BUILD and not is_ik
    slots, unified = _slots(given, build, is_ik)
    return _Sizes(n_ctx, n_batch, min(given.n_ubatch or DEFAULT_UBATCH, n_batch), slots, unified, flash)


def _ollama_sizes(
    scenario: Scenario, model: Model, capacity: Capacity | None, build: int, file_type: str, imatrix: bool
) -> _Sizes:
    given = scenario.serve
    file_bytes = 0
    if file_type != "custom":
        file_bytes = sum(typed.bytes for typed in typed_tensors(model, file_type, imatrix))
    values = ollama_values(given, model, capacity, scenario.num_gpus, file_bytes)
    n_batch = min(values.n_batch, values.n_ctx)
    ubatch = given.n_ubatch or (n_batch if values.runs_llama_server else DEFAULT_UBATCH)
    alone = not values.runs_llama_server and version_of(given.engine_version) < STREAMS_VERSION
    _, unified = _slots(given.replace(n_parallel=values.slots), build, alone)
    return _Sizes(values.n_ctx, n_batch, min(ubatch, n_batch), values.slots, unified, values.flash)


def _shares(scenario: Scenario) -> tuple[float, ...]:
    """Parts of the model by GPU: those given, 0 for further GPUs; without any, free memory, alike for equal cards."""
    given = scenario.serve
    count = scenario.num_gpus
    if count > 1 and given.split_mode == "none":
        return (1.0,)
    if not any(given.tensor_split):
        return tuple(float(room.free_bytes) for room in rooms_of(scenario)) or (1.0,) * count
    shares = (*given.tensor_split, *(0.0,) * count)[:count]
    return shares if any(shares) else (1.0,) * count


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
    windows = has_fact("llama.cpp", "windows", model.config.model_type)
    if not windows or build < WINDOWED_CACHE_BUILD or without:
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
