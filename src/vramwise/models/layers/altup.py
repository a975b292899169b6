"""AltUp and LAuReL of Gemma 3n: streams that a layer predicts and corrects (arXiv 2301.13310), low-rank detours."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.gemma_attention import norm
from vramwise.models.operations.gemma import Buffer
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.streams import (
    AverageStreams,
    Clone,
    CorrectStreams,
    OneStream,
    PredictStreams,
    ScaleByWeight,
    StackStreams,
    TanhFp32,
)


def num_streams(c: Config) -> int:
    return c.size("altup_num_inputs", least=2)


def modalities(b: BlockBuilder, x: Value, scale: Value, streams: int) -> Value:
    """A number for each stream, from one of them; `norm` and `scale` are the same before and after the layer."""
    h = b.multiply(norm(b, x, "altup.router_norm"), scale)
    return b.unary(TanhFp32(), b.linear(h, "altup.modality_router", streams, part="mixer", shard="replicated"))


def predicted(b: BlockBuilder, streams: Value, c: Config) -> tuple[Value, Value]:
    """The streams as they are predicted from one of them, and the buffer that scales what chooses."""
    n, scale = num_streams(c), b.op(Buffer(), "altup", [], [1])[0]
    chosen = modalities(b, b.unary(OneStream(), streams), scale, n)
    coefficients = b.linear(chosen, "altup.prediction_coefs", n * n, shard="replicated")
    return b.op(PredictStreams(), "altup", [streams, coefficients], [streams.width])[0], scale


def corrected_streams(b: BlockBuilder, predictions: Value, x: Value, scale: Value, c: Config) -> tuple[Value, Value]:
    """The streams corrected by what the layer made of the active one, and a scaled copy of the first."""
    b.part, n = "mixer", num_streams(c)
    weight = b.parameter("altup.correction_coefs", "weight", (n, n), is_linear=True)
    corrected = b.op(
        CorrectStreams(clipped=c.has("altup_coef_clip")),
        "altup",
        [predictions, x, modalities(b, x, scale, n)],
        [x.width],
        [weight],
    )[0]
    first = b.unary(Clone(), b.unary(OneStream(), corrected))
    weight = b.parameter("altup", "correct_output_scale", (x.width,))
    scaled = ScaleByWeight() if c.flag("altup_correct_scale", True) else Hold()
    return corrected, b.unary(scaled, first, "altup", [weight])


def low_rank(b: BlockBuilder, x: Value, rank: int) -> Value:
    """LAuReL (arXiv 2411.07501): the input plus the norm of two narrow products of it."""
    h = b.linear(x, "laurel.linear_left", rank, shard="replicated")
    h = b.linear(h, "laurel.linear_right", x.width, shard="replicated")
    return b.add(x, norm(b, h, "laurel.post_laurel_norm"))


def projected(b: BlockBuilder, values: list[Value], name: str) -> list[Value]:
    return [b.linear(x, f"model.{name}.{i}", x.width, shard="replicated", part="mixer") for i, x in enumerate(values)]


def stacked(b: BlockBuilder, x: Value, c: Config) -> Value:
    """The embedding and a product of it for each further stream."""
    others = projected(b, [x] * (num_streams(c) - 1), "altup_projections")
    return b.op(StackStreams(), "model", [x, *others], [x.width])[0]


def averaged(b: BlockBuilder, streams: Value, c: Config) -> Value:
    """The mean of the first stream and a product of each other one."""
    x, *rest = (b.unary(OneStream(), streams) for _ in range(num_streams(c)))
    return b.op(AverageStreams(), "model", [x, *projected(b, rest, "altup_unembed_projections")], [x.width])[0]
