"""Parts of a model that reads images which stay as they are, as each trainer is told so or does it unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vramwise import estimate
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch, read_command
from vramwise.models import describe
from vramwise.sources import resolve

VL = "Qwen/Qwen2.5-VL-7B-Instruct"
LANGUAGE = ["model.language_model.", "lm_head."]
FACTORY = {"model_name_or_path": VL, "stage": "sft", "do_train": True, "template": "qwen2_vl", "bf16": True}
AXOLOTL = {"base_model": VL, "sequence_len": 2048, "micro_batch_size": 1, "datasets": [{"path": "x", "type": "alpaca"}]}


def of_file(tmp_path: Path, table: dict[str, Any]) -> Launch:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(table))
    (answer,) = read_files((str(file),), None)
    return answer.launch


def trained(launch: Launch) -> int:
    return estimate(launch.scenario).model.num_trainable_parameters


def parameters(*parts: str) -> int:
    found = resolve(VL)
    model = describe(found.config, found.id)
    return sum(p.numel for p in model.parameters if (p.part if p.part in ("vision", "projector") else "text") in parts)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, ("text",)),
        ({"freeze_multi_modal_projector": False}, ("text", "projector")),
        ({"freeze_vision_tower": False, "freeze_multi_modal_projector": False}, ("text", "projector", "vision")),
        ({"freeze_language_model": True, "freeze_multi_modal_projector": False}, ("projector",)),
    ],
)
def test_llamafactory_trains_the_language_model_alone(
    settings: dict[str, bool], parts: tuple[str, ...], tmp_path: Path
) -> None:
    """0.9.5 hparams/finetuning_args.py: freeze_vision_tower and freeze_multi_modal_projector are true."""
    launch = of_file(tmp_path, {**FACTORY, "finetuning_type": "full", **settings})
    assert trained(launch) == parameters(*parts)


def test_llamafactorys_adapters_leave_the_tower_alone(tmp_path: Path) -> None:
    """Its log: trainable params: 20,185,088 || all params: 8,312,351,744 || trainable%: 0.2428."""
    launch = of_file(tmp_path, {**FACTORY, "finetuning_type": "lora", "lora_target": "all", "lora_rank": 8})
    assert trained(launch) == 20_185_088


def test_llamafactorys_frozen_layers_are_those_of_the_language_model(tmp_path: Path) -> None:
    launch = of_file(tmp_path, {**FACTORY, "finetuning_type": "freeze", "freeze_trainable_layers": 1})
    assert launch.scenario["train"]["trainable"] == ["model.language_model.layers.27."]


@pytest.mark.parametrize(
    ("flags", "trainable"),
    [
        ("", LANGUAGE),
        ("--freeze_aligner false", [*LANGUAGE, "model.visual.merger."]),
        ("--freeze_vit false --freeze_aligner false", None),
        ("--freeze_llm true --freeze_aligner false", ["model.visual.merger."]),
    ],
)
def test_swift_trains_the_language_model_alone(flags: str, trainable: list[str] | None) -> None:
    """4.6 arguments/tuner_args.py: freeze_vit and freeze_aligner are true."""
    launch = read_command(f"swift sft --model {VL} --train_type full {flags}".split())
    found = launch.scenario["train"].get("trainable")
    assert (None if found is None else sorted(found)) == (None if trainable is None else sorted(trainable))


def test_swifts_adapters_leave_the_tower_alone_unless_told_otherwise() -> None:
    plain, free = (
        trained(read_command(f"swift sft --model {VL} --train_type lora {flags}".split()))
        for flags in ("", "--freeze_vit false")
    )
    assert plain == 20_185_088 < free


def test_unsloths_adapters_leave_the_tower_alone_where_told(tmp_path: Path) -> None:
    def adapters(vision: bool) -> int:
        file = tmp_path / "train.py"
        file.write_text(f"""
from unsloth import FastVisionModel
model, tokenizer = FastVisionModel.from_pretrained("{VL}", load_in_4bit=True)
model = FastVisionModel.get_peft_model(model, r=8, finetune_vision_layers={vision}, finetune_language_layers=True)
trainer = SFTTrainer(model, args=SFTConfig(per_device_train_batch_size=2))
""")
        (answer,) = read_files((str(file),), None)
        return trained(answer.launch)

    assert adapters(False) == 20_185_088 < adapters(True)


def test_others_are_told_by_a_switch(tmp_path: Path) -> None:
    axolotl = of_file(tmp_path, {**AXOLOTL, "freeze_mm_modules": True})
    assert axolotl.scenario["train"]["trainable"] == LANGUAGE
    assert "trainable" not in of_file(tmp_path, AXOLOTL).scenario["train"]
    actor = "actor_rollout_ref.actor"
    verl = read_command(["python3", "-m", "verl.trainer.main_ppo", f"actor_rollout_ref.model.path={VL}",
                         f"{actor}.freeze_vision_tower=True", f"{actor}.ppo_micro_batch_size_per_gpu=1"])  # fmt: skip
    assert trained(verl) == parameters("text", "projector")


def test_what_is_frozen_whole_is_refused() -> None:
    words = f"swift sft --model {VL} --train_type full --freeze_llm true".split()
    with pytest.raises(Exception, match="nothing is left to train"):
        read_command(words)
