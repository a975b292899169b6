"""What a training command leaves to the model's own config: its type, and the dtype of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import VramwiseError


def config_of(model: str) -> Mapping[str, object]:
    """The model's config; empty where it is not known here, which the estimate then says."""
    from vramwise.sources import model_elsewhere, resolve

    try:
        found = model_elsewhere(model)
        return resolve(found[0] if found else model).config
    except VramwiseError:
        return {}


def loaded_dtype(model: str) -> str:
    """The dtype in which transformers loads the checkpoint's weights with dtype = auto."""
    from vramwise.models.checkpoint_dtype import loaded_dtype as of_config

    return of_config(config_of(model))


def model_type(model: str) -> str:
    """The transformers model type, empty where it is not known here."""
    return str(config_of(model).get("model_type", ""))
