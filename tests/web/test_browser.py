"""The program in the browser itself, out of the folder that `--static` writes: the bytes of the command line.

VRAMWISE_PYODIDE names a folder with Pyodide's files; scripts/test fetches them where npm is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vramwise.cli.main import main
from vramwise.web.api import answer_text
from vramwise.web.static import write_static

sys.path.insert(0, str(Path(__file__).parent))
from given_files import TRACE

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
  questions.forEach(([name, body, file, text], id) => {
    const bytes = file === undefined ? {} : {file, bytes: new TextEncoder().encode(text).buffer};
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


@pytest.fixture
def asked_of(site, chromium):
    """Asks the worker questions `[name, body, file, its text]`, all at once; its answers, and the hosts asked."""
    page = chromium.new_page()
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{site}worker.js")
    yield lambda questions: page.evaluate(ASK_ALL, questions)
    page.close()
    assert hosts == {site.split("/")[2]}


def test_the_browser_gives_the_same_bytes_and_asks_nobody_else(asked_of, of_every_kind, told):
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    lists = [["models", {"query": "qwen3"}], ["keys", {}]]
    estimates = [["estimate", scenario] for scenario in of_every_kind]
    found = asked_of([*estimates, *lists, ["read", {}, "run.log", message]])
    for answer, scenario, (code, shown) in zip(found, of_every_kind, told, strict=False):
        assert answer == shown or (code not in (0, 3) and "error" in json.loads(answer)), scenario
    assert found[len(estimates) : -1] == [answer_text(name, json.dumps(body)) for name, body in lists]
    assert json.loads(found[-1])["kind"] == "oom"


def test_a_trace_has_the_bytes_of_the_command_without_numpy(asked_of, tmp_path, capsys):
    (tmp_path / "rank0.pt.trace.json").write_bytes(TRACE)
    assert main(["profile", str(tmp_path / "rank0.pt.trace.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.replace(f"{tmp_path}/", ""))
    text = TRACE.decode()
    profile, read = asked_of([[name, {}, "rank0.pt.trace.json", text] for name in ("profile", "read")])
    assert profile == json.dumps(told) + "\n"
    assert json.dumps(json.loads(read)["report"]) == json.dumps(told)
    assert json.loads(read)["picture"].startswith("<svg")


def test_searches_have_the_bytes_of_the_command_without_other_processes(asked_of):
    scenario = {"model": "qwen2.5-0.5b", "task": "train", "gpu": "rtx-4090", "num_gpus": 4,
                "train": {"framework": "megatron"}}  # fmt: skip
    questions = [
        ["plan", {"scenario": scenario, "goal": "train"}],
        ["fit", {"gpu": "rtx-3060", "family": "qwen2", "params": [0, 2e9], "task": "serve"}],
    ]
    assert asked_of(questions) == [answer_text(name, json.dumps(body)) for name, body in questions]
