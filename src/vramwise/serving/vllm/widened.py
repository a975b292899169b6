"""What vLLM keeps wider than a checkpoint has it: scales of 8-bit blocks for Marlin's kernels, routers in fp32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramwise.models import Block, Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.simple import Linear
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weights import Layout

NATIVE_FP8_CAPABILITY = 8.9
MARLIN_BLOCKS_VERSION = (0, 9)  # 0.8.5 fp8.py: block_quant sets use_marlin to False
SCALE_BYTES, MARLIN_SCALE_BYTES, ROUTER_BYTES = 4, 2, 4

_SCALES = (
    "vLLM 0.9.0 to 0.26.0 quantization/utils/marlin_utils_fp8.py: block-wise quantization -> group-wise quantization, "
    "in the dtype of the model"
)
_ROUTERS = "vLLM models/minimax_m2.py, glm4_moe.py and others: gate with params_dtype=torch.float32"


def widened_weights(
    model: Model, layers: Iterable[Block], storage: Storage, layout: Layout, version: tuple[int, ...],
    capability: float | None,
) -> tuple[Node, ...]:  # fmt: skip
    """The nodes of the layers of a stage on one rank."""
    layers = list(layers)
    scales = 0
    if capability is not None and capability < NATIVE_FP8_CAPABILITY and version >= MARLIN_BLOCKS_VERSION:
        scales = sum(_marlin_scales(shape, block) for shape, block in _block_shapes(layers, storage, layout))
    routers = 0
    if has_fact("vllm", "fp32_routers", model.config.model_type, version):
        routers = sum(p.numel for block in layers for p in block.parameters if p.part == "router")
    found = (
        ("scales for Marlin", scales, "Σ columns / block × rows × 2 − rows / block × columns / block × 4", _SCALES),
        ("routers in fp32", routers * (ROUTER_BYTES - storage.bytes_per_element),
         "Σ elements × (4 − bytes of the dtype)", _ROUTERS),
    )  # fmt: skip
    return tuple(Node(name, size, "derived", formula=rule, source=why) for name, size, rule, why in found if size > 0)


def _block_shapes(
    layers: Iterable[Block], storage: Storage, layout: Layout
) -> Iterator[tuple[tuple[int, ...], tuple[int, int]]]:
    """Shape on a rank (out and in last) and scale block of each weight that is stored in 8-bit blocks."""
    for block in layers:
        for op in (*block.operations(Linear), *block.operations(ExpertMlps)):
            inputs_first = isinstance(op, Linear) and op.inputs_first
            for parameter in op.parameters:
                rule = storage.rule_for(parameter)
                if rule is None or rule.layout != "fp8" or rule.weight_block_size is None:
                    continue
                yield layout.cut.shape(parameter, inputs_first=inputs_first), rule.weight_block_size


def _marlin_scales(shape: tuple[int, ...], block: tuple[int, int]) -> int:
    """Bytes that one scale for each row and block of columns takes beyond one for each block."""
    *experts, rows, columns = shape
    groups = -(-columns // block[1])
    added = MARLIN_SCALE_BYTES * rows * groups - SCALE_BYTES * -(-rows // block[0]) * groups
    return added * (experts[0] if experts else 1)
