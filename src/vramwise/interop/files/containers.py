"""Containers of Docker Compose files and Kubernetes manifests: image, command, arguments, environment, card.

Compose fills in `${NAME:-default}` itself, in defaults too, and doubles `$$` (compose-spec 12-interpolation.md);
Kubernetes fills `$(NAME)` from the container's own environment (its API's Container.command and .args).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vramwise.engines import engines
from vramwise.errors import VramwiseError, clipped
from vramwise.interop.files.compose_variables import of_service, variables_for
from vramwise.interop.files.config_maps import Maps, config_maps, mounted_files
from vramwise.interop.files.helm_values import vllm_runtime
from vramwise.interop.files.kserve import kserve_programs
from vramwise.interop.files.kubeai import kubeai_model
from vramwise.interop.files.nim import nim_service
from vramwise.interop.files.pods import ALONE, Group, gpus_of, groups_of, train_job
from vramwise.interop.files.programs import MOST_PROGRAMS, Program, gpus_of_nodes, programs_in_words
from vramwise.interop.files.ray import Beside, ray_programs, tables_in
from vramwise.interop.files.shell_words import commands_of
from vramwise.interop.launch.command import ASSIGNMENT
from vramwise.interop.launch.flags import cut

_PLAIN = r"(?!\$\{)[^}]"
_DEFAULT = rf"(?:{_PLAIN}|\$\{{(?:{_PLAIN}|\$\{{(?:{_PLAIN})*\}})*\}})*"
_PARAMETER = re.compile(rf"\$\$|\$\{{([A-Za-z_]\w*)(?:(:?[-?+])({_DEFAULT}))?\}}|\$([A-Za-z_]\w*)")
_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_TOLD = [line for engine in engines() if (line := engine.command_line) is not None and line.variables]
_OF_SERVERS = tuple(line.variables for line in _TOLD)
_ASKED_FOR_MODELS = frozenset(program for line in _TOLD for program in line.programs)
_RANK = re.compile(r"--(?:node[-_]rank|machine[-_]rank|headless)(?:[ =][^ ]+)?")
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/class", "gpu.product")


def compose_programs(table: Mapping[str, object], path: str) -> list[Program]:
    """The services of a Compose file that start a known program."""
    services, variables = table.get("services"), variables_for(path)
    found: list[Program] = []
    for name, service in (services if isinstance(services, Mapping) else {}).items():
        if isinstance(service, Mapping):
            found += _compose_service(str(name), service, variables, path)
    server = _ollamas_variables(services, variables, path)
    return [_of_ollamas_server(one, server) for one in found[:MOST_PROGRAMS]]


def _ollamas_variables(services: object, variables: Mapping[str, str], path: str) -> dict[str, str]:
    """What the service that runs `ollama serve` is told: another container's `ollama pull` only asks it for a model."""
    for service in services.values() if isinstance(services, Mapping) else ():
        image = str(service.get("image") or "") if isinstance(service, Mapping) else ""
        if isinstance(service, Mapping) and image:
            filled = _Filled(variables)
            stated = {key: filled.in_text(value) for key, value in _environment(service.get("environment"))}
            told = {
                key: value for key, value in (of_service(service, path) | stated).items() if key.startswith(_OF_SERVERS)
            }
            if told:
                return told
    return {}


def _of_ollamas_server(program: Program, server: Mapping[str, str]) -> Program:
    own = {word.partition("=")[0] for word in program.words if ASSIGNMENT.match(word)}
    if not server or not any(word.rpartition("/")[2] in _ASKED_FOR_MODELS for word in program.words):
        return program
    return replace(
        program, words=(*(f"{key}={value}" for key, value in server.items() if key not in own), *program.words)
    )


def _compose_service(
    name: str, service: Mapping[str, object], variables: Mapping[str, str], path: str
) -> list[Program]:  # fmt: skip
    filled = _Filled(variables)
    environment = of_service(service, path)
    environment |= {key: filled.in_text(value) for key, value in _environment(service.get("environment"))}
    entrypoint, command = filled.in_words(service.get("entrypoint")), filled.in_words(service.get("command"))
    image = filled.in_text(str(service.get("image") or ""))
    mounts = _mounts(service.get("volumes"), filled, path)
    entrypoint, command = ([_outside(word, mounts) for word in words] for words in (entrypoint, command))
    words = [*entrypoint, *command] if entrypoint and _has_shell(entrypoint) else [image, *entrypoint, *command]
    around = image if words[:1] != [image] else ""
    unset = ", ".join(clipped(one, 40) for one in filled.unset[:8])
    hint = " (.env beside the file sets them, or the environment)"
    notes = (f"not set here, taken as empty: {unset}{hint}",) if unset else ()
    found = programs_in_words([word for word in words if word], environment, name, image=around)
    found = found or _by_the_images_name(image, [*entrypoint, *command], environment, name)
    if service.get("build") is not None and not image:
        found = found or _by_its_flags([*entrypoint, *command], environment, name)
    return [_with_notes(one, notes) for one in found]


def _mounts(volumes: object, filled: _Filled, path: str) -> list[tuple[str, str]]:
    """Folders of a container and where they lie outside of it: of named volumes nothing is known."""
    found: list[tuple[str, str]] = []
    for one in volumes if isinstance(volumes, list) else []:
        if isinstance(one, Mapping):
            source, target = filled.in_text(str(one.get("source") or "")), filled.in_text(str(one.get("target") or ""))
        else:
            source, _, rest = filled.in_text(str(one)).partition(":")
            target = rest.partition(":")[0]
        if source.startswith(("/", ".", "~")) and target.startswith("/"):
            found.append(
                (target.rstrip("/"), os.path.join(os.path.dirname(path), os.path.expanduser(source)).rstrip("/"))
            )
    return sorted(found, key=lambda mount: -len(mount[0]))


def _outside(word: str, mounts: Sequence[tuple[str, str]]) -> str:
    """A path within a container as the one outside of it, which may say which model it is."""
    name, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for target, source in mounts:
        if value == target or value.startswith(f"{target}/"):
            return f"{name}{sign}{source}{value[len(target) :]}"
    return word


def _by_the_images_name(
    image: str, arguments: Sequence[str], environment: Mapping[str, str], name: str
) -> list[Program]:
    """An image of one's own that is called after an engine, with that engine's flag for the model."""
    called = image.rpartition("/")[2].lower()
    given = {word.partition("=")[0] for word in arguments}
    for engine in engines():
        line, own = engine.command_line, engine.title.lower()
        is_called = own in called or engine.name in re.split(r"[^a-z]+", called)
        if line is not None and line.model_flag and is_called and line.model_flag in given:
            found = programs_in_words([*line.server, *arguments], environment, name)
            said = [f"image {clipped(image)} is taken as {own}'s by its name"]
            if "cpu" in re.split(r"[^a-z]+", called):
                said.append("the image runs on the CPU: the numbers are those of a GPU")
            return [_with_notes(one, tuple(said)) for one in found]
    return []


def _by_its_flags(arguments: Sequence[str], environment: Mapping[str, str], name: str) -> list[Program]:
    """A service built here whose arguments are one engine's flags, its flag for the model among them."""
    if not arguments or not arguments[0].startswith("-"):
        return []
    able = []
    for engine in engines():
        line = engine.command_line
        if line is None or not line.model_flag:
            continue
        try:
            words = cut(engine.name, arguments)
        except VramwiseError:
            continue
        if line.model_flag in words.given and len(words.given) > 1 and not words.unknown and not words.loose:
            able.append((engine.title, line.server))
    if len(able) != 1:
        return []
    title, server = able[0]
    said = f"an image that is built here is taken as {title}'s by its flags"
    return [_with_notes(one, (said,)) for one in programs_in_words([*server, *arguments], environment, name)]


def _with_notes(program: Program, notes: tuple[str, ...]) -> Program:
    return replace(program, notes=(*notes, *program.notes)) if notes else program


def _has_shell(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"-[a-z]*c", word) for word in words)


class _Filled:
    """Texts with their `${NAME}` filled in, and the names that nothing sets."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.unset: list[str] = []

    def in_text(self, text: str) -> str:
        return _PARAMETER.sub(self._value, text)

    def in_words(self, value: object) -> list[str]:
        if isinstance(value, str):
            parsed = commands_of(self.in_text(value).replace("\n", " ")).commands
            return [word for command in parsed for word in command.words]
        return [self.in_text(str(word)) for word in value] if isinstance(value, list) else []

    def _value(self, match: re.Match[str]) -> str:
        """`:-` and its like take an empty value for none; `+` is what stands where one is set."""
        if match.group() == "$$":
            return "$"
        name, kind, other = match.group(1) or match.group(4), match.group(2) or "", match.group(3) or ""
        found = self._variables.get(name)
        is_set = bool(found) if ":" in kind else found is not None
        if "+" in kind:
            return self.in_text(other) if is_set else ""
        if is_set and found is not None:
            return found
        if "-" in kind:
            return self.in_text(other)
        if name not in self.unset:
            self.unset.append(name)
        return ""


def _environment(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield from ((str(key), _text(one)) for key, one in value.items() if one is not None)
    elif isinstance(value, list):
        yield from ((name, text) for name, sign, text in (str(one).partition("=") for one in value) if sign)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kubernetes_programs(documents: Sequence[object], beside: Beside) -> list[Program]:
    """The containers, Ray jobs and Ray Serve applications of manifests that start a known program."""
    found: list[Program] = []
    maps = config_maps(documents)
    used = {str(_named_runtime(document)) for document in documents}
    for document in documents:
        kind, name = "", ""
        if isinstance(document, Mapping):
            metadata = document.get("metadata")
            kind = str(document.get("kind") or "")
            name = str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
        if kind.endswith("TrainingRuntime") and name in used:
            continue  # what runs is the job that is made of it
        served = _of_an_operator(document, name or kind.lower())
        if served is not None:
            found += served
            continue
        job, groups = train_job(document, documents), groups_of(document)
        if job is not None:
            container, pod, group = job
            found += _container(name, container, pod, maps, group)
        own: list[Program] = []
        for table in tables_in(document):
            containers = table.get("containers")
            for container in containers if isinstance(containers, list) else []:
                if isinstance(container, Mapping):
                    own += _container(name or kind.lower(), container, table, maps, groups.get(id(table), ALONE))
            own += ray_programs(table, name or kind.lower(), beside)
        found += _without_other_ranks(own) if groups else own
        if len(found) > MOST_PROGRAMS:
            break
    return _named_apart(found[:MOST_PROGRAMS])


def _of_an_operator(document: object, name: str) -> list[Program] | None:
    """The engines of a document whose operator makes their pods; None for other documents."""
    for reader in (kserve_programs, kubeai_model, vllm_runtime, nim_service):
        found = reader(document, name)
        if found is not None:
            return found
    return None


def _named_runtime(document: object) -> object:
    spec = document.get("spec") if isinstance(document, Mapping) else None
    named = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    return named.get("name") if isinstance(named, Mapping) else None


def _without_other_ranks(programs: Sequence[Program]) -> list[Program]:
    """Pods of a group that start the same program with another rank are one program."""
    found: dict[tuple[str, ...], Program] = {}
    for one in programs:
        words = " ".join(word for word in one.words if not ASSIGNMENT.match(word))
        found.setdefault((one.name, _RANK.sub("", words)), one)
    return list(found.values())


def _container(
    name: str, container: Mapping[str, object], pod: Mapping[str, object], maps: Maps, group: Group
) -> list[Program]:
    environment = dict(group.variables)
    files = mounted_files(container, pod, maps)
    for entry in _list(container.get("env")):
        if isinstance(entry, Mapping) and isinstance(entry.get("value"), str | int | float):
            environment[str(entry.get("name"))] = _text(entry["value"])
    command = [_referenced(_text(word), environment) for word in _list(container.get("command"))]
    arguments = [_referenced(_text(word), environment) for word in _list(container.get("args"))]
    image = str(container.get("image") or "")
    words = [*command, *arguments] if _has_shell(command) else [image, *command, *arguments]
    around = image if words[:1] != [image] else ""
    own = str(container.get("name") or "")
    found = programs_in_words([word for word in words if word], environment, name, files, image=around)
    found = found or _by_the_images_name(image, [*command, *arguments], environment, name)
    settings = {**_card(pod), **_gpus(container, group)}
    return [replace(one, name=one.name or own, settings=settings, files=files) for one in found]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _referenced(text: str, environment: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: environment.get(match.group(1), match.group()), text)


def _gpus(container: Mapping[str, object], group: Group) -> dict[str, object]:
    """The GPUs that the containers of a group may use, where their command line does not say on how many it runs."""
    each = gpus_of(container) or group.processes
    return gpus_of_nodes(each, group.pods)


def _card(pod: Mapping[str, object]) -> dict[str, object]:
    """The card that the pod's selector names, where it is known here."""
    from vramwise.hardware import find_gpu

    selector = pod.get("nodeSelector")
    for label in _PRODUCT_LABELS:
        named = selector.get(label) if isinstance(selector, Mapping) else None
        if isinstance(named, str):
            try:
                return {"gpu": find_gpu(named).gpu.id}
            except VramwiseError:
                return {}
    return {}


def _named_apart(programs: list[Program]) -> list[Program]:
    """Programs with names of their own: the second of a name gets a number."""
    counts: dict[str, int] = {}
    found = []
    for one in programs:
        counts[one.name] = counts.get(one.name, 0) + 1
        found.append(one if counts[one.name] == 1 else replace(one, name=f"{one.name}-{counts[one.name]}"))
    return found
