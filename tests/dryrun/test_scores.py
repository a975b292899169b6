"""Metrics and corpora that are not on this machine do not end a dry run (small packages of their names stand here)."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

from vramwise.dryrun.not_here import NotHere
from vramwise.dryrun.scores import MissingScores
from vramwise.errors import VramwiseError

EVALUATE = """
def load(path, config_name=None):
    if path == "mine":
        return "a metric"
    raise FileNotFoundError(f"Module '{path}' doesn't exist on the Hugging Face Hub either.")
"""
DATA = """
def find(name):
    raise LookupError(name)
"""

DATASETS = """
from datasets import load

def load_dataset(path, cache_dir=None, **given):
    return given

class Dataset:
    @staticmethod
    def map(work, **given):
        return given

    filter = map
"""


@pytest.fixture
def missing(tmp_path, monkeypatch):
    (tmp_path / "evaluate.py").write_text(EVALUATE, "utf-8")
    (tmp_path / "nltk").mkdir()
    (tmp_path / "nltk" / "__init__.py").write_text("from nltk import data", "utf-8")
    (tmp_path / "nltk" / "data.py").write_text(DATA, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("evaluate", "nltk", "nltk.data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = MissingScores()
    with found.stood_in_for():
        yield found
    for name in ("evaluate", "nltk", "nltk.data"):
        sys.modules.pop(name, None)


def test_a_metric_that_is_not_here_takes_everything_and_gives_nan(missing):
    evaluate = importlib.import_module("evaluate")
    assert evaluate.load("mine") == "a metric"
    metric = evaluate.load("glue", "mrpc")
    metric.add_batch(predictions=[1], references=[1])
    found = metric.compute()
    assert math.isnan(found["accuracy"])
    assert list(found) == []
    assert missing.remarks() == ["not on this machine, so that its numbers are nan: metric glue"]


def test_a_corpus_is_there_until_it_is_read(missing):
    data = importlib.import_module("nltk").data
    corpus = data.find("tokenizers/punkt_tab/english/")
    with pytest.raises(VramwiseError, match=r"nltk\.downloader punkt_tab"):
        Path(corpus).read_text("utf-8")


def test_work_on_a_data_set_stays_in_this_process(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text(DATASETS, "utf-8")
    (tmp_path / "datasets" / "load.py").write_text("load_dataset = None", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("datasets", "datasets.load"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    changed = {name: new for _, name, new in NotHere()._data_sets()}
    assert changed["map"](str, batched=True, num_proc=4) == {"batched": True}
    assert changed["load_dataset"]("json", num_proc=4, split="train") == {"split": "train"}
    for name in ("datasets", "datasets.load"):
        sys.modules.pop(name, None)
