"""Programs that a file starts: words of a command line with the variables before them, each with a name of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from vramwise.errors import clipped
from vramwise.interop.files.shell_words import ShellCommand, commands_of
from vramwise.interop.launch import in_image, names_a_program
from vramwise.records import record

_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z)?sh")
_PULL = re.compile(r"/api/pull(?:[/?\s]|$)")
_PULLED = re.compile(r'"(?:name|model)"\s*:\s*"([\w.:/@-]{1,200})"')
_WITH_TEXT = re.compile(r"-[a-z]*c")
OF_THE_SHELL = frozenset(
    {
        "[",
        "[[",
        "test",
        "echo",
        "printf",
        "cat",
        "cd",
        "pip",
        "git",
        "mkdir",
        "cp",
        "mv",
        "rm",
        "ls",
        "which",
        "command",
        "pkill",
        "killall",
        "grep",
        "sed",
        "sleep",
        "wait",
        "source",
        ".",
        "tee",
        "conda",
        "module",
        "ulimit",
        "nvidia-smi",
    }
)
"""Commands that name programs without starting one."""

MOST_PROGRAMS = 100
_NESTED = 5
_SHOWN = 8


@record
class Program:
    """Something that a file starts: the words of its command line, and what else the file says of it."""

    name: str
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    """Keys of a scenario that hold where the command line does not say them."""
    decided: Mapping[str, object] = field(default_factory=dict)
    """Keys of a scenario that win over the command line's."""
    serve: Mapping[str, object] = field(default_factory=dict)
    """Keys of `serve` that the command line has no flag for."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of files that come with the program, by the paths that its words have for them."""


def gpus_of_nodes(each: int | None, count: int) -> dict[str, object]:
    """The settings of so many nodes of `each` GPUs; nothing where no GPU is named."""
    return {"num_gpus": each * count, "gpus_per_node": each} if each else {}


def programs_in_words(
    words: Sequence[str],
    environment: Mapping[str, str],
    name: str,
    files: Mapping[str, str] | None = None,
    *,
    image: str = "",
) -> list[Program]:
    """The known program that the words of a container start, or those in the text or file that its shell is given.

    `image`: whose container a shell is started in: the program that comes with it is of its version.
    """
    found = _programs_in_words(words, environment, name, files)
    return [replace(one, words=in_image(image, one.words)) for one in found]


def _programs_in_words(
    words: Sequence[str], environment: Mapping[str, str], name: str, files: Mapping[str, str] | None
) -> list[Program]:
    for place, word in enumerate(words[:-1]):
        if _SHELL.fullmatch(word):
            rest = next((index for index, flag in enumerate(words[place + 1 :], place + 1) if _WITH_TEXT.fullmatch(flag)
                         or not flag.startswith("-")), None)  # fmt: skip
            if rest is not None and _WITH_TEXT.fullmatch(words[rest]) and words[rest + 1 :]:
                text = rest + (
                    2 if words[rest + 1] == "--" and words[rest + 2 :] else 1
                )  # bash -lc -- TEXT, of KubeRay
                arguments = words[text + 2 :]
                return programs_in_text(words[text], environment, name, before=words[:place], arguments=arguments)
            if rest is not None and files and words[rest] in files:
                return programs_in_text(files[words[rest]], environment, name, before=words[:place])
    found = (*(f"{key}={value}" for key, value in environment.items()), *(_pulled(words) or words))
    return [Program(name, found)] if names_a_program(found) else []


def programs_in_text(
    text: str,
    environment: Mapping[str, str],
    name: str,
    *,
    before: Sequence[str] = (),
    arguments: Sequence[str] = (),
    depth: int = 0,
) -> list[Program]:
    """The known programs that a shell's text starts, its first with `name`, others with a number behind it.

    `arguments`: what `"$@"` stands for in it: of `sh -c TEXT NAME ARGUMENT…` (POSIX sh, OPTIONS) the words behind NAME.
    """
    script = commands_of(text, environment, arguments)
    exported = {**environment, **script.exported}
    found: list[Program] = []
    for command in script.commands:
        inner, given = _inner_text(command)
        if inner is not None and depth < _NESTED:
            found += programs_in_text(inner, exported, name, before=before, arguments=given, depth=depth + 1)
            continue
        if command.words[:1] and command.words[0] in OF_THE_SHELL:
            continue
        pulled = _pulled(command.words)
        if pulled:
            variables = (f"{key}={value}" for key, value in exported.items())
            found.append(Program(name, (*variables, *pulled), _notes(command, script.undecided, text)))
            continue
        words = (*(f"{key}={value}" for key, value in exported.items()), *before, *command.words)
        if names_a_program(command.words) or (before and names_a_program((*before, *command.words))):
            found.append(Program(name, words, _notes(command, script.undecided, text)))
        if len(found) >= MOST_PROGRAMS:
            break
    return [replace(one, name=name if not index else f"{name}-{index + 1}") for index, one in enumerate(found)]


def _pulled(words: Sequence[str]) -> tuple[str, ...]:
    """`curl …/api/pull -d '{"name": "llama3.1:8b"}'` as `ollama pull` (ollama docs/api.md: model, before 0.5 name)."""
    if not any(_PULL.search(word) for word in words):
        return ()
    named = next((match for word in words if (match := _PULLED.search(word))), None)
    return () if named is None else ("ollama", "pull", named.group(1))


def _inner_text(command: ShellCommand) -> tuple[str | None, tuple[str, ...]]:
    """The text that a command gives to a shell of its own, and the arguments that it gives to the text."""
    words = command.words
    for place, word in enumerate(words[:-2]):
        if _SHELL.fullmatch(word) and _WITH_TEXT.fullmatch(words[place + 1]):
            text = place + (3 if words[place + 2] == "--" and words[place + 3 :] else 2)
            return words[text], words[text + 2 :]
    return None, ()


def _notes(command: ShellCommand, undecided: Sequence[str], text: str) -> tuple[str, ...]:
    notes = []
    if command.unknown:
        named = ", ".join(clipped(one, 40) for one in command.unknown[:_SHOWN])
        notes.append(f"only a run would tell, left out: {named}")
    if undecided:
        named = ", ".join(dict.fromkeys(clipped(one, 40) for one in undecided[:_SHOWN]))
        notes.append(f"set several times or in branches, the first value is taken: {named}")
    return tuple(notes)
