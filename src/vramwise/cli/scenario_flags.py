"""Command-line flags of a scenario, generated from its definition: `micro_batch_size` is `--micro-batch-size`.

A key that several tasks have (`attention`, `tensor_parallel_size`) is one flag; its value goes into the table
of the task. Flags override the file of `--scenario`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar

from vramwise.cli import flag
from vramwise.cli.parsing import CommandParser
from vramwise.cli.site_flags import add_site_arguments
from vramwise.errors import ScenarioError, UnknownNameError, UsageError, VramwiseError, clipped, nearest
from vramwise.scenario import Scenario, read_table_file
from vramwise.scenario.cards import card_here
from vramwise.scenario.definition import KINDS, TABLES, table_of
from vramwise.scenario.fields import AllOrSeveral, ModelReference, Several, Table
from vramwise.scenario.names import TASKS
from vramwise.scenario.nested import called, described, flat, nested_tables, table_beside
from vramwise.scenario.values import Kind, Switch, Text, Whole
from vramwise.units import KIB, MIB

LENGTHS = frozenset({
    "sequence_length", "decoder_sequence_length", "max_model_len", "max_num_batched_tokens", "chunked_prefill_size",
    "max_total_tokens", "n_ctx", "max_kv_size", "prefill_step_size", "prompt_tokens", "new_tokens",
})  # fmt: skip
"""Keys that count tokens: only of these is a k 1,024 without doubt; a file writes the number out."""
_MOST_DIGITS = 12
_THOUSANDS = {"k": KIB, "m": MIB}
HYPERPARAMETERS: dict[str, Kind[object]] = {
    "model_type": Text(help="its transformers model type (default: llama)"),
    "hidden_size": Whole(help="width of the residual stream"),
    "intermediate_size": Whole(help="width of the MLP"),
    "num_hidden_layers": Whole(help="layers"),
    "num_attention_heads": Whole(help="attention heads"),
    "num_key_value_heads": Whole(help="key/value heads"),
    "head_dim": Whole(help="width of a head"),
    "vocab_size": Whole(help="rows of the embedding"),
    "max_position_embeddings": Whole(help="longest context"),
    "num_experts": Whole(help="routed experts in a layer"),
    "num_experts_per_tok": Whole(help="experts that a token takes"),
    "moe_intermediate_size": Whole(help="width of an expert"),
    "tie_word_embeddings": Switch(help="the head shares the embedding's weights"),
}
"""Keys of a config.json that describe a model without one."""

DEFAULT_MODEL_TYPE = "llama"
_SHORT = {"num_gpus": ("-n",)}
_SCENARIO_KEYS = frozenset({"model", "task", *TABLES})


V = TypeVar("V")


def add_scenario_arguments(parser: argparse.ArgumentParser, *, calibrates: bool = False) -> None:
    """Add MODEL, --scenario, one flag for each key of a scenario, and those of HYPERPARAMETERS."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="name of the catalog; ORG/NAME of a hub, also ORG/NAME@REVISION and "
        "ORG/NAME:QUANT; URL; or path: folder, config.json, scenario",
    )  # fmt: skip
    parser.add_argument("--like", metavar="TYPE", help="describe MODEL's config as this model type")
    add_offline(parser)
    top = parser.add_argument_group("scenario")
    top.add_argument("--scenario", metavar="FILE", help="a scenario in TOML, YAML or JSON; flags override it")
    top.add_argument("--deepspeed", metavar="FILE", help="DeepSpeed's JSON, or accelerate's YAML with ZeRO settings")
    for key, kind in KINDS[Scenario].items():
        if key != "model":
            _add_flag(top, key, kind, kind.help)
    helped = not isinstance(parser, CommandParser) or parser.helped
    for (task, table), keys in _groups().items():
        title = nested_tables(TABLES[task])[table].title if table and helped else ""
        group = parser.add_argument_group(f"--task {task}: {title}" if title else f"--task {task}" if task else SHARED)
        for key in keys:
            homes = _homes()[key]
            help = _help_of(key, homes, title) if helped else ""
            _add_flag(group, key, KINDS[TABLES[homes[0]]][key], help)
    add_site_arguments(parser, calibrates=calibrates)
    described = parser.add_argument_group("a model described by its hyperparameters, instead of MODEL")
    for key, kind in HYPERPARAMETERS.items():
        _add_flag(described, key, kind, kind.help)


def add_offline(parser: argparse.ArgumentParser) -> None:
    """Add --offline, which `main` carries out."""
    parser.add_argument("--offline", action="store_true", help="ask no hub: the catalog and caches alone")


def take_scenario_file(args: argparse.Namespace) -> None:
    """A scenario's file that was given for MODEL stands for `--scenario FILE`; a model is in no YAML or TOML file."""
    file = args.model
    if not isinstance(file, str) or args.scenario is not None or not os.path.isfile(file):
        return
    if not file.lower().endswith((".yaml", ".yml", ".toml")):
        try:
            table = read_table_file(file)
        except VramwiseError:
            return
        if "model_type" in table or "architectures" in table or _SCENARIO_KEYS.isdisjoint(table):
            return
    args.model, args.scenario = None, file


def scenario_from_flags(args: argparse.Namespace, *, locate: bool = True) -> Scenario:
    """The scenario of the flags, over that of `--scenario FILE`; `locate`: this machine's card in the place of `here`.

    Raises UsageError (which names the flag) or ScenarioError (which names the file's key), SourceError for a
    file that cannot be read.
    """
    data: dict[str, object] = read_table_file(args.scenario) if args.scenario else {}
    notes: tuple[str, ...] = ()
    launched = bool(getattr(args, "engine_command", None) or getattr(args, "launch", None))
    if launched:
        data, notes = _launched(args, data)
    given = given_keys(args)
    zero_file = getattr(args, "deepspeed", None)
    task = "train" if zero_file is not None and "task" not in given else _task(given, data)
    if args.like is not None:
        name_the_place(args)
    model = model_from_flags(args, file_has_model="model" in data)
    if model is not None:
        data = {**data, "model": model}
    if data.get("model") is None:
        raise no_model(args)
    if model is None and args.like is not None:
        data = {**data, "model": described_as(data["model"], args.like)}
    if zero_file is not None:
        data, said = _with_deepspeed(data, zero_file, task)
        notes = (*notes, *said)
    top, settings = _by_table(given, task)
    if launched or zero_file is not None:
        data = _without_what_follows(data, settings)
    data = {**data, **top, "task": task}
    if settings:
        data[table_of(task)] = {**_file_table(data, table_of(task)), **settings}
    try:
        scenario = Scenario.from_dict(data)
        scenario = _located(scenario) if locate else scenario
        return scenario.replace(notes=(*scenario.notes, *_unanswered(notes, scenario))) if notes else scenario
    except ScenarioError as error:
        key = error.path.removeprefix(f"{table_of(task)}.").partition(".")[0].partition("[")[0]
        if key in top or key in settings:
            raise UsageError(f"{flag(key)}: {error.problem}") from None
        raise


def _unanswered(notes: Sequence[str], scenario: Scenario) -> Iterator[str]:
    """A command's notes but for the number of GPUs, where a flag says it (`--num-gpus 2`, `--gpu 2xh100`)."""
    from vramwise.interop.launch.launchers import GPUS_UNSAID

    yield from (note for note in notes if note != GPUS_UNSAID or not scenario.num_gpus)


def _located(scenario: Scenario) -> Scenario:
    """With this machine's card where it asks for that, looked at once for all that follows."""
    if card_here(scenario.gpu) is None:
        return scenario
    from vramwise.estimation import on_this_machine

    return on_this_machine(scenario)


def _launched(args: argparse.Namespace, data: dict[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The scenario of an engine's own command line. Raises UsageError where a file or a model stands beside it."""
    from vramwise.interop.launch import read_command

    launch = getattr(args, "launch", None)
    if launch is None:
        if data:
            raise UsageError("--scenario and an engine's command line both describe the scenario: leave out one")
        if args.model is not None:
            raise UsageError("the engine's command line names the model: leave out MODEL")
        launch = read_command(args.engine_command)
    return launch.scenario, tuple(launch.notes)


_FOLLOWS: dict[str, tuple[str, ...]] = {
    "precision": ("param_dtype", "grad_dtype", "master_dtype", "optimizer_state_dtype", "compute_dtype"),
    "method": ("lora_rank", "lora_targets", "lora_dropout", "lora_dtype", "dora", "quantization", "kbit_preparation"),
}
"""What a command or a DeepSpeed file says only because of another key, which a flag may have answered otherwise."""


def _without_what_follows(data: dict[str, object], flags: Mapping[str, object]) -> dict[str, object]:
    """A command's scenario without what belongs to the precision or method that flags replace."""
    train = _file_table(data, "train")
    gone = {
        name for key, names in _FOLLOWS.items() if flags.get(key, train.get(key)) != train.get(key) for name in names
    }
    return {**data, "train": {name: value for name, value in train.items() if name not in gone}} if gone else data


def _with_deepspeed(data: dict[str, object], path: str, task: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """The scenario with what a DeepSpeed file says of its training, and what that file leaves open."""
    from vramwise.interop.deepspeed import read_deepspeed_file
    from vramwise.interop.launch.launchers import notes_of_zero_file
    from vramwise.models import describe
    from vramwise.sources import resolve

    if task != "train":
        raise UsageError(f"--deepspeed: belongs to the task train; the task is {task}")
    found = resolve(ModelReference(help="the model").read(data["model"], "model"))
    read = read_deepspeed_file(path, describe(found.config, found.id).hidden_size)
    table = {**read.train, **({"framework": stated} if (stated := _file_table(data, "train").get("framework")) else {})}
    gpus = {} if read.num_gpus is None or "num_gpus" in data else {"num_gpus": read.num_gpus}
    return {**data, **gpus, "train": {**_file_table(data, "train"), **table}}, (*notes_of_zero_file(path), *read.notes)


def model_from_flags(args: argparse.Namespace, *, file_has_model: bool = False) -> str | dict[str, object] | None:
    """MODEL, or a config table made of the hyperparameter flags, or None. Raises UsageError for both."""
    table: dict[str, object] = {}
    for key, kind in HYPERPARAMETERS.items():
        value = getattr(args, key)
        if value is not None:
            table[key] = read_flag(key, kind, value)
    model: str | None = args.model
    if not table:
        return model if model is None or args.like is None else described_as(model, args.like)
    if args.like is not None:
        raise UsageError("--like describes MODEL: use --model-type beside sizes")
    if model is not None or file_has_model:
        raise UsageError(f"{flag(next(iter(table)))} describes a model of its own: leave out the other model")
    return {"model_type": DEFAULT_MODEL_TYPE, **table}


def described_as(model: object, model_type: str) -> dict[str, object]:
    """The config of `model` under another type. Raises UnknownNameError for a type that is not described either.

    Raises UsageError for a model without a name or a table.
    """
    from vramwise.models import supported_types
    from vramwise.sources import resolve

    if model_type not in supported_types():
        close = nearest(model_type, supported_types())
        raise UnknownNameError("model type", model_type, close, "vramwise models --types lists all")
    if not isinstance(model, str | Mapping):
        raise UsageError("model: expected a name or a table")
    found = resolve(model)
    # The class that the config names belongs to its own type.
    kept = {key: value for key, value in found.config.items() if key not in ("architectures", "auto_map")}
    return {**kept, "model_type": model_type, "_name_or_path": found.id}


def name_the_place(args: argparse.Namespace) -> None:
    """--source and --revision become a part of MODEL, where no scenario holds them."""
    if isinstance(args.model, str) and (args.source is not None or args.revision is not None):
        from vramwise.sources.reference import placed

        source = read_flag("source", KINDS[Scenario]["source"], args.source or "auto")
        args.model = placed(args.model, str(source), args.revision)
        args.source = args.revision = None


def given_keys(args: argparse.Namespace) -> dict[str, str | bool]:
    """The scenario's keys that were given as flags, with their values as text."""
    return {key: value for key in _all_keys() if (value := getattr(args, key)) is not None}


def _task(given: Mapping[str, str | bool], data: Mapping[str, object]) -> str:
    if "task" in given:
        return str(read_flag("task", KINDS[Scenario]["task"], given["task"]))
    if data.get("task") is None:
        raise UsageError(f"--task is missing: expected one of {', '.join(TASKS)}")
    return str(KINDS[Scenario]["task"].read(data["task"], "task"))


def _by_table(given: Mapping[str, str | bool], task: str) -> tuple[dict[str, object], dict[str, object]]:
    """What goes to the top and what goes into the task's table. Raises UsageError for another task's flag."""
    top_kinds, task_kinds = KINDS[Scenario], KINDS[TABLES[table_of(task)]]
    top: dict[str, object] = {}
    settings: dict[str, object] = {}
    for key, value in given.items():
        if key in top_kinds:
            top[key] = _raw(key, top_kinds[key], value)
        elif key in task_kinds:
            settings[key] = _raw(key, task_kinds[key], value)
        else:
            homes = " or ".join(_homes()[key])
            meant = called(key, table_of(task))
            hint = f": there it is {flag(meant)}" if meant is not None else ""
            raise UsageError(f"{flag(key)} belongs to --task {homes}, not to --task {task}{hint}")
    return top, settings


def _file_table(data: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A task's table of a file, without nested ones."""
    table = data.get(name)
    if table is not None and not isinstance(table, Mapping):
        raise ScenarioError(name, "expected a table")
    return flat(TABLES[name], table or {}, name)


def said_number(text: str) -> int | None:
    """`4096`, `4k`, `1M` as a whole number; None for what is none."""
    unit = _THOUSANDS.get(text[-1:].lower(), 1)
    digits = text[:-1] if unit != 1 else text
    return int(digits) * unit if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _raw(key: str, kind: Kind[object], value: str | bool) -> object:
    if not isinstance(value, str):
        return value
    said = said_number(value) if key in LENGTHS else None
    return kind.from_text(value) if said is None else said


def read_flag(key: str, kind: Kind[V], value: str | bool) -> V:
    """A flag's checked value. Raises UsageError that names the flag."""
    try:
        return kind.read(_raw(key, kind, value), flag(key))
    except ScenarioError as error:
        raise UsageError(str(error)) from None


def _all_keys() -> Iterator[str]:
    yield from (key for key in KINDS[Scenario] if key != "model")
    yield from _homes()


def task_meant(keys: Sequence[str]) -> str:
    """What --task these flags belong to, as an error says it."""
    meant = [name for name in TABLES if all(name in _homes().get(key, ()) for key in keys)]
    return f"--task {meant[0]}" if len(meant) == 1 else f"--task: expected {', '.join(meant or TASKS)}"


@cache
def _homes() -> dict[str, list[str]]:
    """The tables that have each key."""
    homes: dict[str, list[str]] = {}
    for name, cls in TABLES.items():
        for key in KINDS[cls]:
            homes.setdefault(key, []).append(name)
    return homes


SHARED = "several tasks"


def _groups() -> dict[tuple[str, str], list[str]]:
    """Every flag's key by its group: a task's, those of one owner in it by its table, those of several tasks ("")."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, cls in TABLES.items():
        beside = {key: table_beside(cls, key) for key in KINDS[cls]}
        of_task = {table: list[str]() for table in ("", *beside.values())}
        for key, table in beside.items():
            if _homes()[key] == [name]:
                of_task[table].append(key)
        groups |= {(name, table): keys for table, keys in of_task.items() if keys}
    return {**groups, ("", ""): [key for key, homes in _homes().items() if len(homes) > 1]}


def _help_of(key: str, homes: list[str], title: str) -> str:
    if len(homes) == 1:
        return described(TABLES[homes[0]], key, group=title)
    texts = {described(TABLES[name], key): name for name in homes}
    return "; ".join(texts) if len(texts) == 1 else "; ".join(f"{name}: {text}" for text, name in texts.items())


def _add_flag(group: argparse._ArgumentGroup, key: str, kind: Kind[object], help: str) -> None:
    help = help.replace("%", "%%")
    if isinstance(kind, Switch) and key.startswith("no_"):
        # BooleanOptionalAction takes every --no-… as false, which here is the key's own name.
        group.add_argument(flag(key), dest=key, action="store_const", const=True, help=help)
        group.add_argument(
            flag(key.removeprefix("no_")),
            dest=key,
            action="store_const",
            const=False,
            help=f"the opposite of {flag(key)}",
        )
    elif isinstance(kind, Switch):
        group.add_argument(flag(key), dest=key, action=argparse.BooleanOptionalAction, default=None, help=help)
    else:
        action: str | type[argparse.Action] = _Joined if isinstance(kind, AllOrSeveral | Several | Table) else "store"
        group.add_argument(*_SHORT.get(key, ()), flag(key), dest=key, metavar=kind.metavar, help=help, action=action)


class _Joined(argparse.Action):
    """A flag of several values: given again it adds to them, as the engines' own flags do."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


def no_model(args: argparse.Namespace) -> UsageError:
    """The refusal of a question without a model; of one that names a card alone, who answers it."""
    fits = f"; which models a card runs: vramwise fit --gpu {clipped(args.gpu)}" if args.gpu else ""
    return UsageError(f"no model: give MODEL, --scenario FILE, or --hidden-size and its like{fits}")
