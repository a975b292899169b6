"""The page's folder on one web server, the page that embeds it on another; and what the browser alone cannot read."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SCENARIO = "model=llama-3.1-8b&amp;task=serve&amp;gpu=rtx-4090&amp;serve.max_model_len=8192"
PATIENCE_MS = 90_000


@pytest.fixture
def their_docs(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Somebody else's web server: another port is another origin."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_the_element_works_in_a_page_of_another_place(
    page: Any, static_address: str, their_docs: tuple[Path, str]
) -> None:
    folder, theirs = their_docs
    (folder / "favicon.ico").write_bytes(b"")
    (folder / "guide.html").write_text(
        f'<!doctype html><title>guide</title><script defer src="{static_address}element.js"></script>'
        f'<vramwise-estimate scenario="{SCENARIO}"></vramwise-estimate>'
    )
    page.goto(f"{theirs}guide.html")
    frame = page.frame_locator("vramwise-estimate iframe")
    frame.locator(".ready .headline, .headline").first.wait_for(timeout=PATIENCE_MS)
    assert not frame.locator("#question").is_visible()
    page.wait_for_function("() => document.querySelector('iframe').clientHeight !== 520", timeout=PATIENCE_MS)


def test_the_lines_to_embed_are_those_of_the_folder(
    standing_page: Callable[[str], Any], static_address: str, address: str
) -> None:
    for where, is_local in ((static_address, False), (address, True)):
        page = standing_page(where)
        page.click("#tab-share")
        page.wait_for_selector('[data-share="element"] pre')
        said = page.inner_text('[data-share="element"] pre')
        assert said.startswith(f'<script defer src="{where}element.js"></script>')
        assert (page.locator(".embeds").count() == 1) is is_local


def test_a_database_of_nsight_is_declined_in_one_sentence(
    standing_page: Callable[[str], Any], static_address: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, shortName INT)")
    database.commit()
    database.close()
    page = standing_page(static_address)
    page.click("#tab-files")
    page.wait_for_selector("#file", state="attached")
    page.set_input_files("#file", path)
    page.wait_for_selector(".report .error")
    said = page.inner_text(".report .error")
    assert said == "run.sqlite: read with SQLite, which is not here: vramwise profile reads it"
    assert len(said.splitlines()) == 1
