"""Weights as mlx-lm holds them: tensors of the text model, quantized as the repository or `mlx_lm.convert` has them.

mlx-lm 0.32.2 utils.py load_model: what has scales in the file becomes a quantized layer, embeddings and routers too;
AWQ and GPTQ checkpoints become MLX's own 4-bit layout while they are loaded (_transform_awq_weights). Towers for images
and sound are dropped (sanitize of the models). Metal's own rounding of buffers to pages is not counted.
"""

from __future__ import annotations

from vramwise.formats.quantization import quantization
from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import PLAIN
from vramwise.serving.common.storage import Storage, storage_of
from vramwise.serving.common.weight_nodes import PART_NAMES, weights_node

_TOWERS = frozenset(PART_NAMES[part] for part in ("vision", "audio", "speech", "projector"))
_AS_MLX = {"awq": "mlx-4bit", "awq-marlin": "mlx-4bit", "gptq": "mlx-4bit", "gptq-marlin": "mlx-4bit"}


def own_storage(model: Model, settings: ServeSettings) -> Storage:
    """Storage as the repository has it, or as `mlx_lm.convert -q` makes it where a format is asked for."""
    asked = settings.quantization
    name = None if asked is None else _AS_MLX.get(asked, asked)
    group_size = settings.quantization_group_size
    if group_size is None and asked is not None and name != asked:
        group_size = quantization(asked.removesuffix("-marlin")).group_size
    return storage_of(model, settings.dtype, name, group_size)


def mlx_weights(model: Model, storage: Storage) -> Node:
    """Bytes of the tensors, by part."""
    whole = weights_node(model, storage, PLAIN, 0, rounded=False)
    return Node.group("weights", (part for part in whole.children if part.name not in _TOWERS))
