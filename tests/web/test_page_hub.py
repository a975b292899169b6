"""A model of the hub, asked for by the visitor's browser itself: by ranges, with a token that goes nowhere else.

The hub is one on loopback that stands behind huggingface.co's name; the real one was not asked.
"""

from __future__ import annotations

import importlib
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from vramwise import describe

sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))
fake = importlib.import_module("fake_hub")

HUB = "https://huggingface.co"
CORS = {"access-control-allow-origin": "*", "access-control-expose-headers": "*"}
TOKEN = "hf_only_for_the_hub"
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 256, "torch_dtype": "bfloat16"}  # fmt: skip
COUNT = describe(CONFIG).num_parameters
LONG = 1 << 30


@pytest.fixture(scope="module")
def hub(gguf_head: bytes) -> Iterator[Any]:
    with fake.FakeHub() as one:
        one.add("org/tiny-GGUF", {"tiny-F32.gguf": fake.Sparse(gguf_head, LONG), "README.md": "tiny"})
        one.add("org/secret", {"config.json": CONFIG}, gated=True, tokens=[TOKEN])
        yield one


def _front(hub: Any, folder: Path) -> ThreadingHTTPServer:
    """HTTPS with the headers that let a page of anybody's ask, as huggingface.co sends them; the hub is behind it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_OPTIONS(self) -> None:
            self._send(204, {"access-control-allow-headers": "authorization, range"}, b"")

        def do_GET(self) -> None:
            given = {name: self.headers[name] for name in ("Range", "Authorization") if name in self.headers}
            try:
                found = urllib.request.urlopen(urllib.request.Request(hub.endpoint + self.path, headers=given))
            except urllib.error.HTTPError as problem:
                found = problem
            with found:
                self._send(found.status or found.code, dict(found.headers.items()), found.read())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            kept = {name.lower(): value for name, value in headers.items()} | {"content-length": str(len(body))}
            for name, value in (kept | CORS).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "1", "-subj", "/CN=huggingface.co"], check=True, capture_output=True,
    )  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


@pytest.fixture(scope="module")
def tab(chromium: Any, hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page of a browser for which huggingface.co is on loopback; Python starts in it once."""
    if shutil.which("openssl") is None:
        pytest.skip("the stand-in for the hub needs a certificate: openssl is not here")
    server = _front(hub, tmp_path_factory.mktemp("front"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    there = f"MAP huggingface.co 127.0.0.1:{server.server_address[1]}"
    browser = chromium.browser.browser_type.launch(
        executable_path=shutil.which("chromium"),
        args=["--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", f"--host-resolver-rules={there}"],
    )
    page = browser.new_page()
    page.set_default_timeout(90_000)
    yield page
    browser.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_hub_is_searched_when_somebody_asks_for_it(tab: Any, hub: Any, static_address: str):
    tab.goto(static_address)
    tab.wait_for_selector(".ready .headline")
    tab.fill("#model", "tiny-gg")
    tab.wait_for_selector("#model-list li")
    assert [one.path for one in hub.asked if "search" in one.path] == []
    tab.click("text=Search huggingface.co for “tiny-gg”")
    tab.wait_for_selector("#model-list li:has-text('org/tiny-GGUF')")
    assert [one.path for one in hub.asked if "search" in one.path] == [
        "/api/models?search=tiny-gg&sort=downloads&limit=40"
    ]
    tab.fill("#model", "nobody's")
    tab.wait_for_selector("#model-list li:has-text('Search huggingface.co')")
    tab.keyboard.press("ArrowUp")
    for _ in range(tab.locator("#model-list li").count()):
        tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#model-list li[aria-disabled]:has-text('has no model')")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")  # what is only read cannot be taken
    tab.keyboard.press("Escape")
    assert tab.input_value("#model") == "llama-3.1-8b"


def test_of_a_model_of_the_hub_the_head_of_its_file_is_read(tab: Any, hub: Any, static_address: str):
    tab.goto(f"{static_address}#model=org/tiny-GGUF:F32&task=serve&serve.engine=llama.cpp")
    parameters = 2 * 41_088 + 32_832
    tab.wait_for_selector(f'.ready [data-path="model.num_parameters"][data-value="{parameters}"]', state="attached")
    ranged = [one for one in hub.asked if one.path.endswith(".gguf")]
    assert ranged, hub.asked
    assert all(one.range is not None for one in ranged)
    assert hub.sent_bytes < LONG / 10
    assert {one.token for one in hub.asked if "tiny-GGUF" in one.path} == {None}


def test_a_token_opens_a_gated_model_and_is_kept_nowhere(tab: Any, hub: Any, static_address: str):
    sent: list[Any] = []
    tab.on("request", lambda asked: sent.append((asked.url, asked.headers, asked.post_data)))
    tab.goto(f"{static_address}#model=org/secret&task=load")
    tab.wait_for_selector("#question .error:not([hidden])")
    assert "gated" in tab.inner_text("#question .error")
    if not tab.is_visible("#token"):
        tab.click(".rest > summary")
    tab.fill("#token", TOKEN)
    tab.keyboard.press("Tab")
    tab.wait_for_selector("#question .error", state="hidden")
    tab.wait_for_selector(f'.ready [data-path="model.num_parameters"][data-value="{COUNT}"]', state="attached")
    assert {one.token for one in hub.asked if "secret" in one.path} == {None, f"Bearer {TOKEN}"}
    assert [url for url, headers, body in sent if TOKEN in f"{url} {headers} {body}" and not url.startswith(HUB)] == []
    kept = tab.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie")
    assert TOKEN not in kept + tab.url
