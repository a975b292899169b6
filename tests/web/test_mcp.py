"""The tools of a model: over standard input and output, and over HTTP beside the page."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from vramwise.web.api import answer
from vramwise.web.mcp_tools import question, shown, tools

SCENARIO = {"model": "llama-3.1-8b", "task": "serve", "gpu": "4090", "serve": {"max_model_len": 4096}}
START = [
    {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                                                 "clientInfo": {"name": "test", "version": "1"}}},
    {"method": "notifications/initialized"},
]  # fmt: skip


def call(number, name, arguments):
    return {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def asked_over_standard_input(*messages):
    """The answers by the ids of their questions."""
    command = [sys.executable, "-m", "vramwise", "mcp", "--offline"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        wanted = {message["id"] for message in messages if "id" in message}
        found = {}
        while wanted - found.keys():
            message = json.loads(process.stdout.readline())
            found[message["id"]] = message["result"]
        return found
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_model_lists_the_tools_and_calls_them():
    pytest.importorskip("mcp")
    found = asked_over_standard_input(
        *START,
        {"id": 2, "method": "tools/list"},
        call(3, "check", {"scenario": SCENARIO}),
        call(4, "estimate", {"scenario": {**SCENARIO, "gpu": "4900"}}),
    )
    assert [tool["name"] for tool in found[2]["tools"]] == ["estimate", "plan", "fit", "check", "compare"]
    assert json.loads(found[3]["content"][0]["text"]) == answer("check", {"scenario": SCENARIO})
    assert found[4]["isError"] is True
    assert json.loads(found[4]["content"][0]["text"])["error"]["matches"][0] == "rtx-4090"


def test_the_same_tools_answer_over_http_beside_the_page(tmp_path):
    pytest.importorskip("mcp")
    pytest.importorskip("fastapi")
    command = [sys.executable, "-m", "vramwise", "web", "--mcp", "--port", "0", "--offline"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        address = process.stderr.readline().split()[1].rstrip("/")

        def asked(message, **headers):
            kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            question = urllib.request.Request(f"{address}/mcp", body, {**kinds, **headers})
            with urllib.request.urlopen(question) as answered:
                return json.loads(answered.read() or "null")

        assert asked(START[0])["result"]["serverInfo"]["name"] == "vramwise"
        listed = asked({"id": 2, "method": "tools/list"})["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["estimate", "plan", "fit", "check", "compare"]
        told = asked(call(3, "check", {"scenario": SCENARIO}))["result"]
        assert json.loads(told["content"][0]["text"]) == answer("check", {"scenario": SCENARIO})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            asked({"id": 4, "method": "tools/list"}, Origin="http://evil.example")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_an_estimate_is_short_unless_all_of_it_is_asked_for():
    arguments = {"scenario": SCENARIO}
    text = json.dumps(answer(*question("estimate", arguments)))
    short = json.loads(shown("estimate", arguments, text))
    assert short["phases"][0]["components"]["weights"] > 0
    assert len(json.dumps(short)) < len(text) / 2
    assert shown("estimate", {**arguments, "detail": "full"}, text) == text


def test_the_schemas_name_every_key_once():
    estimate = tools()[0]["input_schema"]["properties"]["scenario"]["properties"]
    assert estimate["train"]["properties"]["method"]["enum"] == ["full", "lora", "qlora", "freeze"]
    assert len(json.dumps(tools())) < 32_000


def test_without_the_sdk_it_is_said_how_to_get_it(monkeypatch, capsys):
    from vramwise.cli.main import main

    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert main(["mcp"]) == 2
    assert capsys.readouterr().err == ("vramwise: vramwise mcp needs the protocol's SDK: pip install 'vramwise[mcp]'\n")
