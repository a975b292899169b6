"""What a training command leaves to the model's own config: its type, its layers, and the dtype of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.errors import UsageError, VramwiseError
from vramwise.interop.launch.options import whole_number
from vramwise.interop.launch.values import whole_in


def config_of(model: str) -> Mapping[str, object]:
    """The model's config; empty where it is not known here, which the estimate then says."""
    from vramwise.sources import model_elsewhere, resolve

    try:
        found = model_elsewhere(model)
        return resolve(found[0] if found else model).config
    except VramwiseError:
        return {}


def known_config(model: str) -> Mapping[str, object]:
    """The model's config. Raises SourceError, with the nearest names, where it is not known here."""
    from vramwise.sources import model_elsewhere, resolve

    found = model_elsewhere(model)
    return resolve(found[0] if found else model).config


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The config of the model's text part; the config itself where it has none."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def loaded_dtype(model: str) -> str:
    """The dtype in which transformers loads the checkpoint's weights with dtype = auto."""
    from vramwise.models.config import loaded_dtype as of_config

    return of_config(config_of(model))


def model_type(model: str) -> str:
    """The transformers model type, empty where it is not known here."""
    return str(config_of(model).get("model_type", ""))


def last_layers(
    text: str, named: Sequence[str], config: Mapping[str, object], *, spread: bool = False
) -> list[str]:  # fmt: skip
    """Names of what trains: the last layers, or with a negative number the first, or their modules.

    `spread` (LLaMA Pro): every so manyth layer, the last among them. Raises UsageError for a number that the model's
    layers do not allow.
    """
    count = whole_number(text.removeprefix("-"), "freeze_trainable_layers") * (-1 if text.startswith("-") else 1)
    own = text_config(config)
    total = whole_in(own, "num_hidden_layers", 0) or whole_in(own, "n_layer", 0)
    if not total or abs(count) > total or not count:
        raise UsageError(f"freeze_trainable_layers {count}: the model has {total} layers")
    if spread and (count < 0 or total % count):
        raise UsageError(f"freeze_trainable_layers {count}: does not divide the model's {total} layers (use_llama_pro)")
    step = total // count if spread else 1
    chosen = range(step - 1, total, step) if spread else range(total - count, total) if count > 0 else range(-count)
    modules = [name for name in named if name != "all"] or [""]
    return [f".{layer}.{module}" for layer in chosen for module in modules]
