"""`--serve`: the page that Prometheus scrapes, in both of its formats; promtool where it is installed."""

from __future__ import annotations

import os
import socket
import subprocess
from shutil import which
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError
from vramwise.result import Quantity
from vramwise.watching.exposition import (
    OPEN_METRICS,
    PLAIN_TEXT,
    Family,
    estimated_family,
    exposition,
    measured_family,
    place_of,
    served,
)

HOSTILE = 'a"b\\c\nd\x1b[31m'
FAMILIES = [
    estimated_family({"nvidia_smi": Quantity(1, 2, 3)}, {"rank": "0"}),
    measured_family([({"counter": "nvidia_smi", "gpu": HOSTILE}, 2.0)]),
    Family("vramwise_steps", "Steps that were watched.", [({}, 7.0)], "counter"),
    Family("vramwise_nothing", "Without samples.", []),
]


@pytest.fixture
def place():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def get(address, accept="*/*"):
    with urlopen(Request(address, headers={"Accept": accept}), timeout=300) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_openmetrics_has_units_an_end_and_counters_by_their_stem():
    assert exposition(FAMILIES, open_metrics=True) == (
        "# TYPE vramwise_memory_estimated_bytes gauge\n"
        "# UNIT vramwise_memory_estimated_bytes bytes\n"
        "# HELP vramwise_memory_estimated_bytes Estimated memory of a counter, with its interval.\n"
        'vramwise_memory_estimated_bytes{rank="0",counter="nvidia_smi",bound="low"} 1.0\n'
        'vramwise_memory_estimated_bytes{rank="0",counter="nvidia_smi",bound="expected"} 2.0\n'
        'vramwise_memory_estimated_bytes{rank="0",counter="nvidia_smi",bound="high"} 3.0\n'
        "# TYPE vramwise_memory_bytes gauge\n"
        "# UNIT vramwise_memory_bytes bytes\n"
        "# HELP vramwise_memory_bytes Memory as the counter has it.\n"
        'vramwise_memory_bytes{counter="nvidia_smi",gpu="a\\"b\\\\c d[31m"} 2.0\n'
        "# TYPE vramwise_steps counter\n"
        "# HELP vramwise_steps Steps that were watched.\n"
        "vramwise_steps_total 7.0\n"
        "# EOF\n"
    )


def test_promtool_finds_nothing_to_say():
    promtool = which("promtool")
    if promtool is None:
        pytest.fail("needs promtool") if os.environ.get("CI") else pytest.skip("needs promtool")
    text = exposition(FAMILIES, open_metrics=False)
    assert "# TYPE vramwise_steps_total counter\n" in text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_asks_for_openmetrics_gets_it(place):
    with served(place, lambda: FAMILIES) as address:
        assert address == f"http://{place}/metrics"
        assert get(address) == (PLAIN_TEXT, exposition(FAMILIES, open_metrics=False))
        accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
        assert get(address, accept) == (OPEN_METRICS, exposition(FAMILIES, open_metrics=True))
        with pytest.raises(HTTPError, match="404") as refused:
            get(address.replace("metrics", "else"))
        refused.value.close()
        with pytest.raises(SourceError, match="in use"), served(place, list):
            pass


@pytest.mark.parametrize(
    ("text", "found"), [(":9400", ("", 9400)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:9400", ("::1", 9400))]
)
def test_places(text, found):
    assert place_of(text) == found


@pytest.mark.parametrize("text", ["9400", ":0", ":65536", ":x", "", "host:", ":-1", ":٣"])
def test_what_is_no_place(text, capsys):
    with pytest.raises(UsageError, match="expected :PORT or HOST:PORT"):
        place_of(text)
    assert main(["watch", "--count", "1", "--serve", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_scenario_without_serve(capsys):
    assert main(["watch", "--count", "1", "--scenario", "a.toml"]) == 2
    assert "goes with --serve" in capsys.readouterr().err


def test_the_command_exports_until_its_last_sample(tmp_path, capsys, place):
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('model = "gpt2"\ntask = "load"\ngpu = "h100"\n')
    words = ["--serve", place, "--scenario", str(scenario), "--count", "1", "--interval", "0.01"]
    assert main(["watch", *words]) == 0
    assert capsys.readouterr().out == f"exporting at http://{place}/metrics\n"


def test_a_watched_run_exports_what_is_and_what_was_estimated(monkeypatch, place):
    torch = pytest.importorskip("torch")
    import vramwise

    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    layer = torch.nn.Linear(8, 8)
    scenario = {"model": "gpt2", "task": "train", "gpu": "h100", "train": {"micro_batch_size": 1}}
    with vramwise.watch(scenario, model=layer, device="cpu", log=lambda _: None, serve=place) as watched:
        layer(torch.ones(2, 8)).sum().backward()
        watched.step()
        _, page = get(f"http://{place}/metrics")
    assert 'vramwise_steps_total{hpc_job="4711"} 1.0' in page
    assert 'vramwise_memory_bytes{hpc_job="4711",counter="peak_allocated"}' in page
    assert 'vramwise_memory_estimated_bytes{hpc_job="4711",counter="peak_allocated",bound="high"}' in page
    with pytest.raises(OSError, match="refused"):
        get(f"http://{place}/metrics")
