"""`vramwise dry-run -- vllm serve …`: around a small package `vllm` here, through vLLM's own where its wheel is."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from vramwise.cli.main import main
from vramwise.dryrun.vllm_serve import server_arguments

pytest.importorskip("torch")

MODEL = "Qwen/Qwen3-0.6B"
FIXED = ("--max-model-len", "1024", "--kv-cache-memory-bytes", str(1 << 30))
GOLDEN = Path(__file__).parents[1] / "golden" / "vllm_profile_run.jsonl"
WHEEL = os.environ.get("VRAMWISE_VLLM")
WEIGHT_BYTES, PEAK_BYTES, BLOCK_BYTES = 64 << 20, 48 << 20, 1 << 20
BREAKS, HANGS, LEAVES, DISLIKES = 13, 14, 15, 16
"""Values of --seed with which the start raises, never ends, ends the process, and the arguments are refused."""

SMALL_VLLM = {  # a few functions, in the places where the released package has them
    "__init__": "__version__ = '0.19.0'",
    "platforms/__init__": "_current_platform = None",
    "platforms/cuda": "class CudaPlatform: ...",
    "config": """
from contextlib import nullcontext
def set_current_vllm_config(config):
    return nullcontext()
""",
    "utils/__init__": "",
    "utils/torch_utils": "def direct_register_custom_op(*args, **kwargs): ...",
    "utils/argparse_utils": "from argparse import ArgumentParser as FlexibleArgumentParser",
    "usage/__init__": "",
    "usage/usage_lib": "class UsageContext:\n    OPENAI_API_SERVER = 'server'",
    "entrypoints/__init__": "",
    "entrypoints/openai/__init__": "",
    "entrypoints/openai/cli_args": """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    for name in ("--seed", "--port", "--max-model-len", "--tensor-parallel-size", "--kv-cache-memory-bytes"):
        parser.add_argument(name, type=int)
    return parser
""",
    "engine/__init__": "",
    "engine/arg_utils": """
import json
from pathlib import Path
from types import SimpleNamespace
class EngineArgs:
    @classmethod
    def from_cli_args(cls, known):
        made = cls()
        made.__dict__.update(vars(known))
        return made
    def create_engine_config(self, usage):
        assert self.enforce_eager and self.load_format == "dummy"
        if self.seed == DISLIKES:
            raise ValueError("a seed of 16\\nbrings no luck")
        assert json.loads((Path(self.model) / "config.json").read_text())["architectures"]
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_batched_tokens=2048, max_num_seqs=256), compilation_config=None,
            seed=self.seed,
        )
""",
    "distributed/__init__": """
def init_distributed_environment(ranks, *rest): ...
def ensure_model_parallel_initialized(*sizes): ...
""",
    "distributed/parallel_state": "",
    "distributed/device_communicators/__init__": "",
    "distributed/device_communicators/pynccl": "",
    "distributed/device_communicators/shm_broadcast": "class MessageQueue: ...",
    "model_executor/__init__": "",
    "model_executor/parameter": "class BasevLLMParameter: ...",
    "model_executor/models/__init__": "",
    "model_executor/models/registry": "",
    "model_executor/model_loader/__init__": "",
    "model_executor/model_loader/dummy_loader": "",
    "model_executor/model_loader/weight_utils": "",
    "v1/__init__": "",
    "v1/worker/__init__": "",
    "v1/worker/gpu_model_runner": """
import sys
import time
import torch
class GPUModelRunner:
    def __init__(self, config, device):
        self.config, self.device = config, device
    def load_model(self):
        self.model = torch.nn.Linear(4096, WEIGHT_BYTES // 8192, False, device=self.device, dtype=torch.bfloat16)
    def profile_run(self):
        if self.config.seed == HANGS:
            time.sleep(1e6)
        if self.config.seed == LEAVES:
            sys.exit("out of ideas")
        self._dummy_run()
    def _dummy_run(self):
        made = torch.empty(PEAK_BYTES // 2, dtype=torch.bfloat16, device=self.device)
        if self.config.seed == BREAKS:
            raise RuntimeError("no kernel for this\\n(at all)")
    def _dummy_sampler_run(self): ...
    def get_kv_cache_spec(self):
        return {"layer": None}
""",
    "v1/core/__init__": "",
    "v1/core/kv_cache_utils": """
from types import SimpleNamespace
logger = None
def get_kv_cache_configs(config, specifications, sizes):
    blocks = sizes[0] // BLOCK_BYTES
    logger.info_once("GPU KV cache size: %s tokens", f"{blocks * 16:,}", scope="local")
    logger.info_once("Maximum concurrency for %s tokens per request: %.2fx", "1,024", blocks / 64)
    return [SimpleNamespace(num_blocks=blocks)]
""",
}


def unpacked(folder: Path) -> Path:
    """The package and its metadata, as a wheel is unpacked."""
    numbers = {"WEIGHT_BYTES": WEIGHT_BYTES, "PEAK_BYTES": PEAK_BYTES, "BLOCK_BYTES": BLOCK_BYTES, "BREAKS": BREAKS,
               "HANGS": HANGS, "LEAVES": LEAVES, "DISLIKES": DISLIKES}  # fmt: skip
    beginning = "".join(f"{name} = {value}\n" for name, value in numbers.items())
    for name, text in SMALL_VLLM.items():
        path = folder / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(beginning + text, "utf-8")
    metadata = folder / "vllm-0.19.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.19.0+cu129\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return str(unpacked(tmp_path_factory.mktemp("wheel")))


@pytest.fixture
def serve(package, capsys):
    def started(*words, flags=("--gpu", "h100"), vllm=package):
        code = main(["dry-run", *flags, *(("--vllm", vllm) if vllm else ()), "--", "vllm", "serve", MODEL, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return started


def test_which_commands_are_a_server():
    assert server_arguments(["vllm", "serve", "m", "-tp", "2"]) == ["m", "-tp", "2"]
    assert server_arguments(["/opt/bin/vllm", "serve", "m"]) == ["m"]
    assert server_arguments(["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"]) == ["--model", "m"]
    assert server_arguments(["vllm", "bench"]) is None
    assert server_arguments(["python", "train.py"]) is None


def test_what_its_code_allocates_stands_beside_the_estimate(serve):
    code, out, err = serve(
        "--max-model-len",
        "1024",
        "--kv-cache-memory-bytes",
        str(1 << 30),
        "--port",
        "80",
        flags=("--gpu", "h100", "--json"),
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    rows = {name: row["vllm"] for name, row in found["rows"].items()}
    assert rows == {
        "weights": WEIGHT_BYTES, "runner_buffers": 0, "activation_peak": PEAK_BYTES,
        "kv_cache_bytes": 1 << 30, "kv_cache_blocks": 1024, "kv_cache_tokens": 16_384, "max_concurrency": 16.0,
    }  # fmt: skip
    assert found["rows"]["weights"]["estimated"] == found["estimated"]["quantities"]["weights"]
    assert found["rows"]["runner_buffers"]["estimated"] is None
    (place,) = found["places"]
    assert place["function"] == "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_run"
    assert place["bytes"] == PEAK_BYTES


@pytest.mark.usefixtures("warm")
def test_the_cache_is_what_the_estimate_has_left_for_these_three(serve):
    _, out, _ = serve("--max-model-len", "1024", flags=("--gpu", "h100", "--json"))
    found = json.loads(out)
    estimated = found["estimated"]["quantities"]
    rows = found["rows"]
    weights, cache = (rows[name]["vllm"] for name in ("weights", "kv_cache_bytes"))
    said = rows["activation_peak"]["estimated"]["expected"]
    pool = estimated["weights"]["expected"] + said + estimated["kv_cache_bytes"]["expected"]
    assert weights + rows["activation_peak"]["vllm"] + cache == pool


@pytest.mark.usefixtures("warm")
def test_the_screen_has_a_row_a_figure_and_where_it_lies(serve):
    code, out, err = serve(*FIXED)
    assert (code, err) == (0, "")
    assert "vLLM 0.19.0" in out
    assert "1,024" in out
    assert "16,384" in out
    assert "gpu_model_runner.py:GPUModelRunner" in out


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("seed", "code", "said"),
    [
        (BREAKS, 1, "RuntimeError: no kernel for this (at all)"),
        (BREAKS, 1, "(vllm/v1/worker/gpu_model_runner.py:"),
        (LEAVES, 1, "the dry run ended early: out of ideas"),
        (DISLIKES, 2, "vLLM 0.19.0 refuses it: a seed of 16 brings no luck"),
    ],
)
def test_a_start_that_ends_early_says_why_in_one_line(serve, seed, code, said):
    found, out, err = serve("--seed", str(seed))
    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("warm")
def test_a_start_that_never_ends_is_ended(serve):
    code, _, err = serve("--seed", str(HANGS), flags=("--gpu", "h100", "--timeout", "2"))
    assert code == 1
    assert "took longer than 2 seconds (--timeout)" in err


@pytest.mark.usefixtures("warm")
def test_flags_that_its_parser_does_not_know_are_refused_in_its_words(serve):
    code, _, err = serve("--max-model-length", "8192")
    assert code == 2
    assert "refuses it" in err
    assert "--max-model-length" in err


@pytest.mark.parametrize(
    ("flags", "words", "said"),
    [
        ((), (), "--gpu CARD"),
        (("--gpu", "h100", "--sweep", "a=1"), (), "--sweep is not for a server"),
        (("--gpu", "h100", "--max-model-len", "9"), (), "--max-model-len is not for a server"),
        (("--gpu", "h100"), ("-pp", "2"), "leave out --pipeline-parallel-size"),
    ],
)
def test_what_is_not_run_is_refused_before_anything_starts(serve, flags, words, said):
    code, _, err = serve(*words, flags=flags)
    assert code == 2
    assert said in err


def test_a_folder_without_the_package_or_its_version(serve, tmp_path):
    code, _, err = serve(vllm=str(tmp_path))
    assert (code, "holds no package vllm" in err) == (2, True)
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    code, _, err = serve(vllm=str(tmp_path))
    assert (code, "dist-info is missing" in err) == (2, True)


def test_without_vllm_it_says_how_to_get_it(serve, monkeypatch):
    monkeypatch.setattr("vramwise.dryrun.vllm_serve.is_installed", lambda name: name != "vllm")
    code, _, err = serve(vllm=None)
    assert (code, "pip install vllm" in err) == (2, True)


def test_vllm_is_for_a_server_alone(capsys):
    assert main(["dry-run", "gpt2", "--task", "load", "--vllm", "here"]) == 2
    assert "--vllm is for a server" in capsys.readouterr().err


def golden_rows():
    """Rows of the wheel's version with the API server's usual length, the small models' first."""
    if not WHEEL:
        return []
    version = next(one.version for one in importlib.metadata.distributions(path=[WHEEL]) if one.name == "vllm")
    rows = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
    of_it = [row for row in rows if row["version"] == version and row["dtype"] == "bfloat16" and not row["engine"]]
    assert of_it, f"no row of vLLM {version} is recorded"
    return sorted(of_it, key=lambda row: row["weights_bytes"])[:3]


@pytest.mark.skipif(not WHEEL, reason="VRAMWISE_VLLM names no folder with vLLM's unpacked wheel")
@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["model"])
def test_vllms_own_code_gives_the_recorded_bytes(row, capsys):
    words = ["vllm", "serve", row["model"], "--dtype", row["dtype"]]
    for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "tensor_parallel_size"):
        words += [f"--{name.replace('_', '-')}", str(row[name])]
    main(["dry-run", "--gpu", "h100-sxm-80gb", "--vllm", WHEEL, "--json", "--", *words])
    out, err = capsys.readouterr()
    assert err == ""
    rows = json.loads(out)["rows"]
    second = sum(one["bytes"] for one in row["beside_parameters"] if one["function"].startswith("v1/worker/gpu/"))
    assert rows["weights"]["vllm"] == row["weights_bytes"] - second
    assert rows["activation_peak"]["vllm"] == max(peak["bytes"] for peak in row["peaks"].values())
    blocks = rows["kv_cache_blocks"]
    assert blocks["vllm"] == pytest.approx(blocks["estimated"]["expected"], rel=5e-3)
