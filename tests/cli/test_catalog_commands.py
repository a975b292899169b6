"""`vramwise models`, `gpus` and `dtypes`: what they print, and that --json prints nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from vramwise.cli import listing
from vramwise.cli.main import main
from vramwise.models import supported_types
from vramwise.sources.pipelines import pipelines


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_gpus_tells_memory_three_ways(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "gpus", "h100-sxm").splitlines()
    heads = next(line for line in lines if line.startswith("GPU"))
    row = next(line for line in lines if line.startswith("h100-sxm-80gb"))
    assert heads.split()[1:7] == ["sold", "GB", "driver", "GiB", "usable", "GiB"]
    assert row.split()[1:4] == ["80", "79.65", "79.20"]
    assert any(line.startswith("context  about 0.61 GiB") for line in lines)


def test_gpus_without_a_query_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed(capsys, "gpus").splitlines()) >= 120


def test_gpus_takes_the_names_people_use(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "gpus", "NVIDIA H100 80GB HBM3", "--json"))
    assert [row["id"] for row in rows] == ["h100-sxm-80gb"]
    assert rows[0]["usable"]["low"] <= rows[0]["usable_bytes"] <= rows[0]["usable"]["high"]
    assert rows[0]["support"]["flash_attention_3"] == "yes"
    assert rows[0]["tflops"]["bf16"] == pytest.approx(989.4)


def test_shared_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    one = printed(capsys, "gpus", "m4-max-64gb")
    assert "usable   48.00 – 51.84 GiB: printed by Metal for this size" in one
    assert "context  none: no CUDA" in one


@pytest.mark.parametrize(
    ("command", "name", "what"), [("gpus", "no-such-card", "GPU"), ("models", "no-such-model", "model")]
)
def test_an_unknown_name_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], command: str, name: str, what: str
) -> None:
    assert main([command, name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f'vramwise: unknown {what} "{name}"  (vramwise {command} lists all)\n'


def test_models_tells_which_families_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "models", "--json"))
    assert len(rows) >= 600
    known = {*supported_types(), *(one.model_type for one in pipelines())}
    assert {row["described"] for row in rows if row["model_type"] in known} == {True}
    assert {row["described"] for row in rows if row["model_type"] not in known} <= {False}
    text = printed(capsys, "models", "meta-llama/", "3.1", "8b")
    assert "meta-llama/Llama-3.1-8B" in text
    assert text.splitlines()[-1].startswith("2 models, ")


def test_models_fit_in_80_columns_and_say_context_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "models").splitlines()
    assert max(len(line) for line in lines[:-1]) <= 80
    row = next(line for line in lines if line.startswith("Qwen/Qwen3-8B-FP8 "))
    assert row.split() == ["Qwen/Qwen3-8B-FP8", "40,960", "fp8"]


def test_dtypes_has_the_bytes_of_the_articles(capsys: pytest.CaptureFixture[str]) -> None:
    tables = json.loads(printed(capsys, "dtypes", "--json"))
    sizes = {row["name"]: row["bytes_per_value"] for row in tables["dtypes"]}
    assert (sizes["fp32"], sizes["fp16"], sizes["bf16"], sizes["int8"], sizes["int4"]) == (4, 2, 2, 1, 0.5)
    assert {row["name"]: row["used_bits"] for row in tables["dtypes"]}["tf32"] == 19
    assert {row["name"]: row["block_bytes"] for row in tables["gguf"]}["Q4_K"] == 144
    assert {row["name"] for row in tables["quantizations"]} >= {"nf4", "gptq-int4", "awq-int4", "mxfp4", "nvfp4"}
    text = printed(capsys, "dtypes")
    assert "tf32 uses 19 bits" in text
    assert "IQ4_XS" in text


def test_numbers_are_right_aligned_and_nothing_is_cut_off() -> None:
    text = "\n".join(listing.table_blocks(("name", "GiB"), [["a-very-long-name", "1.00"], ["b", "100.00"]], {1}, 80)[0])
    assert text.splitlines() == ["name                 GiB", "a-very-long-name    1.00", "b                 100.00"]


def test_a_terminal_gets_the_same_cells(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(capsys, "gpus", "4090")
    assert "rtx-4090-d" in text
    assert "│" not in text


@pytest.mark.parametrize("command", ["models", "gpus", "dtypes"])
def test_lists_import_no_heavy_library(command: str) -> None:
    script = (
        "import sys; from vramwise.cli.main import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'transformers', 'numpy', 'rich', 'pydantic'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, command, "--json"], capture_output=True, text=True, check=True, timeout=1800
    )
    assert done.stderr.strip() == "[]"
    json.loads(done.stdout)


def test_no_two_columns_of_gpus_have_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "h100"]) == 0
    heading = re.split(r" {2,}", capsys.readouterr().out.split("\n\n")[1].splitlines()[0].strip())
    assert len(heading) == len(set(heading))


def test_image_and_video_pipelines_are_listed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "flux"]) == 0
    said = capsys.readouterr().out
    assert "black-forest-labs/FLUX.1-dev" in said
    assert said.rstrip().endswith("sources")
    assert "3 models, 3 of families that can be estimated" in said
    assert main(["models", "sdxl", "--json"]) == 0
    assert [one["described"] for one in json.loads(capsys.readouterr().out)] == [True]


def test_one_model_is_no_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "kimi-k3"]) == 0
    assert "\n1 model, 1 of families" in capsys.readouterr().out
