from __future__ import annotations

import pytest

from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import add_scenario_arguments, model_from_flags, scenario_from_flags
from vramwise.errors import ScenarioError, SourceError, UsageError
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TABLES
from vramwise.scenario.values import Switch


def parse(*arguments):
    parser = CommandParser(prog="vramwise estimate", description="for a test")
    add_scenario_arguments(parser)
    return parser.parse(arguments)


def read(text):
    return scenario_from_flags(parse(*text.split()))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("gpt2 --task load", {"model": "gpt2", "task": "load"}),
        (
            "gpt2 --task train --micro-batch-size 2 --packing --no-clip-grad-norm --kernels liger,fms",
            {
                "model": "gpt2",
                "task": "train",
                "train": {"micro_batch_size": 2, "packing": True, "clip_grad_norm": False, "kernels": ["liger", "fms"]},
            },
        ),
        (
            "m --task serve --limit-mm-per-prompt image=2,audio=1 --speculative method=eagle,num_tokens=3",
            {
                "model": "m",
                "task": "serve",
                "serve": {
                    "limit_mm_per_prompt": {"image": 2, "audio": 1},
                    "speculative": {"method": "eagle", "num_tokens": 3},
                },
            },
        ),
        (
            "m --task train --tensor-parallel-size 2 --num-gpus 8 --attention flash",
            {"model": "m", "task": "train", "num_gpus": 8, "train": {"tensor_parallel_size": 2, "attention": "flash"}},
        ),
        (
            "m --task serve --tensor-parallel-size 2 --num-gpus 8 --dtype half --kv-cache-memory-bytes 8GiB",
            {
                "model": "m",
                "task": "serve",
                "num_gpus": 8,
                "serve": {"tensor_parallel_size": 2, "dtype": "fp16", "kv_cache_memory_bytes": 8 * 2**30},
            },
        ),
        (
            "m --task generate --attention flash --prompt-tokens 1_000 --gpu-total-bytes 80GB",
            {
                "model": "m",
                "task": "generate",
                "gpu_total_bytes": 80 * 10**9,
                "generate": {"attention": "flash", "prompt_tokens": 1000},
            },
        ),
        ("m --task load --engine vllm", {"model": "m", "task": "load", "serve": {"engine": "vllm"}}),
        (
            "m --task serve --gpu-memory-utilization 0.85",
            {"model": "m", "task": "serve", "serve": {"gpu_memory_utilization": 0.85}},
        ),
        (
            "--task load --hidden-size 768 --num-hidden-layers 12 --model-type gpt2 --tie-word-embeddings",
            {
                "model": {
                    "model_type": "gpt2",
                    "hidden_size": 768,
                    "num_hidden_layers": 12,
                    "tie_word_embeddings": True,
                },
                "task": "load",
            },
        ),
    ],
)
def test_flags_say_the_same_as_a_table(text, data):
    scenario = read(text)
    assert scenario == Scenario.from_dict(data)
    assert scenario.explicit == Scenario.from_dict(data).explicit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt2", "--task is missing: expected one of train, serve, generate, load"),
        ("gpt2 --task tarin", '--task: expected one of train, serve, generate, load; got "tarin": did you mean train?'),
        ("--task load", "no model: give MODEL, --scenario FILE, or --hidden-size and its like"),
        ("m --task train --micro-batch-size two", '--micro-batch-size: expected a whole number ≥ 1, got "two"'),
        ("m --task train --micro-batch-size -1", "--micro-batch-size: expected a whole number ≥ 1, got -1"),
        ("m --task train --micro-batch-size 1e30", '--micro-batch-size: expected a whole number ≥ 1, got "1e30"'),
        (f"m --task train --micro-batch-size 1{'0' * 30}", "--micro-batch-size: expected a whole number below 2^53"),
        ("m --task serve --gpu-memory-utilization nan", "--gpu-memory-utilization: expected a number > 0 and ≤ 1"),
        ("m --task serve --zero-stage 3", "--zero-stage belongs to --task train, not to --task serve"),
        ("m --task train --dtype bf16", "--dtype belongs to --task serve or generate, not to --task train"),
        ("m --task load --zero-stage 3", "--zero-stage belongs to --task train, not to --task load"),
        ("m --task train --zero-stage 3 --fsdp full-shard", "--zero-stage: 3 and fsdp full-shard exclude each other"),
        ("m --task serve --limit-mm-per-prompt image", '--limit-mm-per-prompt: expected a table, got "image"'),
        ("m --task train --kernels liger,zzz", "--kernels: expected one of liger"),
        ("m --task load --gpu-total-bytes 80G", '--gpu-total-bytes: "80G" is ambiguous'),
        ("m --task load --hidden-size 8", "--hidden-size describes a model of its own: leave out the other model"),
        ("--task load --hidden-size 0", "--hidden-size: expected a whole number ≥ 1, got 0"),
        ("m --task serve --max-model-len 131,072", "--max-model-len: expected a whole number (such as 131072)"),
        (
            "m --task serve --gpu-memory-utilization 95%",
            '--gpu-memory-utilization: expected a number > 0 and ≤ 1, got "95%": did you mean 0.95?',
        ),
        (
            "m --task load --gpu-total-bytes 24",
            '--gpu-total-bytes: expected a size with its unit, such as "24 GiB", got "24"',
        ),
        ("m --task train --micro-batchsize 2", 'unknown flag "--micro-batchsize": did you mean --micro-batch-size'),
    ],
)
def test_a_wrong_flag_is_named(text, message):
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('model = "gpt2"\ntask = "train"\nnum_gpus = 8\n[train]\nmicro_batch_size = 2\nzero_stage = 1\n')
    scenario = read(f"--scenario {path} --micro-batch-size 4 --num-gpus 16")
    assert (scenario.num_gpus, scenario.train.micro_batch_size, scenario.train.zero_stage) == (16, 4, 1)
    assert read(f"other --scenario {path}").model == "other"
    assert read(f"--scenario {path}").model == "gpt2"


def test_what_is_wrong_in_the_file_keeps_the_path_of_the_file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('model = "gpt2"\ntask = "train"\n[train]\nmicro_batch_size = "two"\n')
    with pytest.raises(ScenarioError, match=r"train\.micro_batch_size: expected"):
        read(f"--scenario {path} --zero-stage 1")
    with pytest.raises(UsageError, match="leave out the other model"):
        read(f"--scenario {path} --hidden-size 8")
    with pytest.raises(SourceError, match="No such file"):
        read(f"--scenario {tmp_path}/gone.toml")


@pytest.mark.parametrize("text", ["3", '"x"', "[1]"])
def test_a_file_whose_table_is_none_is_refused(tmp_path, text):
    path = tmp_path / "s.json"
    path.write_text(f'{{"model": "gpt2", "task": "train", "train": {text}}}')
    with pytest.raises(ScenarioError, match="train: expected a table"):
        read(f"--scenario {path} --zero-stage 1")


def test_every_key_has_a_flag():
    flags = parse("m").__dict__
    for kinds in KINDS.values():
        assert set(kinds) <= set(flags)


def test_the_model_alone():
    assert model_from_flags(parse("gpt2")) == "gpt2"
    assert model_from_flags(parse()) is None
    assert model_from_flags(parse("--hidden-size", "8")) == {"model_type": "llama", "hidden_size": 8}


def test_help_is_printed(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    out = capsys.readouterr().out
    assert "--micro-batch-size N" in out
    assert "--packing, --no-packing" in out


@pytest.mark.parametrize(
    "limits",
    [
        ("--limit-mm-per-prompt", "image=0,video=1"),
        ("--limit-mm-per-prompt", "image=0", "--limit-mm-per-prompt", "video=1"),
        ("--limit-mm-per-prompt", '{"image": 0, "video": 1}'),
    ],
)
def test_limits_are_one_list_two_flags_or_json(limits):
    scenario = scenario_from_flags(parse("m", "--task", "serve", *limits))
    assert scenario.serve.limit_mm_per_prompt == {"image": 0, "video": 1}


def test_a_list_given_twice_is_both():
    assert read("m --task train --kernels liger --kernels fms").train.kernels == ("liger", "fms")


@pytest.mark.parametrize(
    ("table", "key"),
    [(name, key) for name, cls in TABLES.items() for key, kind in KINDS[cls].items() if isinstance(kind, Switch)],
)
def test_a_switch_turns_its_own_key_on_and_its_opposite_off(table, key):
    on = "--" + key.replace("_", "-")
    off = on.replace("--no-", "--", 1) if on.startswith("--no-") else on.replace("--", "--no-", 1)
    for flag, value in ((on, True), (off, False)):
        assert getattr(parse("gpt2", "--task", table, flag), key) is value


def test_no_kv_offload_keeps_the_cache_on_the_host():
    scenario = read("gpt2 --task serve --engine llama.cpp --no-kv-offload")
    assert scenario.serve.no_kv_offload is True
    assert read("gpt2 --task serve --engine llama.cpp --kv-offload").serve.no_kv_offload is False


def test_flags_override_a_files_nested_tables(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text('model = "m"\ntask = "train"\n[train.zero]\nstage = 3\noverlap_comm = false\n', "utf-8")
    train = read(f"--scenario {path} --zero-stage 2").train
    assert (train.zero_stage, train.overlap_comm) == (2, False)


def test_help_groups_the_flags_by_whose_they_are():
    groups = {group.title: group for group in parse_groups()}
    zero = {action.dest: action.help for action in groups["--task train: ZeRO"]._group_actions}
    assert {"zero_stage", "overlap_comm"} <= set(zero)
    assert zero["sub_group_size"].startswith("ZeRO-3: ")
    assert {action.dest for action in groups["--task serve: SGLang"]._group_actions} >= {"mem_fraction_static"}


def parse_groups():
    parser = CommandParser(prog="vramwise estimate", description="for a test")
    add_scenario_arguments(parser)
    return parser._action_groups


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["vllm serve gpt2"], ["vllm", "serve", "gpt2"]),
        (["--json", "vllm serve gpt2"], ["vllm", "serve", "gpt2"]),
        (["--title", "vllm serve gpt2"], []),
        (["--title", "a", "vllm serve gpt2"], ["vllm", "serve", "gpt2"]),
        (["it's a model"], []),
    ],
)
def test_a_quoted_text_is_a_command_where_it_is_no_flags_value(arguments: list[str], command: list[str]) -> None:
    parser = CommandParser(prog="vramwise estimate", description="for a test")
    parser.takes_command = True
    parser.add_argument("model", nargs="?")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--title")
    assert parser.parse(arguments).engine_command == command
