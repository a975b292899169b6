"""What a dry run allocated and gave back, in order: lives of blocks, and what was said between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Frame = tuple[str, int, str]
"""File, line, function."""


@dataclass(slots=True)
class Life:
    """One allocation: bytes, the operation that made it, the module and the lines that asked for it, and its category.

    `name` is what a tensor is known as (weights, gradients, …); empty until somebody says so. `inside`: a module ran;
    where none did, `like` is the life that the operation read first.
    """

    number: int
    size: int
    operation: str
    moment: str
    module: str = ""
    stack: tuple[Frame, ...] = ()
    name: str = ""
    backward: bool = False
    stream: int = 0
    lasted: bool = False
    inside: bool = False
    like: int | None = None

    def copied(self) -> Life:
        """One more like it; `copy.copy` takes four times as long."""
        return Life(
            self.number, self.size, self.operation, self.moment, self.module, self.stack, self.name, self.backward,
            self.stream, self.lasted, self.inside, self.like,
        )  # fmt: skip


TAKE, FREE, MARK, NOTE, EMPTY, OWN, OWNED = "take", "free", "mark", "note", "empty", "own", "owned"


@dataclass(slots=True)
class Log:
    """Events as they happened: (kind, life's number or label)."""

    lives: list[Life] = field(default_factory=list)
    events: list[tuple[str, Any]] = field(default_factory=list)

    def take(self, life: Life) -> None:
        self.lives.append(life)
        self.events.append((TAKE, life.number))

    def say(self, kind: str, label: object = None) -> None:
        self.events.append((kind, label))
