"""Rules of thumb and simple formulas that articles use, as they use them: quick, and never the answer.

Every function says what it leaves out. Sizes are bytes; a parameter's bytes may be a fraction (int4: half a byte).
"""

from __future__ import annotations

import re
from fractions import Fraction

from vramwise.errors import UsageError, clipped
from vramwise.records import record

CUDA_KERNELS_BYTES = 1_300_000_000
"""What a widely copied worked example (LLaMA-6B, int8) adds for CUDA kernels: 1.3 GB."""

_POWERS = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,12})?)(?:e\+?(\d{1,2})|([kmbt]))?", re.IGNORECASE)
_MOST_PARAMETERS = 10**15


@record
class ModelStates:
    """Bytes that one parameter costs while training, without activations."""

    name: str
    weights: int
    gradients: int
    optimizer: int

    @property
    def bytes_per_parameter(self) -> int:
        return self.weights + self.gradients + self.optimizer


MODEL_STATES = (
    ModelStates("16-bit weights, fp32 gradients, fp32 Adam", 2, 4, 8),
    ModelStates("everything fp32, AdamW (16 a parameter)", 4, 4, 8),
    ModelStates("everything 16 bit, AdamW (8 a parameter)", 2, 2, 4),
    ModelStates("everything int8, AdamW (4 a parameter)", 1, 1, 2),
)
"""What articles count; true runs differ (an fp32 master copy, 8-bit states, frozen weights without gradients)."""


ADAPTERS_SHARE = Fraction(4785, 10**6)
"""Share of the parameters that an article on LoRA trains: 0.4785 %, without naming the model."""


@record
class Shape:
    """Sizes that the formulas with activations need."""

    batch: int
    sequence: int
    hidden: int
    layers: int
    bytes_per_value: Fraction = Fraction(2)


def parameter_count(text: str) -> int | None:
    """A number of parameters written as `7000000000`, `7e9`, `7b` or `350M`; None where the text is no number.

    Raises UsageError for zero and for more than 10^15.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    digits, exponent, unit = match.groups()
    power = exponent or _POWERS[(unit or "").lower()]
    count = Fraction(f"{digits}e{power}")
    if not 1 <= count <= _MOST_PARAMETERS:
        raise UsageError(f'expected from 1 to 10^15 parameters, got "{clipped(text)}"')
    return round(count)


def weight_bytes(num_parameters: int, bits: int) -> int:
    r"""$$ P \cdot bits / 8 $$ — weights, or the file that holds them. Not counted: scales of quantized formats."""
    return -(-num_parameters * bits // 8)


def training_states_bytes(num_parameters: int, states: ModelStates) -> int:
    r"""$$ P \cdot (weights + gradients + optimizer) $$ — bytes a parameter. Not counted: activations, buffers."""
    return num_parameters * states.bytes_per_parameter


def lora_bytes(num_parameters: int) -> dict[str, int]:
    r"""$$ 2P + 2P $$ for base and gradients as an article has it, $$ 8 \cdot 0.4785\,\% \cdot P $$ for its adapters.

    The base is frozen, and autograd keeps no gradient for a frozen weight: `frozen` is what its weights take alone. Not
    counted: activations, which are what a run really needs beside them.
    """
    adapters = MODEL_STATES[2].bytes_per_parameter * num_parameters * ADAPTERS_SHARE
    return {"base_and_gradients": 4 * num_parameters, "adapters": round(adapters), "frozen": 2 * num_parameters}


def thumb_bytes(num_parameters: int) -> dict[str, int]:
    """The field's quick figures: 2n to serve, 16n and activations to train, 20n to be safe (n billions: GB)."""
    return {"serve 2n": 2 * num_parameters, "train 16n": 16 * num_parameters, "to be safe 20n": 20 * num_parameters}


def hidden_bytes(shape: Shape) -> int:
    r"""$$ b \cdot s \cdot h \cdot bytes $$ — one tensor of hidden states: input tensor, or one layer's output."""
    return _whole(shape.batch * shape.sequence * shape.hidden * shape.bytes_per_value)


def activation_bytes(shape: Shape) -> int:
    r"""$$ b \cdot s \cdot h \cdot L \cdot bytes $$ — one tensor of hidden states a layer.

    Not counted: everything else that a layer saves (projections, MLP, norms), which is many times more.
    """
    return shape.layers * hidden_bytes(shape)


def training_bytes(num_parameters: int, shape: Shape) -> int:
    r"""$$ (2 + 4 + 8) P + b \cdot s \cdot h \cdot L \cdot bytes $$ — mixed precision and those activations."""
    return training_states_bytes(num_parameters, MODEL_STATES[0]) + activation_bytes(shape)


def kv_cache_bytes(shape: Shape) -> int:
    r"""$$ 2 \cdot b \cdot s \cdot h \cdot L \cdot bytes $$ — keys and values of all heads.

    Not counted: that grouped-query, sliding and latent attention keep less.
    """
    return 2 * activation_bytes(shape)


def inference_bytes(num_parameters: int, shape: Shape) -> int:
    r"""$$ P \cdot bytes + 2 \cdot b \cdot s \cdot h \cdot bytes $$ — weights, input, one intermediate tensor.

    Not counted: the KV cache, logits, what a layer holds while it runs, the CUDA context.
    """
    return _whole(num_parameters * shape.bytes_per_value) + 2 * hidden_bytes(shape)


def sample_bytes(hidden: int, intermediate: int, sequence: int, layers: int, bytes_per_value: int = 1) -> int:
    r"""$$ (h + i) \cdot s \cdot L \cdot bytes $$ — intermediate values of one sample, as the int8 example has them."""
    return (hidden + intermediate) * sequence * layers * bytes_per_value


def int8_training_bytes(num_parameters: int) -> int:
    r"""$$ P + P + 2P + 1.3\,GB $$ — int8 weights, gradients, two Adam states and CUDA kernels (LLaMA-6B: 25.3 GB)."""
    return training_states_bytes(num_parameters, MODEL_STATES[3]) + CUDA_KERNELS_BYTES


def samples_that_fit(card_bytes: int, held_bytes: int, each_bytes: int) -> int:
    r"""$$ \lfloor (card - held) / sample \rfloor $$, at least 0 — samples whose intermediate values still fit."""
    return max(0, (card_bytes - held_bytes) // each_bytes)


def transformer_parameters(layers: int, hidden: int, vocabulary: int, positions: int) -> int:
    r"""$$ 12 L h^2 + (V + s) h $$ — attention 4h², MLP 8h², token and position embeddings.

    Not counted: biases, norms, segments, pooler, an untied head; gated MLPs and grouped heads have other shapes.
    """
    return 12 * layers * hidden**2 + (vocabulary + positions) * hidden


def _whole(n: Fraction) -> int:
    return -(-n.numerator // n.denominator)
