"""Which engine or training program a command line starts, and the scenario that it means.

What stands before the program is passed over: environment (`CUDA_VISIBLE_DEVICES=0,1`), `sudo`, `docker run … IMAGE`
of the engines' own images. Flags that mean nothing for memory are taken and said; unknown ones are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from vramwise.engines import ENGINES, engine_named, engines, module_of
from vramwise.errors import LeftOut, NamesNoModelError, UsageError, clipped, nearest
from vramwise.frameworks import framework_named
from vramwise.frameworks.framework import Command
from vramwise.interop.beside import file_table
from vramwise.interop.launch.flags import Words, cut, flags_of
from vramwise.interop.launch.misspelt import misspelt_notes
from vramwise.interop.launch.undescribed import nearest_to, refuse_a_script
from vramwise.interop.launch.values import Meaning
from vramwise.records import record
from vramwise.scenario.names import FRAMEWORKS

if TYPE_CHECKING:
    from vramwise.interop.launch.options import Options

_STARTED = tuple((engine.name, engine.command_line) for engine in engines() if engine.command_line is not None)
_PROGRAMS = {program: name for name, line in _STARTED for program in line.programs}
_WORDS_TOO = frozenset({"server", "main"})  # programs by these names are meant where a path stands before them alone
_OF_A_SCRIPT = "trainer"
"""Who reads the command line of a training script of one's own."""

_LAUNCHER_MODULES = ("torch.distributed", "accelerate.commands", "deepspeed.launcher")
_LAUNCHERS = frozenset({"accelerate", "torchrun", "deepspeed"})
_TRAINERS_FLAGS = frozenset({"__model_name_or_path", "__per_device_train_batch_size"})
_MODULES = {module: name for name, line in _STARTED for module in line.modules}
_IMAGES = tuple((re.compile(line.image), name) for name, line in _STARTED if line.image)
_SUBCOMMANDS = frozenset({"serve", "run", "chat", "launch_server"})
_WITH_SUBCOMMANDS = frozenset(program for _, line in _STARTED if line.subcommands for program in line.programs)
_READERS = {name: module_of(name) for name, _ in _STARTED}
_LISTED = 12
PYTHON = re.compile(r"python[0-9.]*(\.exe)?")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_TYPESET_DASH = re.compile(r"^[\u2013\u2014](?=[A-Za-z])")
"""What a word processor or a chat makes of the two dashes of a flag."""


@record
class Launch:
    """What a command line says: the engine, the scenario as a table, what was passed over, and what was read."""

    engine: str
    scenario: dict[str, object]
    notes: tuple[str, ...]
    understood: tuple[str, ...] = ()
    """Options and flags that the scenario is made of, as they were written."""
    passed_over: tuple[str, ...] = ()
    """Options without effect on the memory counted here, all of them; `notes` name the first."""


@record
class Start:
    """The program that was found, the words after it and those `before` it.

    `engine`: of a training the module that reads its command line; `is_script`: a script or module runs, not the
    framework's own program.
    """

    engine: str
    version: str | None
    words: tuple[str, ...]
    environment: Mapping[str, str]
    program: str = ""
    before: tuple[str, ...] = ()
    is_script: bool = False
    image: str = ""
    """The container's image, where one was named."""


def names_a_program(words: Sequence[str]) -> bool:
    """Whether the words start an engine that is known here, if only by name."""
    return _start(words) is not None or nearest_to(words) is not None


def in_image(image: str, words: Sequence[str]) -> tuple[str, ...]:
    """The words of a program with the image around it, where it is that engine's: its tag says the version."""
    around, inside = (_start([image]), _start(words)) if image else (None, None)
    if around is None or inside is None or around.engine != inside.engine:
        return tuple(words)
    place = next((index for index, word in enumerate(words) if not ASSIGNMENT.match(word)), 0)
    return (*words[:place], image, *words[place:])


def read_command(words: Sequence[str]) -> Launch:
    """The scenario of a command line. Raises UsageError where it starts no known engine or names no model."""
    words = [_TYPESET_DASH.sub("--", word) for word in words]
    start = _start(words)
    if start is None:
        other = nearest_to(words)
        if other is not None:
            raise UsageError(other)
        refuse_a_script(words)
        shown = clipped(" ".join(words), 80)
        meant = _meant(words)
        raise UsageError(f'no engine in "{shown}": {f"did you mean {meant}?" if meant else f"expected {_expected()}"}')
    module = import_module(f"vramwise.interop.launch.{_READERS.get(start.engine, start.engine)}")
    read: Callable[[Start], Launch] = module.read
    try:
        launch = read(start)
    except NamesNoModelError:
        refuse_a_script(words)
        raise
    variable = _VARIABLE.fullmatch(str(launch.scenario.get("model")))
    if variable is not None:
        raise UsageError(f"model: ${variable[1]} is set nowhere here: write its value, or {variable[1]}=… before it")
    return _with_known_model(launch)


def _meant(words: Sequence[str]) -> str:
    """The program, or what one is told to do, that a command line misspells; "" where nothing is alike."""
    first = next((place for place, word in enumerate(words) if not ASSIGNMENT.match(word)), None)
    if first is None:
        return ""
    program = re.split(r"[\\/]", words[first])[-1]
    told = words[first + 1] if words[first + 1 : first + 2] else ""
    known = _training_programs().get(program)
    if known is not None and known.trains:
        near = nearest(told, known.trains, 1)
        return f"{program} {near[0]}" if near else ""
    near = nearest(program, (*_PROGRAMS, *_training_programs(), *_LAUNCHERS, "python"), 1)
    return near[0] if near and near[0] != program else ""


def _with_known_model(launch: Launch) -> Launch:
    """The command of another machine: a model's path that is not here is the known model of that name."""
    from vramwise.sources import model_elsewhere

    model = launch.scenario.get("model")
    found = model_elsewhere(model) if isinstance(model, str) else None
    scenario = {**launch.scenario, "model": found[0]} if found is not None else launch.scenario
    others, said = _known_beside(scenario.get("train"))
    if found is None and not said:
        return launch
    if said:
        scenario = {**scenario, "train": others}
    return replace(launch, scenario=scenario, notes=(*launch.notes, *([found[1]] if found else []), *said))


def _known_beside(train: object) -> tuple[dict[str, object], list[str]]:
    """The same of models beside the policy; of a path that names no known model nothing but its role is left."""
    from vramwise.sources import is_elsewhere, model_elsewhere

    table, said = dict(train) if isinstance(train, Mapping) else {}, []
    others = table.get("extra_models")
    names = [str(name) for name in others] if isinstance(others, list | tuple) else []
    for place, one in enumerate(names):
        role, colon, path = one.partition(":")
        found = model_elsewhere(path) if colon else None
        if found is not None:
            names[place] = f"{role}:{found[0]}"
            said.append(f"{role}: {found[1]}")
        elif colon and is_elsewhere(path):
            names[place] = role
            said.append(f"{role}: {clipped(path, 80)} is not on this machine: taken as large as the policy")
    return {**table, "extra_models": names}, said


def _start(words: Sequence[str]) -> Start | None:
    environment: dict[str, str] = {}
    launched = False
    for index, word in enumerate(words):
        if ASSIGNMENT.match(word) and not word.startswith("-"):
            name, _, value = word.partition("=")
            environment[name] = value
        rest = tuple(words[index + 1 :])
        image = next(((match, name) for pattern, name in _IMAGES if (match := pattern.search(word))), None)
        if image is not None:
            return Start(image[1], image[0].group(1), _after_subcommand(_inside(rest)), environment, image=word)
        program = re.split(r"[\\/]", word)[-1].removesuffix(".exe")
        if PYTHON.fullmatch(program) and rest[:1] == ("-m",) and rest[1:2] and rest[1] in _MODULES:
            return Start(_MODULES[rest[1]], None, rest[2:], environment, rest[1])
        if program in _PROGRAMS and not (program in _WORDS_TOO and "/" not in word) and not _is_value(words, index):
            return Start(_PROGRAMS[program], None, _after_subcommand(rest), environment, program, tuple(words[:index]))
        command = _training_programs().get(program)
        if command is not None and not command.trains:
            return Start(command.reader, None, rest, environment, program, tuple(words[:index]))
        if command is not None and rest[:1] and rest[0] in command.trains:
            return Start(command.reader, None, rest, environment, rest[0], tuple(words[:index]))
        launched = launched or program in _LAUNCHERS or word.startswith(_LAUNCHER_MODULES)
        with_python = launched or any(_is_python(before) for before in words[:index])
        script = _script(word, rest, launched) if with_python else None
        if script is not None:
            inner = _handed_on(rest)
            if inner is not None:
                return replace(inner, environment={**environment, **inner.environment})
            rest = rest if script == word else rest[1:]
            reader = next((c.reader for c in _training_modules() if _is_of(script, c.module)), _OF_A_SCRIPT)
            return Start(reader, None, rest, environment, script, tuple(words[:index]), is_script=True)
    return None


def _is_python(word: str) -> bool:
    """`python3`, an environment's `/opt/venv/bin/python`, or `uv`."""
    name = re.split(r"[\\/]", word)[-1]
    return PYTHON.fullmatch(name) is not None or word == "uv"


def _handed_on(words: Sequence[str]) -> Start | None:
    """The program behind `--`, where the script before it only sends it somewhere else to run."""
    place = words.index("--") if "--" in words else len(words)
    return _start(words[place + 1 :]) if place + 1 < len(words) else None


def _is_value(words: Sequence[str], index: int) -> bool:
    """Whether an engine's name is another program's word (`--infer_backend vllm`, `[ $ENGINE = vllm ]`)."""
    if words[index] not in _WITH_SUBCOMMANDS or _SUBCOMMANDS & set(words[index + 1 : index + 2]):
        return False
    return any(not ASSIGNMENT.match(word) for word in words[:index])


def _is_of(script: str, module: str) -> bool:
    """Whether a script or module belongs to a framework: `swift/cli/sft.py` and `swift.cli.sft` to `swift.cli.`."""
    return f".{module}" in "." + script.removesuffix(".py").replace("/", ".")


def _expected() -> str:
    """A command line of each program that is known."""
    training = ["accelerate launch train.py", *(command.example for command in _commands() if command.example)]
    return ", ".join([*(line.example for _, line in _STARTED), *training[:-1]]) + f" or {training[-1]}"


def _commands() -> Iterator[Command]:
    return (command for name in FRAMEWORKS for command in framework_named(name).commands)


@cache
def _training_programs() -> Mapping[str, Command]:
    """What starts a framework, by the program's name."""
    return {command.program: command for command in _commands() if command.program}


@cache
def _training_modules() -> tuple[Command, ...]:
    """Modules of frameworks that train."""
    return tuple(command for command in _commands() if command.module)


def _script(word: str, rest: Sequence[str], launched: bool) -> str | None:
    """The script that python or a launcher runs, or the module after `-m`; of python's own only those that train."""
    if word in ("-m", "--module"):
        module = rest[0] if rest else ""
        own_modules = tuple(command.module for command in _training_modules())
        is_launcher = module.startswith(_LAUNCHER_MODULES)
        own = module.startswith(own_modules) or (launched and "." in module) or _is_a_trainers(rest)
        return module if own and not is_launcher else None
    return word if word.endswith(".py") and not word.startswith("-") and (launched or rest) else None


def _is_a_trainers(module: Sequence[str]) -> bool:
    """Whether a module of one's own takes the flags of Trainer's scripts (`-m lm_eval`, `-m pdb train.py` do not)."""
    takes = any(word.partition("=")[0].replace("-", "_") in _TRAINERS_FLAGS for word in module[1:])
    return takes and module[0] not in _LAUNCHERS and not any(word.endswith(".py") for word in module)


def _inside(words: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments within a container: what stands after a program there, else all of them."""
    found = _start(words)
    return found.words if found is not None else words


def _after_subcommand(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[1:] if words[:1] and words[0] in _SUBCOMMANDS else words


def launched(engine: str, scenario: dict[str, object], notes: Sequence[str], options: Options) -> Launch:
    """What a training program's options come to."""
    return Launch(engine, scenario, tuple(notes), options.understood(), options.passed_over())


def launched_by(
    engine: str, scenario: dict[str, object], options: Options, read: Sequence[str], notes: Sequence[str]
) -> Launch:
    """What the options `read` come to, where a training program does something else; the others mean nothing there."""
    taken = frozenset(read)
    understood = tuple(options.shown[name] for name in options.values if name in taken)
    passed = tuple(options.shown[name] for name in options.values if name not in taken)
    said = list(notes)
    if passed:
        more = f" and {len(passed) - _LISTED} more" if len(passed) > _LISTED else ""
        named = ", ".join(clipped(name, 80) for name in passed[:_LISTED])
        said.append(f"no effect on the memory counted here: {named}{more}")
    if options.unknown:
        named = ", ".join(clipped(name, 80) for name in options.unknown)
        said.append(LeftOut(f"unknown to {options.title}, left out: {named}"))
    return Launch(engine, scenario, tuple(said), understood, passed)


def settings_of(words: Words, meanings: Mapping[str, Meaning]) -> dict[str, object]:
    """The flags that set a key of the scenario. Raises UsageError that names the flag."""
    found: dict[str, object] = {}
    for flag, values in words.given.items():
        meaning = meanings.get(flag)
        if meaning is None or not values:
            continue
        try:
            value = meaning.read(values[-1])
        except UsageError as problem:
            raise UsageError(f"{flag}: {problem}") from None
        if value is not None:
            found[meaning.key] = value
    return found


def whole_numbers(words: Words, flags: Sequence[str]) -> list[int]:
    """What a flag lists, `1 2 4` or `1,2,4`; nothing where none is given. Raises UsageError that names the flag."""
    for flag in flags:
        parts = [part for value in words.given.get(flag, ()) for part in value.split(",")]
        if parts:
            try:
                return [int(part) for part in parts]
            except ValueError:
                raise UsageError(f'{flag}: expected whole numbers, got "{clipped(" ".join(parts))}"') from None
    return []


def stages_of(start: Start, variable: str) -> dict[str, object]:
    """The layers of each pipeline stage, where a variable of the environment says them."""
    stated = start.environment.get(variable)
    return {"pipeline_layer_partition": stated} if stated else {}


def notes_of(
    engine: str, words: Words, read: frozenset[str], uncounted: Mapping[str, str], spare: Sequence[str] = ()
) -> tuple[str, ...]:
    """What was passed over: flags without effect, flags whose effect is not counted, flags that nobody knows."""
    notes = [f"{flag} is not counted: {uncounted[flag]}" for flag in words.given if flag in uncounted]
    passed = [flag for flag in words.given if flag not in read and flag not in uncounted]
    if passed:
        more = f" and {len(passed) - _LISTED} more" if len(passed) > _LISTED else ""
        notes.append(f"no effect on the memory counted here: {', '.join(passed[:_LISTED])}{more}")
    if words.unknown:
        named = ", ".join(clipped(flag) for flag in words.unknown[:_LISTED])
        notes.append(LeftOut(f"unknown to {engine}, left out: {named}"))
        notes += misspelt_notes(words.unknown[:_LISTED], [flag for flag in read if flag.startswith("--")])
    if spare:
        named = ", ".join(clipped(one) for one in spare[:_LISTED])
        notes.append(LeftOut(f"words that belong to no flag, left out: {named}"))
    return tuple(notes)


def understood_of(words: Words, read: frozenset[str]) -> tuple[str, ...]:
    """The flags that the scenario is made of."""
    return tuple(flag for flag in words.given if flag in read)


def one_model(engine: str, named: str | None, hint: str) -> str:
    """The model. Raises NamesNoModelError, a UsageError that says how the engine names it."""
    if not named or named in ("...", "…"):
        raise NamesNoModelError(f"the command line of {engine} names no model: expected {hint}")
    return named


def words_for(engine: str, start: Start, variable: Callable[[str, str], list[str]] | None = None) -> Words:
    """What the variables before the program say, then the file behind `--config`, then its own words, which win.

    `variable(name, value)`: the words that a variable stands for.
    Raises UsageError for a known flag without its value, SourceError for a file that cannot be read.
    """
    said = [] if variable is None else [word for pair in start.environment.items() for word in variable(*pair)]
    own = cut(engine, start.words)
    line = engine_named(engine).command_line if engine in ENGINES else None
    files = own.given.get(line.flags_file, []) if line is not None else []
    names_model = bool(own.loose or own.given.get("--model") or own.given.get("--model-path"))
    for file in files:
        negates = line is not None and line.negates_switches
        said += _words_of_file(engine, file, names_model=names_model, negates=negates)
    return cut(engine, [*said, *start.words])


def _words_of_file(engine: str, file: str, *, names_model: bool, negates: bool) -> list[str]:
    found: list[str] = []
    for key, value in file_table(file).items():
        name = str(key).replace("_", "-")
        flag = f"--{name}"
        if value is None or (names_model and name in ("model", "model-path")):
            continue
        if isinstance(value, bool) and flags_of(engine).get(flag, "0") == "0":
            found += [flag] if value else [f"--no-{name}"] if negates and flag in flags_of(engine) else []
        elif isinstance(value, list) and flags_of(engine).get(flag) == "+":
            found += [flag, *map(str, value)]
        else:
            found.append(f"{flag}={json.dumps(value) if isinstance(value, bool | Mapping | list) else value}")
    return found
