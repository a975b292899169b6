"""The page's picture, docs/page.png, with the words that it shows inside of it: a test holds these to be today's.

python tools/site/page_picture.py          # needs playwright and Debian's Chromium
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PICTURE = Path(__file__).parents[2] / "docs" / "page.png"
ASKED = (
    "#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=lora&train.micro_batch_size=2"
    "&train.sequence_length=4096&train.checkpointing=full&view=why"
)
"""The training of README.md, as the page's address holds it."""
SIZE = {"width": 1280, "height": 960}
PARTS = ("#answer", "#tabs", ".moments")
PORT = 8391
_SIGNATURE, _KEY = b"\x89PNG\r\n\x1a\n", b"Description\0"


def words_of(page: Any) -> str:
    """What a page that shows the question says of it, without the time that a step takes on this card."""
    page.wait_for_selector(".ready .headline")
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")
    page.wait_for_function("() => !document.querySelector('#answer').innerText.includes('Looking for')")
    page.wait_for_function("() => document.querySelector('#answer').innerText.includes('GeForce')")
    return "\n".join(page.inner_text(part) for part in PARTS)


def words_in(picture: bytes) -> str:
    """The words that a picture was taken with."""
    for kind, content in _chunks(picture):
        if kind == b"iTXt" and content.startswith(_KEY):
            return content[len(_KEY) + 4 :].decode()
    return ""


def _with_words(picture: bytes, words: str) -> bytes:
    """The picture with a chunk of international text, neither compressed nor in a named language, after its header."""
    content = _KEY + bytes(4) + words.encode()
    end_of_header = len(_SIGNATURE) + 25
    return picture[:end_of_header] + _chunk(b"iTXt", content) + picture[end_of_header:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_SIGNATURE)
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        yield picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        place += 12 + length


def main() -> None:
    from playwright.sync_api import sync_playwright

    server = subprocess.Popen(
        [sys.executable, "-m", "vramwise", "web", "--port", str(PORT)], stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        assert server.stderr is not None
        server.stderr.readline()  # it says its address once it listens
        with TemporaryDirectory() as folder, sync_playwright() as playwright:
            browser = playwright.chromium.launch_persistent_context(
                folder, executable_path=shutil.which("chromium"), args=["--no-sandbox"], viewport=SIZE, locale="en-US"
            )
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{PORT}/{ASKED}")
            words = words_of(page)
            page.evaluate("document.activeElement.blur()")
            PICTURE.write_bytes(_with_words(page.screenshot(), words))
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
