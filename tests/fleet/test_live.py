"""A live scrape: dcgm-exporter's page replayed, `vramwise watch --serve` beside it, rules, alerts and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from real_prometheus import STARTING_S, free_port, program, prometheus

from by_turns import is_thorough
from vramwise.cli.main import main

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("*.yml"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "vramwise-fleet.json").read_text())
CARD = 'modelName="NVIDIA H100 80GB HBM3",hostname="node0"'
# what dcgm-exporter prints of three GPUs: one waits for others, one has gaps, one has no job
PAGE = "\n".join(
    f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",{CARD}{job}}} {value}'
    for gpu, (job, values) in enumerate(
        (
            (',hpc_job="77"', (1.0, 0.4, 0.2, 1e11, 70_000, 400)),
            (',hpc_job="77"', (1.0, 0.4, 0.2, 1e11, 70_000, 400)),
            (',namespace="a",pod="b-0"', (0.5, 0.45, 0.1, 0, 9_000, 200)),
            ("", (0.0, 0.0, 0.0, 0, 4, 80)),
        )
    )
    for name, value in zip(
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE",
        ),
        values, strict=True,
    )
)  # fmt: skip
PAGE += "\n" + "\n".join(
    line.replace("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE").rpartition(" ")[0] + " 11559"
    for line in PAGE.splitlines()
    if line.startswith("DCGM_FI_DEV_FB_USED")
)


class Replayed(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode() + b"\n")

    def log_message(self, *_):
        """Says nothing."""


def value(address, query):
    with urlopen(f"{address}/api/v1/query?{urlencode({'query': query})}", timeout=300) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found["data"]["result"]}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The address of a Prometheus that scrapes each second and has evaluated its rules a few times.

    A thorough run lets it scrape for two minutes.
    """
    program("prometheus")
    folder, port = tmp_path_factory.mktemp("live"), free_port()
    scenario = folder / "scenario.toml"
    scenario.write_text('model = "gpt2"\ntask = "serve"\ngpu = "h100"\n[serve]\nengine = "transformers"\n')
    for file in RULES:
        shutil.copy(file, folder)
    with ExitStack() as stack:
        exporter = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Replayed))
        Thread(target=exporter.serve_forever, daemon=True).start()
        stack.callback(exporter.shutdown)
        words = [sys.executable, "-m", "vramwise", "watch", "--serve", f"127.0.0.1:{port}", "--scenario", str(scenario)]
        watching = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        stack.callback(watching.terminate)
        assert watching.stdout.readline() == f"exporting at http://127.0.0.1:{port}/metrics\n"
        scrapes = [
            {"job_name": "dcgm", "static_configs": [{"targets": [f"127.0.0.1:{exporter.server_address[1]}"],
             "labels": {"namespace": "monitoring", "pod": "dcgm-exporter-1"}}]},
            {"job_name": "vramwise", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
        ]  # fmt: skip
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [file.name for file in RULES], "scrape_configs": scrapes,
        }  # fmt: skip
        address = stack.enter_context(prometheus(folder, yaml.safe_dump(config)))
        deadline = time.monotonic() + STARTING_S
        times = 115 if is_thorough() else 3
        recorded = f'count_over_time(job:vramwise_lost_gpus:sum{{reason="communication"}}[3m]) > {times}'
        waited = f'{recorded} and on() up{{job="vramwise"}} > 0'
        while not value(address, waited):
            assert time.monotonic() < deadline, value(address, "up")
            time.sleep(0.2)
        yield address


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_promtool_takes_the_rules(file):
    words = [program("promtool"), "check", "rules", "--lint-fatal", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_evaluated_without_a_complaint(live):
    with urlopen(f"{live}/api/v1/rules", timeout=300) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == sum(
        len(group["rules"]) for file in RULES for group in yaml.safe_load(file.read_text())["groups"]
    )
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}


def test_the_rules_cut_a_jobs_gpus_as_the_command_does(live):
    lost = value(live, "sum by (hpc_job, exported_pod, reason) (job:vramwise_lost_gpus:sum)")
    found = {tuple(json.loads(labels).get(key, "") for key in ("hpc_job", "exported_pod", "reason")): number
             for labels, number in lost.items()}  # fmt: skip
    assert found[("77", "", "communication")] == pytest.approx(2 * 0.6)
    assert found[("", "b-0", "launch-bound")] == pytest.approx(0.55)
    assert found[("77", "", "launch-bound")] == pytest.approx(0)
    assert sum(value(live, "job:vramwise_gpus:count").values()) == 3


QUERIES = [
    (panel["title"], target["expr"].replace("$__range", "5m").replace("$counter", ".+"))
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
NEEDS_A_GPU = "vramwise_memory_bytes"


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title} {i}" for i, (title, _) in enumerate(QUERIES)])
def test_the_dashboards_queries_have_an_answer(live, title, query):
    assert "$" not in query
    found = value(live, query)
    if not query.startswith(NEEDS_A_GPU):
        assert found, title


def test_the_dashboard_asks_for_what_is_recorded():
    recorded = {
        rule["record"] for file in RULES for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"] if "record" in rule
    }  # fmt: skip
    asked = {name for _, query in QUERIES for name in re.findall(r"(?:gpu|job):vramwise_\w+:\w+", query)}
    assert asked <= recorded


def test_the_estimate_is_scraped(live):
    found = value(live, 'vramwise_memory_estimated_bytes{counter="peak_allocated"}')
    bounds = {json.loads(labels)["bound"]: size for labels, size in found.items()}
    assert bounds["low"] <= bounds["expected"] <= bounds["high"]


def test_the_command_answers_while_it_is_scraped(live, capsys):
    assert main(["fleet", "--prometheus", live, "--since", "3s", "--step", "1s", "--json"]) == 0
    jobs = {job["id"]: job for job in json.loads(capsys.readouterr().out)["jobs"]}
    assert set(jobs) == {"77", "a/b-0"}
    assert (jobs["77"]["gpus"], jobs["77"]["reason"]) == (2, "communication")
    assert (jobs["a/b-0"]["gpus"], jobs["a/b-0"]["reason"]) == (1, "launch-bound")
