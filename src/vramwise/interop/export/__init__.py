"""A scenario as the command or file that runs it, in the words of a tool, and what those words cannot say."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.reading_back import differences, scenario_back, unread
from vramwise.interop.export.tools import TOOL_NAMES, Tool, draft_of, for_tool, tool_named
from vramwise.records import record
from vramwise.result import Result
from vramwise.scenario import Scenario

__all__ = ["TOOL_NAMES", "Export", "File", "export", "export_answer"]


@record
class Export:
    """What runs a scenario: the command, and the files that it reads, if any.

    `not_expressed` has a line for each thing that the tool has no words for, or that runs otherwise with it.
    """

    tool: str
    command: str
    files: tuple[File, ...]
    not_expressed: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file that the tool reads, else the command."""
        return self.files[0].text if self.files else f"{self.command}\n"

    def to_dict(self) -> dict[str, object]:
        """The table `export` of `vramwise estimate --json --export`."""
        files = [{"path": file.path, "what": file.what, "text": file.text} for file in self.files]
        return {
            "tool": self.tool, "text": self.text, "not_expressed": list(self.not_expressed), "command": self.command,
            "files": files,
        }  # fmt: skip


def export(scenario: Scenario | Mapping[str, object], tool: str, path: str | None = None) -> Export:
    """A scenario as the command or file of a tool: `vramwise.export(scenario, "vllm").text`.

    `path` is the name under which a file will be kept, which the command then names. What is written is read back, and
    `not_expressed` says where that differs. Nothing is written to disk but for that, in a temporary folder.

    Raises UnknownNameError for a tool that is none here, UsageError for a scenario that the tool cannot run.
    """
    return export_answer(scenario, tool, path)[0]


def export_answer(
    scenario: Scenario | Mapping[str, object], tool: str, path: str | None = None
) -> tuple[Export, Result]:
    """The export, and the answer to the scenario as the tool's own."""
    given = scenario if isinstance(scenario, Scenario) else Scenario.from_dict(scenario)
    found = tool_named(tool, given.task)
    wanted = for_tool(given, found)
    result = estimate(wanted)
    table = result.scenario.get(wanted.task)
    asked = Asked(
        wanted, _model_name(str(wanted.model), result), table if isinstance(table, Mapping) else {}, path or found.file
    )
    draft = draft_of(found, asked)
    said = dict.fromkeys((*draft.unsaid, *_differences(found, asked, result)))
    comments = tuple(said)
    files = tuple(_commented(file, draft, comments) for file in draft.files)
    return Export(found.name, _command(draft), files, comments), result


def _model_name(model: str, result: Result) -> str:
    """The hub's name of a model that was named shortly; a path, and a name that says more than the hub's, stay."""
    return result.model.id if not os.path.exists(model) and "/" not in model and "/" in result.model.id else model


def _differences(tool: Tool, asked: Asked, result: Result) -> list[str]:
    """What a reader makes of the files, which stand in a folder of their own meanwhile."""
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        draft = draft_of(tool, replace(asked, path=os.path.join(folder, os.path.basename(asked.path) or "file")))
        for file in draft.files:
            with open(file.path, "w", encoding="utf-8") as out:
                out.write(file.text)
        try:
            back = scenario_back(draft, asked.scenario)
            return list(differences(asked.scenario, result, back, estimate(back)))
        except VramwiseError as problem:
            return [unread(problem)]


def _command(draft: Draft) -> str:
    words = [f"{name}={shlex.quote(value)}" for name, value in draft.environment.items()]
    return " ".join([*words, shlex.join(draft.words)])


def _commented(file: File, draft: Draft, said: tuple[str, ...]) -> File:
    """A YAML file that begins with how it is run and what it does not say; JSON has no comments."""
    if file.path.endswith(".json"):
        return file
    lines = [f"{file.what}, by vramwise; run: {_command(draft)}", *(f"not expressed: {line}" for line in said)]
    return replace(file, text="".join(f"# {line}\n" for line in lines) + file.text)
