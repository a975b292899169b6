"""The documentation's list of measured values in a browser: chosen, searched and counted there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def values(chromium, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/site"))
    import cases

    made = cases.pages(ROOT)
    (tmp_path / "cases.js").write_text(made["reference/cases.js"], "utf-8")
    html = made["reference/cases.md"].partition("<div")[2]
    (tmp_path / "cases.html").write_text(f"<!doctype html><meta charset=utf-8><div{html}", "utf-8")
    tab = chromium.new_page()
    tab.goto((tmp_path / "cases.html").as_uri())
    yield tab.locator("#measured")
    tab.close()


def count(values):
    found = re.match(r"([\d,]+) values", values.get_by_role("status").text_content())
    return int(found[1].replace(",", "")) if found else 0


def test_values_are_chosen_by_engine_quantity_and_words(values):
    assert count(values) > 3_000
    values.get_by_label("engine").select_option("vllm")
    values.get_by_label("quantity").select_option("weights")
    values.get_by_role("searchbox").fill("qwen3 l40s")
    rows = values.locator("tbody tr").all_text_contents()
    assert 0 < len(rows) == count(values) < 100
    assert all("vllm" in row and "weights" in row and "qwen3" in row.lower() for row in rows)


def test_those_outside_their_interval_come_by_the_size_of_the_error(values):
    every = count(values)
    values.get_by_role("checkbox").check()
    assert 0 < count(values) < every / 5
    assert "; 0 % inside" in values.get_by_role("status").text_content()
    shown = values.locator("tbody tr td:nth-child(7)").all_text_contents()
    sizes = [abs(float(text.rstrip(" %"))) for text in shown if text != "–"]
    assert sizes == sorted(sizes, reverse=True)
    values.get_by_role("button", name="error").click()
    values.get_by_role("button", name="error").click()
    assert count(values) > 0
