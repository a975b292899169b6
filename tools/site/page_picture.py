"""Pictures of the page in docs/, each with the words that it shows inside of it: a test holds these to be today's.

python tools/site/page_picture.py          # needs playwright, Debian's Chromium and a Chinese font (fonts-wqy-microhei)
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

from vramwise.records import record

DOCS = Path(__file__).parents[2] / "docs"
TRAINING = (
    "#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=lora&train.micro_batch_size=2"
    "&train.sequence_length=4096&train.checkpointing=full&view=why"
)
"""The training of README.md, as the page's address holds it."""
SERVING = "#model=llama-3.1-8b&task=serve&gpu=rtx-4090&serve.max_model_len=16384&view=map"


@record
class Picture:
    """What is asked, on how large a screen, and the parts of the page whose words it shows; `begins` at its top."""

    asked: str
    width: int
    height: int
    parts: tuple[str, ...]
    scheme: str = "light"
    begins: str = ""
    language: str = "en"


PICTURES = {
    "page.png": Picture(TRAINING, 1280, 960, ("#answer", "#tabs", ".moments")),
    "page-zh.png": Picture(TRAINING, 1280, 960, ("#answer", "#tabs", ".moments"), language="zh"),
    "page-map.png": Picture(SERVING, 1280, 560, ("#view",), "light", "#tabs"),
    "page-phone.png": Picture(SERVING, 375, 700, ("#answer .headline", ".legend"), "dark", "#answer"),
}
PORT = 8391
READIED = """
(begins) => {
  document.activeElement.blur();
  if (begins) document.querySelector(begins).scrollIntoView({ block: "start" });
}
"""
_SIGNATURE, _KEY = b"\x89PNG\r\n\x1a\n", b"Description\0"


def words_of(page: Any, picture: Picture) -> str:
    """What the page says of the question, without the time that a step takes on this card; it is shown as pictured."""
    page.set_viewport_size({"width": picture.width, "height": picture.height})
    page.emulate_media(color_scheme=picture.scheme)
    page.wait_for_selector(".ready .headline")
    if not page.get_attribute("html", "lang").startswith(picture.language):
        page.click("#language")
        page.wait_for_selector(f"html[lang^={picture.language}]")
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")
    page.wait_for_function("() => !/Looking for|正在查找/.test(document.querySelector('#answer').innerText)")
    page.wait_for_function("() => document.querySelector('#answer').innerText.includes('GeForce')")
    return "\n".join(page.inner_text(part) for part in picture.parts)


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
                folder, executable_path=shutil.which("chromium"), args=["--no-sandbox"], locale="en-US"
            )
            for name, picture in PICTURES.items():
                page = browser.new_page()
                page.goto(f"http://127.0.0.1:{PORT}/{picture.asked}")
                words = words_of(page, picture)
                page.evaluate(READIED, picture.begins)
                (DOCS / name).write_bytes(_with_words(page.screenshot(), words))
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
