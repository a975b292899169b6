"""Tools that hang or print no text, and exporters' pages that are anything: one line, within a deadline."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.hardware.machine import exporter_page, nvml
from vramwise.hardware.machine.exporter_page import page_at, shown_address
from vramwise.units import MIB

GOOD = b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97\n'


def tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    monkeypatch.setattr(nvml, "_through_nvml", lambda: None)
    monkeypatch.setattr(nvml, "_hung_at", {})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_tool_that_prints_no_text(tools, capsys):
    tool(tools, "nvidia-smi", r"printf '\377\376\033]0;x\007 GPU'")
    assert main(["doctor"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert nvml.nvidia_smi_text("-q").endswith(" GPU")


def test_a_tool_that_hangs_is_asked_once(tools, monkeypatch, capsys):
    monkeypatch.setattr(nvml, "TIMEOUT_S", 0.3)
    tool(tools, "nvidia-smi", f"echo asked >> {tools}/log; exec sleep 60")
    assert main(["doctor"]) == 0
    assert "nvidia-smi did not answer within" in capsys.readouterr().out
    assert (tools / "log").read_text() == "asked\n"
    assert nvml.silent_tools() == ["nvidia-smi"]


@contextmanager
def server(answer, most=1):
    """A server that sends `answer(connection)` to each of `most` callers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for _ in range(most):
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        answer(connection)
                    except OSError:
                        return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def sent(content):
    def answer(connection):
        asked.append(connection.recv(65536).decode())
        connection.sendall(content)

    asked = answer.asked = []
    return answer


def page(content):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content


def test_a_page_is_read_with_the_users_name():
    answer = sent(page(GOOD))
    with server(answer) as place:
        assert page_at(f"http://us%40er:pass@{place}/metrics?a=b") == GOOD.decode()
    (asked,) = answer.asked
    assert asked.startswith("GET /metrics?a=b HTTP/1.1")
    assert "Authorization: Basic dXNAZXI6cGFzcw==" in asked


BROKEN = {
    "no HTTP": b"hello\r\n\r\n",
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "an end too early": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101 + b"\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\na: " + b"b" * 200_000 + b"\r\n\r\n",
    "an error": b"HTTP/1.1 500 \x1b[31mred\x1b[0m\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
    "a page of something else": page(b"<html>"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_page_is_one_line(name, capsys):
    with server(sent(BROKEN[name])) as place:
        code = main(["watch", "--count", "1", "--interval", "0.01", "--exporter", f"http://u:secret@{place}/m?token=t"])
    said = capsys.readouterr().err
    assert code == 4
    assert said.startswith(f"vramwise: http://{place}/m: ")
    assert said.count("\n") == 1
    assert "internal error" not in said
    assert "\x1b" not in said
    assert "secret" not in said
    assert "token" not in said


@pytest.mark.parametrize(
    "address",
    [
        "http://",
        "http://a b/",
        "http://host:port/",
        "http://[::1",
        "http://h\nost/",
        "HTTP://127.0.0.1:1/",
        "http://u:secret@h:x/",
    ],
)
def test_what_is_no_address_is_one_line(address, capsys):
    assert main(["watch", "--count", "1", "--interval", "0.01", "--exporter", address]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "internal error" not in said
    assert "secret" not in said


def test_a_byte_now_and_then_has_an_end(monkeypatch):
    monkeypatch.setattr(exporter_page, "TIMEOUT_S", 0.5)
    stop = threading.Event()

    def dribble(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stop.wait(0.05):
            connection.sendall(b"a")

    with server(dribble) as place:
        try:
            with pytest.raises(SourceError, match=r"no whole answer within 0\.5 seconds"):
                page_at(f"http://{place}/")
        finally:
            stop.set()


def test_an_endless_page_is_cut_short():
    def endless(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"a" * 65536)

    with server(endless) as place, pytest.raises(SourceError, match="an answer of more than 4 MiB"):
        page_at(f"http://{place}/")


@pytest.mark.parametrize("to", ["http://127.0.0.2:1/m", "ftp://127.0.0.1/m", "file:///etc/hostname"])
def test_another_host_is_not_followed(to):
    with (
        server(sent(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % to.encode())) as place,
        pytest.raises(SourceError) as caught,
    ):
        page_at(f"http://{place}/")
    assert "\n" not in str(caught.value)


def test_another_page_of_the_host_is_followed():
    first = b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    answers = [first, page(GOOD)]
    with server(lambda connection: (connection.recv(65536), connection.sendall(answers.pop(0))), most=2) as place:
        assert page_at(f"http://{place}/") == GOOD.decode()


def test_an_address_is_shown_without_what_is_secret():
    assert shown_address("https://user:pass@host:9400/metrics?token=1#x") == "https://host:9400/metrics"
    assert "pass" not in shown_address("https://user:pass@host:port/metrics")


def test_a_text_longer_than_any_tool_prints_is_refused_or_named(tmp_path, capsys):
    (tmp_path / "long").write_text("x" * (8 * MIB + 1))
    assert main(["doctor", str(tmp_path / "long")]) == 4
    assert "larger than 8 MiB" in capsys.readouterr().err
    (tmp_path / "lines").write_text(GOOD.decode() + "\n" * 60_000)
    assert main(["doctor", str(tmp_path / "lines")]) == 0
    assert "only the first 50,000 lines were read" in capsys.readouterr().out


def test_an_address_without_its_scheme_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--count", "1", "--exporter", "user:secret@host:9400"]) == 4
    assert capsys.readouterr().err == "vramwise: --exporter: an address begins with http:// or https://\n"
