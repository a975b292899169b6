"""The moments of a pipeline: loading, the prompt's encoders, a step of the denoiser, the VAE's decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from vramwise.largest import largest_within
from vramwise.models.diffusion.live_set import Given, LiveSet
from vramwise.models.diffusion.pipelines import Asked, Pipeline, prompt_given
from vramwise.models.diffusion.registry import Component, tile_of
from vramwise.records import record
from vramwise.result import Node, Phase
from vramwise.serving.diffusers.weights import Held, held

_LIVE = "blocks of operations, executed in order; the frame of each module keeps its arguments"


@record
class Plan:
    """A pipeline with its components, what is asked of it, and how it is run."""

    pipeline: Pipeline
    parts: Mapping[str, Component]
    asked: Asked
    held: Mapping[str, Held]
    offload: str
    tiling: bool
    slicing: bool
    decoder_dtype: str
    loaded_dtype: str
    """That of the decoder until it decodes."""
    guidance: float
    outside: Node
    """What the process holds beside what torch hands out, and what libraries take of torch."""

    def of_batch(self, batch: int) -> Plan:
        """The same for another batch."""
        return replace(self, asked=replace(self.asked, batch=batch))


def phases_of(plan: Plan) -> tuple[Phase, ...]:
    """Every moment in order."""
    encoders = [encoding(plan) for encoding in _encodings(plan)]
    found = [_loading(plan)]
    if encoders:
        found.append(max(encoders, key=lambda phase: phase.bytes))
    found.append(_step(plan))
    return (*found, _decoding(plan)) if plan.pipeline.decoder in plan.held else tuple(found)


def largest_batch(plan: Plan, room: int, most: int) -> int:
    """The largest batch up to `most` whose every moment fits; 0 where not even one image does.

    A moment's need does not fall with the batch: the fullest one bounds it, and what takes longer to work out is asked
    at that bound alone.
    """
    moments = [_loading, *_encodings(plan), _step]
    if plan.pipeline.decoder in plan.held:
        moments.append(_decoding)
    for moment in sorted(moments, key=lambda one: -one(plan).bytes):

        def need(batch: int, moment: Callable[[Plan], Phase] = moment) -> int:
            return moment(plan.of_batch(batch)).bytes

        at_most = need(most) if most else 0
        if at_most > room:
            most = largest_within(need, room, most, (most, at_most))
    return most


def _encodings(plan: Plan) -> list[Callable[[Plan], Phase]]:
    return [
        partial(_encoding, name=name, length=length) for name, length in plan.pipeline.encoders if name in plan.parts
    ]


def _resident(plan: Plan, name: str, at_dtype: Held | None = None) -> list[Node]:
    """Weights on the card while a component runs: all, its own, or none but those of the layer that runs."""
    own = at_dtype or plan.held[name]
    if plan.offload == "none":
        return [own.node if one == name else other.node for one, other in plan.held.items()]
    return [own.node] if plan.offload == "model" else []


def _phase(plan: Plan, name: str, weights: list[Node], parts: list[Node]) -> Phase:
    found = [Node.group("weights", weights)] if weights else []
    return Phase(name, Node.group(name, [*found, *(part for part in parts if part.bytes), *plan.outside.children]))


def _loading(plan: Plan) -> Phase:
    weights = [one.node for one in plan.held.values()] if plan.offload == "none" else []
    return _phase(plan, "load", weights, [])


def _live(plan: Plan, name: str, given: tuple[Given, ...], dtype: str, weights: Held) -> LiveSet:
    """What a call holds; layers whose weights wait in host memory hold them too while they run."""
    if plan.offload in ("sequential", "group"):
        ahead = plan.offload == "group"
        return plan.parts[name].call(
            given, dtype, unpacked_bytes=weights.unpacked, fetched=weights.by_name, ahead=ahead
        )
    return plan.parts[name].call(given, dtype, unpacked_bytes=weights.unpacked)


def _activations(live: LiveSet, given: tuple[Given, ...], extra: int = 0) -> Node:
    inputs = {"fullest at": live.operation, "in": live.module or "the model's own frame"}
    inputs |= {one.stream: "×".join(map(str, one.shape)) for one in given}
    return Node("activations", live.bytes + extra, "derived", formula="largest live set of one call", inputs=inputs,
                source=_LIVE)  # fmt: skip


def _encoding(plan: Plan, name: str, length: int | None) -> Phase:
    given = prompt_given(plan.pipeline, name, length, plan.asked)
    live = _live(plan, name, given, plan.asked.dtype, plan.held[name])
    return _phase(
        plan, "text encoder", [*_resident(plan, name), *_still_there(plan, name)], [_activations(live, given)]
    )


def _still_there(plan: Plan, name: str) -> list[Node]:
    """The last encoder, while those before it read the empty prompt.

    accelerate 1.15 hooks.py `CpuOffload.pre_forward`: a model that comes sends away the one before it in the pipeline's
    order and no other.
    """
    last = [one for one, _ in plan.pipeline.encoders if one in plan.parts][-1]
    reads_twice = plan.offload == "model" and plan.asked.guidance > 1 and plan.pipeline.encodes_empty_prompt
    return [plan.held[last].node] if reads_twice and name != last else []


def _carried(plan: Plan, *, noise: bool) -> Node:
    """Latents and prompts that the pipeline's frame has names for."""
    pipeline, asked = plan.pipeline, plan.asked
    step = pipeline.step(plan.parts, asked)
    size = sum(one.bytes for one in step)
    latent = Given("latents", pipeline.latents(plan.parts, asked), asked.dtype).bytes
    if pipeline.doubles and asked.guidance > 1:
        size += size // 2  # prompts before they are joined
    twice = pipeline.calls_twice and plan.guidance > 1
    if twice:
        size += sum(one.bytes for one in step if one.stream == "encoder_hidden_states")
    if not pipeline.latents_in_fp32:
        size += latent * (3 if noise else 2)
    else:  # pipeline_wan.py `__call__`: latents and mask; what the first call, or both, predicted
        wide = Given("latents", pipeline.latents(plan.parts, asked), "fp32").bytes
        calls = 2 if twice else 1
        size += 2 * wide + latent * (calls - 1 if noise else calls)
    return Node("latents and prompts", size, "derived", formula="Σ tensors that the pipeline's frame names",
                source=pipeline.source)  # fmt: skip


def _step(plan: Plan) -> Phase:
    name = plan.pipeline.denoiser
    given = plan.pipeline.step(plan.parts, plan.asked)
    live = _live(plan, name, given, plan.asked.dtype, plan.held[name])
    return _phase(plan, "denoise step", _resident(plan, name), [_activations(live, given), _carried(plan, noise=True)])


def _decoding(plan: Plan) -> Phase:
    name, asked = plan.pipeline.decoder, plan.asked
    stored = plan.decoder_dtype
    weights = plan.held[name] if stored == plan.loaded_dtype else held(name, plan.parts[name], stored, None)
    batch, *latent = plan.pipeline.latents(plan.parts, asked)
    rows = 1 if plan.slicing else batch
    shape = (rows, *latent)
    given = (Given(plan.pipeline.latent_input, shape, stored),)
    tile = _tile(plan, shape)
    live = _live(plan, name, (Given(plan.pipeline.latent_input, tile, stored),), stored, weights)
    extra = _other_tiles(plan, shape, tile, live) if tile != shape else 0
    extra += (batch - rows) * _image_bytes(plan, stored) if plan.slicing else 0
    node = _activations(live, given, extra)
    return _phase(plan, "VAE decode", _resident(plan, name, weights), [node, _carried(plan, noise=False)])


def _image_bytes(plan: Plan, stored: str) -> int:
    return Given("image", (plan.asked.frames, 3, plan.asked.height, plan.asked.width), stored).bytes


def decodes_at_once(plan: Plan) -> bool:
    """Whether the latents are one tile, or are not cut into tiles."""
    _, *latent = plan.pipeline.latents(plan.parts, plan.asked)
    return _tile(plan, (1, *latent)) == (1, *latent)


def _tile(plan: Plan, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of the latents that is decoded at once."""
    side, _ = tile_of(plan.parts[plan.pipeline.decoder])
    if not plan.tiling or max(shape[-2:]) <= side:
        return shape
    return (*shape[:-2], min(side, shape[-2]), min(side, shape[-1]))


def _other_tiles(plan: Plan, shape: tuple[int, ...], tile: tuple[int, ...], live: LiveSet) -> int:
    """Decoded tiles that wait while the last whole one is decoded (autoencoder_kl.py `tiled_decode`).

    At the end all wait beside the rows that they are joined to and the picture, which is less than a tile's own peak
    but for pictures of many tiles: then the difference counts.
    """
    side, stride = tile_of(plan.parts[plan.pipeline.decoder])
    starts = [range(0, length, stride) for length in shape[-2:]]
    sizes = [min(side, shape[-2] - i) * min(side, shape[-1] - j) for i in starts[0] for j in starts[1]]
    pixel = live.left_bytes // (tile[-2] * tile[-1])
    before = wait = 0
    for size in sizes:
        if size == tile[-2] * tile[-1]:
            wait = before
        before += size * pixel
    joined = before + 2 * shape[-2] * shape[-1] * pixel
    return max(wait, joined - live.bytes)
