"""Large tensors that modules register beside their parameters, against the real classes' own.

Not counted, 1 to 18 MiB each: DeepSeek V4's tables of experts by token, positions of the omni models' sound and of
Music Flamingo's.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from transformers_models import model_config, real_model

from vramwise import estimate
from vramwise.formats import dtype
from vramwise.models import describe

LARGE = 2**17
"""Values of a tensor that is counted: half a megabyte in fp32."""
SPEECH = ("SpeechT5ForTextToSpeech", "SpeechT5ForSpeechToText", "SpeechT5ForSpeechToSpeech")
TYPES: dict[str, dict[str, Any]] = {
    "codegen": {}, "ctrl": {}, "gptj": {}, "gpt_bigcode": {}, "m2m_100": {}, "xglm": {},
    "minimax": {"num_hidden_layers": 4}, **{f"speecht5 {name}": {"architectures": [name]} for name in SPEECH},
}  # fmt: skip


def large(found: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in found.items() if _numel(shape) >= LARGE}


def _numel(shape: tuple[int, ...]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total


def both(model_type: str, values: dict[str, Any]) -> tuple[Any, Any]:
    completed = {**model_config({"model_type": model_type, **values}).to_dict(), "model_type": model_type}
    return real_model(completed, describe(completed).head), describe(completed)


@pytest.mark.parametrize("name", TYPES)
def test_buffers_are_the_class_s(name: str) -> None:
    """Names, shapes and what each value takes, where the class makes them in one dtype whatever the weights'."""
    real, model = both(name.partition(" ")[0], TYPES[name])
    own = {one.name: one for one in model.buffers}
    wanted = large({key: tuple(one.shape) for key, one in real.named_buffers()})
    assert large({key: tuple(one.shape) for key, one in own.items()}) == wanted
    sizes = {key: one.element_size() for key, one in real.named_buffers() if key in wanted}
    assert {key: int(dtype(own[key].dtype or "fp32").bytes_per_value) for key in wanted} == sizes


def test_a_load_of_speecht5_holds_its_positions() -> None:
    """4,000 positions of sound and 450 of text in 768 columns, 12.9 MiB in fp32."""
    config = {"model_type": "speecht5", "architectures": [SPEECH[0]], "torch_dtype": "float32"}
    found = estimate({"model": config, "task": "load"}).quantities["weights"].expected
    weights = 4 * describe(config).num_parameters
    assert 0 <= found - weights - 4 * 768 * (4000 + 450) < 0.01 * weights
