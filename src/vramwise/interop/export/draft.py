"""What one tool's writer makes of a scenario: the words of a command, the files that it reads, and what it has no words
for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from vramwise.records import record
from vramwise.scenario import Scenario


@record
class Asked:
    """A scenario as it is written out.

    `model` is the name by which hubs know it, or its path; `settings` are the keys of the task's table with what the
    engine or framework takes where nothing is stated; `path` is the file that is made of it, `output` the folder for
    what is trained.
    """

    scenario: Scenario
    model: str
    settings: Mapping[str, object]
    path: str
    output: str = "output"

    def stated(self) -> dict[str, object]:
        """The stated keys of the task's table, as JSON-able data."""
        table = self.scenario.settings
        return {key: value for key, value in table.to_dict().items() if key in table.explicit}

    @property
    def hf_overrides(self) -> dict[str, object]:
        """Keys of the model's config that are other."""
        return dict(self.scenario.hf_overrides or {})


@record
class File:
    """A file of an export, and what it is to the tool."""

    path: str
    text: str
    what: str


@record
class Draft:
    """A command line in words, the files it names (the first is what `-o` names), and what is not as in the scenario.

    `environment` stands before the command. `unsaid` are the keys that another part of the command decides, with a
    sentence for a person. `reads` is the command by which we read it back, where that is not the same; a `manifest` is
    read back as a file.
    """

    words: tuple[str, ...]
    files: tuple[File, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    manifest: bool = False
