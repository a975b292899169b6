"""`serve` with MLX: what one process takes of the memory that Metal lets the GPU keep wired.

mlx-lm 0.32.2 generate.py: a prompt is read in chunks of `prefill_step_size`, of which only the cache is evaluated, so
that logits are made of the last token alone; then one token at a time. It asks for a wired limit of
`max_recommended_working_set_size`, which macOS works out where `iogpu.wired_limit_mb` is 0, and warns where weights
take more than 0.9 of it.
"""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.hardware.room import Room, room_of
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.records import record
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.answer import amount, assemble, context_node, interval, resolved
from vramwise.serving.common.forward.kernels import Kernels, Pass
from vramwise.serving.common.forward.walk import eager_layer
from vramwise.serving.common.storage import Storage, dtype_notes
from vramwise.serving.common.versions import version_notes, version_of
from vramwise.serving.mlx.cache import CacheSettings, LayerBytes, layers_of
from vramwise.serving.mlx.in_flight import MOST_ACTIVE, OF_LARGE, Limits, limits_of
from vramwise.serving.mlx.prompt import Prompts, fullest_chunk
from vramwise.serving.mlx.weights import mlx_weights, own_storage
from vramwise.units import MIB
from vramwise.verdict import verdict_of

NEWEST = "0.32.2"
DEFAULT_CHUNK, DEFAULT_GROUP, DEFAULT_START = 2048, 64, 5000
WARNS_AT = 0.9
LAST_TOKEN_ALONE = (0, 27, 1)
AT_MOST = Kernels(latent_keys=True, norms_apart=True, product_apart=True, keeps_names=True)
IN_FLIGHT = "mlx 0.24.0 to 0.32.4 backend/metal/device.cpp needs_commit; transforms.cpp MAX_ACTIVE_TASKS"
RUNTIME = Node(
    "Metal runtime", 64 * MIB, "assumed", 0, 256 * MIB, formula="not described by any source",
    source="assumed: compiled kernels and command buffers; no log splits them",
)  # fmt: skip


@record
class MlxResolved:
    """Settings with nothing left open, as the answer states them."""

    settings: ServeSettings
    storage: Storage
    length: int
    requests: int
    chunk: int
    cache: CacheSettings


def resolve(given: ServeSettings, model: Model) -> MlxResolved:
    """mlx-lm's own defaults; a request of the model's whole length, one at a time."""
    storage = own_storage(model, given)
    length, requests = given.max_model_len or model_length(model), given.max_num_seqs or 1
    chunk, group = given.prefill_step_size or DEFAULT_CHUNK, given.kv_group_size or DEFAULT_GROUP
    start = DEFAULT_START if given.quantized_kv_start is None else given.quantized_kv_start
    settings = given.replace(
        engine_version=given.engine_version or NEWEST, dtype=storage.dtype, max_model_len=length, max_num_seqs=requests,
        prefill_step_size=chunk,
        **({} if given.kv_bits is None else {"kv_group_size": group, "quantized_kv_start": start}),
    )  # fmt: skip
    cache = CacheSettings(given.kv_bits, group, start, given.max_kv_size, chunk, storage.bytes_per_element)
    return MlxResolved(settings, storage, length, requests, chunk, cache)


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Weights, the cache of whole requests, and the fullest layer while a chunk of a prompt runs."""
    r = resolve(scenario.serve, model)
    context = Node.group("CUDA context", ()) if gpu is None else context_node(gpu)
    own = limits_of(gpu)
    run = _Run(model, r, mlx_weights(model, r.storage), context, own, OF_LARGE if gpu is None else own)
    phases = run.phases()
    peak = max(phases, key=lambda phase: phase.bytes)
    ends = [interval(phase.components) for phase in phases]
    needed = Quantity(*(max(getattr(end, name) for end in ends) for name in ("low", "expected", "high")))
    held = phases[-1].components.find("KV cache")
    quantities = {
        "params": Quantity.exact(model.num_parameters),
        "weights": interval(run.weights),
        "kv_cache_bytes": interval(held) if held is not None else Quantity.exact(0),
        "activation_peak": interval(run.layer()),
        "peak_allocated": run.peak_allocated(phases),
        "total_needed": needed,
    }
    room = room_of(scenario, gpu)
    verdict = None
    if room is not None:
        longest = run.longest(room.usable_bytes)
        quantities["max_seq"] = Quantity.exact(longest)
        fits = "fit" if needed.expected <= room.usable_bytes else "do not fit"
        reason = f"{amount(needed.expected)} {fits} in {amount(room.usable_bytes)}; the peak is at: {peak.name}"
        verdict = verdict_of(needed, room.usable_bytes, [reason])
        quantities["oom"] = Quantity.exact(not verdict.fits)
    table = resolved(scenario, "serve", r.settings)
    notes = (
        *dtype_notes(model, scenario.serve.dtype), *version_notes("MLX", scenario.serve.engine_version, NEWEST),
        *_notes(run, room, gpu),
    )  # fmt: skip
    return assemble(table, model, source, quantities, phases, None if room is None else room.capacity, verdict, notes)


@record
class _Run:
    model: Model
    r: MlxResolved
    weights: Node
    context: Node
    limits: Limits
    most_limits: Limits

    def phases(self, tokens: int | None = None) -> tuple[Phase, ...]:
        """Loading, the last chunk of a prompt, and the last token of an answer."""
        length = self.r.length if tokens is None else tokens
        layers = tuple(layers_of(self.model, self.r.cache, length))
        base = (self.weights, self.context) if self.context.bytes else (self.weights,)
        prompt = self._cache(layers, prompt=True)
        answer = self._cache(layers, prompt=False)
        growing = self._growth(layers)
        moments = {
            "load": base,
            "prefill": (*base, prompt, self.layer(length), RUNTIME),
            "decode": (*base, answer, *growing, self._logits(), RUNTIME),
        }
        return tuple(Phase(name, Node.group(name, parts)) for name, parts in moments.items())

    @property
    def token_logits(self) -> int:
        """Bytes of a token's logits, where the last piece of a prompt makes those of all its tokens."""
        alone = version_of(self.r.settings.engine_version) >= LAST_TOKEN_ALONE
        return 0 if alone else self.model.logit_width * self.r.storage.bytes_per_element

    def peak_allocated(self, phases: tuple[Phase, ...]) -> Quantity:
        """What mx.get_peak_memory counts and mlx-lm prints as "Peak memory": arrays alone."""
        outside = {self.context.name, RUNTIME.name}
        arrays = [
            interval(Node.group(phase.name, [part for part in phase.components.children if part.name not in outside]))
            for phase in phases
        ]
        return Quantity(*(max(getattr(one, name) for one in arrays) for name in ("low", "expected", "high")))

    def layer(self, tokens: int | None = None) -> Node:
        """What a chunk holds while the encoder is as far ahead as it may be; at least one layer's live arrays."""
        length = self.r.length if tokens is None else tokens
        chunk = min(self.r.chunk, length) * self.r.requests
        run = Pass(max(1, chunk), self.r.storage.bytes_per_element, 1, 1, kernels=Kernels(latent_keys=True))
        live = eager_layer(self.model, run, "", AT_MOST)
        prompts = Prompts(self.r.requests, self.r.storage, self.r.cache, self.token_logits)
        held = fullest_chunk(self.model, prompts, length, self.limits)
        most = fullest_chunk(self.model, prompts, length, self.most_limits).high
        found = Node(
            "arrays in flight", max(held.expected, live.low), "derived", live.low, max(held.high, most, live.high),
            formula="Σ arrays of the command buffers that have not ended",
            inputs={"tokens": chunk, "command_buffers": MOST_ACTIVE + 1}, source=IN_FLIGHT,
        )  # fmt: skip
        return Node.group("activations", (found,))

    def longest(self, usable_bytes: int) -> int:
        """Tokens of the longest request within the memory; 0 where not one token fits."""
        low, high = 0, self.r.length
        if self._needs(high) <= usable_bytes:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._needs(middle) <= usable_bytes else (low, middle)
        return low

    def _needs(self, tokens: int) -> int:
        return max(phase.bytes for phase in self.phases(tokens))

    def _cache(self, layers: tuple[LayerBytes, ...], *, prompt: bool) -> Node:
        size = sum(layer.prompt if prompt else layer.held for layer in layers) * self.r.requests
        states = sum(max(0, layer.state_high - layer.held) for layer in layers if layer.state_high) * self.r.requests
        return Node(
            "KV cache", size, "derived" if states else "exact", size, size + states,
            formula="requests × Σ layers of tokens in steps of 256 × bytes a token",
            inputs={"requests": self.r.requests, "tokens": self.r.length, "prefill_step_size": self.r.chunk},
            source="mlx-lm 0.32.2 models/cache.py",
        )  # fmt: skip

    def _growth(self, layers: tuple[LayerBytes, ...]) -> tuple[Node, ...]:
        """Old arrays beside those that a cache grows into: one layer's at least, all layers' at most."""
        largest = max((layer.copied for layer in layers), default=0)
        if not largest:
            return ()
        every = sum(max(layer.copied, layer.beside_high) for layer in layers) * self.r.requests
        return (Node(
            "cache while it grows", largest, "assumed", 0, max(largest, every),
            formula="old keys and values beside the new ones", inputs={"layers": len(layers)},
            source="mlx-lm 0.32.2 models/cache.py update_and_fetch: mx.concatenate",
        ),)  # fmt: skip

    def _logits(self) -> Node:
        width, own = self.model.logit_width * self.r.requests, self.r.storage.bytes_per_element
        return Node(
            "logits and probabilities", 2 * width * own, "derived", width * own, 4 * width * max(own, 4),
            formula="requests × vocabulary × 2 × dtype", source="mlx-lm 0.32.2 generate.py _step, sample_utils.py",
        )  # fmt: skip


def _notes(run: _Run, room: Room | None, gpu: Gpu | None) -> tuple[str, ...]:
    notes = []
    cache = run.r.cache
    rotates = any(one.window is not None or one.kind == "recurrent" for one in run.model.caches)
    if cache.max_kv_size is not None and rotates:
        notes.append("max_kv_size changed nothing here: the model makes caches of its own (make_cache)")
    if cache.kv_bits is not None and cache.max_kv_size is not None and not rotates:
        notes.append("kv_bits changed nothing here: mlx-lm does not quantize a rotating cache")
    elif cache.kv_bits is not None and run.r.length < cache.quantized_kv_start:
        notes.append(
            f"kv_bits changed nothing here: the cache is quantized from {cache.quantized_kv_start:,} tokens on "
            "(quantized_kv_start)"
        )
    if gpu is not None and gpu.vendor == "Apple" and room is not None:
        notes.append(
            f"the wired limit is macOS's own ({amount(room.seen_bytes)}, iogpu.wired_limit_mb 0); after sudo sysctl "
            "iogpu.wired_limit_mb=N say --gpu-total-bytes NMiB"
        )
        if run.weights.bytes > WARNS_AT * room.seen_bytes:
            notes.append("weights take more than nine tenths of the wired limit: mlx-lm warns that this can be slow")
    return tuple(notes)
