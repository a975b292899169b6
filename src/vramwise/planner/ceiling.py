"""How many tokens a second one request gets at most: each token reads the active weights and the cache once."""

from __future__ import annotations

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.planner.running import FILES, context_of, is_whole
from vramwise.planner.ways import Question, Way
from vramwise.records import record
from vramwise.result import Result
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.serving.common.gguf.tensors import LOOKED_UP, gguf_tensors
from vramwise.utilization.roofline import decode_bound


@record
class Ceiling:
    """Tokens a second of one request at a context, and what they are worked out from: `bandwidths_gb_s` of a card, or
    of each where they are unequal."""

    tokens_per_second: float
    bandwidths_gb_s: tuple[float, ...]
    bytes_per_token: int

    @property
    def basis(self) -> str:
        """What the ceiling is worked out from, in words."""
        return f"ceiling, bandwidth {' and '.join(f'{one:,.0f}' for one in dict.fromkeys(self.bandwidths_gb_s))} GB/s"


def ceiling_of(question: Question, way: Way) -> Ceiling | None:
    """The ceiling of a way to run; None for a card without a known bandwidth, and with a part on the host.

    Ranks of tensor parallelism read their shares at once, stages of a pipeline and layers dealt out over cards one
    after another.
    """
    bandwidths = question.machine.bandwidths_gb_s
    if way.result is None or way.task != "serve" or not bandwidths or not is_whole(question, way):
        return None
    at_once = int(way.resolved.get("tensor_parallel_size") or 1) if way.method != FILES else 1
    weights, cache = weights_read(question.model, way), cache_bytes(way)
    if not weights:
        return None
    bound = decode_bound(weights, cache, _bandwidth(bandwidths, way.result, at_once), at_once)
    return Ceiling(bound.tokens_per_s, bandwidths, weights + cache)


def _bandwidth(bandwidths: tuple[float, ...], result: Result, at_once: int) -> float:
    """That of one card. Of unequal ones the slowest's where all read at once; else each reads its share in turn, which
    is taken as that of all it holds."""
    if len(bandwidths) == 1:
        return bandwidths[0]
    if at_once > 1 or len(result.ranks) != len(bandwidths):
        return min(bandwidths)
    held = [one.bytes for one in result.ranks]
    return sum(held) / sum(size / bandwidth for size, bandwidth in zip(held, bandwidths, strict=True))


def weights_read(model: Model, way: Way, *, every_expert: bool = False) -> int:
    """Bytes of weights that a token reads: all but the routed experts it is not sent to, and one row of the embedding.

    A tied embedding is read as the output layer. `every_expert`: of a large batch, whose tokens go to all of them.
    """
    if way.result is None:
        return 0
    share = 1.0 if every_expert else _share_of_experts(model)
    if way.method == FILES:
        return _read_of_a_file(model, way.precision, share)
    parts = _parts_of_weights(way.result)
    tied = "output head" not in parts
    shares = {"experts": share, "embeddings": _share_of_the_output(model) if tied else 0.0}
    on_one = sum(size * shares.get(name, 1) for name, size in parts.items() if name not in _NOT_READ)
    return round(on_one * _ranks(way))


@of_model
def _read_of_a_file(model: Model, file_type: str, share_of_experts: float) -> int:
    tensors = typed_tensors(model, file_type, False)
    tied = not any(one.tensor.name == "output" for one in tensors)
    read = sum(
        one.bytes * (share_of_experts if one.tensor.name.endswith("_exps") else 1)
        for one in tensors if one.tensor.name not in LOOKED_UP or (tied and one.tensor.name == "token_embd")
    )  # fmt: skip
    return round(read)


_NOT_READ = frozenset(
    {"allocator rounding", "rotary tables", "runtime buffers", "vision tower", "audio tower", "projector"}
)
"""Of a token of text: images and sound are read with the prompt."""


@of_model
def _share_of_the_output(model: Model) -> float:
    """Of tied embeddings what the output layer reads: all but tables of single layers."""
    sizes = {one.name: one.numel for one in gguf_tensors(model) if one.name in LOOKED_UP}
    return sizes.get("token_embd", 1) / (sum(sizes.values()) or 1)


def _parts_of_weights(result: Result) -> dict[str, int]:
    """Bytes of one rank's weights by part."""
    for phase in result.phases:
        weights = phase.components.find("weights")
        if weights is not None:
            return {child.name: child.bytes for child in weights.children}
    return {}


@of_model
def _share_of_experts(model: Model) -> float:
    """The share of the routed experts' weights that a token passes."""
    every = active = 0
    for op in model.operations(ExpertMlps):
        numel = sum(parameter.numel for parameter in op.parameters)
        every, active = every + numel, active + numel * op.experts_per_token // op.num_experts
    return active / every if every else 1.0


def cache_bytes(way: Way) -> int:
    """Bytes of one request's cache at the way's context, on all cards."""
    if way.result is None or not context_of(way):
        return 0
    held = way.result.quantities.get("kv_cache_bytes")
    many = way.result.quantities.get("max_concurrency")
    if held is None:
        return 0
    if way.method == FILES:
        return int(held.expected)
    return round(held.expected / many.expected * _ranks(way)) if many is not None and many.expected else 0


def _ranks(way: Way) -> int:
    return int(way.resolved.get("tensor_parallel_size") or 1) * int(way.resolved.get("pipeline_parallel_size") or 1)
