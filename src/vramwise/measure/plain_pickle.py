"""Pickles of plain data (dict, list, tuple, text, numbers), read without the power to call or import anything.

`torch.cuda.memory._dump_snapshot` writes such a pickle, and people attach it to public reports. Python's own
unpickler would run whatever a pickle names; it can also be made to reserve gigabytes for a memo index or to crash on
a deeply nested dictionary key. This reader knows only the operations that plain data needs (pickletools lists them
all), refuses every other by name, and bounds what it builds.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Final

from vramwise.errors import SourceError
from vramwise.units import GIB

LARGEST_FILE_BYTES: Final = 2 * GIB
LEAST_BYTES_AN_OBJECT: Final = 8
"""Of the file for each list, table, tuple and remembered value: a frame of a stack, the smallest row, takes 20."""
FREE_OBJECTS: Final = 250_000
LONGEST_INTEGER_BYTES: Final = 64
_MARK: Final = object()
_OPERATION_NAMES: Final = {code.code.encode("latin-1")[0]: code.name for code in pickletools.opcodes}


class PlainPickleError(SourceError):
    """A pickle that is damaged, or that holds more than plain data."""


def looks_like_pickle(data: bytes) -> bool:
    """Whether bytes begin as a binary pickle does (protocol 2 and later say so in their first byte)."""
    return len(data) > 1 and data[0] == 0x80 and data[1] <= 5


def plain_from_pickle(data: bytes) -> object:
    """The value that a pickle of plain data holds.

    Raises PlainPickleError for anything that names a global, calls, persists, shares memory outside of the file, is
    cut off, or builds more than a file of its size does.
    """
    if len(data) > LARGEST_FILE_BYTES:
        raise PlainPickleError("the pickle is larger than any memory snapshot (2 GiB)")
    reader = _Reader(data)
    try:
        return reader.value()
    except PlainPickleError:
        raise
    except (IndexError, struct.error):
        raise PlainPickleError(f"the pickle ends early, at byte {len(data):,}: copy the whole file") from None
    except (UnicodeDecodeError, TypeError, ValueError, OverflowError, KeyError, AttributeError):
        raise PlainPickleError(f"the pickle is damaged near byte {reader.at:,}") from None


class _Reader:
    """One pass over a pickle: a stack, a memo, and a table of the operations that may occur."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}
        self.objects = 0
        self.most_objects = FREE_OBJECTS + len(data) // LEAST_BYTES_AN_OBJECT

    def value(self) -> object:
        operations = self._operations()
        data = self.data
        while True:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                break
            operation = operations.get(code)
            if operation is None:
                raise PlainPickleError(self._refusal(code))
            operation()
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise PlainPickleError("the pickle is damaged: it does not end in one value")
        return self.stack[0]

    def _refusal(self, code: int) -> str:
        name = _OPERATION_NAMES.get(code)
        if name is None:
            return f"the pickle is damaged near byte {self.at - 1:,}"
        return (
            f"refused: the pickle holds more than plain data ({name} at byte {self.at - 1:,}), "
            "and nothing in it was run; a memory snapshot of torch never does"
        )

    def _operations(self) -> dict[int, Callable[[], None]]:
        push = self.stack.append
        sized = self._take
        named: dict[str, Callable[[], None]] = {
            "PROTO": lambda: self._skip(1),
            "FRAME": lambda: self._skip(8),
            "MARK": lambda: push(_MARK),
            "NONE": lambda: push(None),
            "NEWTRUE": lambda: push(True),
            "NEWFALSE": lambda: push(False),
            "BININT": lambda: push(struct.unpack("<i", sized(4))[0]),
            "BININT1": lambda: push(sized(1)[0]),
            "BININT2": lambda: push(int.from_bytes(sized(2), "little")),
            "LONG1": lambda: push(self._integer(sized(1)[0])),
            "BINFLOAT": lambda: push(struct.unpack(">d", sized(8))[0]),
            "SHORT_BINUNICODE": lambda: push(str(sized(sized(1)[0]), "utf-8", "surrogatepass")),
            "BINUNICODE": lambda: push(str(sized(self._size(4)), "utf-8", "surrogatepass")),
            "BINUNICODE8": lambda: push(str(sized(self._size(8)), "utf-8", "surrogatepass")),
            "SHORT_BINBYTES": lambda: push(sized(sized(1)[0])),
            "BINBYTES": lambda: push(sized(self._size(4))),
            "EMPTY_DICT": lambda: push(self._counted({})),
            "EMPTY_LIST": lambda: push(self._counted([])),
            "EMPTY_TUPLE": lambda: push(()),
            "TUPLE1": lambda: self._tuple_of(1),
            "TUPLE2": lambda: self._tuple_of(2),
            "TUPLE3": lambda: self._tuple_of(3),
            "TUPLE": lambda: push(self._counted(tuple(self._above_mark()))),
            "APPEND": self._append,
            "APPENDS": self._appends,
            "SETITEM": self._set_item,
            "SETITEMS": self._set_items,
            "MEMOIZE": lambda: self._remember(len(self.memo)),
            "BINPUT": lambda: self._remember(sized(1)[0]),
            "LONG_BINPUT": lambda: self._remember(self._size(4)),
            "BINGET": lambda: push(self.memo[sized(1)[0]]),
            "LONG_BINGET": lambda: push(self.memo[self._size(4)]),
        }
        codes = {name: code for code, name in _OPERATION_NAMES.items()}
        return {codes[name]: operation for name, operation in named.items()}

    def _take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise IndexError
        self.at += count
        return piece

    def _skip(self, count: int) -> None:
        self._take(count)

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _integer(self, width: int) -> int:
        if width > LONGEST_INTEGER_BYTES:
            raise ValueError(width)
        return int.from_bytes(self._take(width), "little", signed=True)

    def _counted(self, value: object) -> object:
        self.objects += 1
        if self.objects > self.most_objects:
            raise PlainPickleError(f"the pickle builds more than {self.most_objects:,} lists and tables, for its size")
        return value

    def _remember(self, index: int) -> None:
        if self.stack[-1] is _MARK:
            raise ValueError(index)
        self.memo[index] = self.stack[-1]
        if len(self.memo) > self.most_objects:
            raise PlainPickleError(f"the pickle remembers more than {self.most_objects:,} values, for its size")

    def _tuple_of(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        if len(items) != count or _MARK in items:
            raise ValueError(count)
        del self.stack[-count:]
        self.stack.append(self._counted(items))

    def _above_mark(self) -> list[object]:
        stack = self.stack
        start = len(stack) - 1
        while stack[start] is not _MARK:  # an IndexError for a missing mark: start runs below zero only after it
            start -= 1
            if start < 0:
                raise ValueError(start)
        items = stack[start + 1 :]
        del stack[start:]
        return items

    def _append(self) -> None:
        value = self.stack.pop()
        self._list().append(value)

    def _appends(self) -> None:
        items = self._above_mark()
        self._list().extend(items)

    def _list(self) -> list[object]:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError(type(target))
        return target

    def _set_item(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._put([key, value])

    def _set_items(self) -> None:
        self._put(self._above_mark())

    def _put(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError(type(target))
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int, bool, type(None)):  # a nested key could exhaust the stack of its own hash
                raise TypeError(type(key))
            target[key] = value
