"""FILE… of `vramwise estimate` to the launches that they describe, by the readers of command lines."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vramwise.errors import NamesNoModelError, SourceError, UsageError, VramwiseError, clipped, nearest, printable
from vramwise.files import shown_path
from vramwise.interop.beside import looking_beside
from vramwise.interop.files import kinds
from vramwise.interop.files.config_maps import with_files
from vramwise.interop.files.engine_scripts import engine_script_programs, is_engine_script
from vramwise.interop.files.given import Given, read_again, read_given
from vramwise.interop.files.kinds import Kind, kind_of
from vramwise.interop.files.pasted_commands import pasted_commands
from vramwise.interop.files.programs import Program
from vramwise.interop.files.ray import is_serve_script, model_program, script_models
from vramwise.interop.files.torchtitan_registry import is_registry, registry_programs
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.command import ASSIGNMENT
from vramwise.interop.launch.launchers import GPUS_UNSAID
from vramwise.interop.launch.options import NO_EFFECT
from vramwise.records import record

_SHOWN = 200
_MOST_NAMED = 150
_SECRET = re.compile(r"(?i)(?:^|[-_.])(?:api[-_]?key|token|secret|password|passwd|org[-_]?key|access[-_]?key)$")
_STARTING = frozenset(
    {
        "compose",
        "kubernetes",
        "helm-values",
        "kubeai-values",
        "model-service-values",
        "ray-serve",
        "ray-model",
        "sky",
        "dstack",
        "recipe",
        "llama-swap",
        "prime-rl",
        "script",
        "command",
        "modelfile",
        "systemd",
        "variables",
        "python",
        "notebook",
    }
)
_LISTED_SERVICES = 12
_MODEL_FLAGS = frozenset({"--model", "--model-id", "--model-path", "--model_name_or_path", "-m"})


NOT_ANSWERED = "not answered, though the file starts it: "


@record
class FileLaunch:
    """One answer that files ask for; `name` tells several of one file apart."""

    name: str
    launch: Launch


def read_files(paths: Sequence[str], model: str | None = None, service: str | None = None) -> list[FileLaunch]:
    """What the files describe together: a tool's configuration with accelerate's and DeepSpeed's, or one file that
    starts programs, with the configurations that these name.

    `model` replaces the one that they name. Raises UsageError or SourceError in one line.
    """
    files = [(given, _known(given)) for given in map(_given, paths)]
    starting = [(given, kind) for given, kind in files if kind.name in _STARTING]
    if len(starting) > 1:
        raise UsageError(f"{_named(starting[0][0])} and {_named(starting[1][0])} both start programs: give one of them")
    if starting:
        given, kind = starting[0]
        if kind in (kinds.NOTEBOOK, kinds.PYTHON) and not _starts_engines(given):
            from vramwise.interop.files.training_code import code_launch

            launch = code_launch(given, model, f"{_named(given)} is {kind.title}")
            return [FileLaunch("", replace(launch, notes=tuple(_in_full(note, launch) for note in launch.notes)))]
        beside = [path for path in paths if path != given.path]
        with looking_beside(paths):
            answers = list(_started(given, kind, beside, model))
        return _chosen(given, [_with_unused(one, given, beside) for one in answers], service)
    if service is not None:
        raise UsageError("--service: chooses among the programs of a file, such as docker-compose.yml")
    with looking_beside(paths):
        return [FileLaunch("", _configured(files, model))]


def _starts_engines(given: Given) -> bool:
    """Whether Python text serves, or names configurations of torchtitan; other text trains, generates or loads."""
    if is_engine_script(given):
        return True
    if given.suffix != ".py":
        return False
    from vramwise.interop.files.command_lists import has_command_list, listed_programs

    return is_registry(given) or is_serve_script(given) or (has_command_list(given) and bool(listed_programs(given)))


def _with_unused(answer: FileLaunch, given: Given, beside: Sequence[str]) -> FileLaunch:
    """The answer with a note of files that nothing in the one that starts programs names."""
    text = given.text or str(given.documents)
    unused = [shown_path(path) for path in beside if Path(path).name not in text]
    if not unused:
        return answer
    note = f"left out, nothing in {_named(given)} names it: {', '.join(unused)}"
    return replace(answer, launch=replace(answer.launch, notes=(*answer.launch.notes, note)))


def _given(path: str) -> Given:
    given = read_given(path)
    if given is None:
        read_again(path)
        raise refused(path)
    return given


def _known(given: Given) -> Kind:
    kind = kind_of(given)
    if kind is None or kind is kinds.SCENARIO:
        what = "is a scenario of vramwise: --scenario reads it alone" if kind else _EXPECTED
        raise UsageError(f"{_named(given)}: {what}")
    return kind


def refused(path: str) -> UsageError:
    """What is said of a file that is nobody's."""
    return UsageError(f"{shown_path(path)}: {_EXPECTED}")


_EXPECTED = (
    "nobody's file that is known here: expected a configuration of a training tool, DeepSpeed's or "
    "accelerate's, flags of vLLM or SGLang, settings of KoboldCpp, a Compose file, a Kubernetes manifest, values of "
    "the vLLM production stack, llm-d or KubeAI, a task of SkyPilot, llama-swap's models, a systemd unit, a script, a "
    "command line, variables (.env), a notebook or a Modelfile"
)


def _named(given: Given) -> str:
    return shown_path(given.path)


def _configured(files: Sequence[tuple[Given, Kind]], model: str | None) -> Launch:
    """The command line that runs a configuration, with accelerate's and DeepSpeed's files in it."""
    by_kind: dict[str, Given] = {}
    for given, kind in files:
        role = kind.name if kind.beside else "tool"
        if role in by_kind:
            raise UsageError(f"{_named(by_kind[role])} and {_named(given)} are both {kind.title}: give one of them")
        by_kind[role] = given
    accelerate, deepspeed = by_kind.get("accelerate"), by_kind.get("deepspeed")
    cloud = by_kind.get("axolotl-cloud")
    said = [f"{_named(given)} is {kind.title}" for given, kind in files]
    tool = next(((given, kind) for given, kind in files if given is by_kind.get("tool")), None)
    if tool is None:
        if cloud is not None:
            raise UsageError(f"{_named(cloud)} is {kinds.AXOLOTL_CLOUD.title}: give axolotl's configuration too")
        words = _around_a_script(accelerate, deepspeed, model)
    else:
        words, assumed = _words(*tool, accelerate, deepspeed, model)
        said += [assumed] if assumed else []
        if cloud is not None:
            if not tool[1].with_cloud:
                raise UsageError(
                    f"{_named(cloud)} is {kinds.AXOLOTL_CLOUD.title}, not of {tool[1].title}: leave out one"
                )
            words += [*tool[1].with_cloud, cloud.path]
    return _read(words, said)


def _read(words: Sequence[str], said: Sequence[str]) -> Launch:
    launch = read_command(words)
    shown = clipped(" ".join(_without_secrets(words)), _SHOWN)
    names = ", ".join(clipped(one, 80) for one in launch.understood)
    understood = [f"read from it: {names}"] if names else []
    notes = [_in_full(note, launch) for note in launch.notes]
    return replace(launch, notes=(f"{'; '.join(said)}: read as {shown}", *understood, *notes))


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    """A command line as a note shows it: without variables before it, and without keys, tokens and passwords."""
    hides = False
    for word in words:
        name, sign, _ = word.partition("=")
        is_secret = bool(_SECRET.search(name)) and (name.startswith("-") or bool(sign))
        if hides:
            yield "…"
        elif not (ASSIGNMENT.match(word) and name.isupper()):
            yield f"{name}=…" if is_secret and sign else shlex.quote(word)
        hides = is_secret and not sign


def _in_full(note: str, launch: Launch) -> str:
    """What a file holds without effect is listed whole, as far as a person would read it; foreign text is cleaned."""
    if not note.startswith(NO_EFFECT) or not launch.passed_over:
        return printable(note)
    more = len(launch.passed_over) - _MOST_NAMED
    names = ", ".join(clipped(one, 80) for one in launch.passed_over[:_MOST_NAMED])
    return f"{NO_EFFECT}{names}{f' and {more} more' if more > 0 else ''}"


def _around_a_script(accelerate: Given | None, deepspeed: Given | None, model: str | None) -> list[str]:
    """accelerate's and DeepSpeed's files say nothing of the model: any script around Trainer runs it."""
    if model is None:
        path = " ".join(_named(one) for one in (accelerate, deepspeed) if one is not None)
        raise UsageError(f"{path} says nothing of the model: vramwise estimate MODEL {path}, or the trainer's file too")
    script = ["train.py", "--model_name_or_path", model]
    if accelerate is None:
        return ["deepspeed", *script, "--deepspeed", deepspeed.path if deepspeed else ""]
    return ["accelerate", "launch", *_accelerate_words(accelerate, deepspeed), *script]


def _accelerate_words(accelerate: Given, deepspeed: Given | None) -> list[str]:
    own = ["--deepspeed_config_file", deepspeed.path] if deepspeed is not None else []
    return ["--config_file", accelerate.path, *own]


def _words(
    given: Given, kind: Kind, accelerate: Given | None, deepspeed: Given | None, model: str | None
) -> tuple[list[str], str]:
    name = _named(given)
    if accelerate is not None and not kind.with_accelerate:
        raise UsageError(f"{_named(accelerate)}: {kind.title}, {name}, is not started by accelerate: leave out one")
    if deepspeed is not None and not kind.deepspeed:
        raise UsageError(f"{_named(deepspeed)}: {kind.title}, {name}, takes no DeepSpeed file: leave out one")
    template, assumed = kind.program(given, kind.with_accelerate if accelerate else kind.words)
    before: list[str] = []
    if accelerate is not None:
        before = ["accelerate", "launch", *_accelerate_words(accelerate, deepspeed)]
    after = [kind.deepspeed.format(deepspeed.path)] if deepspeed is not None and accelerate is None else []
    after += [kind.model.format(model)] if model is not None else []
    return [*before, *(word.replace("{}", given.path) for word in template), *after], assumed


def _started(given: Given, kind: Kind, beside: Sequence[str], model: str | None) -> Iterator[FileLaunch]:
    """The programs that a file starts; those that name no model are passed over where another one does."""
    programs = _programs(given, kind, beside)
    if not programs:
        raise UsageError(f"{_named(given)} is {kind.title} that starts no program known here: vramwise estimate -- "
                         "COMMAND reads a command line")  # fmt: skip
    found: list[FileLaunch] = []
    failed: list[tuple[str, VramwiseError]] = []
    for program in programs:
        try:
            found.append(FileLaunch(program.name, _of_program(given, kind, program, beside, model)))
        except VramwiseError as error:
            said = "; ".join(program.notes)
            kind_of_problem = SourceError if isinstance(error, SourceError) else UsageError
            problem = kind_of_problem(f"{_named(given)}: {error}{f' ({said})' if said else ''}")
            failed.append((program.name if not isinstance(error, NamesNoModelError) else "", problem))
    if not found and failed:
        raise failed[-1][1]
    told = [f"{NOT_ANSWERED}{clipped(name, 60)}: {clipped(str(error), 160)}" for name, error in failed if name]
    for place, one in enumerate(found):
        more = (*given.unread, *(told if not place else ()))
        yield replace(one, launch=replace(one.launch, notes=(*one.launch.notes, *more)))


def _of_program(given: Given, kind: Kind, program: Program, beside: Sequence[str], model: str | None) -> Launch:
    said = [f"{_named(given)} is {kind.title}"]
    inside = [word for word in program.words if word.rpartition("=")[2] in program.files]
    if inside:
        launch, folder = with_files(program.files, program.words, lambda words: _with_model(words, said, model))
        launch = replace(launch, notes=tuple(note.replace(folder, "") for note in launch.notes))
    else:
        launch = _with_model([_found_file(word, given, beside) for word in program.words], said, model)
    settings, decided = dict(program.settings), dict(program.decided)
    if launch.scenario.get("task") != "train":  # an engine's own flags say on how many GPUs it runs
        settings, decided = ({key: value for key, value in one.items() if key == "gpu"} for one in (settings, decided))
    scenario = {**settings, **launch.scenario, **decided, **({} if model is None else {"model": model})}
    engine = scenario.get("serve")
    if program.serve and isinstance(engine, Mapping):
        scenario["serve"] = {**engine, **program.serve}
    notes = [note for note in launch.notes if note != GPUS_UNSAID or "num_gpus" not in scenario]
    return replace(launch, scenario=scenario, notes=(*notes, *program.notes))


def _with_model(words: Sequence[str], said: Sequence[str], model: str | None) -> Launch:
    """The launch; one that names no model gets the one that was given."""
    try:
        return _read(words, said)
    except UsageError:
        if model is None:
            raise
        for place, word in enumerate(words):
            if word in _MODEL_FLAGS and (place + 1 == len(words) or words[place + 1].startswith("-")):
                return _read([*words[: place + 1], model, *words[place + 1 :]], said)
        return _read([*words, "--model", model], said)


def _found_file(word: str, given: Given, beside: Sequence[str]) -> str:
    """A configuration that a command names: the file given beside under that name, or the one beside the script."""
    name, sign, value = word.partition("=")
    path = value if sign and not name.endswith((".yaml", ".yml", ".json")) else word
    if not path.endswith((".yaml", ".yml", ".json", ".toml")) or os.path.exists(path):
        return word
    near = [one for one in beside if Path(one).name == Path(path).name]
    candidates = (*near, str(Path(given.path).parent / path), str(Path(given.path).parent / Path(path).name))
    found = next((one for one in candidates if os.path.isfile(one)), None)
    return word if found is None else found if path == word else f"{name}={found}"


def _programs(given: Given, kind: Kind, beside: Sequence[str]) -> list[Program]:
    if kind is kinds.COMPOSE:
        from vramwise.interop.files.containers import compose_programs

        return compose_programs(given.table, given.path)
    if kind is kinds.KUBERNETES or kind is kinds.RAY_SERVE:
        from vramwise.interop.files.containers import kubernetes_programs

        def table_of(path: str) -> Mapping[str, object]:
            found = read_given(_found_file(path, given, beside))
            return {} if found is None else found.table

        return kubernetes_programs(given.documents, table_of)
    if kind is kinds.RAY_MODEL:
        return model_program(given.table)
    if kind is kinds.HELM_VALUES:
        from vramwise.interop.files.helm_values import helm_programs

        return helm_programs(given.table)
    if kind is kinds.KUBEAI_VALUES:
        from vramwise.interop.files.kubeai import catalog_programs

        return catalog_programs(given.table)
    if kind is kinds.MODEL_SERVICE:
        from vramwise.interop.files.llm_d import model_service_programs

        return model_service_programs(given.table)
    if kind in (kinds.SKY, kinds.DSTACK):
        from vramwise.interop.files.commands_in_tables import dstack_programs, sky_programs

        programs = sky_programs if kind is kinds.SKY else dstack_programs
        return programs(given.table, Path(given.path).stem)
    if kind is kinds.RECIPE:
        from vramwise.interop.files.commands_in_tables import recipe_programs

        return recipe_programs(given.table)
    if kind is kinds.LLAMA_SWAP:
        from vramwise.interop.files.commands_in_tables import llama_swap_programs

        return llama_swap_programs(given.table)
    if kind is kinds.PRIME_RL:
        from vramwise.interop.files.commands_in_tables import prime_rl_programs

        return prime_rl_programs(given.table, given.path)
    if kind is kinds.MODELFILE:
        from vramwise.interop.files.modelfile import modelfile_programs

        return modelfile_programs(given)
    if kind is kinds.SYSTEMD:
        from vramwise.interop.files.systemd import unit_programs

        return unit_programs(given.text, Path(given.path).stem)
    if kind is kinds.VARIABLES:
        from vramwise.interop.files.environment import variable_programs

        return variable_programs(given)
    if kind in (kinds.NOTEBOOK, kinds.PYTHON):
        if is_engine_script(given):
            return engine_script_programs(given)
        if is_serve_script(given):
            return script_models(given)
        from vramwise.interop.files.command_lists import has_command_list, listed_programs

        return (listed_programs(given) if has_command_list(given) else []) or registry_programs(given)
    from vramwise.interop.files.batch_scripts import script_programs

    text = pasted_commands(given.text) if kind is kinds.COMMAND else given.text
    return script_programs(text or "", Path(given.path).stem)


def _chosen(given: Given, answers: list[FileLaunch], service: str | None) -> list[FileLaunch]:
    """All answers, or the one that `--service` names. Raises UsageError for an unknown name."""
    if service is None:
        return answers
    found = [one for one in answers if one.name == service]
    if found:
        return found
    names = [one.name for one in answers]
    close = nearest(service, names) or names[:_LISTED_SERVICES]
    raise UsageError(f'{_named(given)} has no service "{clipped(service)}" that runs a model: '
                     f"expected {', '.join(map(clipped, close))}")  # fmt: skip
