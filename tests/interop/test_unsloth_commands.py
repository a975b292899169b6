"""`unsloth train`, `unsloth-cli.py` and unsloth's calls in a script are the same trainings of adapters."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.options import READ_IN_CODE, options_of
from vramwise.interop.launch.unsloth import TARGETS
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS

SCRIPT = "python unsloth-cli.py --model_name unsloth/llama-3-8b"
COMMAND = "unsloth train --model unsloth/Qwen3-8B"


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (SCRIPT, {"method": "lora", "lora_rank": 16, "micro_batch_size": 2, "sequence_length": 2048,
                  "optimizer": "adamw-8bit", "checkpointing": "full", "offload_activations": "cpu"}),
        (f"{SCRIPT} --load_in_4bit --r 64 --lora_dropout 0.1 --max_seq_length 8192 --per_device_train_batch_size 4",
         {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 64, "lora_dropout": 0.1,
          "sequence_length": 8192, "micro_batch_size": 4}),
        (f"{SCRIPT} --max_seq_length 384", {"checkpointing": "full", "offload_activations": "none"}),
        (f"{SCRIPT} --dtype float16", {"precision": "fp16-mixed", "param_dtype": "fp16"}),
        (COMMAND, {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 64, "lora_targets": list(TARGETS)}),
        (f"{COMMAND} --no-load-in-4bit --gradient-checkpointing true --target-modules q_proj,v_proj",
         {"method": "lora", "offload_activations": "none", "lora_targets": ["q_proj", "v_proj"]}),
        (f"{COMMAND} --training-type full --gradient-checkpointing none --batch-size 1",
         {"method": "full", "checkpointing": "none", "micro_batch_size": 1}),
    ],
)  # fmt: skip
def test_commands_become_scenarios(line: str, expected: dict[str, Any]) -> None:
    launch = read(line)
    assert launch.engine == launch.scenario["train"]["framework"] == "unsloth"
    assert {key: launch.scenario["train"].get(key) for key in expected} == expected
    assert not any(note.startswith("unknown to") for note in launch.notes)


def test_a_configuration_has_sections_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: unsloth/Qwen3-8B\ntraining: {max_seq_length: 4096, load_in_4bit: false}\nlora: {lora_r: 32}\n"
    )
    train = read(f"unsloth train --config {file} --lora-r 8").scenario["train"]
    assert (train["method"], train["lora_rank"], train["sequence_length"]) == ("lora", 8, 4096)


@pytest.mark.parametrize(("kept", "offloads"), [("'unsloth'", "cpu"), ("True", "none")])
def test_layers_inputs_stay_on_the_card_where_a_script_checkpoints_as_torch_does(
    tmp_path: Path, kept: str, offloads: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "model, tok = FastLanguageModel.from_pretrained('unsloth/Qwen3-8B', max_seq_length=2048)\n"
        f"model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing={kept})\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2)).train()\n"
    )
    train = read_files([str(script)])[0].launch.scenario["train"]
    assert (train["checkpointing"], train["offload_activations"]) == ("full", offloads)


def test_each_option_sets_a_key_or_is_read_in_code() -> None:
    keys = {row.key for row in options_of("unsloth").values()} - {"", READ_IN_CODE}
    assert keys <= set(KINDS[TrainSettings])
