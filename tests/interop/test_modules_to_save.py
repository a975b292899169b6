"""Whole modules that train beside adapters, as each trainer asks for them, and modules beside layers that train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vramwise import estimate
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch, read_command

LLAMA, TIED = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"
BOTH = ["embed_tokens", "lm_head"]


def read_file(file: Path) -> Launch:
    (answer,) = read_files((str(file),), None)
    return answer.launch


def train(launch: Launch) -> Any:
    return launch.scenario["train"]


AXOLOTL = {"base_model": LLAMA, "adapter": "qlora", "load_in_4bit": True, "lora_r": 16, "lora_target_linear": True,
           "sequence_len": 2048, "micro_batch_size": 1, "datasets": [{"path": "x", "type": "alpaca"}]}  # fmt: skip
FACTORY = {"model_name_or_path": LLAMA, "stage": "sft", "do_train": True, "template": "llama3", "cutoff_len": 1024}
FILES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "axolotl": ({**AXOLOTL, "lora_modules_to_save": BOTH}, BOTH),
    "LLaMA-Factory": (
        {**FACTORY, "finetuning_type": "lora", "lora_target": "all", "additional_target": "embed_tokens,lm_head"}, BOTH
    ),
    "LLaMA-Factory's frozen layers": (
        {**FACTORY, "finetuning_type": "freeze", "freeze_trainable_layers": 1, "freeze_extra_modules": "lm_head"},
        [".31.", "lm_head"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path) -> None:
    table, expected = FILES[name]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(table))
    assert train(read_file(file))["trainable"] == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"swift sft --model {LLAMA} --train_type lora --modules_to_save embed_tokens lm_head", BOTH),
        (f"swift sft --model {LLAMA} --train_type lora --modules_to_save all-embedding all-norm",
         ["embed_tokens", "input_layernorm", "norm", "post_attention_layernorm"]),
        (f"trl sft --model_name_or_path {LLAMA} --use_peft --lora_r 8 --lora_modules_to_save lm_head", ["lm_head"]),
    ],
)  # fmt: skip
def test_commands(command: str, expected: list[str]) -> None:
    assert train(read_command(command.split()))["trainable"] == expected


def test_unsloth_trains_targeted_embeddings_whole(tmp_path: Path) -> None:
    """unsloth 2026.10 models/llama.py get_peft_model moves both from the targets to `modules_to_save`."""
    file = tmp_path / "train.py"
    file.write_text(f"""
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("{LLAMA}", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=128, target_modules=["q_proj", "embed_tokens", "lm_head"])
trainer = SFTTrainer(model, args=SFTConfig(per_device_train_batch_size=2))
""")
    found = train(read_file(file))
    assert (found["lora_targets"], found["trainable"]) == (["q_proj"], BOTH)


def test_a_module_that_the_model_has_not_is_left_out_and_said() -> None:
    """peft trains what is there: a classifier's head is named by habit."""
    launch = read_command(f"swift sft --model {LLAMA} --train_type lora --modules_to_save score lm_head".split())
    assert train(launch)["trainable"] == ["lm_head"]
    assert "no module of the model is named so, left out: score" in launch.notes


GPT_OSS, EXPERTS = "openai/gpt-oss-20b", ["7.mlp.experts.gate_up_proj", "7.mlp.experts.down_proj"]


def test_parameters_get_adapters_beside_the_modules() -> None:
    """peft's `target_parameters`; 24 layers of gpt-oss, of which one has adapters on its experts."""
    words = f"trl sft --model_name_or_path {GPT_OSS} --use_peft --lora_r 8 --lora_dropout 0".split()
    words += ["--lora_target_modules", "all-linear"]
    plain = read_command(words)
    launch = read_command([*words, "--lora_target_parameters", *EXPERTS])
    assert train(launch)["lora_targets"] == ["all-linear", *EXPERTS]
    added = [estimate(one.scenario).model.num_trainable_parameters for one in (plain, launch)]
    hidden, experts, intermediate = 2880, 32, 2880
    assert added[1] - added[0] == 8 * experts * ((hidden + 2 * intermediate) + (intermediate + hidden))


def test_saved_modules_make_no_adapters() -> None:
    launch = read_command(f"trl sft --model_name_or_path {LLAMA} --lora_modules_to_save lm_head".split())
    assert train(launch)["method"] == "full"
    assert "--lora_modules_to_save: no adapters without --use_peft" in launch.notes


def test_what_they_take() -> None:
    """Two matrices of 128,256 · 4,096 in 16 bits: weights, gradients and AdamW's two states of 16 bits each."""

    def needed(*more: str) -> float:
        words = f"trl sft --model_name_or_path {LLAMA} --use_peft --lora_r 8 --optim adamw_torch".split()
        return estimate(read_command([*words, *more]).scenario).quantities["total_needed"].expected

    extra = needed("--lora_modules_to_save", *BOTH) - needed()
    assert extra > 2 * 128_256 * 4096 * 2 * 3
