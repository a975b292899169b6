"""Which attention transformers' classes have, by their sources, and what runs where one was asked for or none was.

transformers refuses a kernel that the class does not have and takes eager attention where none was asked for
(transformers 5.23 modeling_utils.py `_flash_attn_can_dispatch`, `_sdpa_can_dispatch`,
`_check_and_adjust_attn_implementation`). Attention with sinks has flash kernels (gpt-oss: `_compatible_flash_
implementations`, kernels-community/vllm-flash-attn3), but SDPA takes none.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import ScenarioError
from vramwise.frameworks.versions import library_version
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact, types_with
from vramwise.scenario import TrainSettings

WITHOUT_SDPA = types_with("transformers", "without_sdpa")
"""Types whose class has no `_supports_sdpa`."""
WITHOUT_FLASH = types_with("transformers", "without_flash")
"""Types whose class has no `_supports_flash_attn`."""
OF_OTHER_MODELS = frozenset({"got_ocr2"})
"""Of these the models within, which have SDPA, choose for themselves."""
WITHOUT_FLEX = types_with("transformers", "without_flex")
"""Types whose class has no `_supports_flex_attn`."""


def attention_of_classes(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention of a transformers class; raises `ScenarioError` where it does not have what was asked for.

    `given`: the settings as stated; `train`: with what the framework decides.
    """
    kinds = kinds_within(model.config.values)
    kind = kinds[0]
    if train.attention == "flex":
        _refuse_without("flex attention", kinds, WITHOUT_FLEX)
    if train.attention == "flash":
        _refuse_without("flash attention", kinds, WITHOUT_FLASH | _lost_flash(kinds, train))
    if train.attention == "flash" and kind == "falcon" and model.config.flag("alibi"):  # FalconFlashAttention2.forward
        problem = "transformers has no flash attention for falcon with ALiBi: it runs sdpa or eager"
        raise ScenarioError("train.attention", problem)
    if train.attention == "sdpa" and "attention" in given.explicit:
        _refuse_without("SDPA", kinds, WITHOUT_SDPA)
    if train.attention == "sdpa" and kind in WITHOUT_SDPA:
        return train.attention if kind in OF_OTHER_MODELS else "eager"
    return train.attention


def kinds_within(values: Mapping[str, object]) -> tuple[str, ...]:
    """The type of a model, then those of the models inside it, each of its own class (PaliGemma 2 has a Gemma 2).

    What is asked for is handed to the configs inside (transformers 5.23 configuration_utils.py, setter of
    `_attn_implementation`). A tower alone is of its family's class: `siglip2_vision_model` of `siglip2`.
    """
    inside = [table for table in values.values() if isinstance(table, Mapping) and table.get("model_type")]
    kind = str(values.get("model_type") or "").removesuffix("_vision_model")
    return (kind, *(within for table in inside for within in kinds_within(table)))


def _lost_flash(kinds: tuple[str, ...], train: TrainSettings) -> frozenset[str]:
    """Those of these types that lost flash attention in a later version, because it drops masks over image tokens."""
    version = library_version(train)
    return frozenset(kind for kind in kinds if has_fact("transformers", "no_flash_with_images", kind, version))


def _refuse_without(attention: str, kinds: tuple[str, ...], without: frozenset[str]) -> None:
    """Raise where a class among these does not have the attention that was asked for."""
    lacking = next((kind for kind in kinds if kind in without), None)
    if lacking is not None:
        whose = lacking if lacking == kinds[0] else f"{lacking}, a part of {kinds[0]}"
        raise ScenarioError(
            "train.attention", f"transformers has no {attention} for {whose}: {_others(kinds, attention)}"
        )


def _others(kinds: tuple[str, ...], refused: str) -> str:
    tables = (("sdpa", WITHOUT_SDPA), ("flash", WITHOUT_FLASH))
    names = [name for name, without in tables if without.isdisjoint(kinds) and not refused.startswith(name)]
    return f"it runs {', '.join(names)} or eager" if names else "it runs eager"
