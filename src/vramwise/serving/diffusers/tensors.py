"""The tensors of a described pipeline without its files: those of its components' configs, named as files name them."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UndescribedTypeError
from vramwise.formats.safetensors import StoredTensor, StoredWeights
from vramwise.models.diffusion.pipelines import PIPELINES
from vramwise.serving.diffusers.generate import components_of


def files_of_components(
    config: Mapping[str, object], parts: Mapping[str, Mapping[str, object]], model_id: str
) -> StoredWeights | None:
    """All tensors; None where a pipeline or a component is not described. `parts`: configs of the components."""
    pipeline = PIPELINES.get(str(config.get("_class_name") or ""))
    if pipeline is None:
        return None
    try:
        components, missing = components_of(pipeline, parts, model_id)
    except UndescribedTypeError:
        return None
    if missing or any(one in config or one in parts for one in pipeline.idle):
        return None
    shapes = {
        f"{name}.{weight.name}": weight.shape
        for name, part in components.items() for block in part.model.blocks for weight in block.parameters
        if weight.tied_to is None
    }  # fmt: skip
    return StoredWeights(model_id, tuple(StoredTensor(name, "BF16", shape) for name, shape in shapes.items()), 0, True)
