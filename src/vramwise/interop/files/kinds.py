"""Whose file it is, by what is in it: the one place that knows.

A kind is told by keys that its tool alone has, in the order of the list below; a name or ending decides only for what
is no table. `words` are the command line that runs the file (`{}`), `with_accelerate` those behind `accelerate launch`,
`model` and `deepspeed` the words with which that command takes another model or a DeepSpeed file, `program` what fills
in which of the tool's programs it is; a file that stands `beside` a tool's says how that is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field

from vramwise.interop.files.given import (
    Filled,
    Given,
    Words,
    as_they_are,
    of_litgpt,
    of_llamafactory,
    of_llamafactory_v1,
    of_ms_swift,
    of_nemo_rl,
    of_torchtune,
    of_trl,
    read_given,
)
from vramwise.records import record

Table = Mapping[str, object]


@record
class Kind:
    """A kind of file."""

    name: str
    title: str
    tells: Callable[[Table], bool] = field(default=lambda table: False)
    words: tuple[str, ...] = ()
    with_accelerate: tuple[str, ...] = ()
    model: str = ""
    deepspeed: str = ""
    program: Callable[[Given, Words], Filled] = field(default=as_they_are)
    beside: bool = False
    with_cloud: tuple[str, ...] = ()


def _has(*keys: str) -> Callable[[Table], bool]:
    """A test for any of the keys."""
    return lambda table: any(key in table for key in keys)


def _tables_with(*paths: str) -> Callable[[Table], bool]:
    """A test for a key within a table: `policy.model_name`."""

    def tells(table: Table) -> bool:
        for path in paths:
            outer, _, inner = path.partition(".")
            value = table.get(outer)
            if isinstance(value, Mapping) and inner in value:
                return True
        return False

    return tells


def _is_axolotl(table: Table) -> bool:
    """axolotl 0.19 utils/schemas/validation.py asks for data and a batch by its own names: a file with a base_model and
    Trainer's batch alone is a script's of one's own."""
    own = ("datasets", "pretraining_dataset", "micro_batch_size", "sequence_len", "adapter", "rl")
    return "base_model" in table and ("per_device_train_batch_size" not in table or any(key in table for key in own))


def _is_llamafactory(table: Table) -> bool:
    own = ("finetuning_type", "cutoff_len", "template", "dataset_dir", "lora_target", "freeze_trainable_layers")
    return "model_name_or_path" in table and any(key in table for key in own) and "chat_template" not in table


def _is_llamafactory_v1(table: Table) -> bool:
    """Neither a model's config nor one of ms-swift's has these."""
    own = ("train_dataset", "dist_config", "peft_config", "kernel_config", "model_class")
    return isinstance(table.get("model"), str) and any(key in table for key in own)


def _is_ms_swift(table: Table) -> bool:
    own = ("tuner_type", "train_type", "sft_type", "rlhf_type", "tuner_backend", "swift_version")
    return any(key in table for key in own) and any(key in table for key in ("model", "model_id_or_path"))


def _is_litgpt(table: Table) -> bool:
    train = table.get("train")
    own = isinstance(train, Mapping) and any(key in train for key in ("global_batch_size", "micro_batch_size"))
    return own and ("checkpoint_dir" in table or "model_name" in table or "initial_checkpoint_dir" in table)


def _is_torchtitan(table: Table) -> bool:
    model, training = table.get("model"), table.get("training")
    return isinstance(model, Mapping) and isinstance(training, Mapping) and "flavor" in model


def _is_llm_foundry(table: Table) -> bool:
    own = ("device_train_microbatch_size", "global_train_batch_size", "device_train_batch_size")
    return "max_seq_len" in table and isinstance(table.get("model"), Mapping) and any(key in table for key in own)


def _is_nemo_rl(table: Table) -> bool:
    own = (
        "grpo", "ppo", "dpo", "sft", "rm", "distillation", "cluster", "data", "checkpointing", "data_plane", "loss_fn",
        "logger", "env", "teacher", "value",
    )  # fmt: skip
    return isinstance(table.get("policy"), Mapping) or ("defaults" in table and any(key in table for key in own))


def _is_agilerl(table: Table) -> bool:
    algorithm = table.get("algorithm")
    return isinstance(algorithm, Mapping) and "name" in algorithm and ("training" in table or "environment" in table)


def _is_axolotl_cloud(table: Table) -> bool:
    """0.19 examples/cloud: where `axolotl train --cloud` runs."""
    return "gpu_count" in table and any(key in table for key in ("provider", "volumes", "secrets", "timeout", "branch"))


def _is_trainers(table: Table) -> bool:
    """TRL's or a script's arguments, and TrainingArguments as transformers saves them."""
    own = ("per_device_train_batch_size", "gradient_checkpointing", "use_peft", "max_completion_length")
    if "dist_config" in table or "train_dataset" in table:  # the next LLaMA-Factory's, whose names are others
        return False
    return "model_name_or_path" in table or sum(key in table for key in (*own, "output_dir", "learning_rate")) > 1


def _are_flags_of(engine: str, model: str, *own: str) -> Callable[[Table], bool]:
    """A test for an engine's flags by name, with dashes or underscores: beside its flag for the model, or alone."""

    def tells(table: Table) -> bool:
        names = {str(key).replace("_", "-") for key in table}
        if "task" in table or not names.intersection(own):
            return False
        if model in names:
            return True
        from vramwise.interop.launch.flags import known

        return all(known(engine, f"--{name}")[0] is not None for name in names)

    return tells


def _is_koboldcpp(table: Table) -> bool:
    return "contextsize" in table and any(key in table for key in ("gpulayers", "quantkv", "model_param"))


def _is_prime_rl(table: Table) -> bool:
    from vramwise.interop.launch.prime_rl_parts import part_of

    return bool(part_of(table))


def _is_sky(table: Table) -> bool:
    return isinstance(table.get("run"), str) and any(key in table for key in ("resources", "setup", "envs", "service"))


def _is_dstack(table: Table) -> bool:
    """dstack 0.20 core/models/configurations.py: commands of a task or service, or an image alone."""
    runs = isinstance(table.get("commands"), list) or isinstance(table.get("image"), str)
    return table.get("type") in ("task", "service", "dev-environment") and runs


def _is_recipe(table: Table) -> bool:
    model = table.get("model")
    return isinstance(model, Mapping) and "model_id" in model and ("variants" in table or "base_args" in model)


def _is_llama_swap(table: Table) -> bool:
    models = table.get("models")
    return isinstance(models, Mapping) and any(isinstance(one, Mapping) and "cmd" in one for one in models.values())


def _is_kubeai(table: Table) -> bool:
    catalog = table.get("catalog")
    return isinstance(catalog, Mapping) and any(
        isinstance(one, Mapping) and "url" in one and "engine" in one for one in catalog.values()
    )


def _is_model_service(table: Table) -> bool:
    roles = [table.get(role) for role in ("decode", "prefill")]
    return isinstance(table.get("modelArtifacts"), Mapping) and any(
        isinstance(role, Mapping) and "containers" in role for role in roles
    )


SCENARIO = Kind("vramwise", "a scenario of vramwise")
COMPOSE = Kind("compose", "a file of Docker Compose")
KUBERNETES = Kind("kubernetes", "a manifest of Kubernetes")
HELM_VALUES = Kind("helm-values", "values of the vLLM production stack")
MODEL_SERVICE = Kind("model-service-values", "values of llm-d's chart of models")
KUBEAI_VALUES = Kind("kubeai-values", "values of KubeAI's chart of models")
RAY_SERVE = Kind("ray-serve", "a configuration of Ray Serve")
RAY_MODEL = Kind("ray-model", "a model of Ray Serve")
AXOLOTL_CLOUD = Kind("axolotl-cloud", "axolotl's file of a cloud", _is_axolotl_cloud, beside=True)
ACCELERATE = Kind("accelerate", "a configuration of accelerate")
DEEPSPEED = Kind("deepspeed", "a configuration of DeepSpeed")
SKY = Kind("sky", "a task of SkyPilot")
RECIPE = Kind("recipe", "a recipe of vLLM's")
DSTACK = Kind("dstack", "a configuration of dstack")
PRIME_RL = Kind("prime-rl", "a configuration of prime-rl", _is_prime_rl)
LLAMA_SWAP = Kind("llama-swap", "a configuration of llama-swap")
MODELFILE = Kind("modelfile", "a Modelfile of ollama")
SYSTEMD = Kind("systemd", "a unit of systemd")
VARIABLES = Kind("variables", "a file of variables")
SCRIPT = Kind("script", "a script")
COMMAND = Kind("command", "a command line")
PYTHON = Kind("python", "a Python script")
NOTEBOOK = Kind("notebook", "a notebook")

_SCRIPTS = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job", ".zsh"})
_MODEL_KEYS = _has("model_type", "architectures", "_class_name", "gguf_file")
_SCENARIO_TABLES = ("train", "serve", "generate", "load")

KINDS: tuple[Kind, ...] = (
    Kind("axolotl", "a configuration of axolotl",  # 0.19 utils/schemas/config.py: required
         _is_axolotl, ("axolotl", "train", "{}"), ("-m", "axolotl.cli.train", "{}"), "--base_model={}",
         "--deepspeed={}", with_cloud=("--cloud",)),
    Kind("llamafactory", "a configuration of LLaMA-Factory",  # 0.9.5 hparams/*.py
         _is_llamafactory, ("llamafactory-cli", "train", "{}"), ("src/train.py", "{}"), "--model_name_or_path={}",
         "--deepspeed={}", of_llamafactory),
    Kind("llamafactory-v1", "a configuration of LLaMA-Factory's second version",  # ff6d4d12e src/llamafactory/v1
         _is_llamafactory_v1, ("USE_V1=1", "llamafactory-cli", "STAGE", "{}"), (), "--model={}",
         program=of_llamafactory_v1),
    Kind("ms-swift", "a configuration of ms-swift",  # 4.6 arguments/base_args
         _is_ms_swift, ("swift", "sft", "{}"), (), "--model={}", "--deepspeed={}",
         of_ms_swift),
    Kind("torchtune", "a configuration of torchtune",  # 0.6 recipes/configs
         _tables_with("model._component_", "policy_model._component_", "policy._component_"),
         ("tune", "run", "RECIPE", "--config", "{}"), (),
         "checkpointer.checkpoint_dir={}", program=of_torchtune),
    Kind("verl", "a configuration of verl", _has("actor_rollout_ref"),  # 0.7 trainer/config/ppo_trainer.yaml
         ("python3", "-m", "verl.trainer.main_ppo", "--config-file", "{}"), (), "actor_rollout_ref.model.path={}"),
    Kind("nemo-rl", "a configuration of NeMo-RL", _is_nemo_rl,  # examples/configs/grpo_math_1B.yaml
         ("uv", "run", "examples/run_grpo.py", "--config", "{}"), (), "policy.model_name={}",
         program=of_nemo_rl),
    Kind("torchtitan", "a configuration of torchtitan", _is_torchtitan,  # 0.1 and 0.2 config/job_config.py
         ("torchrun", "-m", "torchtitan.train", "--job.config_file", "{}"), (), "--model.hf_assets_path={}"),
    PRIME_RL,
    Kind("llm-foundry", "a configuration of llm-foundry", _is_llm_foundry,  # 0.22 utils/config_utils.py TrainConfig
         ("composer", "train.py", "{}"), (), "model.pretrained_model_name_or_path={}"),
    Kind("litgpt", "a configuration of litgpt", _is_litgpt,  # 0.5 config_hub
         ("litgpt", "finetune_lora", "--config", "{}"), (), "--checkpoint_dir={}",
         program=of_litgpt),
    Kind("agilerl", "a configuration of AgileRL", _is_agilerl,  # models/algorithms
         ("python", "-m", "agilerl.train", "{}"), (), "algorithm.pretrained_model_name_or_path={}"),
    Kind("vllm", "flags of vLLM",  # 0.33 docs/configuration/serve_args.md: vllm serve --config
         _are_flags_of("vllm", "model", "max-model-len", "tensor-parallel-size", "gpu-memory-utilization",
                       "max-num-seqs", "served-model-name", "kv-cache-dtype", "enforce-eager",
                       "max-num-batched-tokens"),
         ("vllm", "serve", "--config", "{}"), (), "--model={}"),
    Kind("sglang", "flags of SGLang",  # 0.5.23 server_args_config_parser.py
         _are_flags_of("sglang", "model-path", "tp-size", "tensor-parallel-size", "mem-fraction-static",
                       "context-length", "dp-size", "kv-cache-dtype", "chunked-prefill-size",
                       "max-running-requests"),
         ("python3", "-m", "sglang.launch_server", "--config", "{}"), (), "--model-path={}"),
    Kind("koboldcpp", "settings of KoboldCpp",  # 1.117.1 koboldcpp.py: save_config_cli
         _is_koboldcpp, ("koboldcpp", "--config", "{}"), (), "--model={}"),
    AXOLOTL_CLOUD,
    Kind("deepspeed", DEEPSPEED.title,  # 0.19 runtime/config.py
         _has("zero_optimization", "train_micro_batch_size_per_gpu"), beside=True),
    Kind("accelerate", ACCELERATE.title,  # 1.15 commands/config/config_args.py
         _has("distributed_type", "compute_environment", "fsdp_config"), beside=True),
    Kind("trainer", "arguments of transformers' Trainer or TRL", _is_trainers,
         ("trl", "STAGE", "--config", "{}"), ("trl/scripts/STAGE.py", "--config", "{}"), "--model_name_or_path={}",
         "--deepspeed={}", of_trl),
)  # fmt: skip


def tools_kind(path: str) -> Kind | None:
    """Whose file it is where it is another tool's; a model's, our own, nobody's and what cannot be read is not."""
    given = read_given(path)
    kind = None if given is None else kind_of(given)
    return None if kind is SCENARIO else kind


def is_tools_file(path: str) -> bool:
    """Whether a file is another tool's, or a text that holds a command line."""
    return tools_kind(path) is not None


def is_nobodys_table(path: str) -> bool:
    """Whether a YAML file is none of a tool's, no model's and no scenario's: it names no model by a key known here."""
    given = read_given(path)
    if given is None or given.suffix not in (".yaml", ".yml", ".toml") or kind_of(given) is not None:
        return False
    model = given.table.get("model")
    if isinstance(model, Mapping) and "task" not in given.table and not _MODEL_KEYS(model):
        return True
    return not (_MODEL_KEYS(given.table) or _has("model", "task", *_SCENARIO_TABLES)(given.table))


def kind_of(given: Given) -> Kind | None:
    """Whose file it is; SCENARIO for our own, None for a model's and for what nobody here knows."""
    if given.documents:
        return _of_documents(given)
    if given.suffix == ".ipynb":
        return NOTEBOOK
    if given.suffix == ".py":
        return PYTHON
    if given.suffix in _SCRIPTS or given.text.startswith("#!"):
        return SCRIPT
    from vramwise.interop.files.environment import is_of_variables
    from vramwise.interop.files.systemd import is_unit

    if is_unit(given.text):
        return SYSTEMD
    if is_of_variables(given):
        return VARIABLES
    is_modelfile = re.search(r"(?mi)^[ \t]*FROM[ \t]+\S", given.text) and "modelfile" in given.name.lower()
    if is_modelfile:
        return MODELFILE
    if given.text.lstrip().startswith("{"):  # a config.json: what reads commands stays where it is
        return None
    from vramwise.interop.files.pasted_commands import pasted_commands

    return COMMAND if pasted_commands(given.text) is not None else None


def _of_documents(given: Given) -> Kind | None:
    table = given.table
    if any(isinstance(one, Mapping) and "apiVersion" in one and "kind" in one for one in given.documents):
        return KUBERNETES
    services = table.get("services")
    if isinstance(services, Mapping) and any(isinstance(one, Mapping) for one in services.values()):
        return COMPOSE
    if "task" in table and "model" in table and any(isinstance(table.get(key), Mapping) for key in _SCENARIO_TABLES):
        return SCENARIO
    if _is_sky(table):
        return SKY
    if _is_recipe(table):
        return RECIPE
    if _is_dstack(table):
        return DSTACK
    if _is_llama_swap(table):
        return LLAMA_SWAP
    if _tables_with("servingEngineSpec.modelSpec")(table):
        return HELM_VALUES
    if _is_kubeai(table):
        return KUBEAI_VALUES
    if _is_model_service(table):
        return MODEL_SERVICE
    if "applications" in table or "llm_configs" in table:
        return RAY_SERVE
    if isinstance(table.get("model_loading_config"), Mapping):
        return RAY_MODEL
    if _MODEL_KEYS(table) and not _has("base_model", "model_name_or_path")(table):
        return None
    kinds = (kind for kind in KINDS if kind is not PRIME_RL or given.suffix == ".toml")
    return next((kind for kind in kinds if kind.tells(table)), None)
