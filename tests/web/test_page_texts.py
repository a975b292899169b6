"""Every text of the page stands in both catalogs, and nothing of the page breaks its policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import vramwise.web
from vramwise.web.api import answer

PAGE = Path(vramwise.web.__file__).parent / "page"
CATALOGS = {name: json.loads((PAGE / "i18n" / f"{name}.json").read_text("utf-8")) for name in ("en", "zh")}
SCRIPTS = [path for path in sorted(PAGE.rglob("*.js")) if path.parent.name != "vendor"]


def test_both_languages_have_the_same_texts_and_values():
    en, zh = CATALOGS["en"], CATALOGS["zh"]
    assert en.keys() == {key for key in zh if not key.startswith("help.")}
    assert all(text.strip() for catalog in (en, zh) for text in catalog.values())
    assert [key for key in en if set(re.findall(r"\{\w+\}", en[key])) != set(re.findall(r"\{\w+\}", zh[key]))] == []


def test_the_help_of_every_setting_is_there_in_chinese():
    paths = {f"{one['table']}.{one['key']}".removeprefix(".") for one in answer("keys", {})["keys"]}
    assert {f"help.{path}" for path in paths} == {key for key in CATALOGS["zh"] if key.startswith("help.")}


def test_every_text_that_a_script_or_the_page_names_is_there():
    whole = "\n".join(path.read_text("utf-8") for path in SCRIPTS)
    named = {*re.findall(r'\b(?:t|composed)\("([\w.]+)"', whole)}
    named |= set(re.findall(r'data-t(?:-label)?="([\w.]+)"', (PAGE / "index.html").read_text("utf-8")))
    assert named - CATALOGS["en"].keys() == set()
    groups = {*re.findall(r"\bt\(`(\w+)\.", whole)}
    assert {group for group in groups if not any(key.startswith(f"{group}.") for key in CATALOGS["en"])} == set()


def test_no_text_is_left_that_nobody_shows():
    whole = "\n".join(path.read_text("utf-8") for path in (*SCRIPTS, PAGE / "index.html"))
    groups = {*re.findall(r'named\("(\w+)"', whole), *re.findall(r"`(\w+)\.\$\{", whole), "start"}
    unused = [key for key in CATALOGS["en"] if f'"{key}"' not in whole and key.split(".")[0] not in groups]
    assert [key for key in unused if f".{key.split('.')[1].split('_')[0]}" not in whole] == []


@pytest.mark.parametrize("path", [*SCRIPTS, PAGE / "index.html"], ids=lambda path: path.name)
def test_nothing_inline_and_nothing_foreign(path):
    text = path.read_text("utf-8")
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    if path.name == "index.html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    assert [url for url in re.findall(r"https?://[\w./-]+", text) if "www.w3.org" not in url] == []
