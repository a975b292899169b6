"""Weights of a pipeline's components: what each takes as it is loaded, and what of it waits in host memory."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import ScenarioError
from vramwise.formats import dtype
from vramwise.models.blocks import Parameter
from vramwise.models.diffusion.registry import Component
from vramwise.records import record
from vramwise.result import Node

QUANTIZED = ("bitsandbytes-nf4", "bitsandbytes-fp4", "bitsandbytes-int8", "fp8")
"""Formats in which diffusers loads or keeps a denoiser."""
_FP32 = 4
_BLOCK, _SCALE = 64, 4
"""bitsandbytes 0.50 functional.py: weights that share a scale, and its bytes, without a second quantization."""
_NOT_CAST = ("norm", "pos_embed", "patch_embed")
"""diffusers 0.42.1 hooks/layerwise_casting.py: names of modules that `enable_layerwise_casting` leaves as they are."""
_SOURCES = {
    "bitsandbytes-nf4": "bitsandbytes 0.50 functional.py quantize_4bit: 4 bits and a scale of 4 bytes for 64 weights",
    "bitsandbytes-fp4": "bitsandbytes 0.50 functional.py quantize_4bit: 4 bits and a scale of 4 bytes for 64 weights",
    "bitsandbytes-int8": "bitsandbytes 0.50 nn/modules.py Linear8bitLt: 8 bits and a scale of 4 bytes a row",
    "fp8": "diffusers 0.42.1 hooks/layerwise_casting.py: 8 bits; norms, position and patch embeddings stay",
}


@record
class Held:
    """The weights of one component: bytes in all, by dtype or format, and of each tensor by name."""

    name: str
    class_name: str
    num_parameters: int
    node: Node
    by_name: Mapping[str, int]
    unpacked: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.node.bytes


def check_quantization(asked: str | None) -> None:
    """Raises ScenarioError for a format that no denoiser is loaded in."""
    if asked is not None and asked not in QUANTIZED:
        raise ScenarioError(
            "generate.quantization",
            f"{asked} is not described for a pipeline of Diffusers: expected one of {', '.join(QUANTIZED)}",
        )


def held(name: str, part: Component, stored: str, quantization: str | None) -> Held:
    """A component in a dtype; `quantization` is that of its linear layers.

    bytes = Σ elements × bytes of the dtype, or of the format with its scales, each tensor by itself.
    """
    size = dtype(stored).bits // 8
    by_name: dict[str, int] = {}
    unpacked: dict[str, int] = {}
    sums = {"whole": 0, "quantized": 0}
    for one in (*part.model.parameters, *part.buffers):
        small = None if quantization is None else _quantized_bytes(one, quantization)
        stays = part.stays_in_fp32(one.name, stored)
        small = None if stays else small
        by_name[one.name] = one.numel * (_FP32 if stays else size) if small is None else small
        sums["whole" if small is None else "quantized"] += by_name[one.name]
        if small is not None and quantization is not None:
            unpacked[one.name] = one.numel * size
    leaves = [
        Node(f"{stored} tensors", sums["whole"], "exact", formula="Σ elements × bytes of the dtype",
             inputs={"parameters": part.model.num_parameters}, source=f"tensor shapes of {part.class_name}")
    ]  # fmt: skip
    if quantization is not None:
        leaves.append(Node(f"{quantization} tensors", sums["quantized"], "exact",
                           formula="Σ quantized tensors with their scales", source=_SOURCES[quantization]))  # fmt: skip
        unpacked = {} if quantization == "bitsandbytes-int8" else unpacked
    return Held(name, part.class_name, part.model.num_parameters, Node.group(name, leaves), by_name, unpacked)


def _quantized_bytes(one: Parameter, quantization: str) -> int | None:
    """What a weight takes in a format; None where it stays."""
    if quantization == "fp8":
        module = one.module
        return None if any(word in module for word in _NOT_CAST) else one.numel
    if not one.is_linear or len(one.shape) != 2:
        return None
    if quantization == "bitsandbytes-int8":
        return one.numel + _SCALE * one.shape[0]
    return -(-one.numel // 2) + _SCALE * -(-one.numel // _BLOCK)
