"""A stranger's config.json before transformers builds a class from it: no code, no kernels, no downloads.

What is left out, read in transformers 5.23: `auto_map` (dynamic_module_utils.py, the checkpoint's own Python files);
attention and expert implementations, which may name a repository of kernels (modeling_utils.py,
get_correct_attn_implementation, integrations/hub_kernels.py); quantizers (quantizers/auto.py); pretrained backbones and
timm's arguments, which load weights (backbone_utils.py, models/timm_wrapper).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Final

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
