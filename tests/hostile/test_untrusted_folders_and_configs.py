"""What a stranger's folder or config.json could run or fetch, and does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from vramwise.measure import launch
from vramwise.measure.building import config_of
from vramwise.measure.job import Job
from vramwise.models.meta_device import LEFT_OUT, class_tensors, has_transformers, no_network, without_code


def test_the_worker_imports_nothing_from_the_working_folder(tmp_path):
    """A downloaded folder may hold a torch.py; here it names the module that the worker imports first of all."""
    for name in ("torch", "transformers", "peft", "vramwise", "json"):
        (tmp_path / f"{name}.py").write_text("open('OWNED', 'w')\nraise SystemExit(1)\n")
    command = launch._command("no such job", "no such folder")
    done = subprocess.run(command, cwd=tmp_path, env=launch._safe_environment(), capture_output=True, check=False)
    assert b"no such job" in done.stderr
    assert not (tmp_path / "OWNED").exists()


def test_torchruns_children_neither(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/somewhere{os.pathsep}")
    environment = launch.job_environment(Job({}, "tiny", {"task": "train"}, "cpu", num_processes=2))
    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert "" not in environment["PYTHONPATH"].split(os.pathsep)
    assert "/somewhere" in environment["PYTHONPATH"]
    (tmp_path / "torch.py").write_text("open('OWNED', 'w')\n")
    child = [sys.executable, "-c", "import sys; print(sys.path[0])"]
    found = subprocess.run(child, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.strip() not in ("", str(tmp_path))


@pytest.mark.parametrize("key", sorted(LEFT_OUT))
def test_what_runs_code_or_fetches_is_left_out_at_every_depth(key):
    table = {key: "stranger/repository", "hidden_size": 64}
    config = {"model_type": "a", **table, "text_config": {**table, "deeper": [table, [table]]}}
    clean = {"hidden_size": 64}
    assert without_code(config) == {"model_type": "a", **clean, "text_config": {**clean, "deeper": [clean, [clean]]}}


def test_the_network_is_off_inside_and_as_before_outside(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with no_network():
        assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is False
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert "TRANSFORMERS_OFFLINE" not in os.environ


needs_transformers = pytest.mark.skipif(not has_transformers(), reason="transformers is not installed")


@needs_transformers
def test_a_config_that_names_kernels_and_code_is_built_without_them():
    hostile = {"auto_map": {"AutoConfig": "x.Y"}, "attn_implementation": "stranger/kernels", "use_kernels": True}
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, **hostile}
    made = config_of(config)
    assert made._attn_implementation is None
    assert not hasattr(made, "auto_map")
    assert made.hidden_size == 64


@needs_transformers
def test_a_model_with_another_checkpoints_backbone_is_not_guessed():
    assert (
        class_tensors({"model_type": "dpt", "backbone": "stranger/backbone", "use_pretrained_backbone": True}) is None
    )
