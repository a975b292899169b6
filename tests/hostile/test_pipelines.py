"""Configs of pipelines' components broken one value at a time: an answer or one line, nothing else."""

from __future__ import annotations

import pytest

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.sources import resolve

WRONG = (None, "many", -1, 0, [0], 10**30)
COMPONENTS = (
    "flux-dev:transformer", "sd3.5-medium:transformer", "sdxl:unet", "qwen-image:transformer",
    "wan2.1-t2v-1.3b:transformer",
)  # fmt: skip
PIPELINES = ("sd1.5", "wan2.1-t2v-1.3b")


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_broken_denoiser_is_an_answer_or_one_line(name):
    config = resolve(name).config
    for key in config:
        for wrong in WRONG:
            broken(name, {**config, key: wrong}, key, wrong)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("part", ["vae", "text_encoder"])
def test_a_broken_component_of_a_pipeline_is_an_answer_or_one_line(name, part):
    config = resolve(name).config
    inner = config[part]
    for key in inner:
        for wrong in WRONG:
            broken(name, {**config, part: {**inner, key: wrong}}, key, wrong)
    for wrong in WRONG:
        broken(name, {**config, part: wrong}, part, wrong)


def broken(name: str, config: dict[str, object], key: str, wrong: object) -> None:
    """Asks about a broken config, small, and lets no other error than ours through."""
    said = ""
    try:
        estimate({"model": config, "task": "generate", "generate": {"image_size": "64x64", "num_frames": 1}})
    except VramwiseError as problem:
        said = str(problem)
    except Exception as problem:
        raise AssertionError(f"{name}: {key} = {str(wrong)[:60]}: {type(problem).__name__}: {problem}") from problem
    assert "\n" not in said
