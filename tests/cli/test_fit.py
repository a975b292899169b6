"""`vramwise fit`: which models run and train on a card; every row is what `estimate` answers for its command."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import vramwise
from vramwise import estimation, memo
from vramwise.cli.main import main
from vramwise.cli.screens.fit import runs_well
from vramwise.estimation import estimate
from vramwise.planner import ahead, catalog_fit, recorded_shapes
from vramwise.planner.families import family_of, members, tuned_from
from vramwise.planner.machine import machine_of
from vramwise.serving.common.forward.walk import largest_live_set
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.vllm.activations import has_plain_product
from vramwise.training.model_states.states import model_states

KEYS = ("model", "task", "method", "quantization", "sequence_length", "micro_batch_size", "concurrency", "total_needed",
        "tokens_per_second", "verdict")  # fmt: skip
SMALL = ("--family", "smollm2")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv(recorded_shapes.SWITCH, str(tmp_path))
    recorded_shapes._folder.cache_clear()
    recorded_shapes._recalled.clear()
    yield tmp_path
    recorded_shapes._folder.cache_clear()


def printed(capsys, *arguments, code=0):
    assert main(["fit", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def rows_of(capsys, *arguments, code=0):
    return json.loads(printed(capsys, *arguments, "--json", code=code))["rows"]


def test_every_row_is_what_its_command_answers(capsys):
    rows = rows_of(capsys, "--gpu", "4060", *SMALL, "--replay")
    assert {row["task"] for row in rows} == {"serve", "train"}
    for row in rows:
        assert tuple(row)[: len(KEYS) + 1] == (*KEYS[:9], "tokens_per_second_basis", KEYS[9])
        result = estimate({"model": row["model"], **row["scenario"]})
        assert result.needed.to_dict() == row["total_needed"]
        assert result.verdict.word == row["verdict"] == "fits"
        words = shlex.split(row["command"])
        assert main(words[1:]) == 0
        capsys.readouterr()


def test_a_model_stands_for_other_makers_tunes_of_it():
    assert tuned_from("huihui-ai/Huihui-Qwen3.5-35B-A3B-abliterated") == "Qwen/Qwen3.5-35B-A3B"
    assert tuned_from("Qwen/Qwen3.5-35B-A3B-Base") is None


def test_the_short_list_names_tunes_only_where_they_are_asked_for(capsys):
    size = ("--gpu", "4090", "--params", "34.5b..36b", "--task", "run", "--top", "9")
    everything = printed(capsys, *size)
    assert "abliterated" not in everything
    assert "35B A3B" in everything
    assert "abliterated" in printed(capsys, *size, "--family", "huihui")


def test_a_file_has_the_best_type_that_leaves_room_for_a_useful_context(capsys):
    (row,) = rows_of(capsys, "--gpu", "4060", "--family", "llama", "--params", "8b", "--task", "run")[:1]
    assert row["method"] == "llama.cpp"
    assert row["sequence_length"] >= 8192
    assert row["n_gpu_layers"] == row["num_layers"]
    better = {"Q4_K_M": "Q5_K_M", "Q5_K_M": "Q6_K", "Q6_K": "Q8_0"}[row["quantization"]]
    serve = {"engine": "llama.cpp", "gguf_quant": better, "n_ctx": 8192, "fit": False}
    wider = estimate({"model": row["model"], "task": "serve", "gpu": "4060", "serve": serve})
    margin = 1 << 30  # which llama.cpp leaves free by itself
    assert wider.needed.expected + margin > wider.capacity.usable_bytes


def test_the_ceiling_is_bandwidth_over_bytes_of_a_token(capsys):
    (row,) = rows_of(capsys, "--gpu", "3090", "--family", "mistral", "--params", "7b", "--task", "serve")[:1]
    result = estimate({"model": row["model"], **row["scenario"]})
    weights = result.phases[0].components.find("weights")
    read = sum(one.bytes for one in weights.children if one.name in ("norms", "attention", "mlp", "MLP", "output head"))
    cache = result.quantities["kv_cache_bytes"].expected / result.quantities["max_concurrency"].expected
    assert row["tokens_per_second"] == pytest.approx(936e9 / (read + cache), rel=0.01)
    assert row["tokens_per_second_basis"] == "ceiling, bandwidth 936 GB/s"


def test_a_token_passes_few_of_the_experts():
    """8 of Qwen3-30B-A3B's 128, in a checkpoint and in files."""
    (row,) = vramwise.fit("h100", task="serve", models=["Qwen/Qwen3-30B-A3B"])
    result = estimate({"model": row.model, **row.scenario})
    parts = {one.name: one.bytes for one in result.phases[0].components.find("weights").children}
    always = sum(parts[name] for name in ("norms", "attention", "routers", "output head"))
    cache = result.quantities["kv_cache_bytes"].expected / result.quantities["max_concurrency"].expected
    assert row.ceiling.bytes_per_token == pytest.approx(always + parts["experts"] * 8 / 128 + cache, rel=1e-3)
    (row,) = vramwise.fit("rtx-4090", task="serve", models=["Qwen/Qwen3-30B-A3B"])
    held = estimate({"model": row.model, **row.scenario}).quantities
    read = row.ceiling.bytes_per_token - held["kv_cache_bytes"].expected
    assert 0.1 < read / held["weights"].expected < 0.15


def test_unequal_cards_read_their_shares_in_turn():
    model = ["Qwen/Qwen2.5-32B-Instruct"]
    (both,) = vramwise.fit(gpus=["4090", "3090"], task="serve", models=model, params=(30e9, 35e9))
    assert both.ceiling.basis == "ceiling, bandwidth 1,010 and 936 GB/s"
    taken = both.ceiling.bytes_per_token
    assert 936e9 / taken < both.ceiling.tokens_per_second < 1010e9 / taken
    assert both.ceiling.tokens_per_second == pytest.approx(2 / (1 / 1010e9 + 1 / 936e9) / taken, rel=0.01)


def test_a_token_reads_a_row_of_every_layers_table():
    (row,) = vramwise.fit("4060", task="serve", models=["google/gemma-3n-E4B"], params=(7e9, 8e9))
    assert row.is_whole
    assert row.ceiling.bytes_per_token == pytest.approx(5.08e9, rel=0.02)  # Q8_0: 1.06 bytes of 4.5 billion, and cache


def test_experts_on_the_host_have_no_ceiling(capsys):
    rows = rows_of(capsys, "--gpu", "4060", "--family", "qwen3_moe", "--params", "30b", "--task", "serve")
    partly = [row for row in rows if row["n_cpu_moe"]]
    assert partly
    assert all(row["tokens_per_second"] is None and row["host_bytes"] > 0 for row in partly)


def test_the_list_keeps_to_80_columns_and_its_command_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    screen = printed(capsys, "--gpu", "4060", *SMALL)
    assert max(map(len, screen.splitlines())) <= 80
    assert "ceiling, bandwidth 272 GB/s" in " ".join(screen.split())
    words = shlex.split(screen[screen.index("next: ") + 6 :].replace("\\\n", ""))
    assert json.loads(_estimated(capsys, words))["verdict"]["word"] == "fits"


def _estimated(capsys, words):
    assert main([*words[1:], "--json"]) == 0
    return capsys.readouterr().out


def test_all_is_sorted_as_asked(capsys):
    screen = printed(capsys, "--gpu", "4060", *SMALL, "--all", "--sort", "name", "--task", "serve")
    names = [line.split("  ")[0] for line in screen.splitlines() if line.startswith("SmolLM2")]
    assert names == sorted(names)
    many = len(members("smollm2"))
    assert len(names) == many
    assert f"{many} of {many} models fit" in screen


def test_a_sorted_list_shows_so_many_of_each_precision_and_sums_up_all(capsys):
    asked = ("--gpu", "4060", "--family", "qwen3", "--params", "..9b", "--task", "serve", "--sort", "name")
    screen, few = printed(capsys, *asked, "--all"), printed(capsys, *asked, "--top", "1")
    lines = [line for line in few.splitlines() if line.startswith("Qwen3")]
    bits = {"16 bit": 16, "fp8": 8, "awq-int4": 4, "Q4_K_M": 4}
    assert [bits[line[35:].split("  ")[0]] for line in lines] == [16, 8, 4]
    assert len({line.index(" GiB") for line in lines}) == 1
    for summed in re.findall(r"^(?:run it  largest|41 of) .*", screen, re.MULTILINE):
        assert summed in few
    assert "training" not in screen + few


def test_where_no_engine_for_cuda_runs_files_have_16_bits_too(capsys):
    shown = printed(capsys, "--gpu", "m4-max", "--family", "qwen3", "--params", "..9b", "--task", "run", "--top", "1")
    assert re.search(r"Qwen3 VL 8B Instruct +BF16 ", shown)
    assert "BF16" not in printed(capsys, "--gpu", "4090", *SMALL, "--task", "run")


def test_several_cards_share_a_model(capsys):
    rows = rows_of(capsys, "--gpu", "h100", "-n", "2", "--family", "qwen2.5", "--params", "72b", "--task", "serve")
    assert rows[0]["scenario"]["serve"]["tensor_parallel_size"] == 2


def test_the_library_answers_the_same(capsys):
    rows = vramwise.fit("4060", family="smollm2", task="serve")
    assert [row.to_dict() for row in rows] == rows_of(capsys, "--gpu", "4060", *SMALL, "--task", "serve")


@pytest.mark.parametrize("params", ["7b..32b", 7e9, (7e9,), ("7b", "32b")])
def test_the_library_says_how_parameters_are_given(params):
    with pytest.raises(vramwise.VramwiseError, match="params: expected the least and the most parameters, such as"):
        vramwise.fit("4060", params=params)


def test_what_was_recorded_is_kept_and_a_broken_cache_is_none(capsys, cache):
    first = rows_of(capsys, "--gpu", "4060", *SMALL)
    files = sorted(cache.glob("*/*"))
    assert len(files) == 3
    for file, content in zip(files, (b"", b"\x80\x05junk" * 9, files[2].read_bytes()[:-7]), strict=True):
        file.write_bytes(content)
    recorded_shapes._recalled.clear()
    assert rows_of(capsys, "--gpu", "4060", *SMALL) == first
    for file in files:
        recorded_shapes._recalled.clear()
        file.chmod(0o600)
    assert rows_of(capsys, "--gpu", "4060", *SMALL) == first


def test_recalled_shapes_give_the_same_rows_in_another_process(capsys, cache):
    """What a process recorded is read by one that made its axes in another order."""
    import subprocess
    import sys

    first = rows_of(capsys, "--gpu", "4060", *SMALL)
    command = [sys.executable, "-m", "vramwise", "fit", "--gpu", "4060", *SMALL, "--json"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
    assert json.loads(again.stdout)["rows"] == first


def test_what_was_counted_is_read_and_not_counted_again(capsys, monkeypatch):
    asked = ("--gpu", "4060", *SMALL)
    first = rows_of(capsys, *asked)
    recorded_shapes._recalled.clear()
    estimation._models.clear()
    for models in memo._kept.values():
        models.clear()
    for counted in (model_states, stage_weights, largest_live_set, has_plain_product):
        monkeypatch.setattr(counted, "_function", lambda *asked, **settings: pytest.fail("counted again"))
    assert rows_of(capsys, *asked) == first


def test_a_cache_file_brings_no_code(tmp_path):
    import io
    import pickle

    class Evil:
        def __reduce__(self):
            return (print, ("never",))

    with pytest.raises(pickle.UnpicklingError, match="no part of a description"):
        recorded_shapes._Reader(io.BytesIO(pickle.dumps(Evil()))).load()


def test_nor_code_that_a_module_of_ours_imports():
    """A class of another package is found by the dotted name in which `vramwise.web.static` has it."""
    import io
    import pickle
    import subprocess

    named = b"\x80\x04\x8c\x13vramwise.web.static\x8c\x10subprocess.Popen\x93."
    assert pickle.loads(named) is subprocess.Popen
    with pytest.raises(pickle.UnpicklingError, match="no part of a description"):
        recorded_shapes._Reader(io.BytesIO(named)).load()


def test_families_are_words_of_names_and_types():
    assert family_of("meta-llama/Meta-Llama-3.1-8B") == family_of("meta-llama/Llama-3.3-70B-Instruct") == "llama"
    assert "Qwen/Qwen3-8B" in members("qwen3")
    assert "Qwen/Qwen3.5-9B" not in members("qwen3")
    assert set(members("qwen3")) < set(members("qwen"))
    assert "Qwen/Qwen3-30B-A3B" in members("qwen3_moe")


def test_nothing_fits_is_said_with_the_smallest_model(capsys):
    screen = printed(capsys, "--gpu", "4060", "--family", "deepseek", "--params", "200b..", code=3)
    assert "nothing fits; the smallest of them is DeepSeek" in screen
    assert "says what holds it" in " ".join(screen.split())
    assert rows_of(capsys, "--gpu", "4060", "--family", "deepseek", "--params", "200b..", code=3) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which card? give --gpu CARD, such as 4090"),
        (("--gpu", "4900"), 'unknown GPU "4900": did you mean'),
        (("--gpu", "4060", "--family", "qwem"), 'unknown family "qwem": did you mean qwen'),
        (("--gpu", "4060", "--params", "32b..7b"), "--params: 32b..7b ends below where it begins"),
        (("--gpu", "4060", "--params", "big"), "--params: expected a range such as 7b..32b, ..8b or 70b.., got"),
        (("--gpu", "4060", "--task", "load"), '--task: expected serve or train, got "load"'),
        (("--gpu", "4060", "--sort", "price"), "--sort: expected one of size, quantization, context, speed, name"),
        (("--gpu", "4060", "--top", "0"), '--top: expected a whole number from 1, got "0"'),
        (("--gpu", "4060", "-n", "two"), "--num-gpus: expected a whole number"),
    ],
)
def test_bad_input_is_one_line(arguments, says, capsys):
    assert main(["fit", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err


def test_what_cannot_lie_on_the_card_whole_and_a_second_of_one_description_take_no_estimate(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        catalog_fit, "estimate", lambda scenario, **kw: asked.append(scenario) or estimate(scenario, **kw)
    )
    arguments = ("--gpu", "24GiB", "--top", "1", "--task", "serve", "--family")
    printed(capsys, *arguments, "mixtral", code=3)
    assert not asked  # 46.7 billion weights, 4.8 bits and more each
    printed(capsys, *arguments, "pythia", "--params", "12b")
    assert {one["model"] for one in asked} == {"EleutherAI/pythia-12b"}


@pytest.mark.parametrize("arguments", [
    ("--gpu", "t4", "--family", "qwen", "--params", "3b..15b", "--top", "2"),
    ("--gpu", "4060", "--family", "gemma", "--top", "1"),
])  # fmt: skip
def test_what_is_passed_over_because_its_groups_are_full_changes_no_line(arguments, capsys, monkeypatch):
    monkeypatch.setattr(ahead, "MOST_PROCESSES", 1)
    shown = printed(capsys, *arguments, "--task", "serve")
    whole = catalog_fit.best_serving
    asked = []
    monkeypatch.setattr(
        catalog_fit, "estimate", lambda scenario, **kw: asked.append(scenario) or estimate(scenario, **kw)
    )
    printed(capsys, *arguments, "--task", "serve")
    few = len(asked)
    monkeypatch.setattr(catalog_fit, "best_serving", lambda question, wanted: whole(question))
    monkeypatch.setattr(catalog_fit, "may_do_well", lambda *_: True)
    assert printed(capsys, *arguments, "--task", "serve") == shown
    assert len(asked) - few > few


def test_methods_whose_lines_are_full_are_not_tried_and_change_no_line(capsys, monkeypatch):
    monkeypatch.setattr(ahead, "MOST_PROCESSES", 1)
    arguments = ("--gpu", "2x4060", "--task", "train", "--family", "qwen3", "--params", "..9b", "--top", "1")
    whole = catalog_fit.best_tuning
    asked = []
    monkeypatch.setattr(
        catalog_fit, "estimate", lambda scenario, **kw: asked.append(scenario) or estimate(scenario, **kw)
    )
    shown = printed(capsys, *arguments)
    assert {line.split()[-4] for line in shown.splitlines() if "GiB  " in line} >= {"QLoRA", "LoRA"}
    few = len(asked)
    monkeypatch.setattr(catalog_fit, "best_tuning", lambda question, wanted, replays: whole(question, replays=replays))
    monkeypatch.setattr(catalog_fit, "may_do_well", lambda *_: True)
    assert printed(capsys, *arguments) == shown
    assert len(asked) - few > 1.4 * few


@pytest.mark.parametrize("task", [(), ("--task", "train")])
def test_a_second_process_changes_no_line(task, capsys, monkeypatch):
    arguments = ("--gpu", "4060", "--family", "qwen3", "--params", "..9b", "--top", "2", *task)
    monkeypatch.setattr(ahead, "MOST_PROCESSES", 1)
    alone = printed(capsys, *arguments)
    monkeypatch.setattr(ahead, "MOST_PROCESSES", 2)
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert printed(capsys, *arguments) == alone


def test_models_are_begun_ahead_and_those_that_lines_before_rule_out_are_not():
    begun, open_ones = [], {"a", "b", "c", "d", "e"}
    found = ahead.begun_ahead((one for one in "abcde" if one in open_ones), lambda one: begun.append(one) or one, 2)
    assert next(found) == ("a", "a")
    assert begun == ["a", "b", "c"]
    open_ones.discard("d")
    assert [one for one, _ in found] == ["b", "c", "e"]


@pytest.mark.parametrize("card", ["4060", "t4"])
def test_what_is_ruled_out_by_its_bytes_does_not_run_whole(card):
    """Weights as published, or a file with its shortest context beside what llama.cpp leaves free."""
    machine = machine_of(gpu=card)
    asked = catalog_fit.candidates(machine, tasks=("serve",), whole=True)
    may = {one: catalog_fit.may_do_well(one, machine, "serve", lambda name: name != "Q3_K_M") for one in asked.ids}
    out = [model for model, able in may.items() if not able]
    assert out
    assert card != "4060" or "Qwen/Qwen3-14B-AWQ" in out  # published at 9.3 GiB
    for model in out[:: max(1, len(out) // 8)]:
        rows = catalog_fit.rows_of(model, machine, ("serve",), replays=False)
        assert not (rows and runs_well(rows)), model
