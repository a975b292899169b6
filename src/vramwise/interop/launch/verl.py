"""`python3 -m verl.trainer.main_ppo [--config-file FILE] key=value …` and verl's SFT trainers: its configuration tree.

Read in verl 0.7 (trainer/config/_generated_ppo_trainer.yaml, _generated_ppo_megatron_trainer.yaml, sft_trainer.yaml;
workers/fsdp_workers.py: fp32 weights under FSDP's bf16, the reference's weights on the host; offloaded weights and
states are on the GPU while the policy trains). Policy, critic and engine share all cards (`hybrid_engine`).
"""

from __future__ import annotations

from vramwise.interop.launch.adapters import targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import GPUS_UNSAID, Launcher, torchrun_gpus
from vramwise.interop.launch.model_parts import full_but
from vramwise.interop.launch.nested import read_nested
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.rl import Beside, accumulated, by_tokens, parallel_sizes, recompute
from vramwise.interop.launch.values import whole_in

_ACTOR, _MODEL, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_MEGATRON = f"{_ACTOR}.megatron"
_LENGTH, _GPUS, _TOKENS, _MINI, _SHARE = 512, 8, 16384, 256, "0.5"
_SFT_LENGTH, _SFT_BATCH, _SFT_MICRO = 1024, 256, 4


def read(start: Start) -> Launch:
    """The scenario of a verl command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("verl",), "verl")
    words = list(start.words)
    files = [words.pop(place + 1) for place in reversed(range(len(words) - 1)) if words[place] == "--config-file"]
    named = [word.partition("=")[2].strip("'\"") for word in words if word.startswith("--config-name=")]
    notes = read_nested(options, [word for word in words if not word.startswith("--config")], files)
    megatron = options.first(f"{_ACTOR}.strategy") == "megatron" or any("megatron" in name for name in named)
    megatron = megatron or f"{_MEGATRON}.tensor_model_parallel_size" in options.values
    is_sft = "sft" in start.program or "model.partial_pretrain" in options.values
    train, model, said = _sft(options) if is_sft else _rl(options, megatron)
    gpus, each = _gpus(options, start, is_sft)
    launcher = Launcher(gpus, each)
    replicas = (gpus or 1) // max(1, whole_in(train, "context_parallel_size") * whole_in(train, "tensor_parallel_size")
                                  * whole_in(train, "pipeline_parallel_size"))  # fmt: skip
    train |= accumulated(_samples(options, is_sft), whole_in(train, "micro_batch_size"), replicas)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": {**options.settings(), **train}}
    unsaid = [GPUS_UNSAID] if not gpus else []
    return launched("verl", scenario, (*said, *notes, *options.notes(), *unsaid), options)


def _gpus(options: Options, start: Start, is_sft: bool) -> tuple[int | None, int | None]:
    """Cards in all and on a node: torchrun's under SFT, else what Ray is asked for."""
    if is_sft:
        each, nodes = torchrun_gpus(start.before, start.environment)
        return each * nodes or None, each or None
    each = options.number("trainer.n_gpus_per_node") or _GPUS
    return each * (options.number("trainer.nnodes") or 1), each


def _samples(options: Options, is_sft: bool) -> int | None:
    """Samples of an optimizer step: prompts times answers."""
    if is_sft:
        return options.number("data.train_batch_size") or _SFT_BATCH
    prompts = options.number(f"{_ACTOR}.ppo_mini_batch_size") or _MINI
    return prompts * (options.number(f"{_ROLLOUT}.n") or 1)


def _rl(options: Options, megatron: bool) -> tuple[dict[str, object], str, list[str]]:
    model = one_model("verl", options.first(f"{_MODEL}.path"), f"{_MODEL}.path=MODEL")
    length = options.number("data.max_prompt_length", f"{_ROLLOUT}.prompt_length") or _LENGTH
    length += options.number("data.max_response_length", f"{_ROLLOUT}.response_length") or _LENGTH
    train: dict[str, object] = {"sequence_length": length}
    notes = _micro_batch(options, train, length)
    train |= _on_megatron(options) if megatron else _on_fsdp(options)
    if options.is_on(f"{_MODEL}.use_remove_padding", default=True):
        train["padding_free"] = True
    if options.is_on(f"{_MODEL}.use_fused_kernels", f"{_ACTOR}.use_fused_kernels"):
        train["loss"] = "fused-linear"
    if options.is_on(f"{_MODEL}.use_liger"):
        train["kernels"] = ["liger"]
    rank = options.number(f"{_MODEL}.lora_rank", f"{_MODEL}.lora.rank")
    if rank:
        targets, said = targets_of(options.several(f"{_MODEL}.target_modules") or ["all-linear"], model)
        train |= {"method": "lora", "lora_rank": rank, "lora_targets": targets}
        notes += said
    elif options.is_on(f"{_ACTOR}.freeze_vision_tower"):
        train |= full_but(model, towers=False, joins=True)
    beside = _beside(options, bool(rank), megatron)
    return {**train, **beside.table()}, model, [*notes, *beside.notes]


def _micro_batch(options: Options, train: dict[str, object], length: int) -> list[str]:
    if options.is_on(f"{_ACTOR}.use_dynamic_bsz"):
        budget = options.number(f"{_ACTOR}.ppo_max_token_len_per_gpu") or _TOKENS
        shared = options.number(f"{_ACTOR}.ulysses_sequence_parallel_size") or 1
        train["micro_batch_size"], said = by_tokens(budget * shared, length, "use_dynamic_bsz")
        return [said]
    each = options.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    total = options.number(f"{_ACTOR}.ppo_micro_batch_size")
    if each is None and total is not None:
        gpus = (options.number("trainer.n_gpus_per_node") or _GPUS) * (options.number("trainer.nnodes") or 1)
        each = max(1, total // gpus)
    train["micro_batch_size"] = each or 1
    return [] if each else ["ppo_micro_batch_size_per_gpu is not set: one sequence at a time is taken"]


def _on_fsdp(options: Options) -> dict[str, object]:
    fsdp = f"{_ACTOR}.fsdp_config"
    strategy = options.first(f"{_ACTOR}.strategy") or "fsdp"
    dtype = options.first(f"{fsdp}.model_dtype") or "fp32"
    train: dict[str, object] = {
        "framework": "pytorch", "precision": "bf16-mixed", "param_dtype": dtype, "attention": _attention(options),
        "fsdp": "full-shard", "fsdp_version": 2 if strategy == "fsdp2" else 1,
        "checkpointing": "full" if options.is_on(f"{_MODEL}.enable_gradient_checkpointing", default=True) else "none",
    }  # fmt: skip
    if strategy == "fsdp2" and not options.is_on(f"{fsdp}.reshard_after_forward", default=True):
        train["reshard_after_forward"] = False
    size = options.first(f"{fsdp}.fsdp_size") or "-1"
    if size.isdecimal() and int(size) > 1:
        train["fsdp"] = "hybrid-shard"
    if options.is_on(f"{fsdp}.offload_policy"):
        train |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if options.is_on(f"{_MODEL}.enable_activation_offload"):
        train["offload_activations"] = "cpu"
    shared = options.number(f"{_ACTOR}.ulysses_sequence_parallel_size", f"{fsdp}.ulysses_sequence_parallel_size") or 1
    if shared > 1:
        train |= {"context_parallel_size": shared, "context_parallel_kind": "ulysses"}
    if "8bit" in (options.first(f"{_ACTOR}.optim.optimizer") or "").lower():
        train["optimizer"] = "adamw-8bit"
    return train


def _attention(options: Options) -> str:
    """workers/fsdp_workers.py, config/model.py: flash_attention_2 unless the model's own config is overridden."""
    named = options.first(f"{_MODEL}.override_config.attn_implementation") or "flash"
    return "flash" if named.startswith("flash") else named


def _on_megatron(options: Options) -> dict[str, object]:
    """verl's Megatron worker: 16-bit weights, fp32 gradients, a distributed optimizer; sequences split by default."""
    train: dict[str, object] = {
        "framework": "megatron", "precision": "bf16-master", "attention": "flash",
        "distributed_optimizer": options.is_on(f"{_MEGATRON}.use_distributed_optimizer", default=True),
        **recompute(options, f"{_MEGATRON}.override_transformer_config"),
    }  # fmt: skip
    train |= parallel_sizes(options, _MEGATRON)
    virtual = options.number(f"{_MEGATRON}.virtual_pipeline_model_parallel_size")
    if virtual and "pipeline_parallel_size" in train:
        train |= {"virtual_pipeline_parallel_size": virtual, "pipeline_schedule": "interleaved-1f1b"}
    if "tensor_parallel_size" in train:
        train["sequence_parallel"] = options.is_on(f"{_MEGATRON}.sequence_parallel", default=True)
    if options.is_on(f"{_ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload"):
        train["offload_optimizer"] = "cpu"
    return train


def _beside(options: Options, has_adapters: bool, megatron: bool) -> Beside:
    """Reference, critic, reward model and engine on the policy's cards."""
    found = Beside()
    if options.is_on(f"{_ACTOR}.use_kl_loss") or options.is_on("algorithm.use_kl_in_reward"):
        if megatron and not options.is_on("actor_rollout_ref.ref.megatron.param_offload"):
            found.models.append("reference")
        elif not has_adapters:
            found.notes.append("reference: its weights are on the host while the policy trains")
    estimator = options.first("algorithm.adv_estimator") or "gae"
    if options.is_on("critic.enable", default=estimator == "gae"):
        named = options.first("critic.model.path")
        found.models.append(f"critic:{named}" if named else "critic")
    if options.is_on("reward_model.enable"):
        found.notes.append("reward model: its weights are on the host, or on cards of its own, while the policy trains")
    parts = (f"{_ACTOR}.fsdp_config.param_offload", f"{_ACTOR}.fsdp_config.optimizer_offload",
             f"{_ACTOR}.fsdp_config.grad_offload",
             f"{_MEGATRON}.param_offload", f"{_MEGATRON}.grad_offload", f"{_MEGATRON}.optimizer_offload")  # fmt: skip
    moved = [name.rpartition(".")[2] for name in parts if options.is_on(name)]
    if moved:
        found.notes.append(f"{', '.join(moved)}: what leaves the GPU between steps is on it while the policy trains")
    if options.is_on("actor_rollout_ref.hybrid_engine", default=True):
        share = options.first(f"{_ROLLOUT}.gpu_memory_utilization") or _SHARE
        sleeps = options.is_on(f"{_ROLLOUT}.free_cache_engine", default=True)
        found.rollout(options.first(f"{_ROLLOUT}.name") or "vllm", share, sleeps=sleeps)
    return found


def _sft(options: Options) -> tuple[dict[str, object], str, list[str]]:
    named = options.first("model.partial_pretrain", "model.path")
    model = one_model("verl", named, "model.partial_pretrain=MODEL")
    train: dict[str, object] = {
        "framework": "pytorch", "precision": "bf16-mixed", "attention": "flash", "fsdp": "full-shard",
        "param_dtype": options.first("model.fsdp_config.model_dtype", "engine.model_dtype") or "fp32",
        "fsdp_version": 1 if options.first("model.strategy", "engine.strategy") == "fsdp" else 2,
        "sequence_length": options.number("data.max_length") or _SFT_LENGTH,
        "micro_batch_size": options.number("data.micro_batch_size_per_gpu") or _SFT_MICRO,
        "checkpointing": "full" if options.is_on("model.enable_gradient_checkpointing", default=True) else "none",
    }  # fmt: skip
    shared = options.number("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size") or 1
    if shared > 1:
        train |= {"context_parallel_size": shared, "context_parallel_kind": "ulysses"}
    if options.is_on("model.fsdp_config.cpu_offload", "model.fsdp_config.offload_params", "engine.offload_policy"):
        train |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if options.is_on("use_remove_padding", "model.use_remove_padding"):
        train["padding_free"] = True
    if options.is_on("model.use_liger"):
        train["kernels"] = ["liger"]
    notes: list[str] = []
    rank = options.number("model.lora_rank")
    if rank:
        targets, notes = targets_of(options.several("model.target_modules") or ["all-linear"], model)
        train |= {"method": "lora", "lora_rank": rank, "lora_targets": targets}
    return train, model, notes
