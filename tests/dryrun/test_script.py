"""`vramwise dry-run -- python FILE`: scripts as they are, and scripts that cannot go on."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("transformers")

PLAIN = """
import os
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4096, 512)
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))
        self.head = nn.Linear(512, 4096)

    def forward(self, ids):
        hidden = self.embedding(ids)
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return self.head(hidden)

net = Net().to("cuda" if torch.cuda.is_available() else "cpu")
optimizer = torch.optim.AdamW(net.parameters())
loader = torch.utils.data.DataLoader(torch.randint(0, 4096, (64, 128)), batch_size=8, num_workers=2)
os.makedirs("out", exist_ok=True)
while True:
    for ids in loader:
        ids = ids.cuda()
        loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
        print(f"loss {loss.item():.3f}")
        %s
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        open("out/log.txt", "w").write("a step")
"""
TRAINER = """
import sys
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(0, 1000, (256,))
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="bfloat16")
arguments = TrainingArguments("out", per_device_train_batch_size=4, bf16=True, logging_steps=1, report_to=[])
Trainer(model, arguments, train_dataset=Data()).train()
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512,
    "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Writes a script, runs it dry, gives the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)

    def ran(text, *words, flags=()):
        (tmp_path / "train.py").write_text(text, "utf-8")
        code = main(["dry-run", "--gpu", "4090", "--json", *flags, "--", "python", "train.py", *words])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return ran


@pytest.mark.usefixtures("warm")
def test_a_plain_loop_runs_its_first_two_steps(run, tmp_path):
    code, out, _ = run(PLAIN % "pass")
    found = json.loads(out)
    assert code == 0
    count = 2 * 4096 * 512 + 4 * (512 * 512 + 512) + 4096
    assert found["model"]["num_parameters"] == count
    moments = {phase["name"]: phase["components"] for phase in found["phases"]}
    kept = {node["name"]: node["bytes"] for node in moments["optimizer step"]["children"]}
    assert kept["weights"] == kept["gradients"] == 4 * count
    assert kept["optimizer states"] == 2 * 4 * count
    activations = next(node for node in moments["backward: layers"]["children"] if node["name"] == "activations")
    assert any("train.py:" in part["source"] for part in activations["children"])
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("warm")
def test_trainer_runs_as_it_is_and_agrees_with_the_estimate(run, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    code, out, err = run(TRAINER, str(tmp_path / "model"))
    assert code == 0, err
    from vramwise import estimate

    settings = {"precision": "bf16-mixed", "param_dtype": "bf16", "micro_batch_size": 4, "sequence_length": 256}
    expected = estimate({"model": CONFIG, "task": "train", "gpu": "4090", "train": settings})
    peak = json.loads(out)["quantities"]["peak_allocated"]["expected"]
    assert peak == pytest.approx(expected.quantities["peak_allocated"].expected, rel=0.03)


def stopped(found, line):
    """What was said of a script that stopped, on one line that begins with its own."""
    code, out, err = found
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert f"train.py:{line}: " in err
    return err


@pytest.mark.usefixtures("warm")
def test_a_decision_by_a_value_stops_with_its_line(run):
    line = "if loss.item() > 10: break"
    text = PLAIN % line
    number = text.splitlines().index("        " + line) + 1
    assert "this decides by the value of a tensor" in stopped(run(text), number)


@pytest.mark.usefixtures("warm")
def test_the_network_is_closed(run):
    assert "the network is closed" in stopped(run("import socket\nsocket.create_connection(('localhost', 9))"), 2)


@pytest.mark.usefixtures("warm")
def test_a_script_that_never_steps_ends_in_time(run):
    said = stopped(run("while True: pass", flags=("--timeout", "1")), 1)
    assert "the script was here after 1 s (--timeout)" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "python", "missing.py"], "no such file"),
        (["--", "make", "train"], "dry-run runs Python"),
        (["--precision", "bf16", "--", "python", "x.py"], "a script brings its own settings"),
        (["llama-3.2-1b", "--task", "train", "--allow-writes"], "is for a script"),
    ],
)
def test_what_is_no_script_is_one_line(words, said, capsys):
    assert main(["dry-run", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_library_that_is_there_and_cannot_be_imported_ends_no_script(run, tmp_path, monkeypatch):
    """timm needs torchvision, which may be missing; a script without either runs, in a process of its own."""
    (tmp_path / "timm" / "models").mkdir(parents=True)
    (tmp_path / "timm" / "__init__.py").write_text("import torchvision_that_nobody_has", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    code, out, err = run(PLAIN % "pass")
    assert code == 0, err
    assert json.loads(out)["quantities"]


def test_a_batch_over_one_card_and_locks_of_files_are_as_on_a_card(run):
    """DataParallel scatters to one card (pytorch/examples imagenet); filelock opens and asks of folders below Python's
    `open` (datasets)."""
    aside = "descriptor = os.open('out/lock', os.O_RDWR | os.O_CREAT); os.close(descriptor); os.statvfs('out')"
    code, out, err = run(PLAIN.replace("optimizer =", "net = nn.DataParallel(net)\noptimizer =", 1) % aside)
    assert code == 0, err
    plain = json.loads(run(PLAIN % "pass")[1])["quantities"]["peak_allocated"]
    assert json.loads(out)["quantities"]["peak_allocated"] == plain


def test_a_script_that_ends_itself_is_quoted(run):
    code, _, err = run("import argparse\nargparse.ArgumentParser().parse_args(['--nonsense'])")
    assert code == 1
    assert "(exit code 2): " in err
    assert err.strip().endswith("error: unrecognized arguments: --nonsense")
