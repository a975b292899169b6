"""A pipeline of Diffusers with weights that nobody read: its real classes, made from their configs.

What a checkpoint's folder holds beside configs is stood in for: a tokenizer by ids of a prompt as long as the pipeline
reads, a scheduler by its class as it is made without a config.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from vramwise.dryrun.pipeline_schedule import scheduler_made
from vramwise.errors import VramwiseError
from vramwise.measure.building import torch_dtype
from vramwise.measure.libraries import library

_CLIP_TOKENS: Final = 77
_HALF_OF_THE_STEPS: Final = 0.5
"""`boundary_ratio` of a pipeline with two denoisers whose index does not say it: each takes one of two steps."""


class PromptIds:
    """Stands in for a tokenizer: every prompt has as many tokens as it may have.

    `longest`: of a prompt that is padded to the longest one.
    """

    model_max_length = _CLIP_TOKENS
    added_tokens_encoder: Final[dict[str, int]] = {}

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, text: Any, padding: object = None, max_length: int | None = None, **_: object) -> Any:
        torch = library("torch")
        rows = 1 if isinstance(text, str) else len(text)
        tokens = (max_length or self.model_max_length) if padding == "max_length" else self.longest
        ids = torch.ones((rows, tokens), dtype=torch.long)
        return library("transformers").BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    def tokenize(self, text: str) -> list[str]:
        """Words, in which pipelines look for those of textual inversion."""
        return text.split()

    def batch_decode(self, *_: object, **__: object) -> list[str]:
        """What was cut off of a prompt: nothing."""
        return []


@contextmanager
def _without_first_values() -> Iterator[None]:
    """Modules are made without the random numbers that a checkpoint would overwrite."""
    with library("transformers.initialization").no_init_weights():
        yield


def class_named(name: str) -> Any:
    """A class of Diffusers, or of transformers. Raises VramwiseError where this version has none."""
    diffusers, transformers = library("diffusers"), library("transformers")
    kind = getattr(diffusers, name, None) or getattr(transformers, name, None)
    if kind is None:
        raise VramwiseError(f"neither Diffusers {diffusers.__version__} nor transformers has a class {name}")
    return kind


def component_made(config: Mapping[str, object], dtype: str, device: str) -> Any:
    """One model of a pipeline as `from_pretrained(torch_dtype=…)` leaves it, on `device`."""
    values = {key: value for key, value in config.items() if key != "_class_name"}
    kind = class_named(str(config["_class_name"]))
    with _without_first_values():
        is_of_diffusers = hasattr(kind, "from_config")
        made = kind.from_config(values) if is_of_diffusers else kind(kind.config_class(**values))
    if not is_of_diffusers:
        made.tie_weights()
    _cast(made, torch_dtype(dtype), device, _kept_in_fp32(kind, dtype))
    return made.eval()


def _kept_in_fp32(kind: object, dtype: str) -> set[str]:
    """Words in the names of what a load leaves in fp32: in transformers (modeling_utils.py) what overflows in fp16 is
    kept in fp16 alone, and what is strict in bf16 too; Diffusers (modeling_utils.py) keeps it in either."""
    kept = set(getattr(kind, "_keep_in_fp32_modules", None) or ())
    if hasattr(kind, "from_config"):
        return kept
    strict = set(getattr(kind, "_keep_in_fp32_modules_strict", None) or ())
    return kept | strict if dtype == "fp16" else strict


def _cast(model: Any, dtype: object, device: str, stay: set[str]) -> None:
    """Parameters and stored buffers in a dtype; tables that no file holds, and modules of `stay`, keep theirs."""
    torch = library("torch")
    held, made = set(model.state_dict()), {}
    for path, module in model.named_modules():
        for leaf, one in module._parameters.items():
            if one is None:
                continue
            name = f"{path}.{leaf}" if path else leaf
            own = one.dtype if stay & set(name.split(".")) or not one.is_floating_point() else dtype
            if id(one) not in made:
                moved = (
                    one.detach().to(dtype=own) if device == "cpu" else torch.empty(one.shape, dtype=own, device=device)
                )
                made[id(one)] = one, torch.nn.Parameter(moved, requires_grad=False)
            module._parameters[leaf] = made[id(one)][1]
        for leaf, one in module._buffers.items():
            if one is not None:
                is_stored = one.is_floating_point() and (f"{path}.{leaf}" if path else leaf) in held
                module._buffers[leaf] = one.to(device=device, dtype=dtype if is_stored else one.dtype)


def pipeline_made(config: Mapping[str, Any], parts: Mapping[str, Any], longest_prompt: int) -> Any:
    """The pipeline around models that were made; what it takes beside them is stood in for or left out."""
    kind, index = class_named(str(config["_class_name"])), config["index"]
    given: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        said = index.get(name)
        if name in parts:
            given[name] = parts[name]
        elif name.startswith("tokenizer"):
            given[name] = PromptIds(longest_prompt)
        elif name == "scheduler":
            given[name] = scheduler_made(said, parameter.annotation)
        elif isinstance(said, bool | int | float | str):
            given[name] = said
        elif name == "boundary_ratio" and parts.get("transformer_2") is not None:
            given[name] = _HALF_OF_THE_STEPS
        elif parameter.default is inspect.Parameter.empty:
            given[name] = None
    if "requires_safety_checker" in inspect.signature(kind.__init__).parameters:
        given["requires_safety_checker"] = False
    pipeline = kind(**given)
    vae = given.get("vae")
    if vae is not None and getattr(vae.config, "shift_factor", 0.0) is None:
        vae.register_to_config(shift_factor=0.0)  # a number that pipelines add; configs without it are cut ones
    template = getattr(pipeline, "prompt_template_encode_start_idx", 0)
    for one in given.values():
        if isinstance(one, PromptIds):
            one.longest += template
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
