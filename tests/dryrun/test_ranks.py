"""`dry-run -- torchrun …` and `-- accelerate launch …`: one rank of many, what it keeps and what the others keep."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.cli.screens.dry_run import _places
from vramwise.result import Node

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SCRIPT = """
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
net = nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)))
kind, optimizer = sys.argv[1], torch.optim.AdamW
if kind in ("ddp", "zero"):
    net = DistributedDataParallel(net.to(local), device_ids=[local])
elif kind == "fsdp1":
    net = FullyShardedDataParallel(net, device_id=local, use_orig_params=True)
else:
    for layer in net:
        fully_shard(layer)
    net = fully_shard(net)
if kind == "zero":
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=optimizer, lr=1e-3)
else:
    optimizer = optimizer(net.parameters())
known = [None] * dist.get_world_size()
dist.all_gather_object(known, {"rank": dist.get_rank()})
assert None not in known
while True:
    loss = net(torch.randn(8, 512, device="cuda")).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    dist.all_reduce(loss)
    print(f"{loss.item():.3f} {norm.item()}")
    optimizer.step()
    optimizer.zero_grad()
"""
TRAINER = """
import sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        ids = torch.randint(0, 1000, (256,))
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}

model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]), dtype="bfloat16")
arguments = TrainingArguments("out", per_device_train_batch_size=4, bf16=True, logging_steps=1, report_to=[])
Trainer(model, arguments, train_dataset=Data()).train()
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512,
    "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
PARAMETERS = 4 * (512 * 2048 + 2048 + 2048 * 512 + 512)
RUNS = {
    "ddp": (0, ["torchrun", "--nproc-per-node", "8", "train.py", "ddp"]),
    "zero": (5, ["python", "-m", "torch.distributed.run", "--nproc_per_node=8", "train.py", "zero"]),
    "fsdp1": (3, ["torchrun", "--nproc-per-node=4", "train.py", "fsdp1"]),
    "fsdp2": (1023, ["torchrun", "--nnodes=128", "--nproc-per-node=8", "train.py", "fsdp2"]),
    "trainer": (1, ["accelerate", "launch", "--num_processes", "2", "--multi_gpu", "trainer.py", "model"]),
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(SCRIPT, "utf-8")
    (folder / "trainer.py").write_text(TRAINER, "utf-8")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "commands.json").write_text(json.dumps(list(RUNS.values())), "utf-8")
    words = [sys.executable, str(Path(__file__).with_name("in_ranks.py")), "commands.json", str(folder / "files")]
    quiet = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    found = warm_python.run(words, cwd=folder, env=quiet)
    assert found.returncode == 0, found.stderr[-2000:]
    return dict(zip(RUNS, json.loads(found.stdout), strict=True))


def at(answer, moment):
    assert answer["report"]["failure"] is None
    return next(one["categories"] for one in answer["moments"] if one["name"] == moment)


def test_every_rank_of_ddp_keeps_everything_and_buckets(answered):
    kept = at(answered["ddp"], "optimizer step")
    assert kept["weights"] == kept["gradients"] == kept["gradient buckets"] == 4 * PARAMETERS
    assert kept["optimizer states"] == 2 * 4 * PARAMETERS
    assert answered["ddp"]["ranks"] == {"world": 8, "of_a_node": 8, "rank": 0}


def test_zero_redundancy_keeps_the_states_of_its_own_parameters(answered):
    kept = at(answered["zero"], "optimizer step")
    assert kept["weights"] == 4 * PARAMETERS
    assert kept["optimizer states"] == pytest.approx(2 * 4 * PARAMETERS / 8, rel=0.01)


ROWS_OF_LAST_RANK = 2048 // 1024
"""Of the first matrix and its bias; the second matrix has 512 rows, which the first 512 ranks hold."""


@pytest.mark.parametrize(
    ("name", "share"),
    [("fsdp1", PARAMETERS // 4 * 4), ("fsdp2", 4 * (ROWS_OF_LAST_RANK * 512 * 4 + 512))],
)
def test_fsdp_keeps_a_share_of_everything(answered, name, share):
    kept = at(answered[name], "optimizer step")
    assert kept["weights"] == pytest.approx(share, abs=512)
    assert kept["gradients"] >= kept["weights"]  # FSDP 2: a piece of one buffer, which has a row for every rank
    assert at(answered[name], "backward: layers")["weights"] == kept["weights"]


def test_trainer_on_two_cards_agrees_with_the_estimate(answered):
    settings = {"precision": "bf16-mixed", "param_dtype": "bf16", "micro_batch_size": 4, "sequence_length": 256}
    expected = estimate({"model": CONFIG, "task": "train", "num_gpus": 2, "train": settings})
    moments = {phase.name: {node.name: node.bytes for node in phase.components.children} for phase in expected.phases}
    kept, said = at(answered["trainer"], "optimizer step"), moments["optimizer step"]
    tensors = 2 * 9 + 3
    for name in ("weights", "gradients", "optimizer states", "gradient buckets"):
        assert kept[name] == pytest.approx(said[name], rel=1e-3, abs=512 * tensors), name
    outside = {"CUDA context", "NCCL", "library workspace"}
    expected_peak = sum(size for name, size in moments["backward: head"].items() if name not in outside)
    assert sum(at(answered["trainer"], "backward: layers").values()) == pytest.approx(expected_peak, rel=0.01)


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "torchrun", "--nproc-per-node", "gpu", "train.py"], "give their number"),
        (["--", "torchrun", "--nproc-per-node", "2048", "train.py"], "1 to 1,024 ranks"),
        (["--rank", "8", "--", "torchrun", "--nproc-per-node", "8", "train.py"], "ranks 0 to 7"),
    ],
)
def test_launchers_that_cannot_be_followed_are_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("", "utf-8")
    assert main(["dry-run", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rank", "1", "--", "python", "train.py"], "a launcher starts"),
        (["--rank", "x", "--", "torchrun", "train.py"], "--rank: expected a whole number"),
        (["--rank", "1", "llama-3.2-1b", "--task", "train"], "--rank is for a script"),
        (["--", "accelerate", "config"], "only accelerate launch"),
    ],
)
def test_ranks_without_a_launcher_are_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("", "utf-8")
    assert main(["dry-run", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_what_no_code_asked_for_has_no_line_among_the_places():
    groups = Node("NCCL groups", 2**25, "derived", source="nccl src/graph/tuning.cc")
    code = Node("net.up mm", 2**20, "derived", inputs={"count": 4}, source="net.py:12")
    parts = [Node(name, part.bytes, "derived", children=(part,)) for name, part in (("NCCL", groups), ("a", code))]
    peak = SimpleNamespace(name="forward", components=SimpleNamespace(children=parts))
    shown = _places(SimpleNamespace(peak_phase="forward", phases=[peak]))
    assert ["net.py:12" in str(line) for line in shown[-1:]] == [True]
    assert not any("NCCL groups" in str(line) for line in shown)
