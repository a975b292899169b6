"""Scripts as people write them (`strangers/`): each ends in peaks that a hand count meets, or at its own line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = Path(__file__).parent
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512,
    "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
UNET = {
    "_class_name": "UNet2DModel", "sample_size": 32, "in_channels": 1, "out_channels": 1, "layers_per_block": 1,
    "block_out_channels": [32, 64], "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"], "norm_num_groups": 8,
}  # fmt: skip
BLOCK = 2 * 512 + (512 * 2048 + 2048) + (2048 * 512 + 512)
NET = 4096 * 512 + 4 * BLOCK + 512 * 4096 + 4096
GAN = (128 * 1024 + 1024 + 1024 * 784 + 784) + (784 * 1024 + 1024 + 1024 + 1)
LLAMA = 2 * 1024 * 256 + 256 + 2 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 256 * 704 + 2 * 256)
ADAPTERS = 2 * (8 * (256 + 256) + 8 * (256 + 64))
SWISH = (1024 * 4096 + 4096) + (4096 * 1000 + 1000)
PPO = (64 * 512 + 512 + 512 * 6 + 6) + (64 * 512 + 512 + 512 + 1)
DDP = {"weights": 4 * NET, "gradients": 4 * NET, "optimizer states": 8 * NET, "gradient buckets": 4 * NET}
ZERO = {"weights": 2 * NET, "optimizer states": 8 * NET / 8, "gradients": 4 * NET / 8}
"""ZeRO 2 in bf16 on eight ranks: what each holds of states and of fp32 gradients is an eighth."""


def trained(parameters, states=2, weights=4):
    """Weights and gradients of so many bytes a parameter, and states of four each."""
    kept = {"weights": weights * parameters, "gradients": 4 * parameters, "optimizer states": 4 * states * parameters}
    return {name: size for name, size in kept.items() if size}


STEPS = {
    "gan": trained(GAN),
    "wgan": trained(GAN, states=1),
    "lightning_gan": trained(GAN),
    "compiled": trained(NET),
    "compiled_fn": trained(NET),
    "scaler": trained(NET, states=1),
    "ema": trained(NET),
    "checkpoints": trained(NET),
    "evaluated": trained(NET),
    "nanloss": trained(NET),
    "configured": trained(NET),
    "masked": trained(NET),
    "custom": trained(SWISH),
    "ppo": trained(PPO),
    "norms": trained(NET),
    "halved": trained(NET),
    "zero2": ZERO,
    "lightning_bf16": trained(NET),
    "sampled": trained(LLAMA),
    "beams": trained(LLAMA),
    "summaries": trained(LLAMA),
    "windows": trained(LLAMA),
    "validated": trained(LLAMA),
    "subfolders": trained(LLAMA),
    "accelerated": trained(LLAMA),
    "adapters": {"gradients": 4 * ADAPTERS, "optimizer states": 8 * ADAPTERS, "weights": 2 * LLAMA + 4 * ADAPTERS},
    "ddp": DDP,
    "spawned": DDP,
    "tidying": trained(NET),
    "fsdp1": trained(NET / 8),
    "fsdp2": trained(NET / 8),
}
"""Bytes at the optimizer's step, by hand."""
STOPS = {
    "lbfgs": ("opt.step(closure)", "__bool__ reads the values of a tensor on the card"),
    "memory_hog": ("xs.append", "more than 10 times the card's memory"),
    "early_exit": ("sys.exit(3)", "the script ended here before an optimizer had stepped (exit code 3)"),
    "native": ("Tokenizer.from_file", "--allow-writes"),
    "no_tokenizer": ("AutoTokenizer.from_pretrained", "hf download Qwen/Qwen2.5-0.5B --include"),
}
"""The line of the script that it ends at, and what is said."""
COMMANDS = {
    "accelerated": ["accelerate", "launch", "--num_processes", "1", "accelerated.py"],
    "zero2": ["deepspeed", "--num_gpus", "8", "zero2.py"],
    **{name: ["torchrun", "--nproc-per-node", "8", f"{name}.py"] for name in ("ddp", "fsdp1", "fsdp2")},
}
NEEDS = {
    "zero2": "deepspeed",
    "lightning_gan": "lightning",
    "lightning_bf16": "lightning",
    "accelerated": "accelerate",
    "adapters": "peft",
    "denoiser": "diffusers",
}
SCALARS = 0.005
ROOM = 23 * 2**30
"""Of in_strangers.py's card."""
"""What rounding to 512 bytes and one counter of steps a tensor add to a small model."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("strangers") / "work"
    shutil.copytree(HERE / "strangers", folder)
    for path in (folder / "model", folder / "model" / "inside" / "language"):
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "model" / "unet").mkdir()
    (folder / "model" / "unet" / "config.json").write_text(json.dumps(UNET), "utf-8")
    (folder / "data.csv").write_text("\n".join(["pixel", *map(str, range(1024))]), "utf-8")
    names = [
        n
        for n in (*STEPS, *STOPS, "pretrained_state", "denoiser", "compiled_loss")
        if n not in NEEDS or find_spec(NEEDS[n])
    ]
    runs = [[COMMANDS.get(name, ["python", f"{name}.py"]), {}] for name in names]
    (folder / "runs.json").write_text(json.dumps(runs), "utf-8")
    words = [sys.executable, str(HERE / "in_strangers.py"), "runs.json", str(folder.parent / "files")]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    found = warm_python.run(words, cwd=folder, env=quiet)
    assert found.returncode == 0, found.stderr[-2000:]
    assert not (folder / "ckpt").exists()
    return dict(zip(names, json.loads(found.stdout), strict=True))


def of(answered, name):
    if name not in answered:
        pytest.skip(f"needs {NEEDS[name]}")
    return answered[name]


@pytest.mark.parametrize("name", STEPS)
def test_what_is_kept_at_the_step_is_the_hand_count(answered, name):
    answer = of(answered, name)
    assert "usage" not in answer
    assert answer["report"]["failure"] is None
    kept = next(one["categories"] for one in answer["moments"] if one["name"] == "optimizer step")
    for term, size in STEPS[name].items():
        assert kept[term] == pytest.approx(size, rel=SCALARS, abs=64 * 512), term


@pytest.mark.parametrize("name", STOPS)
def test_what_cannot_go_on_ends_at_its_line(answered, name):
    line, said = STOPS[name]
    text = (HERE / "strangers" / f"{name}.py").read_text("utf-8").splitlines()
    number = next(number for number, one in enumerate(text, 1) if line in one)
    failure = of(answered, name)["report"]["failure"]
    assert failure.startswith(f"{name}.py:{number}: ")
    assert said in failure


def test_adam_takes_all_square_roots_at_once_as_on_a_card(answered):
    """torch/optim/adam.py `_multi_tensor_adam`: one list of roots, as large as the weights."""
    step = next(one["categories"] for one in answered["evaluated"]["moments"] if one["name"] == "optimizer step")
    assert step["optimizer temporaries"] == pytest.approx(4 * NET, rel=SCALARS)


def test_a_batch_that_does_not_fit_is_halved_until_one_does(answered):
    """Logits of 4,096 classes in fp32 and their softmax for 128 tokens a sample: 4 MiB each."""
    answer = answered["halved"]
    assert ["net.py:12" in one for one in answer["remarks"]] == [True]  # the line that asked for it
    assert "which the script caught" in answer["remarks"][0]
    peak = max(one["bytes"] for one in answer["moments"])
    assert ROOM / 3 < peak <= ROOM


def test_weights_by_address_are_not_fetched(answered):
    assert answered["pretrained_state"]["report"]["failure"] is None


def test_a_denoiser_is_made_of_the_config_in_its_folder(answered):
    assert of(answered, "denoiser")["report"]["failure"] is None


def test_a_compiled_loss_has_no_logits_in_fp32(answered):
    """What Inductor's own code allocates: 16-bit logits and their gradient (which it even writes in their place)."""
    logits, weight = 2048 * 32768 * 2, 64 * 32768 * 2
    assert answered["compiled_loss"]["report"]["failure"] is None
    peak = max(one["bytes"] for one in answered["compiled_loss"]["moments"])
    assert logits < peak <= 2 * logits + 3 * weight + 2**21


def test_a_compiled_region_says_so_and_keeps_no_more_than_an_eager_one(answered):
    compiled, eager = answered["compiled"], answered["nanloss"]  # one model, one batch
    assert any("min-cut partitioner" in one for one in compiled["remarks"])
    assert eager["remarks"] == []
    peaks = [
        next(one["categories"]["activations"] for one in answer["moments"] if one["name"] == "backward: layers")
        for answer in (compiled, eager)
    ]
    assert 0 < peaks[0] <= peaks[1]
