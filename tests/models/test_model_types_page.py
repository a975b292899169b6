"""The page of model types says nothing that the tests do not hold; types newer than it may be missing."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from model_types_page import PAGE, page, row_of, rows, unknown_types, with_images
from remote_code_pairs import REMOTE_CODE_TYPES

from vramwise.cli.main import main
from vramwise.models import supported_types
from vramwise.models.images import types_with_rule


def test_every_described_type_has_one_row_and_an_exact_one_is_compared() -> None:
    described = rows()
    assert [row.name for row in described] == sorted(supported_types())
    exact = {row.name for row in described if row.status == "exact"}
    assert exact <= set(STRATEGIES) - REMOTE_CODE_TYPES
    assert all(row.reason for row in described if row.status == "close")
    assert not set(unknown_types()) & set(supported_types())
    assert f"Of {len(described)} described types, {len(exact)} are exact" in page()


def test_types_that_train_with_images_have_a_rule_for_tokens() -> None:
    line = with_images().partition("byte for byte for\n")[2].partition(".\n")[0]
    assert set(re.findall("`(.*?)`", line)) <= set(types_with_rule())
    assert "`idefics2`" in line


def test_what_the_published_page_calls_exact_is() -> None:
    published = re.findall(r"^\| `([^`]*)` \| exact", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(published) > 200
    assert all(row_of(name).status == "exact" for name in published), "python tests/models/model_types_page.py"


def test_the_command_lists_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--types", "qwen3"]) == 0
    listed = capsys.readouterr().out.split()
    assert {"qwen3", "qwen3_moe", "qwen3_next"} <= set(listed)
    assert "llama" not in listed
    assert main(["models", "--types", "no-such-type"]) == 2
    assert 'unknown model type "no-such-type"' in capsys.readouterr().err
