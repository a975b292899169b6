"""`python3 -m openrlhf.cli.train_ppo_ray …`, `deepspeed --module openrlhf.cli.train_sft …` and its train_dpo, train_rm.

Read in OpenRLHF 0.10 (3c3be623: cli/train_*.py with names such as `--actor.model_name_or_path`) and 0.8 (`--pretrain`,
`--micro_train_batch_size`); utils/deepspeed: ZeRO with an fp32 master copy, DeepSpeed's FusedAdam, adapters in 16 bits.
"""

from __future__ import annotations

from vramwise.interop.launch.adapters import targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import Launcher, launcher_of
from vramwise.interop.launch.model_parts import full_but
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.rl import Beside, accumulated, by_tokens
from vramwise.interop.launch.values import fraction, whole_in

_MODELS = ("actor.model_name_or_path", "model.model_name_or_path", "pretrain")
_GPUS, _SHARE = 8, "0.95"
_TOKENS = 16192


def read(start: Start) -> Launch:
    """The scenario of an OpenRLHF command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("openrlhf",), "OpenRLHF")
    options.read_words(start.words)
    kind = start.program.rpartition("train_")[2] or "sft"
    is_rl = kind.startswith(("ppo", "grpo"))
    model = one_model("OpenRLHF", options.first(*_MODELS), "--actor.model_name_or_path MODEL")
    launcher = _ray(options) if is_rl else launcher_of(start)
    train, notes = _states(options, is_rl)
    notes += _batch(options, kind, train, is_rl, launcher.gpus or 1)
    rank = options.number("ds.lora.rank", "lora_rank")
    if rank:
        targets, said = targets_of(options.several("ds.lora.target_modules", "target_modules") or ["all-linear"], model)
        in_4 = options.is_on("ds.load_in_4bit", "load_in_4bit")
        train |= {"method": "qlora" if in_4 else "lora", "lora_rank": rank, "lora_targets": targets,
                  "lora_dropout": fraction(options.first("ds.lora.dropout", "lora_dropout") or "0"),
                  "lora_dtype": str(train["precision"]).removesuffix("-master"),
                  **({"quantization": "nf4-dq"} if in_4 else {})}  # fmt: skip
        notes += said
    elif options.is_on("actor.freeze_visual_encoder", "freeze_visual_encoder"):
        train |= full_but(model, towers=False, joins=True)
    if kind == "rm":
        train["head"] = "sequence-classification"
    beside = _beside(options, kind, bool(rank))
    scenario = {"model": model, "task": "train", **launcher.table(), "train": {**train, **beside.table()}}
    said_all = (*notes, *beside.notes, *options.notes(), *launcher.said())
    return launched("openrlhf", scenario, said_all, options)


def _ray(options: Options) -> Launcher:
    """The actor's own cards."""
    each = options.number("actor.num_gpus_per_node", "actor_num_gpus_per_node") or _GPUS
    return Launcher(each * (options.number("actor.num_nodes", "actor_num_nodes") or 1), each)


def _states(options: Options, is_rl: bool) -> tuple[dict[str, object], list[str]]:
    """ZeRO, dtypes and what is kept for backward."""
    dtype = options.first("ds.param_dtype", "param_dtype") or ("bf16" if is_rl or not options.is_on("fp16") else "fp16")
    train: dict[str, object] = {
        "framework": "deepspeed", "precision": f"{dtype}-master" if dtype in ("bf16", "fp16") else "fp32",
        "zero_stage": options.number("ds.zero_stage", "zero_stage") or 2,
        "checkpointing": "full" if options.is_on("actor.gradient_checkpointing_enable",
                                                 "model.gradient_checkpointing_enable",
                                                 "gradient_checkpointing") else "none",
    }  # fmt: skip
    attention = _attention(options, is_rl)
    if attention:
        train["attention"] = attention
    if options.is_on("ds.use_liger_kernel", "use_liger_kernel"):
        train["kernels"] = ["liger"]
    if options.is_on("ds.adam_offload", "adam_offload"):
        train["offload_optimizer"] = "cpu"
    if options.is_on("ds.overlap_comm", "overlap_comm"):
        train["overlap_comm"] = True
    grads = options.first("ds.grad_accum_dtype", "grad_accum_dtype")
    if grads:
        train["grad_dtype"] = grads
    replicas = options.number("ds.zpg", "zpg")
    if replicas and replicas > 1:
        train["zero_hpz_partition_size"] = replicas
    for key, names in (("tensor_parallel_size", ("ds.tensor_parallel_size", "ds_tensor_parallel_size")),
                       ("context_parallel_size", ("ds.ring_attn_size", "ring_attn_size"))):  # fmt: skip
        count = options.number(*names)
        if count and count > 1:
            train[key] = count
    if options.first("optim") == "muon":
        train["optimizer"] = "muon"
    return train, []


def _attention(options: Options, is_rl: bool) -> str | None:
    """flash_attention_2 unless told, and wherever samples are packed; before 0.9 (`--bf16`) it took --flash_attn."""
    asked = options.first("ds.attn_implementation", "attn_implementation") or ""
    packs = options.is_on("ds.packing_samples", "packing_samples")
    is_old = any(name in options.values for name in ("bf16", "fp16", "flash_attn"))
    if "flash" in asked or packs or options.is_on("flash_attn"):
        return "flash"
    if asked in ("eager", "sdpa"):
        return asked
    return None if asked or (is_old and not is_rl) else "flash"


def _batch(options: Options, kind: str, train: dict[str, object], is_rl: bool, gpus: int) -> list[str]:
    notes: list[str] = []
    length = options.number("data.max_len", "max_len")
    if length is None:
        prompt, answer = options.number("prompt_max_len"), options.number("generate_max_len")
        length = (prompt or 1024) + (answer or 1024) if is_rl and (prompt or answer) else (
            2048 if is_rl or kind == "sft" else 512)  # fmt: skip
    train["sequence_length"] = length
    default = 1 if is_rl or kind == "rm" else 8
    if is_rl and options.is_on("train.dynamic_batch_enable", "use_dynamic_batch"):
        budget = options.number("train.max_tokens_per_gpu", "train_max_tokens_per_gpu") or _TOKENS
        count, said = by_tokens(budget, length, "dynamic batches")
        notes.append(said)
    else:
        count = options.number("train.micro_batch_size", "micro_train_batch_size") or default
    if options.is_on("ds.packing_samples", "packing_samples"):
        train["padding_free"] = True
    samples = options.number("train.batch_size", "train_batch_size")
    cut = whole_in(train, "tensor_parallel_size") * whole_in(train, "context_parallel_size")
    train |= accumulated(samples, count, gpus // max(1, cut))
    if kind in ("dpo", "rm"):
        count *= 2
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    train["micro_batch_size"] = count
    return notes


def _beside(options: Options, kind: str, has_adapters: bool) -> Beside:
    """The other models on the actor's cards; all of them under `colocate_all`."""
    found = Beside()
    offloads = options.is_on("ref.offload", "ref_reward_offload")
    if kind == "dpo" and not has_adapters:
        named = options.first("ref.model_name_or_path", "ref_pretrain")
        found.notes += ["reference: its weights are on the host"] if offloads else []
        found.models += [] if offloads else [f"reference:{named}" if named else "reference"]
    if not kind.startswith(("ppo", "grpo")):
        return found
    together = options.is_on("train.colocate_all", "colocate_all_models")
    sleeps = options.is_on("ds.enable_sleep", "deepspeed_enable_sleep")
    if together or options.is_on("colocate_actor_ref", "train.colocate_actor_ref"):
        kl = fraction(options.first("algo.kl.init_coef", "init_kl_coef") or "0.01")
        if kl and offloads:
            found.notes.append("reference: its weights are on the host")
        elif kl:
            found.models.append("reference")
    estimator = options.first("algo.advantage.estimator", "advantage_estimator") or "gae"
    critic = options.first("critic.model_name_or_path", "critic_pretrain", "reward.model_name_or_path",
                           "reward_pretrain") or options.first(*_MODELS)  # fmt: skip
    reward = options.first("reward.model_name_or_path", "reward_pretrain")
    if not together:
        found.notes.append("critic, reward model and rollout engine have GPUs of their own, which are not counted here")
        return found
    if estimator == "gae" and sleeps:
        found.notes.append("critic: it sleeps on the host while the actor trains")
    elif estimator == "gae":
        found.models.append(f"critic:{critic}")
    if reward and not options.is_on("reward.offload", "ref_reward_offload"):
        found.models.append(f"reward:{reward}")
    share = options.first("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization") or _SHARE
    if options.number("vllm.num_engines", "vllm_num_engines"):
        found.rollout("vllm", share, sleeps=options.is_on("vllm.enable_sleep", "vllm_enable_sleep"))
    return found
