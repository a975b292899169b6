"""`task: generate`: the peak of transformers' `generate` on the fullest GPU, the largest batch, the longest prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vramwise.engines.transformers import RECORD
from vramwise.errors import ScenarioError
from vramwise.formats import dtype
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.intervals import around
from vramwise.largest import largest_within
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.records import record
from vramwise.result import Node, Phase, Quantity, Rank, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import GenerateSettings
from vramwise.scenario.inference import PIPELINE_KEYS
from vramwise.serving.common.answer import amount, assemble, context_node, interval, resolved
from vramwise.serving.common.resolved import AS_THE_MODEL
from vramwise.serving.common.storage import dtype_notes, storage_of
from vramwise.serving.common.versions import version_of
from vramwise.serving.transformers.cards import Card, only_card
from vramwise.serving.transformers.inference import simpler_walk_note
from vramwise.serving.transformers.moments import Plan, generate_weights, moments_of, transient_bytes
from vramwise.serving.transformers.several_cards import laid_over
from vramwise.verdict import verdict_of

DEFAULT_PROMPT_TOKENS = 1024
DEFAULT_NEW_TOKENS = 256
DEFAULT_VERSION = RECORD.newest
QUANTIZED_DTYPES, QUANTIZED_DEFAULT = ("int4", "int8"), "int4"
LARGEST_BATCH = 1_000_000


@record
class Sizes:
    """What the searched sizes are called, and the prompt and new tokens that a length up to `longest` stands for."""

    batch_name: str
    length_name: str
    length: int
    longest: int
    tokens: Callable[[int], tuple[int, int]]


@record
class _Run:
    """A generation on one kind of card; `cards`, each with its weights, are those that hold a part of the model."""

    model: Model
    plan: Plan
    cards: tuple[tuple[Card, Node], ...]
    context: Node
    spare: tuple[int, ...]
    """What each card may hold beyond the one that the answer is for."""

    def moments_of_cards(self, plan: Plan) -> list[tuple[Phase, ...]]:
        return [moments_of(self.model, plan, card, weights, self.context) for card, weights in self.cards]

    def moments(self, plan: Plan) -> tuple[Phase, ...]:
        """Those of the card with the least room left."""
        found = zip(self.moments_of_cards(plan), self.spare, strict=True)
        return max(found, key=lambda one: _need(one[0]) - one[1])[0]

    def need(self, plan: Plan) -> int:
        """Expected bytes of the fullest moment, which is what the verdict holds against the card that the answer is
        for: of a card with more room that much less."""
        found = zip(self.moments_of_cards(plan), self.spare, strict=True)
        return max(_need(moments) - spare for moments, spare in found)

    def need_of_batch(self, batch: int) -> int:
        return self.need(replace(self.plan, batch=batch))

    def need_of_tokens(self, prompt: int, new: int) -> int:
        return self.need(replace(self.plan, prompt=prompt, new=new))

    @property
    def held_always(self) -> int:
        held = zip(self.cards, self.spare, strict=True)
        return max(weights.bytes - spare for (_, weights), spare in held) + self.context.bytes


def _need(moments: Sequence[Phase]) -> int:
    return max(moment.bytes for moment in moments)


def estimate_generate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Peak of prefill and decode: weights + keys and values + what one layer holds while it runs.

    `peak_allocated` is `torch.cuda.max_memory_allocated`; `nvidia_smi` and `total_needed` add the CUDA context.
    `max_seq` is the longest prompt with these new tokens. The allocator's fragmentation and kernels loaded later are
    not counted.
    """
    check_no_pipeline(scenario.generate, model.id)
    settings, plan = resolve(scenario.generate, model)
    longest = model_length(model) - (0 if model.head == "seq2seq-lm" else plan.new)
    sizes = Sizes("batch_size", "prompt_tokens", plan.prompt, max(1, longest), lambda length: (length, plan.new))
    table = resolved(scenario, "generate", settings)
    return generation(scenario, plan, sizes, model, source, gpu, table)


def check_no_pipeline(settings: GenerateSettings, model_id: str) -> None:
    """Raises ScenarioError where a text model was given what only image and video pipelines have."""
    for key in PIPELINE_KEYS:
        if getattr(settings, key) is not None:
            raise ScenarioError(f"generate.{key}", f"{model_id or 'the model'} is no image or video pipeline")


def generation(
    scenario: Scenario, plan: Plan, sizes: Sizes, model: Model, source: str, gpu: Gpu | None,
    table: Mapping[str, object],
) -> Result:  # fmt: skip
    """The answer for a plan; `table` is the scenario that it states."""
    context = context_node(gpu, of_torch=True)
    over = laid_over(scenario, model, plan, gpu, context)
    cards = over.cards if over is not None else (only_card(model),)
    beyond = [over.beyond(i) if over is not None else 0 for i in range(len(cards))]
    held = tuple((card, generate_weights(card.held, plan.storage)) for card in cards)
    of_cards = [moments_of(model, plan, card, weights, context) for card, weights in held]
    fullest = max(range(len(of_cards)), key=lambda i: _need(of_cards[i]) - beyond[i])
    run = _Run(model, plan, held, context, tuple(more - beyond[fullest] for more in beyond))
    moments, weights = of_cards[fullest], run.cards[fullest][1]
    last = moments[-1].components.find("KV cache")
    peak = max(moments, key=lambda moment: moment.bytes)
    allocated = [interval(m.components) for m in moments]
    top = Quantity(*(max(getattr(a, end) for a in allocated) for end in ("low", "expected", "high")))
    peak_allocated = Quantity(
        int(top.low) - context.low, int(top.expected) - context.bytes, int(top.high) - context.high
    )
    certain = weights.low
    top = around("nvidia_smi", top, "generation", top.expected, certain + context.low)
    peak_allocated = around("peak_allocated", peak_allocated, "generation", peak_allocated.expected, certain)
    quantities = {
        "params": Quantity.exact(model.num_parameters),
        "weights": interval(weights),
        "kv_cache_bytes": interval(last) if last is not None else Quantity.exact(0),
        "activation_peak": Quantity.exact(transient_bytes(model, plan, plan.prompt)),
        "peak_allocated": peak_allocated,
        "nvidia_smi": top,
        "total_needed": top,
    }
    unequal = over.rooms if over is not None else ()
    capacity = unequal[cards[fullest].number].capacity if unequal else capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        usable = capacity.usable_bytes
        limits = _limits(run, sizes, usable, peak.bytes)
        quantities.update({name: Quantity.exact(value) for name, value in limits.items()})
        verdict = verdict_of(top, usable, _reasons(run, sizes, usable, peak, limits))
        quantities["oom"] = Quantity.exact(not verdict.fits)
    simpler = simpler_walk_note(
        model, dtype=plan.storage.dtype, attention=plan.attention, batch=plan.rows, sequence=plan.prompt
    )
    said = dtype_notes(model, scenario.generate.dtype)
    left_out = f"not counted: {model.not_counted}" if model.not_counted else ""
    notes = [
        *said,
        left_out,
        model.text_only_note,
        simpler,
        *(over.notes(fullest, weights) if over is not None else ()),
        _length_note(model, plan),
        _flash_note(scenario, run, moments),
    ]
    ranks = None
    if over is not None:
        ranks = tuple(Rank(f"GPU {card.number}", _need(one)) for card, one in zip(cards, of_cards, strict=True))
    return assemble(table, model, source, quantities, moments, capacity, verdict, filter(None, notes), ranks)


def _flash_note(scenario: Scenario, run: _Run, moments: Sequence[Phase]) -> str:
    """Where flash-attention was asked for and keeps what SDPA does; "" elsewhere."""
    if "attention" not in scenario.generate.explicit or run.plan.attention != "flash":
        return ""
    usual = run.moments(replace(run.plan, attention="sdpa"))
    if [moment.bytes for moment in usual] != [moment.bytes for moment in moments]:
        return ""
    return "attention flash changed nothing here: SDPA runs a flash kernel of its own, which keeps the same"


def _length_note(model: Model, plan: Plan) -> str:
    """Where prompt and new tokens need more positions than the model has; "" where they do not."""
    longest = model_length(model)
    asked = plan.new if model.head == "seq2seq-lm" else plan.prompt + plan.new  # an encoder's positions are its own
    asked -= plan.new if plan.scored else 0
    if asked <= longest:
        return ""
    return f"prompt_tokens and new_tokens, {asked:,} in all, are beyond the model's own {longest:,} positions"


def resolve(given: GenerateSettings, model: Model) -> tuple[GenerateSettings, Plan]:
    """Settings with defaults written in, as the answer states them, and as it works with them."""
    longest = model_length(model)
    prompt = given.prompt_tokens or max(1, min(DEFAULT_PROMPT_TOKENS, longest // 2))
    # an encoder's positions are not the decoder's
    left = longest if model.head == "seq2seq-lm" else longest - prompt
    new = given.new_tokens or max(1, min(DEFAULT_NEW_TOKENS, left))
    storage = storage_of(model, given.dtype, given.quantization, given.quantization_group_size)
    cache, kind = given.kv_cache_dtype, given.cache_implementation
    if cache == AS_THE_MODEL:
        cache = QUANTIZED_DEFAULT if kind == "quantized" else storage.dtype
    kind = "quantized" if cache in QUANTIZED_DTYPES else kind
    version, bits = given.engine_version or DEFAULT_VERSION, dtype(cache).bits
    settings = given.replace(
        prompt_tokens=prompt, new_tokens=new, dtype=storage.dtype, kv_cache_dtype=cache, cache_implementation=kind,
        engine_version=version,
    )  # fmt: skip
    plan = Plan(
        batch=given.batch_size, prompt=prompt, new=new, attention=given.attention, beams=given.num_beams,
        storage=storage,
        version=version_of(version), cache_bytes_per_element=max(1, bits // 8), cache=kind, cache_bits=bits,
        scored=bool(given.prompt_logits),
    )  # fmt: skip
    return settings, plan


def _limits(run: _Run, sizes: Sizes, room: int, need: int) -> dict[str, int]:
    """Largest batch at this length, greatest length at this batch."""
    batch = (run.plan.batch, need) if run.plan.batch <= LARGEST_BATCH else None
    length = (sizes.length, need) if sizes.length <= sizes.longest else None
    return {
        "max_batch": largest_within(run.need_of_batch, room, LARGEST_BATCH, batch),
        "max_seq": largest_within(lambda n: run.need_of_tokens(*sizes.tokens(n)), room, sizes.longest, length),
    }


def _reasons(run: _Run, sizes: Sizes, usable_bytes: int, peak: Phase, limits: dict[str, int]) -> list[str]:
    usable = amount(usable_bytes)
    if peak.bytes <= usable_bytes:
        return [f"the peak ({peak.name}) of {amount(peak.bytes)} fits in {usable}"]
    reasons = [f"the peak ({peak.name}) of {amount(peak.bytes)} does not fit in {usable}"]
    if run.held_always > usable_bytes:
        reasons.append("the weights alone leave no room: quantize them or take a larger GPU")
    elif limits["max_batch"]:
        reasons.append(f"{sizes.batch_name} {limits['max_batch']} fits")
    elif limits["max_seq"]:
        reasons.append(f"{sizes.length_name} {limits['max_seq']} fits")
    else:
        reasons.append(
            f"neither {sizes.batch_name} 1 nor {sizes.length_name} 1 fits: quantize the weights or take a larger GPU"
        )
    return reasons
