"""The program in the browser itself, out of the folder that `--static` writes: the bytes of the command line.

VRAMWISE_PYODIDE names a folder with Pyodide's files; scripts/test fetches them where npm is.
"""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vramwise.web.api import answer_text
from vramwise.web.static import write_static

RUNTIME = os.environ.get("VRAMWISE_PYODIDE")
PATIENCE_MS = 600_000
ASK_ALL = """
(questions) => new Promise((done, failed) => {
  const worker = new Worker("worker.js", {type: "module"});
  const answers = [];
  worker.onmessage = ({data}) => {
    if (data.failed) failed(new Error(data.failed));
    if ("id" in data) answers[data.id] = data.text;
    if (answers.filter((one) => one !== undefined).length === questions.length) done(answers);
  };
  questions.forEach(([name, body, file], id) => {
    const bytes = file === undefined ? {} : {file: "run.log", bytes: new TextEncoder().encode(file).buffer};
    worker.postMessage({id, name, body, ...bytes});
  });
})
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if RUNTIME is None:
        pytest.skip("the browser's own back end needs Pyodide's files: VRAMWISE_PYODIDE=FOLDER")
    folder = tmp_path_factory.mktemp("site") / "static"
    write_static(str(folder), RUNTIME)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_browser_gives_the_same_bytes_and_asks_nobody_else(site, chromium, hundred):
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    asked = [["estimate", scenario] for scenario in hundred] + [["models", {"query": "qwen3"}], ["keys", {}]]
    page = chromium.new_page()
    try:
        hosts = set()
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{site}worker.js")
        found = page.evaluate(ASK_ALL, [*asked, ["read", {}, message]])
    finally:
        page.close()
    assert found[:-1] == [answer_text(name, json.dumps(body)) for name, body in asked]
    assert json.loads(found[-1])["kind"] == "oom"
    assert hosts == {site.split("/")[2]}
