"""Classes that are fed images, sound or two texts run as themselves; what a dry run cannot feed is one line."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from vramwise.dryrun.scenario import dry_runs
from vramwise.errors import VramwiseError
from vramwise.scenario import Scenario

if find_spec("torch") is None or find_spec("transformers") is None or find_spec("peft") is None:
    pytest.skip("needs torch, transformers and peft", allow_module_level=True)

CLASSES = {
    "google/vit-base-patch16-224": "ViTForImageClassification",
    "google-t5/t5-small": "T5ForConditionalGeneration",
    "openai/whisper-tiny": "WhisperForConditionalGeneration",
    "openai/clip-vit-base-patch32": "CLIPModel",
}
WITHIN = 0.005


def _asked(model, task="train", **settings):
    return Scenario.from_dict({"model": model, "task": task, task: settings})


@pytest.fixture(scope="module")
def answered():
    asked = [_asked(model, precision="bf16", optimizer_impl="foreach") for model in CLASSES]
    return dict(zip(CLASSES, dry_runs(asked), strict=True))


@pytest.mark.parametrize("model", CLASSES)
def test_it_is_the_class_of_the_checkpoint(answered, model):
    result, estimated = answered[model]
    assert any(note.startswith(f"dry run: {CLASSES[model]} itself") for note in result.notes)
    assert result.model.num_parameters == estimated.model.num_parameters


@pytest.mark.parametrize("model", CLASSES)
def test_its_peak_is_the_estimates(answered, model):
    held = [_largest(result) for result in answered[model]]
    assert held[1] == pytest.approx(held[0], rel=WITHIN)


def _largest(result):
    beside = ("library workspace", "CUDA context", "unsplit remainders")
    return max(
        sum(node.bytes for node in phase.components.children if node.name not in beside) for phase in result.phases
    )


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (_asked("google-t5/t5-small", "generate"), "encoder-decoder"),
        (_asked("llava-hf/llava-1.5-7b-hf", images_per_sequence=1), "--images-per-sequence 1"),
    ],
)
def test_what_it_does_not_feed_is_one_line(scenario, said):
    with pytest.raises(VramwiseError) as problem:
        list(dry_runs([scenario]))
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)
