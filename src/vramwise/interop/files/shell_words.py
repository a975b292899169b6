"""Shell text cut into commands, their variables filled in where the text itself says them. Nothing is run.

Assignments, exports, arrays, `${NAME:-default}`, sums in `$((…))`, quotes, continued lines, here-documents that
`read` takes into a variable, the first value of a `for` loop and `"$@"` of a text with known arguments are
followed. What only a run would tell (`$(…)`, backquotes, arguments of the script, variables set elsewhere) is
named in `unknown`, and left out together with the flag before it.
In branches a variable keeps its first value (`undecided` names those that another branch sets differently).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vramwise.errors import SourceError
from vramwise.interop.files.arithmetic import whole_value
from vramwise.records import record

MOST_COMMANDS, MOST_WORDS, LONGEST_VALUE, DEEPEST = 5_000, 20_000, 2**16, 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_UNKNOWN = "\ufdd0"
"""Stands in a word for what is not known; a character that is in no text."""
_OPENING = frozenset({"if", "case", "while", "until", "for", "select"})
_CLOSING = frozenset({"fi", "esac", "done"})
_PASSED_OVER = frozenset({"then", "else", "elif", "do", "{", "}", "!", "time", "function", *_OPENING, *_CLOSING})
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})


_BEFORE_AN_ASSIGNMENT = _PASSED_OVER | _DECLARING


@record
class ShellCommand:
    """One command, and what of it could not be filled in, as it is written."""

    words: tuple[str, ...]
    unknown: tuple[str, ...] = ()


@dataclass(slots=True)
class Commands:
    """The commands of a text in their order, what it exports, and variables that branches set differently."""

    commands: list[ShellCommand] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)


def commands_of(text: str, variables: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> Commands:
    """The commands of a shell's text, given its `arguments`. Raises SourceError for one that grows beyond measure."""
    reader = _Reader(text, dict(variables or {}))
    reader.arrays["@"] = reader.arrays["*"] = list(arguments)
    return reader.read()


class _Reader:
    """Reads a text from its start to its end, one character at a time."""

    def __init__(self, text: str, variables: dict[str, str], depth: int = 0) -> None:
        self.text, self.place, self.depth = text, 0, depth
        self.variables: dict[str, str] = variables
        self.arrays: dict[str, list[str]] = {}
        self.found = Commands()
        self.command: list[str] = []
        self.at_start = True
        self.unknown: list[str] = []
        self.branches = 0
        self.after_and = False
        self.here: list[tuple[str, bool]] = []

    def read(self) -> Commands:
        while self.place < len(self.text):
            character = self.text[self.place]
            if self.text.startswith(("\\\n", "\\\r\n"), self.place):
                self.place = self.text.index("\n", self.place) + 1
            elif character in " \t\r":
                self.place += 1
            elif character == "#":
                self.place = self._line_end()
            elif character == "\n":
                self.place += 1
                self._end(after_and=False)
                self._here_documents()
            elif character in ";|&()":
                self._separator(character)
            elif character in "<>":
                self._redirection()
            else:
                self._take_word()
        self._end(after_and=False)
        return self.found

    def _line_end(self) -> int:
        end = self.text.find("\n", self.place)
        return len(self.text) if end < 0 else end

    def _separator(self, character: str) -> None:
        doubled = self.text.startswith(character * 2, self.place)
        if self.text.startswith("&>", self.place):
            self.place += 1
            self._redirection()
            return
        self.place += 2 if doubled else 1
        self._end(after_and=doubled and character in "&|")

    def _redirection(self) -> None:
        """`> file`, `2>&1`, `<<< text`: the word after it is no argument; `<<EOF` waits for its lines."""
        if self.command and self.command[-1].isdecimal() and self.text[self.place - 1].isdecimal():
            self.command.pop()
        here = re.compile(r"<<(-?)\s*(['\"\\]?)([A-Za-z_][A-Za-z0-9_]*)\2?").match(self.text, self.place)
        if here is not None:
            self.here.append((here.group(3), bool(here.group(2))))
            self.place = here.end()
            return
        while self.place < len(self.text) and self.text[self.place] in "<>&|":
            self.place += 1
        while self.place < len(self.text) and self.text[self.place] in " \t":
            self.place += 1
        if self.place < len(self.text) and self.text[self.place] not in "\n;()":
            self._word()

    def _here_documents(self) -> None:
        """The lines up to each mark; those that `read NAME` takes become its value."""
        for mark, quoted in self.here:
            body: list[str] = []
            while self.place < len(self.text):
                end = self._line_end()
                line, self.place = self.text[self.place : end], end + 1
                if line.strip() == mark:
                    break
                body.append(line)
            last = self.found.commands[-1].words if self.found.commands else ()
            if last[:1] == ("read",) and _NAME.fullmatch(last[-1]):
                joined = "\n".join(body).replace("\\\n", " ")
                self._assign(last[-1], joined if quoted else self._filled(joined))
        self.here = []

    def _take_word(self) -> None:
        at_start = self.at_start
        match = _ASSIGNMENT.match(self.text, self.place)
        if at_start and match is not None and self.text.startswith("(", match.end()):
            self.place = match.end() + 1
            values = self._array()
            self.arrays[match.group(1)] = [*(self.arrays.get(match.group(1), []) if match.group(2) else []), *values]
            return
        words = self._word()
        self.at_start = at_start and all(word in _BEFORE_AN_ASSIGNMENT for word in words)
        self.command += words
        if len(self.command) > MOST_WORDS:
            raise SourceError(f"a command of more than {MOST_WORDS:,} words")

    def _array(self) -> list[str]:
        values: list[str] = []
        while self.place < len(self.text) and self.text[self.place] != ")":
            if self.text[self.place] in " \t\r\n" or self.text.startswith("\\\n", self.place):
                self.place += 2 if self.text[self.place] == "\\" else 1
            elif self.text[self.place] == "#":
                self.place = self._line_end()
            elif self.text[self.place] in ";|&(<>":
                self.place += 1
            else:
                values += self._word()
        self.place += 1
        return values

    def _end(self, *, after_and: bool) -> None:
        """A command is complete: assignments take effect, anything else is kept."""
        words, self.command, self.at_start = self.command, [], True
        unknown, self.unknown = self.unknown, []
        conditional, self.after_and = self.after_and or self.branches > 0, after_and
        if words[:1] == ["for"] and len(words) > 3 and words[2] == "in":
            self._assign(words[1], words[3])
            if len(words) > 4:
                self.found.undecided.append(words[1])
        self.branches += sum(word in _OPENING for word in words[:1]) - sum(word in _CLOSING for word in words[:1])
        words = words[next((place for place, word in enumerate(words) if word not in _PASSED_OVER), len(words)) :]
        declares = bool(words) and words[0] in _DECLARING
        rest = words[1:] if declares else words
        if rest and all(_ASSIGNMENT.match(word) or (declares and word.startswith("-")) for word in rest):
            for word in rest:
                name, sign, value = word.partition("=")
                if not sign:
                    continue
                before = self.variables.get(name.rstrip("+"), "") if name.endswith("+") else ""
                self._assign(name.rstrip("+"), before + value, conditional=conditional)
                if declares:
                    self.found.exported[name.rstrip("+")] = self.variables.get(name.rstrip("+"), value)
            return
        if words and len(self.found.commands) < MOST_COMMANDS:
            self.found.commands.append(ShellCommand(_without_unknown(words), tuple(dict.fromkeys(unknown))))

    def _assign(self, name: str, value: str, *, conditional: bool = False) -> None:
        if len(value) > LONGEST_VALUE:
            raise SourceError(f"{name}: a variable of more than {LONGEST_VALUE:,} characters")
        known = self.variables.get(name)
        if conditional and known is not None and known != "" and _UNKNOWN not in known:
            if known != value:
                self.found.undecided.append(name)
            return
        self.variables[name] = value

    def _word(self) -> list[str]:
        """The word at this place, several where a variable without quotes holds several."""
        parts, current, quoted = [], "", False
        while self.place < len(self.text):
            character = self.text[self.place]
            if character in " \t\r\n;|&()<>":
                break
            if self.text.startswith(("\\\n", "\\\r\n"), self.place):
                break
            if character == "\\":
                current += self.text[self.place + 1 : self.place + 2]
                self.place += 2
            elif character == "'":
                end = self.text.find("'", self.place + 1)
                end = len(self.text) if end < 0 else end
                current, quoted = current + self.text[self.place + 1 : end], True
                self.place = end + 1
            elif character == '"':
                self.place += 1
                value = self._quoted()
                quoted = quoted or value != [] or not self.text.startswith("$", self.place)
                parts += [current + value[0], *value[1:-1]] if len(value) > 1 else []
                current = value[-1] if len(value) > 1 else current + (value[0] if value else "")
                quoted = quoted and value != []
            elif character in "$`":
                values = self._expansion()
                pieces = [piece for value in values for piece in value.split()]
                if len(pieces) > 1:
                    parts += [current + pieces[0], *pieces[1:-1]]
                    current = pieces[-1]
                else:
                    current += pieces[0] if pieces else ""
            else:
                current += character
                self.place += 1
            if len(current) > LONGEST_VALUE or len(parts) > MOST_WORDS:
                raise SourceError(f"a word of more than {LONGEST_VALUE:,} characters")
        return [*parts, current] if current or quoted else parts

    def _quoted(self) -> list[str]:
        """What stands between double quotes; an array's values stay apart."""
        parts, current = [], ""
        while self.place < len(self.text) and self.text[self.place] != '"':
            character = self.text[self.place]
            if character == "\\" and self.text[self.place + 1 : self.place + 2] in ('"', "\\", "$", "`", "\n"):
                current += "" if self.text[self.place + 1] == "\n" else self.text[self.place + 1]
                self.place += 2
            elif character in "$`":
                values = self._expansion()
                if len(values) > 1:
                    parts += [current + values[0], *values[1:-1]]
                    current = values[-1]
                elif not values and not current and self.text.startswith('"', self.place):
                    self.place += 1
                    return parts
                else:
                    current += values[0] if values else ""
            else:
                current += character
                self.place += 1
            if len(current) > LONGEST_VALUE:
                raise SourceError(f"a word of more than {LONGEST_VALUE:,} characters")
        self.place += 1
        return [*parts, current]

    def _expansion(self) -> list[str]:
        """The values of what begins here with `$` or a backquote."""
        text, place = self.text, self.place
        if text[place] == "`":
            end = text.find("`", place + 1)
            return self._unknown(place, len(text) if end < 0 else end + 1)
        if text.startswith("$((", place):
            end = text.find("))", place)
            if end < 0:
                return self._unknown(place, len(text))
            self.place = end + 2
            value = whole_value(self._filled(text[place + 3 : end]), self.variables)
            return [str(value)] if value is not None else self._unknown(place, end + 2)
        if text.startswith("$(", place):
            return self._unknown(place, _closing(text, place + 1, "(", ")"))
        if text.startswith("${", place):
            end = _closing(text, place + 1, "{", "}")
            return self._braces(text[place + 2 : end - 1], place, end)
        match = _NAME.match(text, place + 1)
        if match is not None:
            return self._value(match.group(), place, match.end())
        following = text[place + 1 : place + 2]
        if following in ("@", "*"):
            self.place = place + 2
            return self.arrays.get(following, [])
        if following.isdecimal() or following in ("#", "?", "$", "!", "-"):
            return self._unknown(place, place + 2)
        self.place = place + 1
        return ["$"]

    def _braces(self, inside: str, place: int, end: int) -> list[str]:
        match = _NAME.match(inside)
        name = match.group() if match else ""
        rest = inside[len(name) :]
        if name and rest in ("[@]", "[*]"):
            self.place = end
            if name in self.arrays:
                return self.arrays[name]
            return self._value(name, place, end)
        if name and not rest:
            return self._value(name, place, end)
        digits = re.match(r"\d+", inside)
        default = re.match(r":?([-=+])", rest if name else inside[digits.end() :] if digits else "")
        if default is None or self.depth >= DEEPEST:
            return self._unknown(place, end)
        value = self.variables.get(name)
        self.place = end
        other = (rest if name else inside[digits.end() if digits else 0 :])[default.end() :]
        if default.group(1) == "+":
            return [self._filled(other)] if value else []
        if value is not None and (value or not default.group().startswith(":")):
            return self._value(name, place, end)
        filled = self._filled(other)
        if default.group(1) == "=" and name:
            self._assign(name, filled)
        return [filled]

    def _value(self, name: str, place: int, end: int) -> list[str]:
        self.place = end
        if name in self.arrays and name not in self.variables:
            return self.arrays[name][:1]
        value = self.variables.get(name)
        if value is not None and _UNKNOWN in value:
            self.unknown.append(f"${name}")
        return self._unknown(place, end) if value is None else [value]

    def _unknown(self, place: int, end: int) -> list[str]:
        """What is not known: its text between two marks, alone where it is not part of a path."""
        self.place = max(end, place + 1)
        shown = self.text[place:end]
        self.unknown.append(shown[:LONGEST_VALUE])
        alone = not shown.startswith(("$(", "`")) and self.text[self.place : self.place + 1] == "/"
        return [f"{_UNKNOWN}{shown}{_UNKNOWN}" if alone else _UNKNOWN]

    def _filled(self, text: str) -> str:
        """A text with its variables filled in, as between double quotes."""
        if "$" not in text and "`" not in text and "\\" not in text and '"' not in text and "'" not in text:
            return text
        if self.depth >= DEEPEST:
            raise SourceError("nested too deeply")
        plain = text.strip()
        if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
            text = plain[1:-1]
        inner = _Reader(text.replace('"', '\\"') + '"', self.variables, self.depth + 1)
        inner.arrays = self.arrays
        value = " ".join(inner._quoted())
        self.unknown += inner.unknown
        return value


def _closing(text: str, place: int, opening: str, closing: str) -> int:
    """The place behind the bracket that closes the one at `place`."""
    depth = 0
    for index in range(place, min(len(text), place + LONGEST_VALUE)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if depth == 0:
                return index + 1
    return min(len(text), place + LONGEST_VALUE)


def _without_unknown(words: list[str]) -> tuple[str, ...]:
    """Words of which nothing is known go, with the flag that they belong to."""
    kept: list[str] = []
    for word in words:
        if _UNKNOWN not in word:
            kept.append(word)
        elif word.strip(_UNKNOWN) == "":
            if kept and kept[-1].startswith("-") and "=" not in kept[-1]:
                kept.pop()
        elif not word.partition("=")[2].strip(_UNKNOWN) and "=" in word:
            continue
        else:
            kept.append(word.replace(_UNKNOWN, ""))
    return tuple(kept)
