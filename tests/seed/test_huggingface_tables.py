"""S2, S3, S14: the Model Memory Calculator's figures from the command line."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main


def screen(capsys, *arguments):
    assert main(["estimate", *arguments, "--style", "huggingface"]) == 0
    return capsys.readouterr().out


def cells(screen_text, dtype):
    """The words of both rows that begin with `dtype`."""
    return [line.removeprefix(dtype).split("  ") for line in screen_text.splitlines() if line.startswith(dtype)]


def test_s2_llama_2_7b_in_16_bit(capsys):
    (row, _) = cells(screen(capsys, "meta-llama/Llama-2-7b-hf"), "float16/bfloat16")
    assert [cell.strip() for cell in row if cell.strip()] == ["388.02 MB", "12.37 GB", "49.48 GB", "12.55 GB"]


def test_s2_bert_base_cased(capsys):
    (row, _) = cells(screen(capsys, "google-bert/bert-base-cased"), "float32")
    assert [cell.strip() for cell in row if cell.strip()][:2] == ["86.47 MB", "413.18 MB"]


@pytest.mark.parametrize("model", ["meta-llama/Llama-2-7b-hf", "llama 2 7b"])
def test_s3_the_stages_of_training_with_adam(model, capsys):
    text = screen(capsys, model)
    (_, stages) = cells(text, "float16/bfloat16")
    assert [cell.strip() for cell in stages if cell.strip()] == ["24.74 GB", "37.11 GB", "49.48 GB", "49.48 GB"]
    for stage in ("model:", "gradient calculation:", "backward pass:", "optimizer step:"):
        assert f"  {stage} " in text


def test_the_true_count_stands_beside_it(capsys):
    text = screen(capsys, "meta-llama/Llama-2-7b-hf")
    assert "6,738,415,616" in text
    assert "transformers 5 it prints 386.02 MB, 12.31 GB and 49.23 GB" in " ".join(text.split())


def test_s14_twenty_per_cent_for_inference_is_a_rule(capsys):
    main(["estimate", "meta-llama/Llama-2-7b-hf", "--style", "huggingface", "--json"])
    tables = json.loads(capsys.readouterr().out)
    assert tables["inference_bytes"] == pytest.approx(1.2 * tables["rows"][1]["total_bytes"], rel=1e-12)
    assert tables["today"]["transformers"] == "5"
