"""A job's traces become the same tables by whatever reads them: processes, shares, a Dask cluster whose workers die."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from made_jobs import dies, job, read_by_a_worker_that_dies, slow
from made_traces import packed, text

from vramwise import clusters
from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError, VramwiseError
from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.job.mapped import DIED, Done, map_trace, mapped, mapped_on, read_part, shard_of

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Six ranks, one of them broken and one empty."""
    folder = tmp_path_factory.mktemp("traces")
    for rank, trace in enumerate(job(6, steps=2, group_size=2)):
        (folder / f"rank{rank}.json").write_bytes(packed(trace))
    (folder / "rank4.json").write_bytes(text(trace)[:-30])
    (folder / "rank5.json").write_bytes(b"")
    return sorted(str(each) for each in folder.glob("*.json"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    file = tmp_path_factory.mktemp("dask") / "local.toml"
    file.write_text('[local]\nn_workers = 2\nthreads_per_worker = 1\ndashboard_address = ":0"\n')
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), clusters.connected(str(file)) as opened:
        yield opened


def begun(path) -> JobFolder:
    folder = JobFolder(path)
    folder.begin()
    return folder


def content(folder: JobFolder) -> dict[str, bytes]:
    return {
        str(each.relative_to(folder.path)): each.read_bytes() for each in folder.path.rglob("*.*") if each.is_file()
    }


def test_processes_shards_and_a_cluster_whose_worker_dies_leave_the_same_tables(tmp_path, traces, cluster):
    alone, shards, by_dask = (begun(tmp_path / name) for name in ("alone", "shards", "dask"))
    ends = list(mapped(traces, partial(map_trace, out=str(alone.path))))
    assert [Path(end.trace).name for end in ends if end.why] == ["rank4.json", "rank5.json"]
    assert len(list(alone.parts.iterdir())) == 4
    for shard in ("2/2", "1/2"):
        list(mapped(shard_of(traces, shard), partial(map_trace, out=str(shards.path)), 2))
    sign = Path(traces[0]).parent / "die"
    sign.touch()
    found = list(mapped_on(cluster, traces, read_by_a_worker_that_dies, by_dask))
    assert not sign.exists()
    assert sorted(found) == sorted(ends)
    assert content(alone) == content(shards) == content(by_dask)


def test_a_batch_by_workers_has_the_same_lines_in_the_same_order(tmp_path, cluster, monkeypatch):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"model": "gpt2", "task": "load", "id": {n}}}\n' for n in range(60)), "utf-8")
    monkeypatch.setenv("VRAMWISE_SITE", "")  # which the workers do not have
    assert main(["batch", str(source), "-o", str(tmp_path / "here")]) == 0
    assert main(["batch", str(source), "-o", str(tmp_path / "there"), "--dask", cluster.address]) == 0
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_trace_that_ends_every_worker_is_named(tmp_path, traces, cluster):
    folder = begun(tmp_path / "out")
    assert list(mapped_on(cluster, traces[:1], dies, folder)) == [Done(traces[0], DIED)]
    assert list(mapped_on(cluster, traces[:1], read_part, folder)) == [Done(traces[0], None)]


def test_workers_of_another_version_are_refused(monkeypatch, cluster):
    monkeypatch.setattr(clusters, "__version__", "9.9")
    said = r"worker tcp://\S+ has vramwise \S+, expected 9\.9 as here"
    with pytest.raises(VramwiseError, match=said), clusters.connected(cluster.address):
        pass
    with pytest.raises(VramwiseError, match=r"a worker has vramwise"):
        list(cluster.in_order(abs, [1]))


def test_a_scheduler_that_goes_away_is_one_line_and_what_ended_is_kept(tmp_path, traces):
    distributed = pytest.importorskip("distributed")
    folder = begun(tmp_path / "out")
    here = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, **here) as local,
        clusters.connected(local.scheduler_address) as cluster,
    ):
        ends = mapped_on(cluster, traces[:4], slow, folder)
        next(ends)
        local.close()
        with pytest.raises(VramwiseError, match="went away: run again"):
            list(ends)
    assert [trace for trace in traces[:4] if folder.has(trace)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://here", "expected tcp://HOST:PORT, tls://HOST:PORT or FILE.toml"),
        ("{}/a.yaml", "expected tcp://HOST:PORT"),
        ("{}/a.toml", r"one table out of \[slurm\].*did you mean \[slurm\]"),
        ("{}/b.toml", "jobs: expected a whole number"),
        ("{}/c.toml", "is no TOML"),
        ("{}/d.toml", r"\[local\] does not start a cluster"),
    ],
)
def test_what_is_no_cluster_is_refused(tmp_path, given, said):
    (tmp_path / "a.toml").write_text("[slrum]\n")
    (tmp_path / "b.toml").write_text("jobs = 0\n[slurm]\n")
    (tmp_path / "c.toml").write_text("[")
    (tmp_path / "d.toml").write_text('[local]\nscheduler_port = "x"\n')
    with pytest.raises(UsageError, match=said), clusters.connected(given.format(tmp_path)):
        pass


class HalfBegun:
    """As dask-kubernetes' KubeCluster without credentials: it is to end with Python, and cannot."""

    _instances: ClassVar[list[HalfBegun]] = []
    shutdown_on_close = True

    def __init__(self, name: str) -> None:
        self._instances.append(self)
        raise ValueError("Unable to find valid credentials")

    def close(self, timeout: int) -> None:
        raise ConnectionError("no answer")


def test_kubernetes_that_cannot_be_asked_is_one_line_and_nothing_at_the_end(tmp_path, monkeypatch):
    package = ModuleType("dask_kubernetes.operator")
    monkeypatch.setattr(package, "KubeCluster", HalfBegun, raising=False)
    monkeypatch.setitem(sys.modules, "dask_kubernetes", ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", package)
    file = tmp_path / "pods.toml"
    file.write_text('[kubernetes]\nname = "traces"\n')
    with pytest.raises(UsageError, match=r"\[kubernetes\] does not start a cluster \(Unable to find valid credentials"):
        clusters.connected(str(file)).__enter__()
    assert [each.shutdown_on_close for each in HalfBegun._instances] == [False]


def test_a_cluster_without_workers_is_waited_for_aloud(tmp_path, monkeypatch, capsys):
    file = tmp_path / "none.toml"
    file.write_text('[local]\nn_workers = 0\nprocesses = false\ndashboard_address = ":0"\n')
    monkeypatch.setattr(clusters, "SAID_AFTER_S", 0.05)
    monkeypatch.setattr(clusters, "FIRST_WORKER_S", 0.1)
    with pytest.raises(SourceError, match=r"none.toml: no answer \(.*0/1 workers"), clusters.connected(str(file)):
        pass
    assert "waiting for the first worker" in capsys.readouterr().err


def test_plain_is_said_outside_loopback(capsys):
    for address in ("tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://localhost:1", "tls://node:8786"):
        clusters._say_what_is_plain(address)
    assert capsys.readouterr().err == ""
    clusters._say_what_is_plain("tcp://node7:8786")
    assert "--dask tcp:// is plain" in capsys.readouterr().err


def test_a_cluster_that_a_file_starts_says_too_that_it_is_plain(tmp_path, monkeypatch, capsys):
    file = tmp_path / "local.toml"
    file.write_text('[local]\nn_workers = 1\nprocesses = false\nprotocol = "tcp://"\ndashboard_address = ":0"\n')
    with clusters.connected(str(file)):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(clusters, "_is_loopback", lambda host: False)  # as on a network that others are on
    with clusters.connected(str(file)):
        pass
    assert "--dask tcp:// is plain" in capsys.readouterr().err


def test_what_answers_and_is_no_scheduler_is_one_line(tmp_path):
    """A web server, say: the half-made connection neither waits for it at the end nor prints."""
    pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=_answers_as_the_web_does, args=(server,), daemon=True).start()
        where = ["--dask", f"tcp://127.0.0.1:{port}"]
        command = [sys.executable, "-m", "vramwise", "profile", str(tmp_path / "a.json"), *where]
        (tmp_path / "a.json").write_bytes(packed(job(1)[0]))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == SourceError.exit_code
    assert "no answer" in done.stderr
    assert "Traceback" not in done.stderr


def _answers_as_the_web_does(server):
    held = []
    while True:
        try:
            held.append(server.accept()[0])
        except OSError:
            return
        held[-1].sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + bytes(64))
