"""The tensors of a class that nobody described: transformers builds it on torch's meta device, without data.

Both libraries are imported inside the function, by name: no estimate of a described type ever does.

A stranger's config.json before transformers builds a class from it: no code, no kernels, no downloads.

What is left out, read in transformers 5.23: `auto_map` (dynamic_module_utils.py, the checkpoint's own Python files);
attention and expert implementations, which may name a repository of kernels (modeling_utils.py,
get_correct_attn_implementation, integrations/hub_kernels.py); quantizers (quantizers/auto.py); pretrained backbones and
timm's arguments, which load weights (backbone_utils.py, models/timm_wrapper).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from vramwise.records import record

_IMPLEMENTATIONS: Final = tuple(
    f"{mark}{what}_implementation{rest}"
    for what in ("attn", "experts")
    for mark in ("", "_")
    for rest in ("", "_internal", "_autoset")
)
LEFT_OUT: Final = frozenset({
    *_IMPLEMENTATIONS, "auto_map", "trust_remote_code", "code_revision", "custom_pipelines", "custom_generate",
    "quantization_config", "compression_config", "use_kernels", "kernel_config", "allow_all_kernels",
    "backbone", "backbone_kwargs", "use_pretrained_backbone", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay",
    "checkpoint_path", "cache_dir", "_name_or_path", "name_or_path",
})  # fmt: skip
"""Keys that may run code, fetch files or open paths, wherever in the config they stand."""

_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_SWITCHES: Final = (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("transformers.utils.hub", "_is_offline_mode"))
"""Where huggingface_hub, and transformers before 5, keep what they read from the environment when imported."""


def without_code(config: Mapping[str, object]) -> dict[str, object]:
    """The config with LEFT_OUT's keys gone at every depth."""
    return {key: _cleaned(value) for key, value in config.items() if key not in LEFT_OUT}


def names_a_backbone(config: Mapping[str, object]) -> bool:
    """Whether a part of the model is another checkpoint's by name: without it the class would build a default."""
    found = config.get("backbone")
    return bool(found) or any(isinstance(value, Mapping) and names_a_backbone(value) for value in config.values())


@contextmanager
def no_network() -> Iterator[None]:
    """The Hub's libraries ask nobody inside, whatever they were told before; afterwards they are as they were."""
    with ExitStack() as stack:
        for name, value in _OFFLINE.items():
            stack.callback(_restore, name, os.environ.get(name))
            os.environ[name] = value
        for place, switch in _SWITCHES:
            with suppress(ImportError):
                module = import_module(place)
                if hasattr(module, switch):
                    stack.callback(setattr, module, switch, getattr(module, switch))
                    setattr(module, switch, True)
        yield


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _cleaned(value: object) -> object:
    if isinstance(value, Mapping):
        return without_code(value)
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


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


def class_tensors(config: Mapping[str, object]) -> ClassTensors | None:
    """The parameters of the class that transformers has for `config`; None when it has none that can be built.

    The code that a checkpoint brings along is never run and nothing is fetched (`without_code`, `no_network`).
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not has_transformers() or not _is_listed(model_type):
        return None
    if names_a_backbone(config):
        return None
    return _built(json.dumps(without_code(config), sort_keys=True))


@lru_cache(maxsize=64)
def _built(content: str) -> ClassTensors | None:
    config: dict[str, object] = json.loads(content)
    model_type = config["model_type"]
    torch, transformers = import_module("torch"), import_module("transformers")
    if model_type not in transformers.CONFIG_MAPPING:
        return None
    with no_network():
        return _tensors_of(torch, transformers, config)


def _tensors_of(torch: ModuleType, transformers: ModuleType, config: dict[str, object]) -> ClassTensors | None:
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
