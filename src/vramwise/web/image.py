"""Python's memory after the program has started and answered, made in Node by the page's own runtime.

A page that loads this image neither imports the package nor works out anew what every first answer needs, which is half
of the processor's time. Without Node a folder is written without one, and a page starts the program itself.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramwise.errors import clipped
from vramwise.records import record

MAKER = Path(__file__).with_name("image.mjs")
PROGRAM = Path(__file__).with_name("page") / "program.js"
MOST_S = 300


@record
class Image:
    content: bytes
    """Compressed; empty where none was made."""
    why_not: str = ""


def memory_image(
    runtime: Mapping[str, bytes], package: bytes, questions: Sequence[tuple[str, Mapping[str, Any]]]
) -> Image:
    """The image after `questions`, each a name of the API with its body, or why there is none."""
    node = shutil.which("node")
    if node is None:
        return Image(b"", "Node is not here")
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        place = Path(folder)
        files = {**runtime, "package": package, "questions.json": json.dumps(questions).encode(),
                 "program.mjs": PROGRAM.read_bytes(), "image.mjs": MAKER.read_bytes()}  # fmt: skip
        for name, data in files.items():
            (place / name).write_bytes(data)
        try:
            done = subprocess.run(
                [node, str(place / "image.mjs")], capture_output=True, text=True, encoding="utf-8", errors="replace",
                timeout=MOST_S, check=False, cwd=folder, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            if done.returncode:
                return Image(b"", f"Node gave it up: {_reason(done.stderr)}")
            return Image(gzip.compress((place / "image").read_bytes(), 9, mtime=0))
        except (OSError, subprocess.TimeoutExpired) as problem:
            return Image(b"", clipped(str(problem), 200))


def _reason(stderr: str) -> str:
    """The line of an uncaught error: Node prints the place before it and a stack behind it."""
    found = re.search(r"^\w*Error: .*", stderr, re.MULTILINE)
    return clipped(found[0] if found else "no reason given", 200)
