"""One line of fine-tuning data as the text that is trained on.

Columns as trainers' documentation has them: text (TRL's language modeling, axolotl `completion`), messages (TRL and
OpenAI's chat format) and conversations (ShareGPT: from, value), prompt and completion (TRL), instruction with input and
output (Alpaca), question and answer (GSM8K).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.errors import UsageError, clipped
from vramwise.records import record

TEXTS = ("text", "content", "body")
CHATS = ("messages", "conversations", "conversation")
PAIRS = (
    ("prompt", "completion"), ("prompt", "response"), ("prompt", "chosen"), ("instruction", "input", "output"),
    ("instruction", "output"), ("instruction", "response"), ("question", "answer"), ("query", "response"),
)  # fmt: skip
_ROLES = {"human": "user", "gpt": "assistant"}


@record
class Sample:
    """A text, or the turns of a conversation (role and content); `kind` says from which columns."""

    kind: str
    text: str = ""
    turns: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> str:
        return "\n".join(content for _, content in self.turns) if self.turns else self.text


def sample_of(row: Mapping[str, object], column: str | None = None) -> Sample:
    """The sample of a row. Raises UsageError for columns that are none of the usual, or hold no text."""
    if column is not None:
        if column not in row:
            raise UsageError(f'no column "{clipped(column)}"')
        return _value(column, row[column])
    for name in CHATS:
        if isinstance(row.get(name), Sequence) and not isinstance(row[name], str):
            return _value(name, row[name])
    for names in PAIRS:
        if names[0] in row and names[-1] in row and all(name in row for name in names):
            parts = [_value(name, row[name]) for name in names]
            turns = tuple(turn for part in parts for turn in part.turns)
            kind = " + ".join(names)
            if turns and all(part.turns for part in parts):
                return Sample(kind, turns=turns)
            return Sample(kind, "\n".join(part.plain for part in parts if part.plain))
    for name in TEXTS:
        if name in row:
            return _value(name, row[name])
    known = ", ".join(clipped(str(name), 20) for name in list(row)[:6])
    raise UsageError(f"no column is known ({known or 'none'}): --column NAME")


def _value(name: str, value: object) -> Sample:
    if isinstance(value, str):
        return Sample(name, value)
    if value is None:
        return Sample(name)
    if isinstance(value, Sequence) and all(isinstance(turn, Mapping) for turn in value):
        return Sample(name, turns=tuple(_turn(turn) for turn in value))
    raise UsageError(f'column "{clipped(name)}" holds no text')


def _turn(turn: Mapping[str, object]) -> tuple[str, str]:
    role, content = turn.get("role", turn.get("from", "user")), turn.get("content", turn.get("value", ""))
    if isinstance(content, list):  # parts of a message: text ones count
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return _ROLES.get(str(role), str(role)), "" if content is None else str(content)
