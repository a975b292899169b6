"""What a walk through public commands and files found: each was refused, misread or answered doubtfully before."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import read_command
from vramwise.sources import resolve

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=512"
    " data.max_response_length=1024 actor_rollout_ref.model.path="
)


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text, "utf-8")
    return str(file)


def train_of(line: str) -> dict[str, Any]:
    found = read_command(shlex.split(line)).scenario["train"]
    assert isinstance(found, dict)
    return found


def test_verl_runs_flash_attention_unless_told_otherwise() -> None:
    """verl 0.7 workers/fsdp_workers.py: attn_implementation flash_attention_2 where override_config has none."""
    line = f"{VERL}Qwen/Qwen3-8B"
    assert train_of(line)["attention"] == "flash"
    assert (
        train_of(f"{line} +actor_rollout_ref.model.override_config.attn_implementation=eager")["attention"] == "eager"
    )
    sft = "torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen3-8B"
    assert train_of(sft)["attention"] == "flash"


def test_flags_of_vllm_without_a_model_are_beside_one(tmp_path: Path) -> None:
    """vllm-project/recipes Llama/Llama3.3_Hopper.yaml: `vllm serve MODEL --config FILE`."""
    text = "kv-cache-dtype: fp8\nasync-scheduling: true\nno-enable-prefix-caching: true\nmax-num-batched-tokens: 8192\n"
    file = written(tmp_path, "Llama3.3_Hopper.yaml", text)
    launch = read_files([file], "meta-llama/Llama-3.3-70B-Instruct")[0].launch
    serve = launch.scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["kv_cache_dtype"], serve["max_num_batched_tokens"]) == ("fp8", 8192)
    with pytest.raises(UsageError, match="names no model"):
        read_files([file])
    other = written(tmp_path, "other.yaml", "kv-cache-dtype: fp8\nsomething-else: 1\n")
    with pytest.raises(UsageError, match="nobody's file"):
        read_files([other], "Qwen/Qwen3-8B")


def test_a_table_as_model_that_is_no_config_is_nobodys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NeMo Automodel's recipes; before, it was asked for a task."""
    file = written(tmp_path, "recipe.yaml", "recipe: Train\nmodel:\n  _target_: nemo_automodel.X.from_pretrained\n")
    assert main(["estimate", file, "--gpu", "h100"]) == 2
    assert "nobody's file that is known here" in capsys.readouterr().err


def test_a_script_that_takes_arguments_says_to_give_its_command(tmp_path: Path) -> None:
    """trl examples/scripts/gspo.py."""
    text = (
        "parser = TrlParser((ScriptArguments, GRPOConfig))\ntrainer = GRPOTrainer(model=args.model)\ntrainer.train()\n"
    )
    with pytest.raises(UsageError, match=r"takes its settings from its command line.*accelerate launch"):
        read_files([written(tmp_path, "gspo.py", text)])


def test_experts_on_the_host_are_refused(tmp_path: Path) -> None:
    """LLaMA-Factory examples/ktransformers: 700 GiB were answered for a card of 24."""
    text = "model_name_or_path: Qwen/Qwen3-30B-A3B\nfinetuning_type: lora\nstage: sft\ndo_train: true\nuse_kt: true\n"
    with pytest.raises(UsageError, match="use_kt: KTransformers keeps and runs the experts on the host"):
        read_files([written(tmp_path, "kt.yaml", text)])


def test_names_that_end_in_bf16_are_the_model_without_its_format() -> None:
    """verl examples/grpo_trainer/run_gptoss_20b.sh; unsloth/gpt-oss-20b-BF16."""
    plain = resolve("openai/gpt-oss-20b", network=False)
    widened = resolve("unsloth/gpt-oss-20b-BF16", network=False)
    assert "quantization_config" in plain.config
    assert "quantization_config" not in widened.config
    assert "weights in 16 bits" in (widened.note or "")
    launch = read_command(shlex.split(f"{VERL}/data/models/gpt-oss-20b-bf16"))
    assert launch.scenario["model"] == "gpt-oss-20b-bf16"


def test_fences_are_read_one_by_one(tmp_path: Path) -> None:
    """vllm-project/recipes DeepSeek-V3_2.md: a quote that one fence leaves open; a prompt in one, none in another."""
    text = (
        "Start it:\n```bash\nvllm serve Qwen/Qwen3-8B \\\n  --max-model-len 8192\n```\n"
        'Ask it:\n```bash\ncurl -d \'{"a": 1\n```\nwhich prints\n```console\n$ date\nSun Nov 29\n```\n'
    )
    launch = read_files([written(tmp_path, "README.md", text)])[0].launch
    assert launch.scenario["model"] == "Qwen/Qwen3-8B"


def test_an_ellipsis_is_no_model() -> None:
    with pytest.raises(UsageError, match="names no model"):
        read_command(["vllm", "serve", "...", "--enable-auto-tool-choice"])
