"""What a notebook and a data frame get of a result, and estimates by keywords."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import vramwise
from vramwise.errors import ScenarioError

SERVE = {"task": "serve", "gpu": "l40s", "max_model_len": 8192}


class Elements(HTMLParser):
    """Elements, attributes and text of a page; raises where an element is not closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_keywords_are_the_scenario_that_a_table_says():
    table = {"model": "llama-3.1-8b", "task": "serve", "gpu": "l40s", "serve": {"max_model_len": 8192}}
    assert vramwise.estimate("llama-3.1-8b", **SERVE).to_dict() == vramwise.estimate(table).to_dict()


def test_tables_and_nested_tables_go_with_keywords():
    flat = vramwise.estimate("llama-3.1-8b", task="train", method="lora", lora_rank=4)
    assert (
        flat.scenario == vramwise.estimate("llama-3.1-8b", task="train", train={"method": "lora"}, lora_rank=4).scenario
    )
    assert flat.scenario == vramwise.estimate("llama-3.1-8b", task="train", method="lora", lora={"rank": 4}).scenario


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"task": "serve", "gpuu": "l40s"}, "gpuu: unknown key: did you mean gpu"),
        ({"task": "serve", "micro_batch_size": 2}, "micro_batch_size: belongs to the task train, not to serve"),
        ({"gpu": "l40s"}, "task: is missing: expected train, serve, generate, load"),
        ({"task": "serve", "serve": {"max_model_len": 1}, "max_model_len": 2}, "max_model_len: is given twice"),
        ({"task": "serve", "max_model_len": "long"}, "serve.max_model_len: expected a whole number"),
        ({"task": "serve", "model": "gpt2"}, "model: is given twice"),
        ({"task": "serve", "serve": 3, "max_model_len": 2}, "serve: expected a table"),
    ],
)
def test_a_wrong_keyword_is_one_clear_error(keys, said):
    with pytest.raises(ScenarioError) as refused:
        vramwise.estimate("llama-3.1-8b", **keys)
    assert str(refused.value).startswith(said)


def test_keywords_beside_a_whole_scenario_are_refused():
    with pytest.raises(ScenarioError, match="keywords go with a model's name"):
        vramwise.estimate({"model": "gpt2", "task": "load"}, gpu="l40s")


def test_rows_are_flat_and_add_up():
    result = vramwise.estimate("llama-3.1-8b", **SERVE)
    rows = result.to_rows()
    assert {key for row in rows for key in row} == {"path", "bytes", "low", "high", "kind", "formula", "source"}
    assert all(isinstance(value, int | str) for row in rows for value in row.values())
    tops = [row for row in rows if row["path"].startswith("decode/") and row["path"].count("/") == 1]
    assert sum(row["bytes"] for row in tops) == next(row["bytes"] for row in rows if row["path"] == "decode")
    assert len({row["path"] for row in rows}) == len(rows)


def test_rows_make_a_table_of_columns():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_pylist(vramwise.estimate("gpt2", task="load").to_rows())
    assert table.column_names == ["path", "bytes", "low", "high", "kind", "formula", "source"]


@pytest.mark.parametrize("settings", [SERVE, {"task": "train", "gpu": "l40s"}, {"task": "load"}])
def test_a_notebook_shows_the_answer_the_bar_and_the_terms(settings):
    result = vramwise.estimate("gpt2", **{key: v for key, v in settings.items() if key != "max_model_len"})
    page = Elements(result._repr_html_())
    text = " ".join(page.words)
    assert f"{result.needed.expected / 2**30:,.2f}" in text
    for term in result.phases[-1].components.children:
        assert not term.bytes or result.peak_phase != result.phases[-1].name or term.name in text
    if result.verdict is not None:
        assert result.verdict.word in text
    widths = [float(w) for w in re.findall(r"width:([0-9.]+)%", result._repr_html_())]
    assert 0 < sum(widths) <= 100.01


def test_a_notebook_page_loads_nothing_and_takes_the_colours_around_it():
    page = Elements(vramwise.estimate("gpt2", **{**SERVE, "max_model_len": 1024})._repr_html_())
    assert {"script", "link", "img", "iframe", "style"}.isdisjoint(page.tags)
    assert {name for name, _ in page.attributes} <= {"style", "title", "role", "aria-label"}
    assert not any("url(" in (value or "") or "http" in (value or "") for _, value in page.attributes)
    assert not re.search(r"(?<!-)color:\s*#(fff|000)|background:\s*#(fff|000)", page.rawdata)


def test_foreign_words_are_escaped_in_a_notebook():
    result = vramwise.estimate("gpt2", task="load")
    named = replace(result.model, id="<script>alert(1)</script>\x1b[31m")
    html = replace(result, model=named, notes=("<b>&",))._repr_html_()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;&amp;" in html
