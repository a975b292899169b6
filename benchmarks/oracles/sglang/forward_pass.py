"""A prefill chunk through SGLang's own model without a card: what is alive at its fullest moment, and who made it.

    python forward_pass.py --sglang FOLDER --model meta-llama/Llama-3.1-8B [--tp 2] [--tokens 8192] [--layers 4]

FOLDER holds the package `sglang` (an unpacked wheel). Prints one JSON object; README.md says what is not seen.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vllm"))

import torch
from card import CARDS, install_cuda, install_device_guard, install_process_groups
from memory import CardMemory, Peak
from stand_ins import Attention, install, process_groups
from tensors import FakeCuda

from vramwise.sources import resolve

LEAST_LISTED_BYTES = 1 << 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang", required=True, help="folder that holds the package sglang")
    parser.add_argument("--model", required=True, help="a model of vramwise's catalog")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=8192, help="of the prefill chunk, all of one request")
    parser.add_argument("--layers", type=int, default=4, help="built of the model, which the peak does not depend on")
    return parser.parse_args()


def model_folder(name: str, layers: int) -> str:
    """A folder with the model's config.json, cut to its first layers."""
    config = dict(resolve(name).config)
    config["num_hidden_layers"] = min(layers, int(str(config["num_hidden_layers"])))
    if not config.get("architectures"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        config["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]]
    folder = Path(tempfile.mkdtemp(prefix="sglang-oracle-"))
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def build(args: argparse.Namespace) -> Any:
    """The model's class with weights that hold nothing."""
    server: Any = importlib.import_module("sglang.srt.server_args")
    settings = server.ServerArgs(
        model_path=model_folder(args.model, args.layers), tp_size=args.tp, dtype="bfloat16", skip_tokenizer_init=True,
        load_format="dummy", chunked_prefill_size=args.tokens, attention_backend="triton", disable_cuda_graph=True,
        sampling_backend="flashinfer", mem_fraction_static=0.8,
    )  # fmt: skip
    if hasattr(server, "set_global_server_args_for_scheduler"):
        server.set_global_server_args_for_scheduler(settings)
    else:
        schedule: Any = importlib.import_module("sglang.srt.managers.schedule_batch")
        schedule.global_server_args_dict.update({key: value for key, value in vars(settings).items()})
    config = importlib.import_module("sglang.srt.configs.model_config").ModelConfig.from_server_args(settings)
    install_process_groups(args.tp)
    process_groups(args.tp)
    attention: Any = importlib.import_module("sglang.srt.layers.dp_attention")
    try:
        attention.initialize_dp_attention(settings, config)
    except TypeError:
        attention.initialize_dp_attention(
            enable_dp_attention=False, tp_rank=0, tp_size=args.tp, dp_size=1, moe_dense_tp_size=None, pp_size=1
        )
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("sglang.srt.layers.moe").initialize_moe_config(settings)
    loader: Any = importlib.import_module("sglang.srt.model_loader.loader")
    utils: Any = importlib.import_module("sglang.srt.model_loader.utils")
    load = importlib.import_module("sglang.srt.configs.load_config").LoadConfig(load_format="dummy")
    with utils.set_default_torch_dtype(torch.bfloat16), torch.device("cuda"):
        model = loader._initialize_model(config, load)
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is not None and hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(module)
    return model


def batch(tokens: int) -> Any:
    """One request whose prompt is the chunk."""
    info: Any = importlib.import_module("sglang.srt.model_executor.forward_batch_info")

    def on_card(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(count, dtype=dtype, device="cuda")

    made = info.ForwardBatch(
        forward_mode=info.ForwardMode.EXTEND, batch_size=1, input_ids=on_card(tokens), req_pool_indices=on_card(1),
        seq_lens=on_card(1), out_cache_loc=on_card(tokens), seq_lens_sum=tokens,
    )  # fmt: skip
    made.positions, made.extend_num_tokens = on_card(tokens), tokens
    made.extend_seq_lens = made.extend_prefix_lens = made.extend_start_loc = on_card(1, torch.int32)
    made.extend_prefix_lens_cpu, made.extend_seq_lens_cpu = [0], [tokens]
    made.capture_hidden_mode = info.CaptureHiddenMode.NULL
    made.attn_backend = made.token_to_kv_pool = made.req_to_token_pool = Attention()
    return made


def described(peak: Peak) -> list[dict[str, Any]]:
    """Blocks of 1 MiB and more, largest first."""
    listed = sorted(peak.live.items(), key=lambda entry: -entry[0].block_bytes * entry[1])
    return [
        {"module": re.sub(r"\.\d+\.", ".*.", block.module), "function": block.function, "operation": block.operation,
         "shape": list(block.shape), "dtype": block.dtype, "count": count, "bytes": count * block.block_bytes}
        for block, count in listed if block.block_bytes >= LEAST_LISTED_BYTES
    ]  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One pass of one rank."""
    card, memory = CARDS[9, 0], CardMemory("sglang")
    operations: dict[str, Callable[..., Any]] = {}
    unanswered: Counter[str] = Counter()
    install_device_guard()
    install_cuda(card, memory, args.tp)
    install(unanswered, operations)
    import sglang

    with FakeCuda(memory, operations, card.capability), torch.no_grad():
        model = build(args)
        memory.module_names = {id(module): name for name, module in model.named_modules()}
        given = batch(args.tokens)
        memory.reset_peak()
        peak = memory.watch()
        model.forward(given.input_ids, given.positions, given)
        memory.unwatch(peak)
    return {
        "version": sglang.__version__, "model": args.model, "dtype": "bfloat16", "tensor_parallel_size": args.tp,
        "chunked_prefill_size": args.tokens, "bytes": peak.bytes, "live": described(peak),
        "unanswered": dict(unanswered),
    }  # fmt: skip


if __name__ == "__main__":
    chosen = arguments()
    sys.path.insert(0, chosen.sglang)
    print(json.dumps(run(chosen)), flush=True)
    os._exit(0)  # finalizers of thousands of fakes have nothing to say
