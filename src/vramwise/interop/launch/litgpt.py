"""`litgpt finetune_lora MODEL …`, `finetune_full`, `pretrain`: litgpt's flags or its configuration file.

Read in litgpt 0.5.13 finetune/lora.py (several GPUs: FSDP 2 and checkpointed blocks; a quantized base on one alone,
with bitsandbytes' PagedAdamW), finetune/full.py (FSDP 1 and checkpointed blocks), pretrain.py (FSDP 1 within a node).
"""

from __future__ import annotations

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import Launcher
from vramwise.interop.launch.model_facts import model_type
from vramwise.interop.launch.options import Options, flattened
from vramwise.interop.launch.values import fraction, whole_in
from vramwise.models.type_facts import fact_value
from vramwise.scenario.names import BASE_QUANTIZATION, OPTIMIZER_SPELLINGS, OPTIMIZERS

_PRECISIONS = {"bf16-true": "bf16", "16-true": "fp16", "32-true": "fp32", "bf16-mixed": "bf16-mixed",
               "16-mixed": "fp16-mixed", "transformer-engine": "fp8-mixed"}  # fmt: skip
_LLAMA = (("lora_query", "q_proj"), ("lora_key", "k_proj"), ("lora_value", "v_proj"), ("lora_projection", "o_proj"))
_LLAMA_MLP = ("gate_proj", "up_proj", "down_proj")
# What fuses queries, keys and values, its output and its MLP, as transformers names them.
_ON = ("lora_query", "lora_value")


def read(start: Start) -> Launch:
    """The scenario of a litgpt command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("litgpt",), "litgpt")
    options.read_words(start.words[1:])
    named = options.first("config")
    if named:
        options.read_table(dict(flattened(file_table(named))))
    loose = options.loose.pop(0) if options.loose else None
    folder = loose or options.first("checkpoint_dir", "model_name")
    model = one_model("litgpt", folder.rstrip("/").removeprefix("./").removeprefix("checkpoints/") if folder else None,
                      f"litgpt {start.program} MODEL")  # fmt: skip
    lora, pretrains = start.program in ("finetune", "finetune_lora"), start.program == "pretrain"
    launcher = _launcher(options, pretrains)
    quantized = lora and options.first("quantize") is not None
    gpus = launcher.gpus or 1
    train: dict[str, object] = {"framework": "litgpt", "micro_batch_size": 4 if pretrains else 1, "loss": "chunked",
                             **options.settings(), "checkpointing": "none" if gpus == 1 or pretrains else "full",
                             "clip_grad_norm": pretrains, "precision": _precision(options, quantized)}  # fmt: skip
    if train["precision"] == "fp8-mixed":  # lightning 2.6 fabric/plugins/precision/transformer_engine.py
        train["kernels"] = ["transformer-engine"]
    share = (options.number("train.global_batch_size") or (512 if pretrains else 16)) // gpus
    train["gradient_accumulation_steps"] = max(1, share // whole_in(train, "micro_batch_size"))
    if gpus > 1:
        train |= {"fsdp": "hybrid-shard" if pretrains else "full-shard", "fsdp_version": 2 if lora else 1}
    notes = _optimizer(options, train)
    if pretrains:
        train["optimizer_impl"] = "fused"  # pretrain.py asks AdamW for it
    if lora:
        _adapters(options, model, train)
    if "sequence_length" not in train:
        notes.append("samples are as long as they are in the data: --sequence-length says how long")
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("litgpt", scenario, (*notes, *options.notes(), *launcher.said()), options)


def _launcher(options: Options, pretrains: bool) -> Launcher:
    """`--devices N`; pretraining takes all GPUs unless told otherwise."""
    given = options.first("devices") or ("auto" if pretrains else "1")
    each = int(given) if given.isdecimal() else None
    nodes = options.number("num_nodes") or 1
    return Launcher(each * nodes if each else None, each)


def _precision(options: Options, quantized: bool) -> str:
    """Autocast unless told otherwise (utils.py get_default_supported_precision); quantization is refused under it."""
    given = options.first("precision") or ("bf16-true" if quantized else "bf16-mixed")
    if given not in _PRECISIONS:
        raise UsageError(f'--precision: expected {", ".join(_PRECISIONS)}, got "{clipped(given)}"')
    return _PRECISIONS[given]


def _optimizer(options: Options, train: dict[str, object]) -> list[str]:
    written = options.first("optimizer.class_path", "optimizer") or "AdamW"
    name = written.rpartition(".")[2].lower()
    found = OPTIMIZER_SPELLINGS.get(name, name)
    train["optimizer"] = found if found in OPTIMIZERS else "adamw"
    return [] if found in OPTIMIZERS else [f"optimizer {clipped(written)} is not described: adamw is taken"]


def _adapters(options: Options, model: str, train: dict[str, object]) -> None:
    train |= {"method": "lora", "lora_rank": options.number("lora_r") or 8, "lora_targets": _targets(options, model),
              "lora_dropout": fraction(options.first("lora_dropout") or "0.05"),
              "lora_dtype": "fp32" if str(train["precision"]).endswith("-mixed") else train["precision"]}  # fmt: skip
    quantize = (options.first("quantize") or "").removeprefix("bnb.").removesuffix("-training")
    if quantize:
        kind = "fp4" if quantize.startswith("fp4") else quantize
        if kind not in BASE_QUANTIZATION:
            raise UsageError(
                f'--quantize: expected bnb.nf4, bnb.nf4-dq, bnb.fp4 or bnb.int8, got "{clipped(quantize)}"'
            )
        train |= {"method": "qlora", "quantization": kind, "optimizer_impl": "for-loop"}


def _targets(options: Options, model: str) -> list[str]:
    """Modules with adapters: queries and values unless told otherwise."""
    on = {name: options.is_on(name, default=name in _ON) for name, _ in _LLAMA}
    fused = fact_value("transformers", "joined_modules", model_type(model))
    if fused is None:
        found = [module for name, module in _LLAMA if on[name]]
        found += _LLAMA_MLP if options.is_on("lora_mlp") else ()
    else:
        joined, output, *mlp = fused.split()
        found = [joined] * any(on[name] for name, _ in _LLAMA[:3]) + [output] * on["lora_projection"]
        found += mlp if options.is_on("lora_mlp") else ()
    return [*found, *(["lm_head"] if options.is_on("lora_head") else [])]
