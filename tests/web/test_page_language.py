"""The page in Chinese: what the program says is said as the command line says it, and no English sentence is left."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import vramwise.web
from vramwise.cli import language

SENTENCES = json.loads((Path(vramwise.web.__file__).parent / "page" / "i18n" / "sentences.zh.json").read_text("utf-8"))
HOLE = re.compile(r"{(\w+)}")
SCENARIOS = {
    "tuning": "#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=lora",
    "serving": "#model=llama-3.1-8b&task=serve&gpu=rtx-4090",
    "pipeline": "#model=llama-3.1-8b&task=train&gpu=h100&num_gpus=4&train.framework=megatron"
    "&train.pipeline_parallel_size=4",
}
VIEWS = ("why", "change", "map", "cards", "compare", "right", "files", "share")
VISIBLE_TEXTS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const isOurs = !parent.closest('code, pre, textarea, script, style, select, .source');
    if (isOurs && parent.getClientRects().length) found.push(walker.currentNode.textContent);
  }
  return found;
}"""
ENGLISH = re.compile(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){2,}(?![\w=-])")


@pytest.fixture
def chinese():
    language.choose(["--lang", "zh"])
    yield
    language.choose(["--lang", "en"])


def told_as_the_program_tells():
    """Each text of the catalog with its holes filled, and some of them one after the other."""
    filled = [HOLE.sub(lambda hole: "12.5" if hole[1] in ("n", "n2") else f"x{hole[1]}", text) for text in SENTENCES]
    return [*filled, *(f"{a}; {b}" for a, b in pairwise(filled)), *(f"{a} ({b})" for a, b in pairwise(filled))]


def test_the_page_says_what_the_command_line_says(page, address, chinese):
    page.goto(f"{address}#model=gpt2")
    texts = told_as_the_program_tells()
    told = page.evaluate(
        """async (texts) => {
          const [{ loadLanguage }, { said }] = await Promise.all([import("/i18n.js"), import("/sentences.js")]);
          await loadLanguage("zh");
          return texts.map(said);
        }""",
        texts,
    )
    assert [(text, page_s) for text, page_s in zip(texts, told, strict=True) if page_s != language.said(text)] == []


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_no_english_sentence_is_left_in_any_view(page, address, scenario):
    page.goto(f"{address}{scenario}")
    page.wait_for_selector(".ready .headline")
    page.click("#language")
    page.wait_for_function("() => document.querySelector('#tab-why').textContent === '为什么'")
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")
        left = [text for text in page.evaluate(VISIBLE_TEXTS) if ENGLISH.search(text)]
        assert left == [], view


@pytest.mark.parametrize(("locale", "shown", "button"), [("zh-CN", "zh-Hans", "English"), ("de-DE", "en", "中文")])
def test_the_language_is_the_browsers_until_one_is_chosen(page, address, locale, shown, button):
    for key, value in (("language", locale), ("languages", [locale])):
        page.add_init_script(f"Object.defineProperty(navigator, '{key}', {{ value: {json.dumps(value)} }})")

    def language_of_a_page_opened_anew():
        page.goto("about:blank")
        page.goto(f"{address}#model=gpt2")
        page.wait_for_selector(".ready .headline")
        return page.get_attribute("html", "lang")

    assert language_of_a_page_opened_anew() == shown
    assert page.inner_text("#language") == button
    page.click("#language")
    page.wait_for_function("was => document.documentElement.lang !== was", arg=shown)
    assert language_of_a_page_opened_anew() == {"zh-Hans": "en", "en": "zh-Hans"}[shown]
