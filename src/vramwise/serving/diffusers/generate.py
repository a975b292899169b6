"""`task: generate` of a pipeline of Diffusers, or of one of its denoisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.errors import ScenarioError, UndescribedTypeError, clipped
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.intervals import around
from vramwise.models.diffusion.pipelines import PIPELINES, Asked, Pipeline, alone, config_as_called
from vramwise.models.diffusion.registry import Component, component
from vramwise.records import replace
from vramwise.result import ModelFacts, Node, Phase, Quantity, Rank, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import GenerateSettings
from vramwise.scenario.inference import TEXT_KEYS
from vramwise.scenario.pixels import pixels_of
from vramwise.serving.common.answer import amount, context_node, interval, peak_of, resolved
from vramwise.serving.common.constants import constant
from vramwise.serving.diffusers.phases import Plan, decodes_at_once, largest_batch, phases_of
from vramwise.serving.diffusers.weights import check_quantization, held
from vramwise.units import GIB
from vramwise.verdict import verdict_of

LARGEST_BATCH = 4096
LARGEST_SIDE = 32_768
VERSION = (0, 42)
_IMAGE_SIZE = "generate.image_size"


def estimate_pipeline(
    scenario: Scenario, config: Mapping[str, object], parts: Mapping[str, Mapping[str, object]], model_id: str,
    source: str, gpu: Gpu | None,
) -> Result:  # fmt: skip
    """Peak of a pipeline's moments: weights + what one call of a component holds + what is carried between them.

    `parts`: configs of its components. `peak_allocated` is `torch.cuda.max_memory_allocated`; `nvidia_smi` and
    `total_needed` add the CUDA context. Raises ScenarioError for sizes that it does not make, UndescribedTypeError for
    a pipeline or a component that is not described.
    """
    name = str(config.get("_class_name") or "")
    pipeline = PIPELINES.get(name)
    if pipeline is None:
        return _of_denoiser(scenario, name, config, model_id, source, gpu)
    found, missing = components_of(pipeline, parts, model_id)
    if pipeline.denoiser in missing or pipeline.decoder in missing:
        raise UndescribedTypeError(model_id, f'"{clipped(name)}" without the configs of {", ".join(missing)}', None)
    left_out = [f"{one} is left out: its config is not there" for one in missing]
    left_out += [f"{one} is not counted" for one in pipeline.idle if one in config or one in parts]
    return _answered(scenario, pipeline, found, list(found), ModelFacts(model_id, 0, 0, 0, source), gpu, left_out)


def components_of(
    pipeline: Pipeline, parts: Mapping[str, Mapping[str, object]], model_id: str
) -> tuple[dict[str, Component], list[str]]:
    """The models that a pipeline calls, and the names of those whose configs are not there."""
    wanted = [*(first for first, _ in pipeline.encoders), pipeline.denoiser, pipeline.decoder]
    found = {
        one: component(str(parts[one]["_class_name"]), config_as_called(pipeline, one, parts[one]), model_id)
        for one in wanted if one in parts
    }  # fmt: skip
    missing = [one for one in wanted if one not in found]
    if pipeline.second in parts:
        found[pipeline.second] = component(str(parts[pipeline.second]["_class_name"]), parts[pipeline.second], model_id)
    return found, missing


def _of_denoiser(
    scenario: Scenario, name: str, config: Mapping[str, object], model_id: str, source: str, gpu: Gpu | None
) -> Result:
    """Steps of a denoiser without its pipeline."""
    made = alone(component(name, config, model_id))
    if made is None:
        raise UndescribedTypeError(model_id, f'a pipeline around the Diffusers class "{clipped(name)}"', None)
    pipeline, parts = made
    facts = ModelFacts(model_id, 0, 0, 0, source)
    note = "the denoiser alone, called once for each row of the batch"
    return _answered(scenario, pipeline, parts, [pipeline.denoiser], facts, gpu, [note])


def _answered(
    scenario: Scenario, pipeline: Pipeline, parts: Mapping[str, Component], loaded: Sequence[str], facts: ModelFacts,
    gpu: Gpu | None, said: Sequence[str],
) -> Result:  # fmt: skip
    _check_no_text(scenario.generate, facts.id)
    settings = _with_defaults(scenario.generate, pipeline, parts)
    plan = _plan(settings, pipeline, parts, loaded, gpu)
    count = sum(one.num_parameters for one in plan.held.values())
    facts = replace(facts, num_parameters=count, num_active_parameters=count)
    notes = [] if scenario.task == "load" else _notes(scenario.generate, settings, plan)
    return _answer(scenario, settings, plan, facts, gpu, [*notes, *said])


def _check_no_text(given: GenerateSettings, model_id: str) -> None:
    """Raises ScenarioError where a pipeline was given what only models have that generate text."""
    for key in TEXT_KEYS:
        if given.changes(key):
            raise ScenarioError(f"generate.{key}", f"{model_id or 'the model'} is a pipeline that generates no text")


def _with_defaults(given: GenerateSettings, pipeline: Pipeline, parts: Mapping[str, Component]) -> GenerateSettings:
    width, height = _sides(given.image_size, pipeline) if given.image_size else pipeline.size(parts)
    if given.num_frames is not None and not pipeline.makes_video and given.num_frames != 1:
        raise ScenarioError("generate.num_frames", f"this pipeline makes images: expected 1, got {given.num_frames}")
    if pipeline.makes_video and given.num_frames is not None and given.num_frames % pipeline.frame_step != 1:
        expected = f"expected a multiple of {pipeline.frame_step} and one more"
        raise ScenarioError("generate.num_frames", f"{expected}, got {given.num_frames}")
    check_quantization(given.quantization)
    return given.replace(
        image_size=f"{width}x{height}", num_frames=given.num_frames or pipeline.frames,
        dtype=pipeline.dtype if given.dtype == "auto" else given.dtype, offload=given.offload or "none",
        guidance_scale=pipeline.guidance if given.guidance_scale is None else given.guidance_scale,
        vae_tiling=bool(given.vae_tiling), vae_slicing=bool(given.vae_slicing),
        prompt_tokens=given.prompt_tokens or pipeline.tokens,
    )  # fmt: skip


def _sides(text: str, pipeline: Pipeline) -> tuple[int, int]:
    """Width and height of what a pipeline makes. Raises ScenarioError for sides that it does not."""
    width, height = pixels_of(text, _IMAGE_SIZE)
    for side in (width, height):
        if not pipeline.multiple <= side <= LARGEST_SIDE or side % pipeline.multiple:
            expected = f"sides of a multiple of {pipeline.multiple} pixels up to {LARGEST_SIDE:,}"
            raise ScenarioError(_IMAGE_SIZE, f"expected {expected}, got {width}x{height}")
    return width, height


def _plan(
    settings: GenerateSettings, pipeline: Pipeline, parts: Mapping[str, Component], loaded: Sequence[str],
    gpu: Gpu | None,
) -> Plan:  # fmt: skip
    assert settings.image_size is not None
    width, height = pixels_of(settings.image_size, _IMAGE_SIZE)
    guidance = settings.guidance_scale or 0.0
    asked = Asked(
        settings.batch_size, width, height, settings.num_frames or 1, settings.prompt_tokens,
        guidance if pipeline.doubles else 0.0, settings.dtype,
    )  # fmt: skip
    forced = pipeline.upcasts_decoder and parts[pipeline.decoder].config.flag("force_upcast", True)
    upcast = forced and settings.dtype == "fp16"
    loaded_dtype = pipeline.loads_decoder_in or settings.dtype
    weights = {
        name: held(
            name,
            parts[name],
            loaded_dtype if name == pipeline.decoder else settings.dtype,
            settings.quantization if name in (pipeline.denoiser, pipeline.second) else None,
        )
        for name in loaded
    }
    outside = Node.group("outside", (_workspace(), context_node(gpu, of_torch=True)))
    return Plan(
        pipeline, parts, asked, weights, settings.offload or "none", bool(settings.vae_tiling),
        bool(settings.vae_slicing), "fp32" if upcast else loaded_dtype, loaded_dtype, guidance, outside,
    )  # fmt: skip


def _workspace() -> Node:
    """What cuBLAS and cuDNN allocate through PyTorch beside the model."""
    value = constant("diffusers", "workspace", VERSION)
    low, expected, high = (round(size * GIB) for size in (value.low, value.expected, value.high))
    return Node("library workspaces", expected, value.kind, low, high, source=value.source)


def _answer(
    scenario: Scenario, settings: GenerateSettings, plan: Plan, facts: ModelFacts, gpu: Gpu | None,
    notes: Sequence[str],
) -> Result:  # fmt: skip
    loading = scenario.task == "load"
    phases = phases_of(plan)[:1] if loading else phases_of(plan)
    peak = peak_of(phases)
    context = plan.outside.children[-1]
    top = interval(peak.components)
    allocated = Quantity(int(top.low) - context.low, int(top.expected) - context.bytes, int(top.high) - context.high)
    weights = sum(one.bytes for one in plan.held.values())
    held = peak.components.find("weights")
    certain = held.bytes if held is not None else 0
    top = around("nvidia_smi", top, "generation", top.expected, certain + context.low)
    quantities = {
        "params": Quantity.exact(facts.num_parameters),
        "weights": Quantity.exact(weights),
        "peak_allocated": around("peak_allocated", allocated, "generation", allocated.expected, certain),
        "nvidia_smi": top,
        "total_needed": top,
    }
    if not loading:
        quantities["activation_peak"] = Quantity.exact(max(map(_activations, phases)))
    if plan.offload != "none":
        quantities["host_memory"] = Quantity.exact(weights)
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        usable = capacity.usable_bytes
        most = 0 if loading else largest_batch(plan, usable, LARGEST_BATCH)
        if not loading:
            quantities["max_batch"] = Quantity.exact(most)
        verdict = verdict_of(top, usable, _reasons(peak, usable, most))
        quantities["oom"] = Quantity.exact(not verdict.fits)
    table = resolved(scenario, "" if loading else "generate", settings)
    ranks = (Rank("every GPU", peak.bytes),)
    return Result(
        scenario=table, model=facts, quantities=quantities, phases=phases, peak_phase=peak.name, ranks=ranks,
        capacity=capacity, verdict=verdict, notes=tuple(notes),
    )  # fmt: skip


def _activations(phase: Phase) -> int:
    node = phase.components.find("activations")
    return node.bytes if node is not None else 0


def _reasons(peak: Phase, usable_bytes: int, most: int) -> list[str]:
    usable = amount(usable_bytes)
    if peak.bytes <= usable_bytes:
        return [f"the peak ({peak.name}) of {amount(peak.bytes)} fits in {usable}"]
    reasons = [f"the peak ({peak.name}) of {amount(peak.bytes)} does not fit in {usable}"]
    return [*reasons, f"batch_size {most} fits"] if most else reasons


def _notes(given: GenerateSettings, settings: GenerateSettings, plan: Plan) -> list[str]:
    notes = []
    if given.dtype == "auto":
        notes.append(
            f"loaded in {settings.dtype}, as its model card does; from_pretrained without torch_dtype loads fp32"
        )
    if plan.asked.guidance > 1:
        notes.append(
            f"guidance_scale {settings.guidance_scale:g}: the denoiser works on twice the batch; 1 turns that off"
        )
    if plan.pipeline.loads_decoder_in:
        notes.append(f"the VAE is loaded in {plan.loaded_dtype}, as its model card does")
    elif plan.decoder_dtype != settings.dtype:
        notes.append("the VAE's config says force_upcast: it decodes in fp32")
    if settings.offload == "group":
        notes.append(
            "offload group: every layer by itself, the next one fetched while one runs (leaf_level, use_stream)"
        )
    if given.vae_tiling and decodes_at_once(plan):
        notes.append("vae_tiling changed nothing here: what is made is no larger than one tile")
    if settings.quantization is not None:
        notes.append(f"{settings.quantization} is that of the denoiser; text encoders and VAE stay in {settings.dtype}")
    return notes
