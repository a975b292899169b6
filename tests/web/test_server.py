"""The local server over the wire: the same bytes as the command line, and what a stranger must not be able to do."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from by_turns import is_thorough
from vramwise.cli.main import main

sys.path += [
    str(Path(__file__).parent),
    *(str(Path(__file__).parents[1] / at) for at in ("utilization", "hardware/machine")),
]
import made_others
from given_files import TRACE
from test_here import QUERY

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

SERVING = {"model": "llama-3.1-8b", "task": "serve", "gpu": "4090", "serve": {"max_model_len": 4096}}
CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 1000}  # fmt: skip
PATIENCE_S = 120


class Server:
    """A running `vramwise web`."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def ask(self, method, path, body=b"", **headers):
        """Status, headers and content; `headers` with underscores for dashes."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **given})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def question(self, name, body, **headers):
        return self.ask("POST", f"/api/v1/{name}", json.dumps(body).encode(), **headers)

    def error(self, name, body):
        status, _, content = self.question(name, body)
        return status, json.loads(content)["error"]["message"]


def run_apart(coroutine):
    """Its result, from a thread of its own: a browser that a test drives leaves its loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def silent_hub():
    """A hub that takes every connection and says nothing; gives its port and the connections it took."""
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def take():
            while True:
                try:
                    taken.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield listening.getsockname()[1], taken
        for connection in taken:
            connection.close()


@contextmanager
def running(folder, *words, **environment):
    command = [sys.executable, "-m", "vramwise", "web", "--port", "0", *words]
    own = {**os.environ, "HF_HUB_OFFLINE": "0", "VRAMWISE_CACHE": str(folder / "cache"), **environment}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=own, start_new_session=True)
    try:
        address = process.stderr.readline().split()[1]
        yield Server(process, int(address.rstrip("/").rpartition(":")[2]))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "allowed").mkdir()
    (folder / "allowed" / "config.json").write_text(json.dumps(CONFIG))
    (folder / "secret.json").write_text(json.dumps(CONFIG))
    with running(folder, "--allow-files", str(folder / "allowed"), HF_HUB_OFFLINE="1") as one:
        one.folder = folder
        yield one


def test_scenarios_of_every_kind_give_the_bytes_of_the_command_line(server, of_every_kind, told):
    """Every third kind in a normal run: beside the page in the browser, the server only carries what is asked."""
    different = []
    every = 1 if is_thorough() else 3
    for scenario, (code, shown) in zip(of_every_kind[::every], told[::every], strict=True):
        status, _, content = server.question("estimate", scenario)
        if (code in (0, 3)) != (status == 200) or (status == 200 and content != shown.encode()):
            different.append((scenario, code, status))
    assert not different


def test_the_page_of_another_site_is_refused(server):
    port = server.port
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"127.0.0.1.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        status, _, content = server.question("version", {}, **headers)
        assert status in (403, 421), headers
        assert b"error" in content
    status, _, _ = server.question("version", {}, Host=f"localhost:{port}", Origin=f"http://localhost:{port}")
    assert status == 200


def test_a_server_for_others_is_asked_by_its_address_or_the_names_it_was_given():
    from vramwise.web.server.guards import Guards, Refusal

    abroad = Guards(None, {"localhost", "memory.example"}, 1, 1, by_address=True)
    for host in ("192.0.2.7:8317", "[2001:db8::1]:8317", "memory.example", "localhost:1"):
        abroad._check("GET", "/", {b"host": host})
    for host in ("evil.example", "192.0.2.7.evil.example", "", "[oops"):
        with pytest.raises(Refusal):
            abroad._check("GET", "/", {b"host": host})
    with pytest.raises(Refusal):
        Guards(None, {"localhost"}, 1, 1)._check("GET", "/", {b"host": "192.0.2.7"})


def test_a_form_of_another_page_is_no_question(server):
    assert server.question("version", {}, Content_Type="text/plain")[0] == 415
    assert server.question("version", {}, Content_Type="application/x-www-form-urlencoded")[0] == 415
    status, headers, _ = server.ask("OPTIONS", "/api/v1/estimate", Origin="http://evil.example")
    assert status in (403, 405)
    assert not any(name.lower().startswith("access-control") for name in headers)


def test_every_answer_carries_the_policy(server):
    for method, path in (("POST", "/api/v1/version"), ("GET", "/back-end.json"), ("GET", "/nothing")):
        _, headers, _ = server.ask(method, path, b"{}")
        found = {name.lower(): value for name, value in headers.items()}
        assert found["content-security-policy"].startswith("default-src 'self';")
        assert found["x-content-type-options"] == "nosniff"


def test_no_file_of_the_machine_is_read_but_the_allowed(server):
    allowed, secret = server.folder / "allowed", server.folder / "secret.json"
    assert server.question("result", {"model": str(allowed), "task": "load"})[0] == 200
    assert server.question("result", {"model": str(allowed / "config.json"), "task": "load"})[0] == 200
    for path in (secret, "/etc/passwd", "../secret.json", allowed / ".." / "secret.json", "~/.ssh/id_rsa", "/nowhere"):
        status, message = server.error("result", {"model": str(path), "task": "load"})
        assert status == 404
        assert "not read here" in message
    for path in (secret, "/etc/passwd"):
        assert server.error("read", {"path": str(path)})[0] == 404
    os.symlink(secret, allowed / "link.json")
    assert server.error("result", {"model": str(allowed / "link.json"), "task": "load"})[0] == 404


def test_a_file_cannot_make_a_reader_open_others(server):
    """What an uploaded configuration names is opened by its reader, deep inside: the process itself refuses that."""
    (server.folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 7}')
    file = f"base_model: qwen2.5-0.5b\nmicro_batch_size: 2\nsequence_len: 512\ndeepspeed: {server.folder / 'ds.json'}\n"
    status, _, content = server.question("read", {"name": "axolotl.yml", "text": file})
    assert b'"zero_stage": 3' not in content
    assert status in (200, 400, 404)
    command = f"deepspeed train.py --model_name_or_path qwen2.5-0.5b --deepspeed {server.folder / 'ds.json'}"
    _, _, content = server.question("check", {"command": command, "settings": {"gpu": "h100"}})
    assert b"error" in content
    traversals = ("/../secret.json", "/..%2fsecret.json", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd")
    assert {server.ask("GET", path)[0] for path in traversals} == {404}


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("estimate", b"", 400),
        ("estimate", b"\xff\xfe\x00", 400),
        ("estimate", b"[" * 200_000, 400),
        ("estimate", b'{"model": "llama-3.1-8b", "task": "train", "train": {"micro_batch_size": 1e400}}', 400),
        ("estimate", b'{"model": "x", "task": "serve", "serve": {"max_model_len": ' + b"9" * 5000 + b"}}", 400),
        ("estimate", b'{"model": "' + b"x" * 100_000 + b'", "task": "load"}', 400),
        ("estimate", b'{"model": "' + b"x" * (5 << 20) + b'"}', 413),
        ("nothing", b"{}", 404),
        ("batch", b'{"lines": ' + json.dumps([{}] * 10_001).encode() + b"}", 400),
        ("read", b'{"name": "x.gguf", "base64": "R0dVRv//////////////////////////////////////////"}', 404),
    ],
)  # fmt: skip
def test_hostile_bodies_cost_one_line(server, name, body, status):
    found, _, content = server.ask("POST", f"/api/v1/{name}", body)
    assert found == status
    assert len(content) < 2000
    assert b"Traceback" not in content


def test_a_body_that_says_it_is_endless_is_refused_before_it_comes(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        head = f"POST /api/v1/read HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 999999999999\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("name", ["nearest", "words", "difference", "export", "fit"])
def test_what_reads_files_of_its_own_is_answered_too(server, name):
    bodies = {
        "difference": {"a": SERVING, "b": SERVING},
        "export": {"scenario": SERVING, "tool": "k8s"},
        "fit": {"gpu": "4090", "task": "serve", "family": "qwen2", "params": [1e8, 1e9], "limit": 1},
    }
    status, _, content = server.question(name, bodies.get(name, {"scenario": SERVING}))
    assert status == 200, content


def test_the_api_describes_itself(server):
    status, _, content = server.ask("GET", "/api/v1/openapi.json")
    document = json.loads(content)
    assert status == 200
    assert document["openapi"].startswith("3.1")
    assert "micro_batch_size" in document["components"]["schemas"]["Scenario"]["properties"]["train"]["properties"]
    for reference in references(document):
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    for one in node if isinstance(node, list) else ():
        yield from references(one)


def hung(server, model):
    """A question that the hub never answers; the server ends meanwhile."""
    with suppress(OSError, http.client.HTTPException):
        server.question("estimate", {"model": model, "task": "load"})


def test_a_hub_that_hangs_holds_up_nobody_and_an_interrupt_ends_at_once(tmp_path):
    with silent_hub() as (port, taken):
        hub = f"http://127.0.0.1:{port}"
        with running(tmp_path, HF_ENDPOINT=hub, MODELSCOPE_ENDPOINT=hub, HF_HUB_DOWNLOAD_TIMEOUT="60") as server:
            waiting = [threading.Thread(target=hung, args=(server, f"org/m{n}"), daemon=True) for n in range(6)]
            for one in waiting:
                one.start()
            until = time.monotonic() + PATIENCE_S
            while not taken and time.monotonic() < until:
                time.sleep(0.05)
            assert taken
            assert server.question("estimate", SERVING)[0] == 200
            os.killpg(server.process.pid, signal.SIGINT)
            assert server.process.wait(timeout=PATIENCE_S) == 130
            assert server.process.stderr.read() == ""


def test_a_port_that_is_taken_is_said_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert main(["web", "--port", str(port)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"vramwise: cannot listen at 127.0.0.1 port {port}")
    assert message.count("\n") == 1


def test_a_file_may_be_sent_as_it_is(server):
    message = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of 23 GiB"
    sent = {"Content_Type": "application/octet-stream"}
    status, _, content = server.ask("POST", "/api/v1/read?name=run.log", message, **sent)
    assert (status, json.loads(content)["kind"]) == (200, "oom")
    status, _, content = server.ask("POST", "/api/v1/read?name=..%2fx.txt", b"hello", **sent)
    assert status == 400
    assert json.loads(content)["error"]["message"].startswith("x.txt: nothing known here")
    assert b"upload-" not in content


def test_the_page_of_the_api_asks_nobody_else(server):
    for path in ("docs", "docs.js", "docs.css"):
        status, _, content = server.ask("GET", f"/api/v1/{path}")
        assert status == 200
        assert b"http://" not in content
        assert b"https://" not in content


@pytest.mark.parametrize("name", ["a.sqlite", "a.xplane.pb", "a.et", "a.json.gz"])
def test_a_trace_of_every_profiler_is_read_where_no_other_file_can_be(server, tmp_path, name):
    made = {"a.xplane.pb": made_others.xspace, "a.et": made_others.chakra, "a.json.gz": lambda: gzip.compress(TRACE)}
    content = made[name]() if name in made else made_others.nsys(tmp_path / name).read_bytes()
    sent = {"Content_Type": "application/octet-stream"}
    status, _, told = server.ask("POST", f"/api/v1/read?name={name}", content, **sent)
    assert status == 200, told
    assert json.loads(told)["kind"] == "trace"
    assert json.loads(told)["report"]["ranks"]


def test_the_servers_own_card_is_asked_about(tmp_path):
    """A process that may open no file of this machine still asks its driver's tool which card is here."""
    program, report = tmp_path / "nvidia-smi", tmp_path / "report"
    report.write_text(QUERY.format(mig="Disabled", devices=""))
    program.write_text(f'#!/bin/sh\n[ "$*" = -q ] && exec /bin/cat {report}\nexit 1\n')
    program.chmod(0o755)
    with running(tmp_path, HF_HUB_OFFLINE="1", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}") as server:
        status, _, content = server.question("result", {**SERVING, "gpu": "here"})
    assert status == 200
    assert json.loads(content)["capacity"]["gpu"] == "a100-sxm-40gb"
