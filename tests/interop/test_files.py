"""Files of other tools: how several go together, what a shell's text says, and what is said where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.file_arguments import is_models_config
from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError
from vramwise.interop.files.kinds import tools_kind
from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.interop.files.shell_words import commands_of
from vramwise.interop.launch import Launch, read_command
from vramwise.scenario import Scenario

LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str, content: str | dict[str, Any]) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return name


def read(*files: str, model: str | None = None) -> Launch:
    (answer,) = read_files(files, model)
    Scenario.from_dict(answer.launch.scenario)
    return answer.launch


def train(launch: Launch) -> dict[str, Any]:
    table = launch.scenario["train"]
    assert isinstance(table, dict)
    return {**launch.scenario, **table}


DEEPSPEED = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True}}
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\nnum_machines: 1\n"


@pytest.mark.parametrize(
    ("name", "text", "framework"),
    [
        ("axolotl.yml", f"base_model: {LLAMA}\nsequence_len: 4096\n", "axolotl"),
        ("train.yaml", f"model_name_or_path: {LLAMA}\nfinetuning_type: full\ncutoff_len: 4096\n", "llamafactory"),
        ("sft.yaml", f"model_name_or_path: {LLAMA}\nmax_length: 4096\npacking: true\n", "transformers"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_trainers_file_goes_with_accelerates_and_deepspeeds(
    name: str, text: str, framework: str, order: tuple[int, ...]
) -> None:
    files = [written("ds_config.json", DEEPSPEED), written("accelerate.yaml", ACCELERATE), written(name, text)]
    launch = read(*(files[place] for place in order))
    found = train(launch)
    assert (found["framework"], found["sequence_length"], found["num_gpus"]) == (framework, 4096, 4)
    assert (found["zero_stage"], found["offload_optimizer"], found["precision"]) == (3, "cpu", "bf16-master")
    for file in ("ds_config.json is a configuration of DeepSpeed", "accelerate.yaml is a configuration of accelerate"):
        assert file in launch.notes[0]


def test_deepspeeds_file_alone_needs_a_model_beside_it() -> None:
    file = written("ds.json", DEEPSPEED)
    with pytest.raises(UsageError, match=r"ds\.json says nothing of the model: vramwise estimate MODEL ds\.json"):
        read(file)
    found = train(read(file, model=LLAMA))
    assert (found["model"], found["zero_stage"], found["offload_optimizer"]) == (LLAMA, 3, "cpu")


def test_arguments_that_a_trainer_saved_take_the_model_beside_them() -> None:
    file = written("training_args.json", {"output_dir": "out", "per_device_train_batch_size": 4, "bf16": True,
                                          "learning_rate": 1e-5, "gradient_checkpointing": True})  # fmt: skip
    found = train(read(file, model=LLAMA))
    assert (found["model"], found["micro_batch_size"], found["checkpointing"]) == (LLAMA, 4, "full")


def test_two_files_of_one_kind_and_files_that_do_not_go_together_are_refused() -> None:
    one, two = written("a.yml", f"base_model: {LLAMA}\n"), written("b.yml", f"base_model: {LLAMA}\n")
    with pytest.raises(UsageError, match=r"a\.yml and b\.yml are both a configuration of axolotl"):
        read(one, two)
    titan = written("t.toml", '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n')
    with pytest.raises(UsageError, match="is not started by accelerate"):
        read(titan, written("acc.yaml", ACCELERATE))
    with pytest.raises(UsageError, match="nobody's file that is known here"):
        read(written("x.yaml", "a: 1\n"))
    with pytest.raises(SourceError, match="No such file"):
        read("nowhere.yaml")


def test_an_unknown_key_of_a_tools_file_is_named() -> None:
    launch = read(written("ax.yml", f"base_model: {LLAMA}\nfrobnicate_layers: 3\nlearning_rate: 1\ntiled_mlp: true\n"))
    said = " / ".join(launch.notes)
    assert "unknown to axolotl, left out: frobnicate_layers" in said
    assert "no effect on the memory counted here: learning_rate" in said
    assert "tiled_mlp is not counted" in said
    assert "read from it: base_model" in said


def test_a_script_is_followed_and_nothing_in_it_is_run() -> None:
    script = """#!/bin/bash
    set -euo pipefail
    MODEL=${MODEL:-"Qwen/Qwen3-8B"}; TP=2
    export VLLM_USE_V1=0
    ARGS=(--max-model-len $((4096 * 2))   # context
          --enforce-eager)
    touch /tmp/should-never-exist; $(rm -rf /)
    if [ "$1" = "vllm" ]; then TP=4; fi
    cat <<EOF > note.txt
vllm serve nobody
EOF
    vllm serve "$MODEL" --tensor-parallel-size $TP "${ARGS[@]}" --max-num-seqs $(nproc) \\
        --served-model-name x "$@" > log 2>&1 &
    """
    launch = read(written("serve.sh", script))
    assert launch.scenario == {
        "model": "Qwen/Qwen3-8B",
        "task": "serve",
        "serve": {"engine": "vllm", "tensor_parallel_size": 2, "max_model_len": 8192, "enforce_eager": True,
                  "use_v1": False},
    }  # fmt: skip
    said = " / ".join(launch.notes)
    assert "only a run would tell, left out: $(nproc)" in said
    assert "the first value is taken: TP" in said
    assert not Path("/tmp/should-never-exist").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=1 B=2\nrun $A ${B} ${C:-3} ${C-4} '$A' \"$A b\"", ("run", "1", "2", "3", "4", "$A", "1 b")),
        ("L='--a 1 --b'\nrun $L 2", ("run", "--a", "1", "--b", "2")),
        ("run --n $UNSET --m=$UNSET k=$UNSET last", ("run", "last")),
        ("run $DIR/models/llama", ("run", "$DIR/models/llama")),
        ("run a\\\n  b # c\n", ("run", "a", "b")),
        ("read -r -d '' ARGS <<EOF\n--x 1 \\\n--y 2\nEOF\nrun $ARGS", ("run", "--x", "1", "--y", "2")),
        ("for m in one two; do run $m; done", ("run", "one")),
        ("N=8\nrun $((N / 2 + 1)) $((2 ** 3)) $((N % 3))", ("run", "5", "8", "2")),
        ("A=(x y)\nA+=(z)\nrun ${A[@]}", ("run", "x", "y", "z")),
        ("f() { run 1; }", ("run", "1")),
        ("A=1\nA=2\nrun $A", ("run", "2")),
        ("if x; then A=1; else A=2; fi\nrun $A", ("run", "1")),
    ],
)
def test_shell_words(text: str, words: tuple[str, ...]) -> None:
    assert words in [command.words for command in commands_of(text).commands]


def test_a_command_beside_its_configuration_finds_the_file() -> None:
    written("jobs/conf/train.yaml", f"base_model: {LLAMA}\nmicro_batch_size: 3\n")
    script = written("jobs/run.sh", "accelerate launch --num_processes 2 -m axolotl.cli.train conf/train.yaml\n")
    found = train(read(script))
    assert (found["framework"], found["micro_batch_size"], found["num_gpus"]) == ("axolotl", 3, 2)
    elsewhere = written("other.sh", "accelerate launch -m axolotl.cli.train /mnt/train.yaml\n")
    assert train(read(elsewhere, "jobs/conf/train.yaml"))["micro_batch_size"] == 3


def test_llamafactory_and_nemo_scripts_are_told_by_their_file() -> None:
    lf = written("lf.yaml", f"model_name_or_path: {LLAMA}\nfinetuning_type: lora\ncutoff_len: 512\n")
    found = read_command(["accelerate", "launch", "--num_processes", "2", "src/train.py", lf]).scenario
    assert found["train"]["framework"] == "llamafactory"  # type: ignore[index]
    nemo = written("sft.yaml", {"policy": {"model_name": LLAMA, "train_micro_batch_size": 2}, "sft": {"seed": 1},
                                "cluster": {"gpus_per_node": 4}})  # fmt: skip
    found = read_command(["uv", "run", "examples/run_sft.py", "--config", nemo]).scenario
    assert (found["train"]["micro_batch_size"], found["num_gpus"]) == (2, 4)  # type: ignore[index]


def test_a_recipe_builds_on_the_files_it_names() -> None:
    policy = {"model_name": "gpt2", "max_total_sequence_length": 512, "train_micro_batch_size": 4}
    written("base.yaml", {"policy": policy, "grpo": {"seed": 1}, "cluster": {"gpus_per_node": 1}})
    recipe = written("recipes/r.yaml", {"defaults": "../base.yaml", "policy": {"model_name": LLAMA}})
    found = train(read(recipe))
    assert (found["model"], found["sequence_length"], found["micro_batch_size"]) == (LLAMA, 512, 4)
    alone = read(written("alone.yaml", {"defaults": "missing.yaml", "policy": {"model_name": LLAMA}}))
    assert any("it builds on missing.yaml, which is not here" in note for note in alone.notes)


def test_torchtitans_registry_has_a_configuration_for_each_function() -> None:
    text = """
def llama3_8b():
    return Trainer.Config(model_spec=model_registry("8B"), activation_checkpoint=SelectiveAC.Config(),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192))

def llama3_70b():
    return Trainer.Config(model_spec=model_registry("70B"), activation_checkpoint=FullAC.Config(),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
        training=TrainingConfig(local_batch_size=4, seq_len=4096))
"""
    file = written("llama3/config_registry.py", text)
    answers: list[FileLaunch] = read_files([file])
    assert [answer.name for answer in answers] == ["llama3_8b", "llama3_70b"]
    small, large = (train(answer.launch) for answer in answers)
    assert (small["micro_batch_size"], small["sequence_length"], small["checkpointing"]) == (2, 8192, "selective")
    assert (large["micro_batch_size"], large["sequence_length"], large["checkpointing"]) == (4, 4096, "full")
    assert large["tensor_parallel_size"] == 8


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file ./train_configs/llama3_8b.toml",
         {"model": "meta-llama/Llama-3.1-8B", "sequence_length": 8192, "fsdp": "full-shard", "num_gpus": 8}),
        ("NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size 3",
         {"micro_batch_size": 3, "num_gpus": 4}),
        ("composer -n 8 train/train.py f.yaml device_train_microbatch_size=2", {"micro_batch_size": 2, "num_gpus": 8}),
    ],
)  # fmt: skip
def test_commands_of_torchtitan_and_llm_foundry(line: str, expected: dict[str, Any]) -> None:
    written("f.yaml", f"max_seq_len: 1024\nmodel:\n  pretrained_model_name_or_path: {LLAMA}\n")
    found = train(read_command(line.split()))
    assert {key: found[key] for key in expected} == expected


def test_a_python_script_around_trl_is_looked_at() -> None:
    text = f"""
import torch
name, batch = "{LLAMA}", 2 * 2
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
model = AutoModelForCausalLM.from_pretrained(
    name, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2", quantization_config=bits)
peft_config = LoraConfig(r=32, lora_dropout=0.1, target_modules="all-linear", modules_to_save=["lm_head"])
args = SFTConfig(per_device_train_batch_size=batch, max_length=1024, output_dir=os.environ["OUT"], bf16=True)
SFTTrainer(model, args=args, peft_config=peft_config)
"""
    launch = read(written("train.py", text))
    found = train(launch)
    expected = {"model": LLAMA, "micro_batch_size": 4, "sequence_length": 1024, "method": "qlora", "lora_rank": 32,
                "quantization": "nf4-dq", "attention": "flash", "trainable": ["lm_head"]}  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    said = " / ".join(launch.notes)
    assert "only a run would tell, left out: output_dir" in said


def test_a_service_that_is_built_here_is_known_by_its_flags() -> None:
    flags = ["--model", LLAMA, "--gpu-memory-utilization", "0.78", "--max-num-seqs", "64"]
    launch = read(written("compose.yml", {"services": {"llm": {"build": {"context": "."}, "command": flags}}}))
    assert launch.engine == "vllm"
    assert any("taken as vLLM's by its flags" in note for note in launch.notes)
    for other in ([*flags, "--frobnicate"], ["--model", LLAMA], ["serve", *flags]):
        with pytest.raises(UsageError, match="starts no program known here"):
            read(written("compose.yml", {"services": {"llm": {"build": ".", "command": other}}}))


def test_a_note_shows_no_secret_of_a_file() -> None:
    services = {"llm": {"image": "vllm/vllm-openai", "environment": {"HF_TOKEN": "hf_secret1"},
                        "command": ["--model", LLAMA, "--api-key", "secret2", "--hf-token=secret3"]}}  # fmt: skip
    said = " / ".join(read(written("compose.yml", {"services": services})).notes)
    assert "vllm/vllm-openai --model meta-llama/Llama-3.1-8B --api-key … " in said
    assert "secret" not in said


def test_a_configuration_of_ms_swifts_megatron_is_read_as_such() -> None:
    """Settings of modelscope/ms-swift@3602360a5:examples/yaml/megatron/sft.yaml."""
    settings = {"model": "Qwen/Qwen3.5-35B-A3B", "tuner_type": "lora", "lora_rank": 8, "max_length": 2048,
                "micro_batch_size": 1, "global_batch_size": 4, "expert_model_parallel_size": 4,
                "recompute_granularity": "full"}  # fmt: skip
    launch = read(written("sft.yaml", settings))
    assert launch.scenario["num_gpus"] == 4
    train = launch.scenario["train"]
    assert isinstance(train, dict)
    assert (train["framework"], train["method"], train["checkpointing"]) == ("megatron", "lora", "full")


RAY_SCRIPT = """
import os
from ray.serve.llm import LLMConfig, ModelLoadingConfig, build_openai_app
SIZE = 2
one = LLMConfig(model_loading_config=dict(model_id="small", model_source="Qwen/Qwen3-8B"), accelerator_type="L40S",
                engine_kwargs=dict(max_model_len=4096, tensor_parallel_size=SIZE, seed=os.environ["SEED"]))
two = LLMConfig(model_loading_config=ModelLoadingConfig(model_id="Qwen/Qwen3-0.6B"), llm_engine="SGLang",
                engine_kwargs={"mem_fraction_static": 0.5}, deployment_config=dict(num_replicas=3))
raise SystemExit("never run")
"""


def test_models_of_a_ray_serve_script() -> None:
    first, second = read_files([written("serve.py", RAY_SCRIPT)])
    assert first.name == "small"
    assert first.launch.scenario["model"] == "Qwen/Qwen3-8B"
    assert first.launch.scenario["serve"] == {"engine": "vllm", "max_model_len": 4096, "tensor_parallel_size": 2}
    assert "only a run would tell, left out: engine_kwargs.seed" in first.launch.notes
    assert second.launch.scenario["serve"] == {"engine": "sglang", "mem_fraction_static": 0.5}
    assert any("deployment_config" in note for note in second.launch.notes)


@pytest.mark.parametrize(
    ("application", "said"),
    [
        ({"llm_configs": ["./gone.yaml"]}, "it names ./gone.yaml, which is not there"),
        ({"llm_configs": [{"model_loading_config": {}}]}, "names no model_id"),
        ({"llm_config": {"model_loading_config": {"model_id": "a"}, "llm_engine": "vlm"}}, 'unknown engine "vlm"'),
    ],
)
def test_a_ray_application_without_its_model_is_one_line(application: dict[str, Any], said: str) -> None:
    file = written("serve.json", {"applications": [{"name": "llms", "args": application}]})
    with pytest.raises(UsageError, match=said):
        read_files([file])


@pytest.mark.parametrize(
    ("cloud", "expected"),
    [
        ("gpu: a100\ngpu_count: 4\nvolumes: []\n", {"gpu": "a100-sxm-40gb", "num_gpus": 4}),
        ("gpu: H100\ngpu_count: 2\nprovider: modal\n", {"gpu": "h100-sxm-80gb", "num_gpus": 2}),
        ("provider: baseten\ngpu: h100\ngpu_count: 8\nnode_count: 2\n", {"num_gpus": 16, "gpus_per_node": 8}),
    ],
)
def test_axolotls_file_of_a_cloud_says_on_what_it_runs(cloud: str, expected: dict[str, Any]) -> None:
    files = [written("cloud.yaml", cloud), written("axolotl.yml", f"base_model: {LLAMA}\n")]
    together = read(*files).scenario
    assert {key: together.get(key) for key in expected} == expected
    command = read_command(["axolotl", "train", files[1], "--cloud", files[0]])
    assert {key: command.scenario.get(key) for key in expected} == expected
    with pytest.raises(UsageError, match="give axolotl's configuration too"):
        read(files[0], model=LLAMA)
    with pytest.raises(UsageError, match="leave out one"):
        read(files[0], written("sft.yaml", f"model_name_or_path: {LLAMA}\npacking: true\n"))


def test_a_file_that_a_configuration_names_is_looked_for_beside_it(tmp_path: Path) -> None:
    written("repo/train/zero3.json", DEEPSPEED)
    settings = {"model_name_or_path": LLAMA, "finetuning_type": "full", "cutoff_len": 4096}
    for place, named in enumerate(("train/zero3.json", "zero3.json", "/elsewhere/zero3.json")):
        name = written(f"repo/train/{place}.yaml", {**settings, "deepspeed": named})
        assert train(read(name))["zero_stage"] == 3
    with pytest.raises(SourceError, match="no/such"):
        read(written("repo/train/none.yaml", {**settings, "deepspeed": "no/such/file.json"}))


def test_deepspeeds_file_has_any_ending() -> None:
    named = written("stage3.conf", DEEPSPEED)
    launch = read_command(["deepspeed", "train.py", "--model_name_or_path", LLAMA, "--deepspeed", named])
    assert train(launch)["zero_stage"] == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--deepspeed --zero_stage 3 --offload", (3, "cpu", "cpu")),
        ("--deepspeed --deepspeed_config ds.json", (2, "none", "none")),
        ("--deepspeed_stage 2", (2, "none", "none")), ("--deepspeed", (0, "none", "none")),
        ("--deepspeed_config ds.json --deepspeed --bf16", (2, "none", "none")),
    ],
)  # fmt: skip
def test_deepspeed_as_a_switch(words: str, expected: tuple[int, str, str]) -> None:
    written("ds.json", {"zero_optimization": {"stage": 2}})
    launch = read_command(["deepspeed", "--num_gpus", "8", "main.py", "--model_name_or_path", LLAMA, *words.split()])
    table = Scenario.from_dict(launch.scenario).train
    assert (table.zero_stage, table.offload_optimizer, table.offload_params) == expected
    assert any("the script's own" in note for note in launch.notes) == ("ds.json" not in words)


def test_a_script_that_sends_a_command_elsewhere_is_passed_over() -> None:
    words = (
        "python submit.py --cluster a --gpus 8 -- accelerate launch --num_processes 16 train.py --model_name_or_path"
    )
    assert read_command([*words.split(), LLAMA]).scenario["num_gpus"] == 16


def test_arguments_of_a_script_without_trainer_are_not_trls() -> None:
    text = f"model_name_or_path: {LLAMA}\nmax_seq_length: 4096\nwith_tracking: true\nuse_lora: false\n"
    launch = read(written("sft.yaml", text))
    assert "loss" not in train(launch)["train"]
    assert any("taken as a script's of your own" in note for note in launch.notes)


def test_models_beside_the_policy_are_known_by_their_paths() -> None:
    policy = "actor_rollout_ref.model.path=$HOME/models/Qwen2-7B-Instruct"
    words = f"python3 -m verl.trainer.main_ppo {policy} critic.model.path="
    launch = read_command((words + "~/models/deepseek-llm-7b-chat").split())
    assert launch.scenario["model"] == "Qwen2-7B-Instruct"
    assert train(launch)["extra_models"][0] == "critic:deepseek-llm-7b-chat"
    launch = read_command((words + "/data/ckpt/global_step_100").split())
    assert train(launch)["extra_models"][0] == "critic"
    assert any("taken as large as the policy" in note for note in launch.notes)


def test_what_stands_in_model_init_kwargs_counts() -> None:
    text = f"model_name_or_path: {LLAMA}\nmax_length: 512\nmodel_init_kwargs:"
    table = train(read(written("sft.yaml", f"{text} {{dtype: bfloat16, attn_implementation: eager}}\n")))
    assert (table["attention"], table.get("param_dtype", "bf16")) == ("eager", "bf16")
    narrow = train(read(written("narrow.yaml", f"{text} {{dtype: bfloat16}}\nbf16: false\n")))
    assert narrow["precision"] == "bf16"


def test_replicas_of_accelerates_parallelism_share_within_a_node() -> None:
    fsdp = "distributed_type: FSDP\nnum_processes: 16\nfsdp_config: {fsdp_version: 2}\n"
    more = "parallelism_config: {parallelism_config_dp_replicate_size: 2, parallelism_config_dp_shard_size: 8}\n"
    launch = read(written("accelerate.yaml", fsdp + more), model=LLAMA)
    assert train(launch)["fsdp"] == "hybrid-shard"


def test_a_switch_of_torchtitan_is_turned_off_inside_its_table() -> None:
    words = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
    launch = read_command([*words.split(), "--metrics.no-enable_tensorboard", "--training.seq_len", "1024"])
    assert train(launch)["sequence_length"] == 1024


def test_every_option_that_is_read_in_code_stands_in_the_code() -> None:
    from vramwise.interop import launch
    from vramwise.interop.launch.options import READ_IN_CODE
    from vramwise.tables import table

    code = "".join(file.read_text("utf-8") for file in Path(str(launch.__file__)).parent.glob("*.py"))
    for row in table(str(launch.__file__).replace("__init__", "options"), "training"):
        if row["key"] == READ_IN_CODE:
            words = row["option"].removesuffix(".*").rpartition(".")[2].split("_")
            ends = ["_".join(words[place:]) for place in range(len(words))]  # f"offload_{name}_device" names its end
            assert any(f'{end}"' in code or f".{end}" in code for end in ends), row


COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:v0.11.2
    env_file: [own.env]
    command: --model ${LLM_ID} --max-model-len ${LENGTH:-2048} ${EAGER:+--enforce-eager}
"""


def test_compose_files_are_filled_in_from_env_files_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    file = written("app/docker-compose.yml", COMPOSE)
    for name in ("LLM_ID", "LENGTH", "EAGER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="LLM_ID"):
        read(file)
    assert read(file, model="gpt2").scenario["model"] == "gpt2"
    written("app/.env", "# ours\nexport LLM_ID='Qwen/Qwen3-8B'\nLENGTH=4096  # short\nEAGER=1\n")
    written("app/own.env", "VLLM_USE_V1=0\n")
    launch = read(file)
    serve = launch.scenario["serve"]
    assert isinstance(serve, dict)
    assert (launch.scenario["model"], serve["max_model_len"], serve["enforce_eager"]) == ("Qwen/Qwen3-8B", 4096, True)
    assert serve["use_v1"] is False
    assert not any("taken as empty" in note for note in launch.notes)
    monkeypatch.setenv("LLM_ID", "Qwen/Qwen3-0.6B")
    assert read(file).scenario["model"] == "Qwen/Qwen3-0.6B"


def test_a_server_fills_in_nothing_of_its_own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vramwise import files

    file = written("app/docker-compose.yml", COMPOSE)
    monkeypatch.setenv("LLM_ID", "a-secret-of-the-server")
    monkeypatch.setattr(files, "_within", (str(tmp_path / "elsewhere"),))
    written("app/.env", "LLM_ID=another-secret\n")
    with pytest.raises(UsageError) as problem:
        read(file)
    assert "secret" not in str(problem.value)


def test_a_file_that_nothing_names_is_said_to_be_left_out() -> None:
    used, unused = written("ds.json", DEEPSPEED), written("other.json", DEEPSPEED)
    script = written("run.sh", f"deepspeed train.py --model_name_or_path {LLAMA} --deepspeed conf/ds.json\n")
    launch = read(script, used, unused)
    assert train(launch)["zero_stage"] == 3
    assert [note for note in launch.notes if note.startswith("left out")] == [
        "left out, nothing in run.sh names it: other.json"
    ]


def test_what_a_script_says_of_adapters_and_quantization_is_read_or_said() -> None:
    text = f"""
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from peft import LoraConfig
q = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["lm_head", "q_proj"], llm_int8_threshold=6.0)
m = AutoModelForCausalLM.from_pretrained("{LLAMA}", quantization_config=q)
a = TrainingArguments(output_dir="x", per_device_train_batch_size=1)
l = LoraConfig(r=8, target_modules=["q_proj"], modules_to_save=["lm_head"], use_rslora=True, some_new=1)
"""
    launch = read(written("train.py", text))
    assert train(launch)["quantization"] == "int8"
    said = " | ".join(launch.notes)
    assert "llm_int8_skip_modules is not counted: modules that stay in 16 bit" in said
    assert "unknown to Trainer, left out: some_new" in said
    assert "llm_int8_threshold" in said


def test_kuberays_vllm_script_is_told_by_its_variables() -> None:
    """KubeRay's sample before ray.serve.llm: serve.py hands three variables to vLLM's engine."""
    application = {
        "name": "llm", "import_path": "ray-operator.config.samples.vllm.serve:model",
        "runtime_env": {"pip": ["vllm==0.6.1.post2"], "env_vars": {"MODEL_ID": "meta-llama/Meta-Llama-3-8B-Instruct",
                        "TENSOR_PARALLELISM": "2", "PIPELINE_PARALLELISM": "1"}},
    }  # fmt: skip
    service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "llama-3-8b"},
               "spec": {"serveConfigV2": json.dumps({"applications": [application]})}}  # fmt: skip
    launch = read(written("service.yaml", service))
    assert launch.scenario["model"] == "meta-llama/Meta-Llama-3-8B-Instruct"
    served = {"engine": "vllm", "engine_version": "0.6.1", "tensor_parallel_size": 2, "pipeline_parallel_size": 1}
    assert launch.scenario["serve"] == served


def test_a_script_around_vllm_is_told_by_more_variables() -> None:
    """awslabs/ai-on-eks 41a979e blueprints/inference/vllm-rayserve-gpu: vllm_serve.py reads these."""
    variables = {"MODEL_ID": "Qwen/Qwen3-8B", "GPU_MEMORY_UTILIZATION": "0.85", "MAX_MODEL_LEN": "8192",
                 "MAX_NUM_SEQ": "4", "MAX_NUM_BATCHED_TOKENS": "32768", "TENSOR_PARALLEL_SIZE": "2",
                 "MY_OWN": "1"}  # fmt: skip
    application = {"import_path": "vllm_serve:deployment", "runtime_env": {"env_vars": variables}}
    launch = read(written("service.yaml", {"applications": [application]}))
    assert launch.scenario["serve"] == {
        "engine": "vllm", "gpu_memory_utilization": 0.85, "max_model_len": 8192, "max_num_seqs": 4,
        "max_num_batched_tokens": 32768, "tensor_parallel_size": 2}  # fmt: skip
    assert "variables that only vllm_serve:deployment knows, left out: MY_OWN" in launch.notes


def test_a_mirror_names_its_model() -> None:
    mirror = {"bucket_uri": "s3://anonymous@bucket/rayllm-ossci/meta-Llama-3.2-1B-Instruct"}
    config = {"model_loading_config": {"model_id": "my_llama", "model_source": mirror}}
    launch = read(written("serve.yaml", {"applications": [{"args": {"llm_configs": [config]}}]}))
    assert launch.scenario["model"] == "meta-Llama-3.2-1B-Instruct"


def test_flags_of_an_engine_in_a_file_of_their_own() -> None:
    """vLLM's and SGLang's `--config`; a switch that is off is `--no-…` in vLLM; the command line wins."""
    flags = "model: Qwen/Qwen3-14B\ntensor_parallel_size: 2\nmax-model-len: 32768\nenable-prefix-caching: false\n"
    file = written(
        "serve.yaml", f"{flags}enforce-eager: true\ncompilation-config:\n  cudagraph_capture_sizes: [1, 2]\n"
    )
    alone = read(file)
    assert alone.scenario["model"] == "Qwen/Qwen3-14B"
    serve = alone.scenario["serve"]
    assert isinstance(serve, dict)
    told = {"tensor_parallel_size": 2, "max_model_len": 32768, "enable_prefix_caching": False, "enforce_eager": True}
    assert {key: serve[key] for key in told} == told
    assert serve["cudagraph_capture_sizes"] == [1, 2]
    command = read_command(["vllm", "serve", "Qwen/Qwen3-8B", "--config", file, "--max-model-len", "4096"]).scenario
    assert command["model"] == "Qwen/Qwen3-8B"
    assert command["serve"]["max_model_len"] == 4096  # type: ignore[index]
    assert command["serve"]["tensor_parallel_size"] == 2  # type: ignore[index]
    sglang = read(written("sg.yaml", "model-path: Qwen/Qwen3-8B\ntp-size: 2\nmem-fraction-static: 0.8\n")).scenario
    assert sglang["serve"]["tensor_parallel_size"] == 2  # type: ignore[index]
    with pytest.raises(SourceError, match=r"gone\.yaml: No such file"):
        read_command(["vllm", "serve", "--config", "gone.yaml"])


@pytest.mark.parametrize("accelerators", ["H100:8", "{H100: 8}", "[H100:8, A100:8]"])
def test_a_task_of_skypilot(accelerators: str) -> None:
    run = "run: |\n  vllm serve $MODEL \\\n    --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE\n"
    task = f"name: serve\nresources:\n  accelerators: {accelerators}\nenvs:\n  MODEL: Qwen/Qwen3-32B\n{run}"
    scenario = read(written("task.yaml", task)).scenario
    assert (scenario["gpu"], scenario["model"]) == ("h100-sxm-80gb", "Qwen/Qwen3-32B")
    assert scenario["serve"]["tensor_parallel_size"] == 8  # type: ignore[index]


def test_models_of_llama_swap() -> None:
    swap = (
        "macros:\n  server: /app/llama-server --port ${PORT}\n  ctx: 4096\n"
        "models:\n  big:\n    macros:\n      ctx: 32768\n"
        "    cmd: |\n      # the large one\n      ${server}\n      -m /models/Qwen3-30B-A3B-Q4_K_M.gguf -c ${ctx}\n"
        "    env: [LLAMA_ARG_N_PARALLEL=2]\n"
        "  small:\n    cmd: ${server} -hf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q6_K -c ${ctx}\n"
    )
    big, small = read_files([written("swap.yaml", swap)])
    assert (big.name, small.name) == ("big", "small")
    assert big.launch.scenario["serve"]["n_ctx"] == 32768  # type: ignore[index]
    assert big.launch.scenario["serve"]["n_parallel"] == 2  # type: ignore[index]
    assert small.launch.scenario["serve"]["n_ctx"] == 4096  # type: ignore[index]
    assert small.launch.scenario["serve"]["gguf_quant"] == "Q6_K"  # type: ignore[index]


def test_a_service_that_pulls_a_model_asks_the_one_that_serves_it() -> None:
    compose = (
        "services:\n  ollama:\n    image: ollama/ollama\n"
        "    environment: [OLLAMA_CONTEXT_LENGTH=32768, OLLAMA_KV_CACHE_TYPE=q8_0]\n"
        "  pull:\n    image: ollama/ollama\n    entrypoint: [/bin/sh, -c, 'ollama pull qwen2.5:14b']\n"
    )
    serve = read(written("compose.yml", compose)).scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["n_ctx"], serve["cache_type_k"]) == (32768, "q8_0")


def test_a_folder_that_is_mounted_says_which_model_it_is() -> None:
    compose = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.11.0\n"
        "    volumes: [../models/Qwen/Qwen2-7B-Instruct-AWQ:/models:ro, hub:/hub]\n"
        "    command: --model /models --max-model-len 8192\n"
    )
    assert read(written("compose.yml", compose)).scenario["model"] == "Qwen2-7B-Instruct-AWQ"


@pytest.mark.parametrize(
    ("asked", "gpu"), [("--gres=gpu:a100_80gb:4", "a100-sxm-80gb"), ("--gpus-per-node=h100:4", "h100-sxm-80gb")]
)
def test_the_card_that_a_batch_job_asks_for(asked: str, gpu: str) -> None:
    job = f"#!/bin/bash\n#SBATCH --nodes=2 {asked}\nsrun torchrun train.py --model_name_or_path {LLAMA}\n"
    launch = read(written("job.sbatch", job))
    assert (launch.scenario["gpu"], launch.scenario["num_gpus"]) == (gpu, 8)
    assert any(f"taken as {gpu}" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("flags", "gpus", "alone"),
    [("--nproc_per_node 8", 8, True), ("--nnodes=2 --nproc-per-node=8", 16, False), ("", 16, False)],
)
def test_torchrun_without_nodes_is_a_job_of_its_own_on_each(flags: str, gpus: int, alone: bool) -> None:
    job = f"#!/bin/bash\n#SBATCH --nodes=2 --gres=gpu:8\nsrun torchrun {flags} train.py --model_name_or_path {LLAMA}\n"
    launch = read(written("job.sbatch", job))
    assert launch.scenario["num_gpus"] == gpus
    assert any("without --nnodes starts a job of its own on each" in note for note in launch.notes) == alone


def test_a_table_of_nobody_is_no_scenario_without_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("values.yaml", "app: x\nmodelName: Qwen/Qwen2.5-72B-Instruct\nextraArgs: [--max-model-len=8192]\n")
    assert main(["estimate", file]) == 2
    assert "nobody's file that is known here" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["apiVersion", "services", "task", "run", "models", "applications", "base_model"])
def test_a_models_config_is_told_at_a_glance_where_nobody_else_could_have_written_it(key: str) -> None:
    config = written("config.json", {"model_type": "llama", "hidden_size": 64})
    assert is_models_config(config)
    assert tools_kind(config) is None
    assert not is_models_config(written("other/config.json", {"model_type": "llama", key: {}}))
    assert not is_models_config(written("llama.json", {"model_type": "llama"}))
    assert not is_models_config(written("broken/config.json", "{"))


def test_a_base_model_beside_trainers_batch_is_a_scripts_own_file() -> None:
    """axolotl asks for data and a batch by names of its own."""
    table = {"base_model": "Qwen/Qwen3-8B", "per_device_train_batch_size": 4, "output_dir": "out", "total_length": 2048}
    launch = read(written("run.yaml", table))
    assert launch.scenario["train"]["framework"] == "transformers"
    assert launch.scenario["train"]["micro_batch_size"] == 4
    own = read(written("axolotl.yaml", {**table, "datasets": [{"path": "x"}], "micro_batch_size": 2}))
    assert own.scenario["train"]["framework"] == "axolotl"
