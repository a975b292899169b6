"""A file that was given, read once: its documents where it is YAML, JSON or TOML, else its text.

Which of a tool's programs a configuration is for: by what it sets, said where the file leaves a choice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

from vramwise.errors import SourceError, VramwiseError, clipped
from vramwise.files import shown_path
from vramwise.records import record
from vramwise.scenario import read_table_file
from vramwise.scenario.files import parse_documents, read_text_file
from vramwise.units import MIB

_LARGEST_BYTES = MIB
_LARGEST_NOTEBOOK_BYTES = 16 * MIB
_YAML = (".yaml", ".yml")
_KOBOLD = (".kcpps", ".kcppt")
_TABLES = (*_YAML, *_KOBOLD, ".json", ".toml")
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".onnx")


@record
class Given:
    """One file: `documents` of a table file (one, or several of YAML), else `text`."""

    path: str
    documents: tuple[object, ...] = ()
    text: str = ""
    unread: tuple[str, ...] = ()
    """What is said of documents of a manifest that are no YAML."""

    @property
    def suffix(self) -> str:
        return PurePath(self.path).suffix.lower()

    @property
    def name(self) -> str:
        return PurePath(self.path).name

    @property
    def table(self) -> Mapping[str, object]:
        """The first document that is a table, empty where none is."""
        return next((document for document in self.documents if isinstance(document, Mapping)), {})


def read_given(path: str) -> Given | None:
    """The file at `path`, or None for what is no file, no text, too large, or broken: others say so."""
    try:
        suffix = PurePath(path).suffix.lower()
        largest = _LARGEST_NOTEBOOK_BYTES if suffix == ".ipynb" else _LARGEST_BYTES
        if suffix in _WEIGHTS or not os.path.isfile(path) or os.path.getsize(path) > largest:
            return None
        if suffix in _YAML:
            return _of_yaml(read_text_file(path), path)
        if suffix in _TABLES:
            return Given(path, (read_table_file(path, any_name=suffix in _KOBOLD),))
        return Given(path, text=read_text_file(path))
    except (OSError, VramwiseError):
        return None


_SEPARATOR = re.compile(r"(?m)^---(?:[ \t].*)?$\n?")
_MOST_DOCUMENTS = 200


def _of_yaml(text: str, path: str) -> Given:
    """The documents of a text; of a manifest whose templates are not filled in (`token: {{TOKEN}}`) those that are
    YAML. Raises SourceError where none is a manifest's."""
    try:
        return Given(path, tuple(parse_documents(text, path)))
    except SourceError:
        ends = [(match.start(), match.end()) for match in _SEPARATOR.finditer(text)][:_MOST_DOCUMENTS]
        if not ends:
            raise
        found, unread = _one_by_one(text, [(0, 0), *ends, (len(text), len(text))], path)
        if not any("apiVersion" in one and "kind" in one for one in found):
            raise
        return Given(path, tuple(found), unread=tuple(unread))


def _one_by_one(
    text: str, ends: Sequence[tuple[int, int]], path: str
) -> tuple[list[Mapping[str, object]], list[str]]:  # fmt: skip
    found: list[Mapping[str, object]] = []
    unread = []
    for (_, start), (end, _) in pairwise(ends):
        part = text[start:end]
        try:
            tables = parse_documents(part, path) if part.strip() else []
        except SourceError as problem:
            line = text.count("\n", 0, start) + 1
            what = str(problem).partition(": ")[2]
            unread.append(f"its document of line {line} is passed over: {clipped(what, 80)}")
            continue
        found += [one for one in tables if isinstance(one, Mapping)]
    return found, unread


def read_again(path: str) -> None:
    """Raises SourceError with what is wrong with a file that `read_given` did not take."""
    suffix = PurePath(path).suffix.lower()
    if os.path.isfile(path) and os.path.getsize(path) > _LARGEST_BYTES and suffix != ".ipynb":
        raise SourceError(f"{shown_path(path)}: larger than 1 MiB, which is no configuration")
    if suffix in _YAML:
        parse_documents(read_text_file(path), path)
    elif suffix in _TABLES:
        read_table_file(path, any_name=suffix in _KOBOLD)
    else:
        read_text_file(path)


_TRL_STAGES = ("sft", "dpo", "grpo", "kto", "reward", "rloo")
_BY_TRL_KEY = (  # trl 1.16 trainer/*_config.py
    ("grpo", ("num_generations", "max_completion_length", "vllm_mode", "scale_rewards", "reward_funcs")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("dpo", ("beta", "precompute_ref_log_probs", "rpo_alpha", "ref_model_name_or_path", "max_prompt_length")),
    ("reward", ("center_rewards_coefficient",)),
    ("sft", ("packing", "assistant_only_loss", "completion_only_loss", "dataset_text_field", "max_seq_length")),
)
_OF_OWN_SCRIPTS = ("train_mode", "lora_rank", "peft_lora_r", "use_lora", "use_qlora", "lora_enable", "use_peft_lora",
                   "base_model", "with_tracking", "checkpointing_steps", "use_slow_tokenizer")  # fmt: skip
"""Names that published scripts have (transformers' own without a Trainer too) and TRL, whose file would be refused,
has not."""

Words = tuple[str, ...]
Filled = tuple[Words, str]
"""The words with the program filled in, and which was taken by what; empty where the file leaves no choice."""


def as_they_are(given: Given, words: Words) -> Filled:
    """The words of a tool with one program."""
    return words, ""


def of_trl(given: Given, words: Words) -> Filled:
    stage, why = _trl(given)
    if stage is None:
        return ("python", "train.py", "{}"), ""
    own = next((key for key in _OF_OWN_SCRIPTS if key in given.table and "use_peft" not in given.table), None)
    if own is not None:
        said = f"taken as a script's of your own by {own}: what that does beside is not seen"
        return ("python", "train.py", "{}"), said
    return _with(words, "STAGE", stage), f"taken as trl {stage} by {why}"


_OF_CHATS = frozenset({
    "model_name_or_path", "adapter_name_or_path", "adapter_folder", "template", "finetuning_type", "trust_remote_code",
    "cache_dir", "flash_attn", "rope_scaling", "use_kv_cache", "quantization_bit", "quantization_method",
    "quantization_type", "double_quantization", "default_system", "enable_thinking", "do_sample", "temperature",
    "top_p", "top_k", "num_beams", "max_length", "max_new_tokens", "repetition_penalty", "length_penalty",
})  # fmt: skip


def of_llamafactory(given: Given, words: Words) -> Filled:
    """0.9.5 examples/: `export` alone asks for `export_dir`; a chat's file names an engine or nothing to train with.

    A way to fine-tune is one to train with, where it is not that of an adapter which is there.
    """
    table = given.table
    if words[:1] != ("llamafactory-cli",) or table.get("do_train"):
        return words, ""
    if table.get("export_dir"):
        return _with(words, "train", "export"), "taken as llamafactory-cli export by export_dir"
    if table.get("infer_backend"):
        return _with(words, "train", "chat"), "taken as llamafactory-cli chat by infer_backend"
    tunes = "finetuning_type" in table and not table.get("adapter_name_or_path")
    if not tunes and all(key in _OF_CHATS or str(key).startswith(("vllm_", "sglang_", "infer_")) for key in table):
        return _with(words, "train", "chat"), "taken as llamafactory-cli chat: it names nothing to train with"
    return words, ""


def of_llamafactory_v1(given: Given, words: Words) -> Filled:
    """The command says what is trained; of the file only its name and the settings of preferences do."""
    parts = given.name.lower().replace("-", "_").replace(".", "_").split("_")
    stage = "dpo" if "dpo" in parts or "pref_loss" in given.table else "rm" if {"rm", "reward"} & {*parts} else "sft"
    return _with(words, "STAGE", stage), f"taken as {stage}" if stage != "sft" else ""


def of_torchtune(given: Given, words: Words) -> Filled:
    recipe = _torchtune(given)
    return _with(words, "RECIPE", recipe), f"the recipe is taken as {recipe}"


def of_litgpt(given: Given, words: Words) -> Filled:
    program = _litgpt(given.table)
    return _with(words, "finetune_lora", program), f"taken as litgpt {program}"


def of_ms_swift(given: Given, words: Words) -> Filled:
    return _with(words, "sft", "rlhf") if "rlhf_type" in given.table else words, ""


def of_nemo_rl(given: Given, words: Words) -> Filled:
    return _with(words, "run_grpo", _nemo_rl(given.table)), ""


def _with(words: Words, blank: str, program: str) -> Words:
    return tuple(word.replace(blank, program) for word in words)


def _trl(given: Given) -> tuple[str | None, str]:
    """TRL's trainer; None for what transformers' Trainer saved, which names none of TRL's settings."""
    table = given.table
    for stage, keys in _BY_TRL_KEY:
        named = next((key for key in keys if key in table), None)
        if named is not None:
            return stage, named
    folders = given.path.replace("\\", "/").lower().split("/")
    for part in reversed(folders):
        for stage in _TRL_STAGES:
            if stage in part.replace("-", "_").replace(".", "_").split("_"):
                return stage, f"its path ({part})"
    own = ("model_name_or_path", "use_peft", "dataset_name", "dataset_mixture")
    return ("sft", "default") if given.suffix != ".json" and any(key in table for key in own) else (None, "")


def _torchtune(given: Given) -> str:
    """torchtune 0.6.1: configurations for one GPU are called so, and its recipes by what they train."""
    table = given.table

    def component(name: str) -> str:
        value = table.get(name)
        return str(value.get("_component_", "")) if isinstance(value, Mapping) else ""

    other = _torchtune_without_training(table)
    if other:
        return other
    where = "single_device" if "single_device" in given.name else "distributed"
    has_lora = "lora" in component("model")
    if "orchestration" in table:
        return "dev/async_grpo_full_finetune_distributed"
    if "teacher_checkpointer" in table:
        return f"knowledge_distillation_{where}"
    if "DPO" in component("loss"):
        return f"{'lora' if has_lora else 'full'}_dpo_{where}"
    if "policy_model" in table:
        return "ppo_full_finetune_single_device"
    if "GRPO" in component("loss"):
        return "grpo_full_finetune_distributed"
    if "quantizer" in table and "qat" in component("quantizer").lower():
        return f"qat_{'lora_finetune_' if has_lora else ''}{where}"
    return f"{'lora' if has_lora else 'full'}_finetune_{where}"


def _torchtune_without_training(table: Mapping[str, object]) -> str:
    """Recipes that need neither an optimizer nor data: told by what they ask for instead; "" for training."""
    if any(key in table for key in ("optimizer", "loss", "dataset", "epochs")):
        return ""
    if "tasks" in table:
        return "eleuther_eval"
    if "prompt" in table or "max_new_tokens" in table:
        if "tensor_parallel_plan" in table:
            return "dev/generate_v2_distributed"
        return "generate" if "enable_kv_cache" in table or "quantizer" in table else "dev/generate_v2"
    return "quantize" if isinstance(table.get("quantizer"), Mapping) else ""


def _litgpt(table: Mapping[str, object]) -> str:
    if "lora_r" in table or "lora_alpha" in table:
        return "finetune_lora"
    return "finetune_full" if "checkpoint_dir" in table else "pretrain"


def _nemo_rl(table: Mapping[str, object]) -> str:
    """NeMo-RL's scripts by the table that their algorithm has."""
    for key in ("grpo", "ppo", "dpo", "sft", "rm", "distillation"):
        if isinstance(table.get(key), Mapping):
            return f"run_{key}"
    return "run_grpo"
