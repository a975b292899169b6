"""Hostile and broken content made from a good sample: of files, and of words on the command line."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator

LONG = 60_000
"""Characters of a long line or of repeats: what grows with the square takes seconds on it."""
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f"
NUMBER = re.compile(rb"\d+(?:\.\d+)?")
NUMBERS = (b"9" * 400, b"NaN", b"-1", b"1e999", b"0", b"1" + b"0" * 30, b"-Infinity", "²".encode(), b"1.2.3")


def contents(sample: bytes, keywords: list[str], many: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Named contents; `many` of each kind that is drawn at random."""
    chance = random.Random(seed)
    yield from _fixed(sample)
    for kind, left, right in (("lists", "[", "]"), ("tables", '{"a":', "}"), ("brackets", "(", ")")):
        yield f"{kind} nested deep and left open", left.encode() * LONG
        yield f"{kind} nested deep", left.encode() * LONG + b"1" + right.encode() * LONG
    yield "lines nested deep", b"- " * LONG
    for keyword in keywords[: 6 * many]:
        word = keyword.encode()
        yield f"repeats of {keyword!r}", word * (LONG // len(word))
        yield f"lines of {keyword!r}", (word + b"\n") * (LONG // len(word))
        for what in (" ", "9", "a", "(", "."):
            yield f"{keyword!r} and {what!r} repeated", word + what.encode() * LONG + b"y"
    for number in NUMBERS:
        yield f"{number[:20]!r} for every number", NUMBER.sub(lambda _, number=number: number, sample)
    text = sample.decode("latin-1")
    words = sorted(set(re.findall(r"[A-Za-z_][\w.:-]{3,}", text)))
    for n in range(many):
        yield f"cut {n}", sample[: chance.randrange(len(sample) + 1)]
        yield f"changed {n}", _changed(sample, chance)
        yield f"numbers {n}", NUMBER.sub(lambda found: chance.choice((*NUMBERS, found.group())), sample)
        place = chance.randrange(len(sample) + 1)
        yield f"escapes {n}", sample[:place] + ESCAPE.encode() + sample[place:]
        if words:
            word = chance.choice(words)
            yield f"an escape in {word}", text.replace(word, word + ESCAPE).encode("utf-8")
            yield f"{word} very long", text.replace(word, word * (LONG // len(word) // 8)).encode("latin-1")
            yield f"blanks behind {word}", text.replace(word, word + " " * (LONG // 8)).encode("latin-1")


def _fixed(sample: bytes) -> Iterator[tuple[str, bytes]]:
    yield "the sample", sample
    yield "empty", b""
    yield "blank", b" \n\t" * 100
    yield "many lines", b"\n" * LONG
    yield "binary", bytes(range(256)) * 64
    yield "zeros", b"\0" * 4096
    yield "UTF-16", sample.decode("utf-8", "replace").encode("utf-16")
    yield "a mark first", b"\xef\xbb\xbf" + sample
    yield "twice", sample + sample
    yield "carriage returns", sample.replace(b"\n", b"\r")
    for character in (b"a", b" ", b"9", b'"', b"\\", b"-", b":", b"|", b"\x1b[", "é".encode()):
        yield f"one line of {character!r}", character * LONG


def _changed(sample: bytes, chance: random.Random) -> bytes:
    content = bytearray(sample)
    for _ in range(chance.randrange(1, 8)):
        place = chance.randrange(len(content) + 1)
        content[place : place + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
    return bytes(content)


WORDS = (
    "", " ", "-", "--", "\n", "\t", "9" * 5000, "-1", "1e999", "NaN", "½²", "a" * 20_000, "[" * 5000, "{" * 5000,
    "%s%n", f"a{ESCAPE}b", "a\0b", "\udcff\udcfe", "../" * 2000, "=" * 5000, "a=" * 5000, "a,b" * 5000,
    "gpt2@" + "a" * 5000,
    "x=1..9999999999", "~" * 300, "*" * 3000, "(a+)+$" * 100, "http://u:secret@[", "日本語" * 2000, "\u202e" * 50,
)  # fmt: skip


WORDS_OF_SETTINGS = (
    "",
    "²",
    "1.²",
    "1e999",
    "-1",
    "0",
    "NaN",
    "{",
    "[1",
    "{}",
    "a=b",
    "9007199254740991",
    "true",
    "((((",
)


def gguf_sample() -> bytes:
    """The header of a GGUF file with one tensor and a llama's metadata."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 64, "feed_forward_length": 128}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 4}
    pairs = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    pairs += b"".join(text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in sizes.items())
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 100, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 1 + len(sizes)) + pairs + tensor + b"\0" * 4096


def safetensors_sample() -> bytes:
    """A safetensors file of one tensor."""
    table = {"a.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * 16
