"""`unsloth train [--config FILE]` and `python unsloth-cli.py`: unsloth's own trainings of adapters.

Read in unsloth 2026.10.9 unsloth_cli/config.py (rank 64 on a base in 4 bits unless told otherwise), commands/train.py
(optimizer adamw_8bit), and in its repository unsloth-cli.py (066c2278: rank 16; 4 bits where --load_in_4bit asks).
Both check at "unsloth", which offloads layers' inputs from 512 tokens on (models/_utils.py
apply_unsloth_gradient_checkpointing); `true` checkpoints and offloads nothing.
"""

from __future__ import annotations

from vramwise.interop.beside import file_table
from vramwise.interop.launch.adapters import adapter_settings
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import launcher_of
from vramwise.interop.launch.options import Options, flattened
from vramwise.interop.launch.sharding import Sharding
from vramwise.interop.launch.trainer_settings import trainer_settings
from vramwise.interop.launch.values import whole_in

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_SHORTEST_OFFLOADED = 512
_BATCH, _ACCUMULATED, _LENGTH = 2, 4, 2048
_SCRIPTS_MODEL = "unsloth/llama-3-8b"
_SCRIPTS_RANK, _RANK = 16, 64
_OFF = frozenset({"", "none", "false", "0", "no", "off"})


def read(start: Start) -> Launch:
    """The scenario of a training. Raises UsageError where nothing names a model, SourceError for a file's faults."""
    options = Options(("unsloth",), "unsloth")
    options.read_words(start.words if start.is_script else start.words[1:])
    named = options.first("config", "c")
    if named:  # its sections (data, training, lora, logging) have no key in common
        options.read_table({key.rpartition(".")[2]: value for key, value in flattened(file_table(named))})
    default = _SCRIPTS_MODEL if start.is_script else None
    model = one_model("unsloth", options.first("model_name", "model") or default, "unsloth train --model MODEL")
    launcher = launcher_of(start)
    train: dict[str, object] = {
        "framework": "unsloth", "precision": "bf16-mixed", "param_dtype": "bf16", "micro_batch_size": _BATCH,
        "gradient_accumulation_steps": _ACCUMULATED, "sequence_length": _LENGTH, **options.settings(),
    }  # fmt: skip
    found, notes = trainer_settings(options, Sharding(), {"optim": "adamw_8bit"})
    train |= {**found, **_checkpointing(options, whole_in(train, "sequence_length"))}
    adapters, said = _adapters(options, model, is_script=start.is_script)
    train |= adapters
    if (options.first("dtype") or "").endswith("16") and "b" not in str(options.first("dtype")):
        train |= {"precision": "fp16-mixed", "param_dtype": "fp16"}
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("unsloth", scenario, (*notes, *said, *options.notes(), *launcher.said()), options)


def checkpointing_of(kept: object, length: int) -> dict[str, object]:
    """Checkpointing and where its inputs lie, by `use_gradient_checkpointing`: True, False or "unsloth"."""
    word = str(kept).lower()
    if word in _OFF:
        return {"checkpointing": "none"}
    offloads = word == "unsloth" and length >= _SHORTEST_OFFLOADED
    return {"checkpointing": "full", "offload_activations": "cpu" if offloads else "none"}


def _checkpointing(options: Options, length: int) -> dict[str, object]:
    given = [options.values.get(name) for name in ("use_gradient_checkpointing", "gradient_checkpointing")]
    return checkpointing_of(next((value for value in given if value is not None), "unsloth"), length)


def _adapters(options: Options, model: str, *, is_script: bool) -> tuple[dict[str, object], list[str]]:
    """What trains: adapters on a base in 4 bits or in 16, or all of it."""
    if (options.first("training_type") or "").lower() == "full":
        return {"method": "full"}, []
    wanted = Options(("trl", "trainer"), "unsloth")
    wanted.give("lora_r", options.number("r", "lora_r") or (_SCRIPTS_RANK if is_script else _RANK))
    wanted.give("lora_target_modules", options.several("target_modules") or list(TARGETS))
    wanted.give("lora_dropout", options.first("lora_dropout") or "0")
    wanted.give("use_dora", options.is_on("use_dora"))
    wanted.give("load_in_4bit", options.is_on("load_in_4bit", default=not is_script))
    found, notes = adapter_settings(wanted, model, rank=_RANK, dropout=0.0, gated=False)
    if "quantization" in found:
        found["quantization"] = "nf4-dq"  # models/llama.py: bnb_4bit_use_double_quant
    return found, notes
