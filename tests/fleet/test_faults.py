"""Servers that are slow, gone, wrong or hostile: the rest is answered, what is missing is said, nothing secret is."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.fleet import prometheus
from vramwise.fleet.prometheus import TooMuchError, server_at

ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
HOUR = 3600


class Stand:
    """Answers as Prometheus does for one busy GPU of job 1, but for what `change` says of a question."""

    def __init__(self, change=lambda question, width, at: None, names=(ENGINE, "DCGM_FI_PROF_SM_ACTIVE")):
        self.change, self.names, self.asked = change, names, []

    def answer(self, path, asked):
        if path.endswith("/values"):
            return 200, success(self.names)
        if path.endswith("/labels"):
            return 200, success(["__name__", "hpc_job", "UUID"] if asked["match[]"][0] == ENGINE else [])
        query, at = asked["query"][0], float(asked["time"][0])
        width = int(query.rpartition("[")[2].partition("s")[0])
        self.asked.append((query, at))
        changed = self.change(query, width, at)
        return changed or (200, vector(self.value(query, width, at)))

    def value(self, query, width, at):
        if "timestamp" in query:
            return at if query.startswith("max") else -at
        if query.startswith("count by"):
            return 1
        return (width + 1) // HOUR


def success(data):
    return json.dumps({"status": "success", "data": list(data)})


def vector(value, **labels):
    element = {"metric": {"hpc_job": "1", **labels}, "value": [0, str(value)]}
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [element]}})


def failure(status, kind, text):
    return status, json.dumps({"status": "error", "errorType": kind, "error": text})


@contextmanager
def standing(stand):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            place = urlsplit(self.path)
            status, text = stand.answer(place.path, parse_qs(place.query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://user:secret@127.0.0.1:{server.server_address[1]}/select/0/prometheus"
        finally:
            server.shutdown()


def fleet(stand, capsys, *words, code=0):
    with standing(stand) as address:
        assert main(["fleet", "--prometheus", address, "--since", "8h", "--step", "1h", *words, "--json"]) == code
    said = capsys.readouterr()
    assert "secret" not in said.out + said.err
    assert said.err.count("\n") <= 1
    return json.loads(said.out) if code == 0 else said.err


def test_what_the_stand_says_is_counted(capsys):
    answer = fleet(Stand(), capsys)
    assert answer["missing"] == []
    assert [job["gpu_hours"] for job in answer["jobs"]] == [8]
    assert answer["prometheus"].startswith("http://127.0.0.1:")


def test_a_question_that_is_too_much_is_asked_in_halves(capsys):
    def change(query, width, at):
        return failure(422, "execution", "too many samples") if width > 2 * HOUR else None

    stand = Stand(change)
    with standing(stand) as address:
        words = ["--since", "4d", "--step", "1h", "--json"]
        assert main(["fleet", "--prometheus", address, *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["missing"] == []
    assert answer["jobs"][0]["gpu_hours"] == 96
    assert [day["gpu_hours"] for day in answer["days"]] == [24] * 4


def test_a_window_that_never_answers_is_missing_and_the_rest_is_there(capsys):
    ends = []

    def change(query, width, at):
        ends.append(at)
        return failure(503, "timeout", "query timed out") if at == min(ends) else None

    answer = fleet(Stand(change), capsys)
    (missing,) = answer["missing"]
    assert "query timed out" in missing
    assert answer["jobs"][0]["gpu_hours"] == 7


@pytest.mark.parametrize(("lost", "is_said"), [(1, False), (2, True)])
def test_jobs_of_which_a_twentieth_is_missing_are_no_gap(capsys, lost, is_said):
    """Of 20 hours: an exporter that begins a little late is no news, 90 % are."""
    ends = []

    def change(query, width, at):
        ends.append(at)
        return (200, vector(0)) if "count_over_time" in query and at >= min(ends) + (20 - lost) * HOUR else None

    with standing(Stand(change)) as address:
        assert main(["fleet", "--prometheus", address, "--since", "20h", "--step", "1h", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["jobs"][0]["seen"] == (20 - lost) / 20
    assert any("gaps in the samples" in note for note in answer["notes"]) is is_said


def test_a_figure_that_nobody_answers_is_unknown_and_no_zero(capsys):
    def change(query, width, at):
        return failure(400, "bad_data", "parse error") if "SM_ACTIVE" in query else None

    answer = fleet(Stand(change), capsys)
    assert answer["missing"] == [f"sm: {answer['prometheus']}: parse error"]
    assert answer["jobs"][0]["sm_active"] is None
    assert answer["jobs"][0]["wasted_gpu_hours"] == 0


def test_a_server_that_goes_away(capsys):
    seen = []

    def change(query, width, at):
        seen.append(at)
        return (404, "gone") if at > min(seen) + 2 * HOUR else None

    answer = fleet(Stand(change), capsys)
    assert answer["jobs"][0]["gpu_hours"] == 3
    assert answer["missing"][0].startswith("everything from ")


@pytest.mark.parametrize(
    "content", ["<html>Grafana</html>", "[]", "null", '{"status": "success"}', '{"data": 1}', "[" * 100_000, ""]
)
def test_what_is_no_prometheus_is_one_line(content, capsys):
    stand = Stand()
    stand.answer = lambda path, asked: (200, content)
    said = fleet(stand, capsys, code=4)
    assert "this is no Prometheus API" in said


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502])
def test_a_refusal_is_one_line(status, capsys):
    stand = Stand()
    stand.answer = lambda path, asked: (status, "no")
    assert f"answers {status}" in fleet(stand, capsys, code=4)


def test_nobody_there(capsys):
    assert main(["fleet", "--prometheus", "http://u:secret@127.0.0.1:1/", "--since", "1h"]) == 4
    said = capsys.readouterr().err
    assert said == "vramwise: http://127.0.0.1:1/api/v1/label/__name__/values: Connection refused\n"


@pytest.mark.parametrize(
    "address", ["localhost:9090", "user:secret@host:9090", "http://", "http://u:secret@h:x/", "ftp://host/"]
)
def test_what_is_no_address(address, capsys):
    assert main(["fleet", "--prometheus", address]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "secret" not in said


def test_an_answer_that_is_too_large_is_cut_short(monkeypatch):
    monkeypatch.setattr(prometheus, "LARGEST_ANSWER", 1000)
    stand = Stand()
    stand.answer = lambda path, asked: (200, "x" * 100_000)
    with standing(stand) as address, pytest.raises(TooMuchError, match="an answer of more than"):
        server_at(address, 300).instant("up", 0)


def test_a_slow_server_has_a_deadline():
    stop = threading.Event()
    stand = Stand()
    stand.answer = lambda path, asked: (stop.wait(30), (200, ""))[1]
    with standing(stand) as address:
        try:
            with pytest.raises(TooMuchError, match=r"no (whole )?answer within"):
                server_at(address, 0.2).instant("up", 0)
        finally:
            stop.set()


def test_elements_that_are_damaged_are_left_out():
    elements = [{"metric": {"a": "b"}, "value": [0, text]} for text in ("1", "NaN", "+Inf", "x")]
    elements += [{}, None, {"metric": {}, "value": []}, {"metric": [], "value": [0, "1"]}]
    stand = Stand()
    data = {"resultType": "vector", "result": elements}
    stand.answer = lambda path, asked: (200, json.dumps({"status": "success", "data": data}))
    with standing(stand) as address:
        assert [(one.labels, one.value) for one in server_at(address, 300).instant("up", 0)] == [({"a": "b"}, 1.0)]


def test_a_name_of_a_counter_cannot_leave_its_quotes(capsys):
    stand = Stand()
    matched = []
    plain = stand.answer
    stand.answer = lambda path, asked: (matched.append(asked.get("match[]", [""])[0]), plain(path, asked))[1]
    fleet(stand, capsys, "--tokens-metric", 'a"} or vector(1) #')
    assert '{__name__="a\\"} or vector(1) #"}' in matched


def test_a_token_of_the_environment_is_sent_and_not_shown(monkeypatch, capsys):
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers["Authorization"])
            self.send_error(401)

        def log_message(self, *_):
            """Says nothing."""

    monkeypatch.setenv("VRAMWISE_PROMETHEUS_TOKEN", "abc123")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        assert main(["fleet", "--prometheus", f"http://127.0.0.1:{server.server_address[1]}"]) == 4
        server.shutdown()
    assert set(seen) == {"Bearer abc123"}
    assert "abc123" not in capsys.readouterr().err


KEPT = {
    "no table": b"hello", "empty": b"", "cut": b"PAR1" + b"\0" * 100 + b"PAR1",
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_kept_table(name, tmp_path, capsys):
    file = tmp_path / "jobs.parquet"
    file.write_bytes(KEPT[name])
    assert main(["fleet", str(file)]) == 4
    assert "is no table that vramwise fleet -o wrote" in capsys.readouterr().err


def test_a_table_of_another_version_or_maker(tmp_path, capsys):
    import pyarrow as arrow
    from pyarrow import parquet

    for metadata, said in (({}, "no version"), ({"vramwise.fleet.schema": "2"}, "version 2")):
        table = arrow.table({"id": ["a"]}).replace_schema_metadata(metadata)
        parquet.write_table(table, tmp_path / "jobs.parquet")
        assert main(["fleet", str(tmp_path / "jobs.parquet")]) == 4
        assert said in capsys.readouterr().err
    table = arrow.table({"id": ["a"]}).replace_schema_metadata({"vramwise.fleet.schema": "1"})
    parquet.write_table(table, tmp_path / "jobs.parquet")
    assert main(["fleet", str(tmp_path / "jobs.parquet")]) == 4
    assert "a row is damaged" in capsys.readouterr().err


def test_a_table_that_cannot_be_written(capsys):
    with standing(Stand()) as address:
        words = ["--since", "8h", "--step", "1h", "-o", "/nowhere/jobs.parquet"]
        assert main(["fleet", "--prometheus", address, *words]) == 4
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "28"], ["--since", "0d"], ["--since", "401d"], ["--step", "1y"], ["--until", "soon"],
        ["--since", "1m", "--step", "1h"], ["--since", "300d", "--step", "1s"], ["--top", "0"], ["-o", "a.csv"],
        ["--csv", "a.txt"], ["--html", "a"], ["also.parquet"],
    ],
)  # fmt: skip
def test_a_wrong_question_is_one_line(words, capsys):
    assert main(["fleet", "--prometheus", "http://127.0.0.1:1", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_neither_server_nor_table(capsys):
    assert main(["fleet"]) == 2
    assert "give --prometheus URL, or a table" in capsys.readouterr().err


def test_a_place_of_specs_that_is_not_there():
    from vramwise.fleet.smaller import specs_in

    with pytest.raises(SourceError, match="No such file"):
        specs_in(["/nowhere"])


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "fleet.parquet"


def test_a_damaged_table_is_an_answer_or_one_line(tmp_path, capsys):
    whole, file = EXAMPLE.read_bytes(), tmp_path / "jobs.parquet"
    for place in range(0, len(whole), len(whole) // 40):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]):
            file.write_bytes(content)
            code = main(["fleet", str(file), "--json"])
            said = capsys.readouterr()
            assert code in (0, 4), said.err
            assert "internal error" not in said.err
            assert code == 0 or (said.out == "" and said.err.count("\n") == 1)
