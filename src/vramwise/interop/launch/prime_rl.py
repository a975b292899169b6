"""`uv run rl @ FILE.toml`, `sft`, `trainer` of prime-rl, and torchrun with its train.py: the trainer's step.

Read in prime-rl 0.8.1 (559b44772) packages/prime-rl-configs/src/prime_rl/configs (trainer.py, sft.py, rl.py) and
src/prime_rl/trainer (model.py: FSDP 2 over layers with fp32 weights and bf16 compute; parallel_dims.py: experts over
up to 8 GPUs; optim/state_offload.py: states come back to the GPU for the step; rl/train.py: packed rows of one sequence
length, rows of micro_batch_size in sft). Checkpointing, offloaded activations, offloaded states, torch.compile and the
chunked output layer are on unless told otherwise. The inference server has GPUs of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.errors import UsageError, clipped
from vramwise.frameworks.attention import kinds_within, types_without
from vramwise.frameworks.versions import described
from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Launch, Start, launched, one_model, read_command
from vramwise.interop.launch.launchers import GPUS_UNSAID, Launcher, torchrun_gpus
from vramwise.interop.launch.model_facts import config_of, text_config
from vramwise.interop.launch.options import Options, flattened
from vramwise.interop.launch.prime_rl_parts import part_of, server_words
from vramwise.interop.launch.rl import accumulated
from vramwise.interop.launch.values import fraction, whole_in

_VERSION = "0.8.1"
_LENGTH, _SFT_LENGTH, _SFT_BATCH = 2048, 128, 128
_EACH, _NODES, _MOST_EXPERT_RANKS, _RANK = 8, 2, 8, 16
_OPTIMIZERS = {"adamw": "adamw", "muon": "muon", "sgd": "sgd-momentum", "sign_sgd": "sgd"}
_OF_ADAPTERS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "experts",
                          "fc1_latent_proj", "fc2_latent_proj"})  # fmt: skip
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_RECIPES = {"fp8": "blockwise", "mxfp8": "mxfp8"}


def read(start: Start) -> Launch:
    """The scenario of prime-rl's trainer, or of its inference server where a file is for that alone.

    Raises UsageError or SourceError for what cannot be read.
    """
    options = Options(("prime-rl",), "prime-rl")
    words, table = files_of(start.words)
    part = part_of(table)
    if part == "inference" and not words:
        return read_command(server_words(table))
    if part == "orchestrator":
        raise UsageError("prime-rl's orchestrator needs no GPU: expected a file of rl, sft, trainer or inference")
    options.read_words([f"--{word[5:]}=false" if word.startswith("--no-") else word for word in words])
    options.read_table(_dotted(table))
    asked = _Trainer(options)
    model = one_model("prime-rl", asked.first("model.name"), 'name = "MODEL" in [model]')
    is_sft = part == "sft" or "sft" in start.program.replace("/", ".").split(".")
    launcher = _launcher(options, start, of_all=part in ("rl", "sft"))
    gpus = launcher.gpus or 1
    train, notes = _train(asked, model, gpus)
    train |= _batch(asked, is_sft, gpus // max(1, whole_in(train, "context_parallel_size")))
    if not is_sft:
        notes += _beside(options)
    if "gradient_release" in train:  # the gradients of each micro-batch leave, and are added up on the host
        train["gradient_accumulation_steps"] = 1
    notes.append(f"defaults are those of prime-rl {_VERSION}: layers are checkpointed, what they keep is on the host")
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    unsaid = [] if launcher.gpus else [GPUS_UNSAID]
    return launched("prime-rl", scenario, (*notes, *options.notes(), *unsaid), options)


def files_of(words: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """The words without `@ FILE`, and what the files say, later ones over earlier; `--trainer @ FILE` is a part.

    Raises UsageError where no file stands behind `@`, SourceError for one that cannot be read.
    """
    rest, own = list(words), list[str]()
    table: dict[str, object] = {}
    while rest:
        word = rest.pop(0)
        part = word[2:] if word.startswith("--") and rest[:1] == ["@"] else None
        if part is None and word != "@":
            own.append(word)
            continue
        if part is not None:
            rest.pop(0)
        if not rest:
            raise UsageError("prime-rl: a file is named behind @")
        found = file_table(rest.pop(0))
        table = _merged(table, {part.replace("-", "_"): found} if part else found)
    return own, table


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(value, Mapping) and isinstance(under, Mapping) else value
    return merged


def _dotted(table: Mapping[str, object]) -> dict[str, object]:
    """The entries by dotted names; an empty table turns on what it is named after."""
    return dict(flattened(_switched(table)))


def _switched(table: Mapping[str, object]) -> dict[str, object]:
    return {key: (_switched(value) or True) if isinstance(value, Mapping) else value for key, value in table.items()}


class _Trainer:
    """The trainer's options, which stand below `trainer` where the file is one for all parts."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def first(self, name: str) -> str | None:
        return self.options.first(f"trainer.{name}", name)

    def number(self, name: str) -> int | None:
        return self.options.number(f"trainer.{name}", name)

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """A switch, or a table that is there and not none."""
        for full in (f"trainer.{name}", name):
            if full in self.options.values:
                value = self.options.values[full]
                text = str(value).lower()
                return text not in ("none", "null", "false")
            if any(key.startswith(f"{full}.") for key in self.options.values):
                return True
        return default


def _launcher(options: Options, start: Start, *, of_all: bool) -> Launcher:
    """The trainer's cards: torchrun's, else the deployment's, which is one card unless told otherwise."""
    each, nodes = torchrun_gpus(start.before, start.environment)
    if each:
        return Launcher(each * nodes, each)
    if options.first("deployment.type") == "multi_node" or "deployment.num_train_nodes" in options.values:
        each = options.number("deployment.gpus_per_node") or _EACH
        return Launcher(each * (options.number("deployment.num_train_nodes") or _NODES), each)
    if not of_all and "deployment.num_train_gpus" not in options.values:
        return Launcher()
    each = options.number("deployment.num_train_gpus") or 1
    return Launcher(each, each)


def _train(asked: _Trainer, model: str, gpus: int) -> tuple[dict[str, object], list[str]]:
    notes: list[str] = []
    train: dict[str, object] = {
        "framework": "pytorch", "attention": _attention(model), "padding_free": True,
        "loss": "standard" if asked.first("model.fused_lm_head_token_chunk_size") == "disabled" else "fused-linear",
        **_precision(asked, notes), **_checkpointing(asked, notes), **_sharding(asked, model, gpus, notes),
        **_optimizer(asked, notes),
    }  # fmt: skip
    if asked.is_on("model.compile", default=True):
        train |= {"compile": True, "compiled": ["layers"]}
    if asked.is_on("model.lora"):
        train |= _adapters(asked, notes)
    if asked.is_on("model.vlm"):
        notes.append("model.vlm: images are not in the sequences unless --images-per-sequence says how many")
    return train, notes


def _attention(model: str) -> str:
    """Flash attention. Raises UsageError for types that have none in transformers."""
    without = types_without("flash", described("transformers"))
    lacking = next((kind for kind in kinds_within(config_of(model)) if kind in without), None)
    if lacking is not None:
        raise UsageError(f"prime-rl trains {lacking} with a sparse attention of its own, which is not described here")
    return "flash"


def _precision(asked: _Trainer, notes: list[str]) -> dict[str, object]:
    weights = "bf16" if asked.first("model.optimization_dtype") == "bfloat16" else "fp32"
    if asked.is_on("model.full_offload"):
        weights = "bf16"
        notes.append("full_offload: weights are bf16 on the GPU, their fp32 copy, gradients and states on the host")
    found: dict[str, object] = {"precision": "bf16" if weights == "bf16" else "bf16-mixed", "param_dtype": weights}
    kind = asked.first("model.quantization.type") or ("fp8" if asked.is_on("model.quantization") else None)
    if kind is not None:
        if kind not in _RECIPES:
            raise UsageError(f'model.quantization.type: expected fp8 or mxfp8, got "{clipped(kind)}"')
        found |= {"precision": "fp8-mixed", "fp8_recipe": _RECIPES[kind]}
    return found


def _checkpointing(asked: _Trainer, notes: list[str]) -> dict[str, object]:
    offloads = asked.is_on("model.ac_offloading", default=True)
    if not (asked.is_on("model.ac", default=True) or offloads):
        return {"checkpointing": "none"}
    found: dict[str, object] = {"checkpointing": "full"}
    every = asked.number("model.ac.freq") or 1
    if asked.first("model.ac.mode") == "selective":
        found["checkpointing"] = "none"
        notes.append("model.ac.mode selective: what it recomputes is not described; taken as nothing, at most so much")
    elif every > 1:
        notes.append(f"model.ac.freq {every}: every layer is taken as checkpointed, which is too little")
    return found | ({"offload_activations": "cpu"} if offloads else {})


def _sharding(asked: _Trainer, model: str, gpus: int, notes: list[str]) -> dict[str, object]:
    found: dict[str, object] = {"fsdp": "full-shard", "fsdp_version": 2}
    if not asked.is_on("model.reshard_after_forward", default=True):
        found["reshard_after_forward"] = False
    nodes = asked.options.number("deployment.nodes_per_fsdp_group")
    replicas = asked.number("model.dp_replicate") or 1
    if replicas > 1 or nodes:
        found["fsdp"] = "hybrid-shard"
        notes.append("replicated groups of shards: each is taken as one node")
    shared = asked.number("model.cp") or 1
    if shared > 1:
        found |= {"context_parallel_size": shared, "context_parallel_kind": asked.first("model.cp_style") or "ring"}
    experts = asked.first("model.ep") or "auto"
    has_experts = any(whole_in(text_config(config_of(model)), key, 0) > 1 for key in _EXPERTS)
    degree = int(experts) if experts.isdecimal() else 1
    if experts == "auto" and has_experts and asked.first("model.impl") != "hf":
        degree = min(gpus // replicas, _MOST_EXPERT_RANKS)
    if degree > 1:
        found["expert_parallel_size"] = degree
    return found


def _optimizer(asked: _Trainer, notes: list[str]) -> dict[str, object]:
    name = asked.first("optim.type") or "adamw"
    if name not in _OPTIMIZERS:
        raise UsageError(f'optim.type: expected {", ".join(_OPTIMIZERS)}, got "{clipped(name)}"')
    if name == "sign_sgd":
        notes.append("sign_sgd keeps no states: sgd without momentum is taken")
    whole = asked.is_on("model.full_offload")
    clips = asked.first("optim.max_norm") is not None or not _is_none(asked, "optim.max_norm")
    found: dict[str, object] = {
        "optimizer": _OPTIMIZERS[name],
        "clip_grad_norm": clips and not whole and asked.first("model.ep_comm_backend") != "deepep",
    }
    if asked.is_on("model.fsdp_cpu_offload"):
        return found | {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if whole:
        return found | {"offload_optimizer": "cpu", "gradient_release": True}
    if asked.is_on("model.optim_cpu_offload", default=True):
        notes.append("optim_cpu_offload: states are on the GPU while the optimizer steps; they are counted throughout")
    return found


def _is_none(asked: _Trainer, name: str) -> bool:
    values = [asked.options.values[full] for full in (f"trainer.{name}", name) if full in asked.options.values]
    return bool(values) and str(values[0]).lower() in ("none", "null")


def _adapters(asked: _Trainer, notes: list[str]) -> dict[str, object]:
    given = asked.options.several("trainer.model.lora.target_modules", "model.lora.target_modules")
    whole = not given or {*given} >= _OF_ADAPTERS
    if asked.options.several("trainer.model.lora.modules_to_save", "model.lora.modules_to_save"):
        notes.append("model.lora.modules_to_save is not counted: modules that train whole")
    return {"method": "lora", "lora_rank": asked.number("model.lora.rank") or _RANK, "lora_dtype": "fp32",
            "lora_dropout": fraction(asked.first("model.lora.dropout") or "0"),
            "lora_targets": "all-linear" if whole else given}  # fmt: skip


def _batch(asked: _Trainer, is_sft: bool, replicas: int) -> dict[str, object]:
    """Rows of one length: RL packs rollouts into rows of seq_len, SFT makes micro_batch_size of them."""
    if not is_sft:
        length = asked.number("model.seq_len") or asked.options.number("seq_len") or _LENGTH
        samples = asked.options.number("orchestrator.batch_size") or asked.number("data.fake.batch_size")
        return {"sequence_length": length, "micro_batch_size": 1, **accumulated(samples, 1, replicas)}
    each = asked.number("data.micro_batch_size") or 1
    samples = asked.number("data.batch_size") or _SFT_BATCH
    return {"sequence_length": asked.number("data.seq_len") or _SFT_LENGTH, "micro_batch_size": each,
            **accumulated(samples, each, replicas)}  # fmt: skip


def _beside(options: Options) -> list[str]:
    notes = ["a micro-batch is one row of packed rollouts, as long as seq_len"]
    if any(name.startswith("inference") for name in options.values):
        notes.append("the inference server has GPUs of its own, which are not counted here")
    if any(name.startswith("orchestrator.algo.teacher") for name in options.values):
        notes.append("the teacher is asked over the network: its GPUs are not counted")
    return notes
