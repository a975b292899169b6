"""Tables that hold command lines: SkyPilot's and dstack's tasks, recipes, llama-swap's models, prime-rl's parts.

Read in skypilot a36180e4 docs/source/reference/yaml-spec.rst (`resources.accelerators`, `num_nodes`, `envs`, `run`),
dstack 0.20 core/models/resources.py (`gpu: H100:80GB:8`, in any order, or a table) and configurations.py,
vllm-project/recipes models/*/*.yaml (`model.model_id`, `base_args`, `variants`) and mostlygeek/llama-swap 00460400
config.example.yaml (`cmd` with comments, `macros` of all models and of one, `env`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.interop.files.programs import MOST_PROGRAMS, Program, gpus_of_nodes, programs_in_text, programs_in_words
from vramwise.interop.files.tables import texts_in
from vramwise.interop.launch import in_image
from vramwise.interop.launch.prime_rl_parts import has_server, part_of, server_words
from vramwise.interop.launch.values import is_table

_PORT = "8080"
_NESTED = 3  # macros may hold others
_GIGABYTES = re.compile(r"(?i)\d{1,4}GB")
_MACRO = re.compile(r"\$\{([\w.-]{1,80})\}")


def sky_programs(table: Mapping[str, object], name: str) -> list[Program]:
    """What a task of SkyPilot runs, on the accelerators that it asks for."""
    card, each = _accelerators(table.get("resources"))
    nodes = table.get("num_nodes")
    count = nodes if isinstance(nodes, int) and nodes > 0 else 1
    given = table.get("envs")
    stated = given if isinstance(given, Mapping) else {}
    variables = {str(key): str(value) for key, value in stated.items() if value is not None}
    told = {"SKYPILOT_NUM_GPUS_PER_NODE": str(each), "SKYPILOT_NUM_NODES": str(count), "SKYPILOT_NODE_RANK": "0"}
    found = programs_in_text(
        str(table.get("run") or ""), {**variables, **(told if each else {})}, str(table.get("name") or name)
    )
    settings = {**card, **gpus_of_nodes(each, count)}
    from vramwise.interop.files.command_lists import pinned

    installed = str(table.get("setup") or "")
    return [
        replace(one, words=_own(one.words, told), settings=settings, serve=pinned(installed, one.words))
        for one in found
    ]


def dstack_programs(table: Mapping[str, object], name: str) -> list[Program]:
    """What a task or service of dstack runs, on the GPUs that it asks for."""
    given, resources = table.get("env"), table.get("resources")
    pairs = [str(one).partition("=") for one in given] if isinstance(given, list) else []
    variables = {key: value for key, sign, value in pairs if sign} | _texts(given)
    card, each = _dstack_gpus(resources.get("gpu") if isinstance(resources, Mapping) else None)
    nodes = table.get("nodes")
    count = nodes if isinstance(nodes, int) and nodes > 0 else 1
    told = {"DSTACK_GPUS_NUM": str(each * count), "DSTACK_GPUS_PER_NODE": str(each), "DSTACK_NODES_NUM": str(count),
            "DSTACK_NODE_RANK": "0"}  # fmt: skip
    commands = table.get("commands")
    text = "\n".join(map(str, commands)) if isinstance(commands, list) else ""
    image, named = str(table.get("image") or ""), str(table.get("name") or name)
    found = programs_in_text(text, {**variables, **(told if each else {})}, named)
    if not text and image:
        found = programs_in_words([image, *str(table.get("entrypoint") or "").split()], variables, named)
    settings = {**card, **gpus_of_nodes(each, count)}
    return [replace(one, words=in_image(image, _own(one.words, told)), settings=settings) for one in found]


def _dstack_gpus(given: object) -> tuple[dict[str, object], int]:
    """The card and how many a node has: `8`, `H100:8`, `A100:80GB:2`, `24GB..`, or a table of these."""
    from vramwise.hardware import find_gpu

    if isinstance(given, Mapping):
        name = given.get("name")
        first = name[0] if isinstance(name, list) and name else name
        given = ":".join(str(one) for one in (first, given.get("memory"), given.get("count")) if one)
    parts = [part for part in str(given or "").split(":") if part]
    count = next((int(part) for part in parts if part.isdecimal() and len(part) < 5), 1 if parts else 0)
    memory = next((part.lower() for part in parts if _GIGABYTES.fullmatch(part)), "")
    names = [part.split(",")[0] for part in parts if not part[0].isdigit() and part[0] != "."]
    for named in [f"{names[0]}-{memory}", names[0]] if names else []:
        try:
            return {"gpu": find_gpu(named).gpu.id}, count
        except VramwiseError:
            continue
    return {}, count


def prime_rl_programs(table: Mapping[str, object], path: str) -> list[Program]:
    """The trainer of a file, and the inference server that it starts on GPUs of its own."""
    part = part_of(table)
    trainer = [] if part == "inference" else [Program("trainer", ("uv", "run", part, "@", path))]
    server = [Program("inference", tuple(server_words(table)))] if has_server(table) else []
    return [*trainer, *server]


def recipe_programs(table: Mapping[str, object]) -> list[Program]:
    """What a recipe of vLLM's serves: its model, and each variant that has files of its own."""
    model, variants = table.get("model"), table.get("variants")
    model = model if isinstance(model, Mapping) else {}
    others = variants.items() if isinstance(variants, Mapping) else ()
    named = {"default": model.get("model_id"), **{key: one.get("model_id") for key, one in others if is_table(one)}}
    found = []
    for name, given in named.items():
        own = variants.get(name) if isinstance(variants, Mapping) else None
        arguments = [*texts_in(model.get("base_args")), *texts_in(own.get("extra_args") if is_table(own) else None)]
        identifier = given or model.get("model_id")
        if isinstance(identifier, str) and (given or name == "default"):
            note = "a recipe says how, not on how many GPUs: --tensor-parallel-size does"
            found.append(Program(str(name), ("vllm", "serve", identifier, *arguments), (note,)))
    return found


def _own(words: tuple[str, ...], told: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for word in words if word.partition("=")[0] not in told)


def _accelerators(resources: object) -> tuple[dict[str, object], int]:
    """The card and how many a node has: `H100:8`, `{H100: 8}`, or the first of several."""
    from vramwise.hardware import find_gpu

    given = resources.get("accelerators") if isinstance(resources, Mapping) else None
    if isinstance(given, list) and given:
        given = given[0]
    if isinstance(given, Mapping) and given:
        named, number = next(iter(given.items()))
        given = f"{named}:{number}" if number else str(named)  # `{L4:8}` without a blank is one word
    if not isinstance(given, str):
        return {}, 0
    named, _, number = given.partition(":")
    count = int(number) if number.isdecimal() and 0 < len(number) < 5 else 1
    try:
        return {"gpu": find_gpu(named).gpu.id}, count
    except VramwiseError:
        return {}, count


def llama_swap_programs(table: Mapping[str, object]) -> list[Program]:
    """The command of each model."""
    models = table.get("models")
    found: list[Program] = []
    for name, model in (models if isinstance(models, Mapping) else {}).items():
        command = model.get("cmd") if isinstance(model, Mapping) else None
        if isinstance(command, str):
            macros = {
                "MODEL_ID": str(name),
                "PORT": _PORT,
                **_texts(table.get("macros")),
                **_texts(model.get("macros")),
            }
            given = model.get("env")
            pairs = [str(one).partition("=") for one in (given if isinstance(given, list) else [])]
            variables = {key: value for key, sign, value in pairs if sign}
            found += programs_in_text(_filled(command, macros), variables, str(name))
    return found[:MOST_PROGRAMS]


def _texts(table: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in table.items()} if isinstance(table, Mapping) else {}


def _filled(command: str, macros: Mapping[str, str]) -> str:
    """The command on one line, with its macros and without its comments."""
    for _ in range(_NESTED):
        command = _MACRO.sub(lambda match: macros.get(match[1], ""), command)
    lines = [line.rstrip("\\ \t") for line in command.splitlines() if not line.lstrip().startswith("#")]
    return " ".join(" ".join(lines).split())
