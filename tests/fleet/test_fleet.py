"""`vramwise fleet` on a real Prometheus: what was planted is found, and nothing else."""

from __future__ import annotations

import csv
import json
import re

import pytest
from made_fleet import ASKED, CHAT_COMMAND, END, HOSTILE, START, TOKENS_AN_HOUR

from vramwise.cli.main import main
from vramwise.fleet.report import BOTTOM, HEIGHT, _days_plot

WEEK = 7 * 24
MIB = 2**20


@pytest.fixture(scope="module")
def answer(seven_days, tmp_path_factory):
    from contextlib import redirect_stdout
    from io import StringIO

    out, folder = StringIO(), tmp_path_factory.mktemp("answer")
    words = [
        "--json", "--steps-metric", "trainer_steps", "--command-label", "annotation_vramwise_command",
        "-o", str(folder / "jobs.parquet"),
    ]  # fmt: skip
    with redirect_stdout(out):
        assert main(["fleet", "--prometheus", seven_days, *ASKED, *words]) == 0
    return json.loads(out.getvalue()) | {"kept": str(folder / "jobs.parquet")}


@pytest.fixture(scope="module")
def jobs(answer):
    return {job["id"]: job for job in answer["jobs"]}


def test_every_job_is_there_with_its_gpus_and_hours(jobs):
    hours = {job: (row["gpus"], row["gpu_hours"]) for job, row in jobs.items()}
    assert hours == {
        "1001": (8, 8 * WEEK), "1002": (8, 8 * WEEK), "1003": (8, 8 * WEEK), "1004": (8, 8 * 72),
        "serving/chat": (8, 8 * WEEK), "research/llama": (8, 8 * (WEEK - 12)), HOSTILE: (1, WEEK),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("job", "reason", "idle", "launch_bound", "communication"),
    [
        ("1001", "none", 0, 0.02 * 8 * WEEK, 0.06 * 8 * WEEK),
        ("1002", "idle", 8 * WEEK, 0, 0),
        ("1003", "communication", 0, 0, 0.55 * 8 * WEEK),
        ("1004", "launch-bound", 0, 0.70 * 8 * 72, 0),
        ("serving/chat", "memory", 0, 0.15 * 8 * WEEK, 0),
        ("research/llama", "none", 0, 0.03 * 8 * (WEEK - 12), 0.07 * 8 * (WEEK - 12)),
    ],
)
def test_what_was_planted_is_found(jobs, job, reason, idle, launch_bound, communication):
    row = jobs[job]
    assert row["reason"] == reason
    lost = [row[f"{name}_gpu_hours"] for name in ("idle", "launch_bound", "communication")]
    assert lost == pytest.approx([idle, launch_bound, communication], abs=1e-6)
    assert row["wasted_gpu_hours"] == pytest.approx(sum(lost))


def test_hours_of_days_add_up_to_the_job_and_the_fleet(answer, jobs):
    for row in jobs.values():
        assert sum(day["gpu_hours"] for day in row["days"]) == pytest.approx(row["gpu_hours"])
    assert sum(day["gpu_hours"] for day in answer["days"]) == pytest.approx(answer["fleet"]["gpu_hours"])
    assert [day["start_s"] for day in answer["days"]] == [START + 86_400 * day for day in range(7)]
    assert answer["until_s"] == END


def test_hours_without_a_job_are_apart(answer):
    assert answer["fleet"]["unallocated_gpu_hours"] == 8 * WEEK + 8 * 96 + 7 * WEEK


def test_counters_that_start_anew_lose_no_more_than_the_step_of_it(jobs):
    """A week at 650 W a card, less the hour in which the counter began at nothing."""
    assert jobs["1001"]["energy_j"] == pytest.approx(8 * 650 * 3600 * (WEEK - 1), rel=1e-6)
    assert jobs["serving/chat"]["tokens"] == pytest.approx(8 * TOKENS_AN_HOUR * (WEEK - 1), rel=0.02)


def test_energy_is_told_by_token_and_by_step(jobs):
    assert jobs["serving/chat"]["joules_per_token"] == pytest.approx(300 * 3600 / TOKENS_AN_HOUR, rel=0.02)
    assert jobs["1001"]["joules_per_step"] == pytest.approx(8 * 650 * 3600 / 100, rel=0.02)
    assert jobs["1002"]["joules_per_token"] is None


def test_energy_is_shown_where_a_job_has_it(ask, tmp_path, capsys):
    assert ask("--steps-metric", "trainer_steps", "--html", str(tmp_path / "report.html")) == 0
    screen, report = capsys.readouterr().out, (tmp_path / "report.html").read_text()
    for title in ("J/token", "J/step"):
        assert title in screen
        assert f"<th>{title}</th>" in report
    (joules_a_step,) = re.findall(r"^1001 .* ([\d,]{7})$", screen, re.MULTILINE)
    assert float(joules_a_step.replace(",", "")) == pytest.approx(8 * 650 * 36, rel=0.02)
    assert ask("--top", "2") == 0
    screen = capsys.readouterr().out
    assert "1002" in screen
    assert not {"J/token", "J/step", "fits"} & set(screen.split())


def test_cards_memory_and_shares(jobs):
    row = jobs["1001"]
    assert row["gpu"] == "h100-sxm-80gb"
    assert (row["peak_bytes"], row["card_bytes"]) == (70_000 * MIB, 81_559 * MIB)
    shares = [row[name] for name in ("engine_active", "sm_active", "tensor_active", "dram_active")]
    assert shares == pytest.approx([0.98, 0.92, 0.45, 0.5])
    assert row["link_bytes_per_s"] == pytest.approx(5e10)


def test_the_smaller_card_is_that_of_the_jobs_own_command(jobs):
    assert jobs["serving/chat"]["command"] == CHAT_COMMAND
    assert (jobs["serving/chat"]["smaller_gpu"], jobs["serving/chat"]["smaller_by"]) == ("l4", "estimate")
    assert jobs["1001"]["smaller_gpu"] is None


def test_a_gap_is_said(answer, jobs):
    assert jobs["research/llama"]["seen"] == pytest.approx(156 / 168)
    assert any("gaps in the samples of 1 job" in note for note in answer["notes"])
    assert answer["missing"] == []


def test_the_worst_come_first(answer):
    wasted = [job["wasted_gpu_hours"] for job in answer["jobs"]]
    assert wasted == sorted(wasted, reverse=True)
    assert [row["reason"] for row in answer["by_reason"]][:3] == ["idle", "communication", "launch-bound"]


def test_a_kept_table_answers_the_same(answer, capsys):
    assert main(["fleet", answer["kept"], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == {key: value for key, value in answer.items() if key != "kept"}


def test_the_screen_shows_what_a_hostile_label_says_as_text(answer, capsys):
    assert main(["fleet", answer["kept"]]) == 0
    screen = capsys.readouterr().out
    assert "\x1b" not in screen
    assert "wasted     2,937.1 of 7,368.0 GPU-hours (40 %) of 7 jobs" in screen


def test_files_hold_hostile_labels_harmlessly(answer, tmp_path):
    table, page = tmp_path / "jobs.csv", tmp_path / "jobs.html"
    assert main(["fleet", answer["kept"], "--csv", str(table), "--html", str(page)]) == 0
    text = page.read_text()
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert text.count("<svg") == 2
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 7
    assert rows[0]["id"] == "1002"


def test_a_label_of_ones_own_names_the_jobs(ask, capsys):
    assert ask("--job-label", "hostname", "--json") == 0
    rows = {job["id"]: job["gpu_hours"] for job in json.loads(capsys.readouterr().out)["jobs"]}
    assert rows == {f"node{node}": 8 * WEEK - (96 if node == 5 else 0) for node in range(8)}


def test_a_label_that_is_not_there(ask, capsys):
    assert ask("--job-label", "hpc_jobs") == 2
    assert 'no label "hpc_jobs": did you mean hpc_job?' in capsys.readouterr().err


@pytest.mark.parametrize("label", ["a) or vector(1", "", "1a", "a b"])
def test_what_is_no_label_is_refused(ask, capsys, label):
    assert ask("--job-label", label) == 2
    assert "expected the name of a label" in capsys.readouterr().err


def test_a_time_without_samples(seven_days, capsys):
    assert main(["fleet", "--prometheus", seven_days, "--since", "1d", "--until", "2020-01-01"]) == 4
    said = capsys.readouterr().err
    assert "no metric of dcgm-exporter or AMD" in said
    assert said.count("\n") == 1


def test_a_manifest_tells_the_command(ask, capsys, tmp_path):
    (tmp_path / "chat.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: chat, namespace: serving}\nspec:\n  template:\n"
        "    spec:\n      containers:\n        - name: chat\n          image: vllm/vllm-openai\n"
        f"          command: [{', '.join(json.dumps(word) for word in CHAT_COMMAND.split())}]\n"
        "          resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    assert ask("--specs", str(tmp_path), "--json") == 0
    found = {job["id"]: job for job in json.loads(capsys.readouterr().out)["jobs"]}["serving/chat"]
    assert (found["smaller_gpu"], found["smaller_by"]) == ("l4", "estimate")


def test_of_many_days_some_are_dated() -> None:
    day = 86_400
    days = [
        {
            "start_s": day * i,
            "gpu_hours": 24.0,
            "idle_gpu_hours": 6.0,
            "launch_bound_gpu_hours": 2.0,
            "communication_gpu_hours": 1.0,
        }
        for i in range(32)
    ]
    plot = _days_plot(days)
    assert plot.count("-0") + plot.count("-1") >= 8
    assert plot.count("<text") < 32


def test_a_days_hours_are_stacked_to_its_sum() -> None:
    part = {"idle_gpu_hours": 6.0, "launch_bound_gpu_hours": 2.0, "communication_gpu_hours": 4.0}
    days = [{"start_s": 86_400 * i, "gpu_hours": hours, **part} for i, hours in enumerate((24.0, 48.0))]
    drawn = [float(height) for height in re.findall(r'<rect [^>]*height="([0-9.]+)"', _days_plot(days))]
    whole = HEIGHT - BOTTOM
    assert drawn[:8] == pytest.approx([whole * hours / 48 for hours in (12, 4, 2, 6, 36, 4, 2, 6)], abs=0.06)
