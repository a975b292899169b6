"""vLLM's own start without a card: what its weights and its profile run allocate, and where.

    python profile_run.py --vllm FOLDER --model meta-llama/Llama-3.1-8B [--tp 2] [--max-num-batched-tokens 8192] ...

FOLDER holds the package `vllm` (an unpacked wheel). Prints one JSON object; README.md beside this file says what it
holds and what is not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from vramwise.dryrun.vllm_start.card import Card
from vramwise.dryrun.vllm_start.profile_run import profile_run
from vramwise.dryrun.vllm_start.stand_ins import set_environment
from vramwise.sources import resolve

FORMATS = {
    "fp8": {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "awq": {"bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
}
"""What vLLM reads of a format's settings and the catalog's configs may leave out, as Qwen's files have it."""

CARDS = {
    "9.0": Card(),
    "8.0": Card("NVIDIA A100-SXM4-80GB", capability=(8, 0), total_bytes=85_100_068_864, multiprocessors=108),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="folder that holds the package vllm")
    parser.add_argument("--model", required=True, help="a model of vramwise's catalog, or a config.json")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--capability", default="9.0", choices=tuple(CARDS), help="of an H100 (9.0) or an A100 (8.0)")
    parser.add_argument("--engine", type=json.loads, default={}, help="further EngineArgs, as JSON")
    return parser.parse_args()


def engine_config(args: argparse.Namespace) -> Any:
    """vLLM's configuration: eager, weights without values, the API server's defaults for the rest."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    given = {key: getattr(args, key) for key in ("max_num_batched_tokens", "max_num_seqs")}
    settings = {
        "enforce_eager": True, "skip_tokenizer_init": True, "load_format": "dummy",
        "distributed_executor_backend": "mp" if args.tp > 1 else "uni",
        **{key: value for key, value in given.items() if value is not None},
        **args.engine,
    }  # fmt: skip
    engine = EngineArgs(
        model=str(model_folder(args.model)), dtype=args.dtype, max_model_len=args.max_model_len,
        tensor_parallel_size=args.tp, **settings,
    )  # fmt: skip
    return engine.create_engine_config(UsageContext.OPENAI_API_SERVER)


def model_folder(name: str) -> Path:
    """A folder with the model's config.json, which names an architecture and all of a format's settings."""
    config = dict(resolve(name).config)
    stored = config.get("quantization_config")
    if stored:
        config["quantization_config"] = {**FORMATS.get(stored["quant_method"], {}), **stored}
    if not config.get("architectures"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        config["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]]
    folder = Path(tempfile.mkdtemp(prefix="vllm-oracle-"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The row of one start."""
    said = profile_run(CARDS[args.capability], args.tp, lambda: engine_config(args))
    asked = {
        "model": args.model, "dtype": args.dtype, "tensor_parallel_size": args.tp, "capability": args.capability,
        "max_model_len": args.max_model_len, "engine": args.engine,
    }  # fmt: skip
    return {"version": said.pop("version"), **asked, **said}


if __name__ == "__main__":
    started = time.monotonic()
    given = arguments()
    sys.path.insert(0, given.vllm)
    set_environment()
    answer = run(given)
    print(json.dumps({**answer, "seconds": round(time.monotonic() - started, 1)}), flush=True)
    os._exit(0)  # finalizers of thousands of fakes have nothing to say
