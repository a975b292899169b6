"""`vramwise compare`: logs become scenarios, and printed numbers stand beside predicted ones."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
from sample_logs import LLAMA_CPP, SGLANG, VLLM, VLLM_REFUSED, VLLM_V0

from vramwise.cli.main import main
from vramwise.errors import SourceError, VramwiseError
from vramwise.interop.logs import compare_log, read_log
from vramwise.units import GIB, MIB


@pytest.fixture
def log(tmp_path):
    def write(text):
        path = tmp_path / "server.log"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_a_vllm_log_gives_its_settings_and_budget(log):
    reading = read_log(log(VLLM))
    assert (reading.engine, reading.version, reading.model) == ("vllm", "0.11.2", "meta-llama/Llama-3.1-8B-Instruct")
    assert reading.settings["max_model_len"] == 32768
    assert reading.settings["gpu_memory_utilization"] == 0.9
    assert reading.total_bytes == round(79.18 * GIB)
    values = {name: printed.value for name, printed in reading.printed.items()}
    assert values["kv_cache_bytes"] == pytest.approx(51.40 * GIB)
    assert values["kv_cache_tokens"] == 421_056
    assert values["max_concurrency"] == 12.85
    assert values["activation_peak"] == pytest.approx(4.76 * GIB)
    assert reading.missing == []


def test_the_log_says_which_engine_ran(log):
    assert read_log(log(VLLM)).settings["use_v1"] is True
    assert read_log(log(VLLM.replace("a V1 LLM", "a V0 LLM"))).settings["use_v1"] is False


def test_predictions_stand_beside_what_vllm_printed(log):
    rows = {row.quantity: row for row in compare_log(log(VLLM)).rows}
    assert abs(rows["weights"].error) < 0.001
    assert abs(rows["kv_cache_bytes"].error) < 0.01
    assert "what the log does not print" in rows["kv_cache_bytes"].explanation or rows["kv_cache_bytes"].agrees


def test_counts_are_explained_by_the_pool_that_was_printed(log):
    """The pool of the log holds the count of the log; half a pool would hold half of it, as the estimate says too."""
    for text, share in ((VLLM, 1.0), (VLLM.replace("421,056 tokens", "210,528 tokens"), 2.0)):
        row = next(row for row in compare_log(log(text)).rows if row.quantity == "kv_cache_tokens")
        sentence, _, percent = row.explanation.partition(": ")
        assert sentence == "with the printed pool"
        assert float(percent.removesuffix(" %").replace("−", "-")) == pytest.approx(100 * (share - 1), abs=0.1)


def test_types_of_llama_cpps_cache_are_read_from_its_line(log):
    assert read_log(log(LLAMA_CPP)).settings["cache_type_k"] == "f16"
    settings = read_log(log(LLAMA_CPP.replace("K (f16)", "K (q8_0)").replace("V (f16)", "V (q4_0)"))).settings
    assert (settings["cache_type_k"], settings["cache_type_v"]) == ("q8_0", "q4_0")


def test_version_0_prints_its_terms_in_sentences(log):
    reading = read_log(log(VLLM_V0))
    assert reading.version == "0.7.3"
    assert reading.settings["max_model_len"] == 8192
    assert reading.printed["kv_cache_blocks"].value == 28355
    assert reading.printed["non_torch"].value == pytest.approx(0.08 * GIB)
    assert any("graph" in label for label in reading.missing)


def test_a_refused_start_gives_the_longest_length(log):
    comparison = compare_log(log(VLLM_REFUSED), {"gpu": "rtx-4090"})
    assert comparison.reading.printed["max_seq"].value == 37008
    assert any("the engine stopped" in note for note in comparison.notes)


def test_ranks_of_one_start_are_read_as_the_fullest(log):
    second = VLLM.replace("14.9889 GiB", "15.1000 GiB").replace("51.40 GiB", "51.20 GiB")
    reading = read_log(
        log("\n".join(a + "\n" + b for a, b in zip(VLLM.splitlines(), second.splitlines(), strict=True)))
    )
    assert reading.printed["weights"].value == pytest.approx(15.10 * GIB)
    assert reading.printed["kv_cache_bytes"].value == pytest.approx(51.20 * GIB)
    assert any("different values" in note for note in reading.notes)


def test_an_sglang_log(log):
    comparison = compare_log(log(SGLANG))
    reading = comparison.reading
    assert reading.settings["mem_fraction_static"] == 0.85
    assert reading.settings["max_model_len"] == 32768
    rows = {row.quantity: row for row in comparison.rows}
    assert rows["kv_cache_tokens"].printed.value == 983478
    assert abs(rows["weights"].error) < 0.02
    assert abs(rows["kv_cache_bytes"].error) < 0.02


def test_a_llama_cpp_log(log):
    comparison = compare_log(log(LLAMA_CPP))
    assert comparison.result.scenario["serve"]["gguf_quant"] == "Q4_K_M"
    rows = {row.quantity: row for row in comparison.rows}
    assert rows["weights_gpu"].printed.value == pytest.approx(4403.49 * MIB)
    for name in ("weights_gpu", "weights_host", "kv_cache_bytes", "compute_buffer", "host_buffer"):
        assert abs(rows[name].error) < 0.005, name
    assert comparison.reading.missing == []


@pytest.mark.parametrize(
    ("printed", "taken"),
    [
        ("Q4_K - Small", "Q4_K_S"), ("Q3_K - Large", "Q3_K_L"), ("Q2_K - Medium", "Q2_K"), ("Q2_K - Small", "Q2_K_S"),
        ("Q5_K - Small (guessed)", "Q5_K_S"), ("Q8_0", "Q8_0"), ("Q6_K", "Q6_K"), ("all F32", "F32"), ("BF16", "BF16"),
        ("IQ3_S mix - 3.66 bpw", "IQ3_M"), ("IQ2_XS - 2.3125 bpw", "IQ2_XS"),
    ],
)  # fmt: skip
def test_the_file_type_is_the_one_that_llama_cpp_prints(log, printed, taken):
    """llama.cpp src/llama-model-loader.cpp `llama_model_ftype_name`; the file's own name says nothing here."""
    text = LLAMA_CPP.replace("Q4_K - Medium", printed).replace("-Q4_K_M.gguf", ".gguf")
    assert read_log(log(text)).settings["gguf_quant"] == taken


@pytest.mark.parametrize(
    ("printed", "shown"), [("96.00", "96.00 MiB"), ("102.00", "102.00 MiB"), ("103.00", "0.10 GiB")]
)
def test_a_size_is_shown_in_the_unit_that_shows_something(log, capsys, printed, shown):
    """From a tenth of a GiB on."""
    main(["compare", log(LLAMA_CPP.replace("258.50", printed))])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("compute buffer"))
    assert shown in row


def test_a_draft_model_after_the_main_one_is_not_added(log):
    draft = LLAMA_CPP.replace("4.58 GiB", "0.70 GiB").replace("4403.49", "600.00").replace("3.1-8B", "3.2-1B")
    reading = read_log(log(LLAMA_CPP + draft))
    assert reading.printed["weights_gpu"].value == pytest.approx(4403.49 * MIB)
    assert any("the largest is read" in note for note in reading.notes)


def test_interleaved_logs_are_read_one_engine_at_a_time(log, capsys):
    lines = [line for pair in zip(VLLM.splitlines(), SGLANG.splitlines(), strict=False) for line in pair]
    path = log("\n".join(lines))
    for engine, version in (("vllm", "0.11.2"), ("sglang", None)):
        assert main(["compare", path, "--set", f"engine={engine}", "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        assert (table["engine"], table["engine_version"]) == (engine, version)
        assert any("are in the log too" in note for note in table["notes"])


def test_a_cut_log_says_what_was_not_found(log, capsys):
    cut = "\n".join(VLLM.splitlines()[:3])
    assert main(["compare", log(cut)]) == 0
    out = capsys.readouterr().out
    assert "model weights" in out
    assert "not found" in out
    assert "available KV cache memory" in out


def test_json_holds_rows_and_scenario(log, capsys):
    assert main(["compare", log(VLLM), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["scenario"]["serve"]["engine_version"] == "0.11.2"
    assert {row["quantity"] for row in table["rows"]} >= {"weights", "kv_cache_bytes", "cuda_graph"}
    assert all(row["predicted"] for row in table["rows"])


def test_settings_that_the_log_leaves_open_can_be_given(log, capsys):
    assert main(["compare", log(VLLM), "--set", "max_num_seqs=128", "--gpu", "a100-80gb", "--json"]) == 0
    scenario = json.loads(capsys.readouterr().out)["scenario"]
    assert scenario["serve"]["max_num_seqs"] == 128
    assert "a100" in scenario["gpu"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nginx: the configuration file syntax is ok\n", VramwiseError),
        ("", VramwiseError),
        (bytes(range(1, 9)) * 4096, SourceError),
    ],
)
def test_a_log_of_another_program_is_one_sentence(log, text, error):
    with pytest.raises(error):
        read_log(log(text))


def test_a_file_that_is_not_there_ends_with_4(capsys):
    assert main(["compare", "no/such/file.log"]) == 4


def test_a_log_without_model_asks_for_it(log, capsys):
    assert main(["compare", log("INFO Model loading took 1.0 GiB\n")]) == 2
    assert "--model" in capsys.readouterr().err


def test_random_cuts_and_noise_never_break_the_reader(log):
    source = random.Random(7)
    text = VLLM + SGLANG + LLAMA_CPP
    for _ in range(30):
        start = source.randrange(len(text))
        noise = "".join(chr(source.randrange(32, 0x2FF)) for _ in range(200))
        piece = text[start : start + source.randrange(2000)]
        with contextlib.suppress(VramwiseError):  # that no engine's line is in it
            assert read_log(log(piece + noise + piece[::-1])).lines


def test_long_lines_and_escape_codes_are_bounded(log):
    line = "\x1b[32mModel loading took 1.5 GiB\x1b[0m " + "model='" * 200_000
    reading = read_log(log(line + "\nInitializing a V1 LLM engine (v0.11.2) with config: " + "a=" * 500_000))
    assert reading.printed["weights"].value == 1.5 * GIB


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("/workspace/models/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/aa8e7253", "Qwen/Qwen3-8B"),
        ("/root/autodl-tmp/qwen/Qwen2___5-3B/", "Qwen2.5-3B"),
    ],
)
def test_a_path_of_another_machine_is_the_known_model_of_that_name(log, path, taken):
    comparison = compare_log(log(VLLM.replace("meta-llama/Llama-3.1-8B-Instruct", path)))
    assert comparison.result.scenario["model"].endswith(taken)
    assert any("is not on this machine" in note and taken in note for note in comparison.notes)


def test_a_path_that_names_no_known_model_is_refused(log):
    with pytest.raises(SourceError, match="/models/mine-distill-merged"):
        compare_log(log(VLLM.replace("meta-llama/Llama-3.1-8B-Instruct", "/models/mine-distill-merged")))


def test_versions_and_arguments_of_built_engines_are_read(log):
    built = VLLM.replace("(v0.11.2)", "(v0.26.1rc1.dev156+g74b5964f0)").replace(
        "{'model_tag'",
        "{'pooler_config': Pooler(a='LAST'), 'limit_mm_per_prompt': {'image': 0}, 'max_num_seqs': 12, 'model_tag'",
    )
    reading = read_log(log(built))
    assert reading.version == "0.26.1rc1.dev156"
    assert reading.settings["max_num_seqs"] == 12
    assert reading.settings["limit_mm_per_prompt"] == {"image": 0}
    assert reading.settings["gpu_memory_utilization"] == 0.9


def test_the_log_says_whether_flashinfer_samples_and_how_many_sequences_are_captured(log):
    told = VLLM.replace("seed=0", "seed=0, compilation_config={'max_cudagraph_capture_size': 128}") + (
        "(EngineCore_0 pid=1) INFO 09-04 [topk_topp_sampler.py:50] Using FlashInfer for top-p & top-k sampling.\n"
    )
    reading = read_log(log(told))
    assert reading.settings["flashinfer_sampler"] is True
    assert reading.settings["max_num_seqs"] == 64


def test_the_log_says_how_tokens_are_drafted(log):
    drafting = "{'method': 'eagle3', 'model': 'a/b', 'num_speculative_tokens': 5, 'draft_tensor_parallel_size': 1}"
    told = VLLM.replace("'gpu_memory_utilization': 0.9}", f"'speculative_config': {drafting}}}")
    assert read_log(log(told)).settings["speculative"] == {"method": "eagle3", "model": "a/b", "num_tokens": 5}


@pytest.mark.parametrize("text", [VLLM, VLLM_V0, SGLANG, LLAMA_CPP])
def test_a_log_becomes_a_measured_case_that_accuracy_reads(log, text, tmp_path, capsys):
    cases = tmp_path / "cases.jsonl"
    given = ["compare", log(text), "--gpu", "h100-sxm-80gb"]
    for _ in range(2):
        assert main([*given, "--save-case", str(cases)]) == 0
    assert "replace its source" in capsys.readouterr().out
    first, second = map(json.loads, cases.read_text().splitlines())
    assert second["id"] == f"{first['id']}-2"
    printed = read_log(log(text)).printed
    assert first["measured"].keys() == printed.keys()
    assert all(abs(first["measured"][name] - one.value) <= 0.5 for name, one in printed.items())
    assert first["quote"].count(" | ") + 1 == len({one.line for one in printed.values()})
    assert main(["accuracy", str(cases), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 2


def test_a_case_is_of_a_log(log, tmp_path, capsys):
    result = tmp_path / "a.json"
    assert main(["estimate", "gpt2", "--task", "load", "--json"]) == 0
    result.write_text(capsys.readouterr().out)
    cases = tmp_path / "cases.jsonl"
    assert main(["compare", str(result), str(result), "--save-case", str(cases)]) == 2
    assert "--save-case belongs to a log" in capsys.readouterr().err
    assert not cases.exists()


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_log_without_a_word_is_said_to_be_empty(content, tmp_path):
    file = tmp_path / "empty.log"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SourceError, match=r"empty\.log: the file is empty$"):
        read_log(str(file))
