"""The record of an inference engine: what it does that another does not, each fact once.

A fact that hangs on a scenario, a model or a card is worked out in the engine's package under `serving/`, whose
`rules.py` names the functions; one that hangs on a type of model is a row of `model_types.csv`. A record imports
nothing that knows what a scenario is, so that scenarios can be checked by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from vramwise.records import record

NONE: Mapping[str, str] = MappingProxyType({})


@record(kw_only=True)
class CommandLine:
    """How the engine is started; interop/launch/NAME.py reads the flags."""

    programs: tuple[str, ...]
    """Programs that are the engine, by the last part of their path."""
    example: str
    """One of them as a person would type it."""
    modules: tuple[str, ...] = ()
    """Modules that `python -m` starts as the engine."""
    image: str = ""
    """Its container's image: a regular expression whose group is the version."""
    shortens_flags: bool = False
    """A beginning that fits one flag alone is that flag (argparse)."""
    subcommands: bool = False
    """It is started by a word behind it (`serve`): without one its name is another program's word."""
    server: tuple[str, ...] = ()
    """The words that start its server, its options behind them."""
    model_flag: str = ""
    """The server's flag for the model, by which an image of one's own called after the engine is known."""
    flags_file: str = ""
    """Its flag for a file of flags, in which a switch that is on stands as true."""
    negates_switches: bool = False
    """A switch that is off in such a file is its `--no-…`; else it is left out."""
    variables: str = ""
    """How the variables begin that its server alone is told, and whoever asks it for a model is not."""


@record(kw_only=True)
class Script:
    """How a Python text runs the engine itself, and the command that would start it as a server."""

    package: str
    """What such a text imports."""
    classes: Mapping[str, tuple[str, ...]]
    """What it calls, and the names of the arguments that stand without one."""
    command: tuple[str, ...]
    """The words before the arguments, which are its flags by another spelling."""
    aliases: tuple[str, ...] = ()
    """Other names for the package."""
    renamed: Mapping[str, str] = field(default_factory=lambda: NONE)
    """Arguments whose flag has another name."""
    defaults: Mapping[str, str] = field(default_factory=lambda: NONE)
    """Arguments whose default is not the server's."""
    serve: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    """Keys of `serve` that a class stands for."""


@record(kw_only=True)
class Container:
    """The image that its makers publish for NVIDIA's cards, and what runs in it."""

    image: str
    tag: str
    """The tag of the newest version."""
    version_tag: str
    """The tag of a version, `{}`."""
    versions: str = ".+"
    """Versions that have such a tag, as a regular expression."""
    port: int
    cache: str = "/root/.cache/huggingface"
    """The folder of downloaded models."""
    starts_server: bool = False
    """The image's entrypoint is the server; else a command names it."""
    ranks: bool = True
    """A process for each GPU of its layout, and what they exchange goes through /dev/shm."""


@record(kw_only=True)
class Log:
    """What the engine prints at its start; interop/logs/NAME.py reads the lines."""

    signs: re.Pattern[str]
    """Words that only this engine's lines have; the engine with most such lines is the log's."""
    closes_its_budget: bool = False
    """The printed terms add up to the share of the card, so that one explains another's difference."""


@record(kw_only=True)
class Shortage:
    """What a message of the engine means that says it had no room: `cause`, and `changes` with their costs.

    `sign`: a regular expression that such a message has; `\\1` in a change is its first group.
    """

    cause: str
    changes: tuple[tuple[str, str], ...]
    sign: str = ""


@record(kw_only=True)
class Engine:
    """One inference engine."""

    name: str
    """As a scenario names it."""
    title: str
    """As its makers write it."""
    serving: str
    """The package of `vramwise.serving` whose `rules.py` has its `RULES`; with a dot, the module that has them."""
    runs: str = ""
    """The engine that it starts, whose name stands for both where several are listed."""
    newest: str = ""
    """The version whose rules are taken where a scenario states none."""
    dated: tuple[tuple[str, str], ...] = ()
    """Versions and the days they came out, ascending: as far as somebody stated them."""

    like: str = ""
    """An engine whose settings it has too, so that no setting's owners need to name it."""
    lacks: tuple[str, ...] = ()
    """Of those, settings that it does not have."""
    uncounted: tuple[str, ...] = ()
    """Of those, settings that it has and its answer leaves out."""

    phases: tuple[str, ...] = ("load", "prefill", "decode")
    """The moments that its answer tells, in order."""
    memory_share: str | None = None
    """The setting for the share of the card that weights and cache fill; None: the engine takes what it needs."""
    cache_dtypes: tuple[str, ...] = ()
    """The dtypes that its KV cache may have."""

    vocab_multiple: int = 1
    """Rows that embedding and head are padded to before they are cut."""
    fuses_layers: bool = True
    """Query, key and value are one tensor, gate and up another."""
    lays_out_layers: bool = False
    """It lays the layers over all GPUs that there are by itself, without a number of ranks."""
    last_stages_take_more: bool = False
    """Layers that pipeline stages do not share evenly go to the last stages, not to those before the last."""
    experts_over_data_ranks: bool = False
    """Ranks of data parallelism cut each expert too."""
    shared_experts_stay_whole: bool = False
    """Expert parallelism over tensor and data ranks shares out the tokens, and cuts no shared experts."""
    expert_flag: str = ""
    """Its flag for whole experts on each rank; empty: it has none."""
    long_requests: str = ""
    """The variable without which it refuses requests beyond the model's own length; empty: it takes them."""
    narrower_weights: tuple[str, ...] = ("fp8", "awq")
    """Formats that take less than 16 bits, in the order in which they cost quality."""
    own_formats: tuple[str, ...] = ()
    """Formats of weights that no other engine reads."""
    model_names: re.Pattern[str] | None = None
    """How a model is named whose files are for it: it is the engine where none is said."""
    reads_gguf: bool = False
    """The weights are a GGUF file, whatever is said of them."""
    divides_by_room: bool = False
    """Of unequal cards it puts on each what that has room for."""
    vendor: str = ""
    """The maker of the only devices that it is written for; empty: CUDA's, and what others make run the same code."""
    runs_on_cpu: bool = False
    """It needs no GPU."""
    words: Mapping[str, str] = field(default_factory=lambda: NONE)
    """Settings of other engines, and what this one calls the same."""
    variants: tuple[str, ...] = ()
    """Forks that its setting `variant` chooses."""
    rollout_names: tuple[str, ...] = ()
    """Other names that programs for reinforcement learning have for it."""
    classes: str = ""
    """Where its sources list the classes of models that it has, whose types are rows of models/type_facts.csv."""
    others_since: tuple[int, ...] = ()
    """The first version that runs transformers' own class of a model where it has none."""
    formats_since: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """What quantized a checkpoint, a kind of weights behind it where that came later, and the first version that reads
    it; not all that it reads."""
    formats: str = ""
    """Where its sources list them."""
    adapter_ranks: tuple[int, ...] = ()
    """Ranks that room for adapters may be asked for, ascending; empty: no room is counted for a model's adapter."""
    takes_any_adapter_rank: bool = False
    """Room is made for whatever rank is asked for."""

    command_line: CommandLine | None = None
    script: Script | None = None
    container: Container | None = None
    log: Log | None = None
    shortages: tuple[Shortage, ...] = ()
    """Messages that say it had no room: the first whose sign is there tells why."""
