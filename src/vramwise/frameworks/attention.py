"""Which attention transformers' classes have, by their sources, and what runs where one was asked for or none was.

transformers refuses a kernel that the class does not have and takes eager attention where none was asked for
(transformers 5.23 modeling_utils.py `_flash_attn_can_dispatch`, `_sdpa_can_dispatch`,
`_check_and_adjust_attn_implementation`). Attention with sinks has flash kernels (gpt-oss: `_compatible_flash_
implementations`, kernels-community/vllm-flash-attn3), but SDPA takes none.
"""

from __future__ import annotations

from vramwise.errors import ScenarioError
from vramwise.models.model import Model
from vramwise.models.type_facts import types_with
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
    kind = str(model.config.model_type)
    if train.attention == "flex" and kind in WITHOUT_FLEX:
        raise ScenarioError("train.attention", f"transformers has no flex attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind in WITHOUT_FLASH:
        raise ScenarioError("train.attention", f"transformers has no flash attention for {kind}: {_others(kind)}")
    if train.attention == "flash" and kind == "falcon" and model.config.flag("alibi"):  # FalconFlashAttention2.forward
        problem = "transformers has no flash attention for falcon with ALiBi: it runs sdpa or eager"
        raise ScenarioError("train.attention", problem)
    if train.attention == "sdpa" and kind in WITHOUT_SDPA:
        if "attention" in given.explicit:
            raise ScenarioError("train.attention", f"transformers has no SDPA for {kind}: {_others(kind)}")
        return train.attention if kind in OF_OTHER_MODELS else "eager"
    return train.attention


def _others(kind: str) -> str:
    names = [name for name, without in (("sdpa", WITHOUT_SDPA), ("flash", WITHOUT_FLASH)) if kind not in without]
    return f"it runs {', '.join(names)} or eager" if names else "it runs eager"
