"""A real Chromium in front of the page, and a server of the standard library with the page's headers behind it."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import vramwise.web
from by_turns import is_thorough
from vramwise.cli.main import main
from vramwise.errors import VramwiseError
from vramwise.web.api import answer_text
from vramwise.web.server.guards import HEADERS
from vramwise.web.static import write_static

PAGE = Path(vramwise.web.__file__).parent / "page"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Handler(Quiet):
    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        if self.path == "/back-end.json":
            self._send(json.dumps({"kind": "server", "api": "api/v1/"}))
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._send(_answered_once(self.path.rpartition("/")[2], body))

    def _send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text.encode())


@cache
def _answered_once(name: str, body: str) -> str:
    """What the program answers: the same scenarios are asked about in many tests of the page."""
    return answer_text(name, body)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    yield from _served(partial(Handler, directory=str(PAGE)))


def _served(handler: Any) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def _without(why: str) -> None:
    """A person's run counts the test as skipped; where tests must run, what is missing is a failure."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("the page is tested with playwright: pip install playwright")
    if program is None:
        _without("the page is tested in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"), executable_path=program, headless=True, args=list(FLAGS),
            viewport={"width": 1280, "height": 900}, locale="en-US", accept_downloads=True,
        )  # fmt: skip
        yield context
        context.close()


class Tab:
    """A page that notes where it logged an error, broke its policy or asked a stranger."""

    def __init__(self, chromium: Any) -> None:
        self.page, self.problems = chromium.new_page(), list[str]()
        self.page.on("pageerror", lambda problem: self.problems.append(str(problem)))
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: self.problems.append(asked.url) if _is_foreign(asked.url) else None)
        self.page.set_default_timeout(120_000)

    def close(self) -> None:
        if not self.page.url.startswith("about:"):
            self.page.evaluate("localStorage.clear()")  # what one test chose is not the next one's language
        self.page.close()
        assert self.problems == []


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A fresh page, which fails the test where it has problems."""
    tab = Tab(chromium)
    yield tab.page
    tab.close()


@pytest.fixture(scope="session")
def standing_page(chromium: Any) -> Iterator[Callable[[str], Any]]:
    """The page of an address, the same one for every test that asks for it: Python takes seconds to start there."""
    tabs: dict[str, Tab] = {}

    def page_of(address: str) -> Any:
        if address not in tabs:
            tabs[address] = Tab(chromium)
            tabs[address].page.goto(address)
            tabs[address].page.wait_for_selector(".ready .headline")
        assert tabs[address].problems == []
        return tabs[address].page

    yield page_of
    for tab in tabs.values():
        tab.close()


def _is_foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "data:", "blob:", "about:"))


AXE = "axe-core@4.10.2"
AXE_SHA512 = (
    "444de6750ecfdc54527bb7aa096a1e43f67d417aed9e24a3a75c148ede67442d"
    "d6229cf9ad20af7baa377ec676682a49b6b663499823c170284cee64e2d108d3"
)


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, which npm brings once and which is held against its hash."""
    npm = shutil.which("npm")
    if npm is None:
        _without(f"accessibility is tested with {AXE}, which npm fetches: npm is not here")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run([npm, "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        _without(f"accessibility is tested with {AXE}, which npm could not fetch")
    content = archives[0].read_bytes()
    assert hashlib.sha512(content).hexdigest() == AXE_SHA512
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.fixture(scope="session")
def of_every_kind() -> list[dict[str, Any]]:
    """Some of the frozen scenarios: one of every task, engine and framework, a hundred in a thorough run; each of
    another model while there are others."""
    count = 100 if is_thorough() else 0
    lines = (Path(__file__).parents[1] / "frozen" / "scenarios.jsonl").read_text("utf-8").splitlines()
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for scenario in (json.loads(line)["scenario"] for line in lines):
        own = scenario.get(scenario["task"], {})
        kinds.setdefault((scenario["task"], own.get("engine") or own.get("framework") or ""), []).append(scenario)
    chosen: list[dict[str, Any]] = []
    models: set[str] = set()
    while len(chosen) < max(count, len(kinds)):
        for left in filter(None, kinds.values()):
            new = next((one for one in left if json.dumps(one["model"]) not in models), left[0])
            left.remove(new)
            models.add(json.dumps(new["model"]))
            chosen.append(new)
    assert len(kinds) > 20
    assert len(models) > 0.6 * len(chosen)
    return chosen[: max(count, len(kinds))]


@pytest.fixture(scope="session")
def told(of_every_kind: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """The exit code of `vramwise estimate --json` and what it prints, of each of them; once for all workers."""
    runs_alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = tmp_path_factory.getbasetemp() if runs_alone else tmp_path_factory.getbasetemp().parent
    with (folder / "told.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "told.json"
        if not kept.exists():
            kept.write_text(
                json.dumps([_printed(scenario, folder / "one.json") for scenario in of_every_kind]), "utf-8"
            )
        return [(code, text) for code, text in json.loads(kept.read_text("utf-8"))]


def _printed(scenario: dict[str, Any], file: Path) -> tuple[int, str]:
    file.write_text(json.dumps(scenario), "utf-8")
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main(["estimate", "--scenario", str(file), "--json"])
    return code, out.getvalue()


@pytest.fixture(scope="session")
def static_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page as a folder, behind a server that knows nothing but files."""
    folder = tmp_path_factory.mktemp("static") / "site"
    try:
        write_static(str(folder), os.environ.get("VRAMWISE_PYODIDE"))
    except VramwiseError as problem:
        _without(f"the page in the browser alone needs Pyodide: {problem}")
    yield from _served(partial(Quiet, directory=str(folder)))


@pytest.fixture(scope="session")
def gguf_head() -> bytes:
    """The head of a GGUF file: a llama of two layers, as llama.cpp's converter names its keys."""
    keys = {"llama.block_count": 2, "llama.embedding_length": 64, "llama.feed_forward_length": 128,
            "llama.attention.head_count": 4, "llama.attention.head_count_kv": 4, "llama.context_length": 512,
            "llama.vocab_size": 256}  # fmt: skip

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    shapes = {"token_embd.weight": (64, 256), "output_norm.weight": (64,), "output.weight": (64, 256)}
    for layer in range(2):
        shapes |= {f"blk.{layer}.attn_{name}.weight": (64, 64) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{layer}.{name}_norm.weight": (64,) for name in ("attn", "ffn")}
        shapes |= {f"blk.{layer}.ffn_{name}.weight": (64, 128) for name in ("gate", "up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (128, 64)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys) + 1)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += b"".join(text(key) + struct.pack("<II", 4, value) for key, value in keys.items())
    offset = 0
    for name, shape in shapes.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    return head
