"""The tensors of a class that nobody described: transformers builds it on torch's meta device, without data.

Both libraries are imported inside the function, by name: no estimate of a described type ever does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vramwise.models.untrusted_config import names_a_backbone, no_network, without_code
from vramwise.records import record

_LOADERS = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMultimodalLM", "AutoModelForImageTextToText",
            "AutoModelForMaskedLM", "AutoModel")  # fmt: skip


@record
class ClassTensors:
    """Parameters of a class (tied ones once), the class's name and the version that made it."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    class_name: str
    version: str


def has_transformers() -> bool:
    """Whether torch and transformers are installed (neither is imported)."""
    return find_spec("torch") is not None and find_spec("transformers") is not None


def _is_listed(model_type: str) -> bool:
    """Whether transformers names the type; read from its files, because the import takes seconds."""
    package = find_spec("transformers")
    folders = package.submodule_search_locations if package is not None else None
    for folder in folders or ():
        for file in sorted((Path(folder) / "models" / "auto").glob("*auto*.py")):
            if f'"{model_type}"' in file.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def class_tensors(config: Mapping[str, Any]) -> ClassTensors | None:
    """The parameters of the class that transformers has for `config`; None when it has none that can be built.

    The code that a checkpoint brings along is never run and nothing is fetched (`untrusted_config`).
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not has_transformers() or not _is_listed(model_type):
        return None
    if names_a_backbone(config):
        return None
    return _built(json.dumps(without_code(config), sort_keys=True))


@lru_cache(maxsize=64)
def _built(content: str) -> ClassTensors | None:
    config: dict[str, Any] = json.loads(content)
    model_type = config["model_type"]
    torch, transformers = import_module("torch"), import_module("transformers")
    if model_type not in transformers.CONFIG_MAPPING:
        return None
    with no_network():
        return _tensors_of(torch, transformers, config)


def _tensors_of(torch: Any, transformers: Any, config: dict[str, Any]) -> ClassTensors | None:
    values = {name: value for name, value in config.items() if name != "model_type"}
    try:
        made = transformers.CONFIG_MAPPING[config["model_type"]](**values)
    except Exception:  # whatever a configuration class raises, there is no class to build
        return None
    named = config.get("architectures")
    own = getattr(transformers, str(named[0]), None) if isinstance(named, list) and named else None
    makers = [own._from_config] if own is not None and hasattr(own, "_from_config") else []
    makers += [getattr(transformers, name).from_config for name in _LOADERS if hasattr(transformers, name)]
    for make in makers:
        try:
            with torch.device("meta"):
                model = make(made)
        except Exception:  # a loader that does not know this configuration, or a class that cannot be built
            continue
        tensors = tuple((name, tuple(tensor.shape)) for name, tensor in model.named_parameters())
        return ClassTensors(tensors, type(model).__name__, transformers.__version__)
    return None
