"""What the tables of a scenario share: their keys are fields, each with its kind and its owners.

Whose a setting is: the engine, the framework, the method or the way of sharing that reads it.

A field names its owners (`owner=`), and everything about owners follows from them: what becomes of a setting whose
owners are all absent (checks.py), the groups of `--help`, the nested tables of a file (nested.py), the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Self

from vramwise.engines import engine_named
from vramwise.records import record, replace
from vramwise.scenario.values import Kind


@record(kw_only=True, eq=False)
class Owner:
    """Something that has settings of its own, and is there or not by what another setting (`key`) says.

    `title`: its name as people write it, which stands before the help of its settings where it has one; `table`: what
    its nested table in a file is called, empty where it has none. It is there where `key` holds one of `values`, or
    anything but one of `absent`; `needs` says the same in words. `refuses`: a setting of an absent owner is an error;
    else a note says that it changes nothing. `within`: another owner that must be there too.
    """

    title: str
    table: str = ""
    key: str
    values: tuple[object, ...] = ()
    absent: tuple[object, ...] = ()
    needs: str = ""
    refuses: bool = False
    within: Owner | None = None

    @property
    def is_program(self) -> bool:
        """Whether it is an engine or a framework, of which a scenario has one."""
        return self.key in ("engine", "framework")

    def is_there(self, value: object) -> bool:
        """Whether it is there where `key` holds `value`."""
        if self.key == "engine" and isinstance(value, str) and engine_named(value).like in self.values:
            return True
        return value in self.values if self.values else value not in self.absent


Owners = tuple[Owner, ...]


def title_of(owner: Owner) -> str:
    """An owner's title; an engine's stands in its record."""
    return engine_named(owner.needs).title if owner.key == "engine" else owner.title


def program(kind: str, name: str, title: str = "") -> Owner:
    """An engine or a framework: of these a scenario has one, and refuses the settings of another."""
    return Owner(title=title, table=name, key=kind, values=(name,), needs=name, refuses=True)


VLLM, SGLANG, TGI = program("engine", "vllm"), program("engine", "sglang"), program("engine", "tgi")
TENSORRT_LLM, TRANSFORMERS = program("engine", "tensorrt-llm"), program("engine", "transformers")
MLX = program("engine", "mlx")
LLAMA_CPP, OLLAMA = program("engine", "llama.cpp"), program("engine", "ollama")
IK_LLAMA_CPP = Owner(
    title="ik_llama.cpp", table="llama.cpp", key="variant", values=("ik_llama.cpp",), needs="ik_llama.cpp",
    refuses=True, within=LLAMA_CPP,
)  # fmt: skip
MEGATRON = program("framework", "megatron", "Megatron")

LORA = Owner(
    title="LoRA", table="lora", key="method", values=("lora", "qlora"), needs="method lora or qlora", refuses=True
)
ZERO = Owner(title="ZeRO", table="zero", key="zero_stage", absent=(0,), needs="zero_stage above 0")
ZERO_3 = Owner(title="ZeRO-3", table="zero", key="zero_stage", values=(3,), needs="zero_stage 3")
FSDP = Owner(title="FSDP", table="fsdp", key="fsdp", absent=("none",), needs="fsdp full-shard or its like")
TENSOR_PARALLEL = Owner(title="", key="tensor_parallel_size", absent=(1,), needs="tensor_parallel_size above 1")
CONTEXT_PARALLEL = Owner(title="", key="context_parallel_size", absent=(1,), needs="context_parallel_size above 1")
PIPELINE = Owner(
    title="pipeline parallel", table="pipeline", key="pipeline_parallel_size", absent=(1,),
    needs="pipeline_parallel_size above 1",
)  # fmt: skip
PIPELINE_STAGES = replace(PIPELINE, refuses=True)
EXPERT_PARALLEL = Owner(title="", key="expert_parallel_size", absent=(1,), needs="expert_parallel_size above 1")
COMPILE = Owner(title="torch.compile", key="compile", absent=(False,), needs="compile")
FP8 = Owner(
    title="Transformer Engine", table="fp8", key="precision", values=("fp8-mixed",), needs="precision fp8-mixed"
)
FLOAT8 = Owner(title="float8", table="fp8", key="precision", values=("fp8-mixed",), needs="precision fp8-mixed")
IMAGES = Owner(title="", key="images_per_sequence", absent=(0,), needs="images_per_sequence above 0", refuses=True)
QUANTIZED_BASE = Owner(title="", key="quantization", absent=(None,), needs="a quantization")
ROLLOUT = Owner(
    title="rollout", table="rollout", key="rollout_gpu_memory_utilization", absent=(None,),
    needs="rollout_gpu_memory_utilization, the engine's share awake", refuses=True,
)  # fmt: skip


KIND, OWNER, UNCOUNTED, INSIDE = "kind", "owner", "uncounted", "inside"
_PLAIN_TYPES = (str, int, float, bool)


@record(kw_only=True, repr=False, slots=False)
class Settings:
    """What the tables of a scenario share. `explicit` holds the keys that were given, not defaulted."""

    __slots__ = ("__dict__", "__weakref__", "kept_hash")  # a hundred settings, by which many caches look

    explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def __getstate__(self) -> dict[str, object]:
        return vars(self)  # another process has other hashes

    def __repr__(self) -> str:
        # fields, not DEFAULTS: without docstrings (-OO) dataclasses show the defaults of a class while it is made
        given = {f.name: getattr(self, f.name) for f in fields(self) if KIND in f.metadata}
        changed = {f.name: given[f.name] for f in fields(self) if f.name in given and given[f.name] != f.default}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def to_dict(self) -> dict[str, object]:
        """Every key that has a value, as JSON-able data."""
        table: dict[str, object] = {}
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                table[name] = value if type(value) in _PLAIN_TYPES else kind.to_json(value)
        return table

    def replace(self, **changes: object) -> Self:
        """A copy with other values; changed keys count as given."""
        return replace(self, **changes, explicit=self.explicit | set(changes))

    def changes(self, key: str) -> bool:
        """Whether the key was given a value that is not its default (a default contradicts nothing)."""
        return key in self.explicit and getattr(self, key) != defaults_of(type(self))[key]


@record
class Ownership:
    """Whose a key is: everybody's where there are no `owners`.

    `uncounted`: owners that have such a setting too, but whose answer leaves it out. `places`: the nested tables of a
    file that have it, each with its name in there.
    """

    owners: Owners
    uncounted: Owners
    places: Mapping[str, str]

    @property
    def all(self) -> Owners:
        return (*self.owners, *self.uncounted)


_kinds: dict[type[Settings], dict[str, Kind[object]]] = {}
_defaults: dict[type[Settings], dict[str, object]] = {}
_ownership: dict[type[Settings], dict[str, Ownership]] = {}


def kinds_of(table: type[Settings]) -> Mapping[str, Kind[object]]:
    """The kind of every key of a table."""
    if table not in _kinds:
        _kinds[table] = {f.name: f.metadata[KIND] for f in fields(table) if KIND in f.metadata}
    return _kinds[table]


def defaults_of(table: type[Settings]) -> Mapping[str, object]:
    """The default of every key of a table."""
    if table not in _defaults:
        _defaults[table] = {f.name: f.default for f in fields(table) if KIND in f.metadata}
    return _defaults[table]


def ownership_of(table: type[Settings]) -> Mapping[str, Ownership]:
    """Whose every key of a table is."""
    if table not in _ownership:
        _ownership[table] = {f.name: _ownership_of_field(f) for f in fields(table) if KIND in f.metadata}
    return _ownership[table]


def _ownership_of_field(f: Field[object]) -> Ownership:
    owners, uncounted = f.metadata[OWNER], f.metadata[UNCOUNTED]
    places = {owner.table: f.name.removeprefix(f"{owner.table}_") for owner in (*owners, *uncounted) if owner.table}
    home, _, name = f.metadata[INSIDE].partition(".")
    return Ownership(owners, uncounted, {**places, home: name} if home else places)
