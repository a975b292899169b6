"""From a log, a measurement or a watch into the site's file, and from there into later estimates."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.errors import SourceError, UsageError
from vramwise.estimation import terms_asked
from vramwise.scenario import Scenario
from vramwise.site import file_to_write
from vramwise.site.file import add_runs, read_site, text_of
from vramwise.site.run import Run, Term
from vramwise.units import GIB, MIB

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
logs = importlib.import_module("sample_logs")

SERVE = {"task": "serve", "gpu": "l40s", "engine_version": "0.11.0", "max_model_len": 8192}


def vllm_log(folder, non_torch="0.11", graphs="0.55", number=0, version="0.11.2"):
    path = folder / f"server-{number}-{non_torch}-{version}.log"
    text = logs.VLLM.replace("0.11 GiB for non-torch", f"{non_torch} GiB for non-torch").replace(
        "10:00:51", f"10:00:{number:02}"
    )
    text = text.replace("took 0.55 GiB", f"took {graphs} GiB").replace(
        "0.55 GiB for CUDAGraph", f"{graphs} GiB for CUDAGraph"
    )
    path.write_text(text.replace("v0.11.2", f"v{version}"))
    return str(path)


@pytest.fixture
def site(tmp_path):
    return str(tmp_path / "team" / "site.toml")


def learn(log, site, *more):
    assert main(["compare", log, "--gpu", "l40s", "--calibrate", "--site", site, *more]) == 0


def estimated(site, **changes):
    return vramwise.estimate("llama-3.1-8b", site=site, **{**SERVE, **changes})


def run_of(value=100 * MIB, number=0, **changes):
    term = {"name": "non_torch", "program": "vllm", "version": "0.11.0", "value": value, "precision": 5368709.0}
    return Run(f"{number:012x}", "compare", changes.pop("gpu", "l40s"), (Term(**{**term, **changes}),))


def test_three_logs_make_a_narrower_estimate_that_names_them(tmp_path, site, capsys):
    for number, size in enumerate(("0.21", "0.22", "0.22")):
        learn(vllm_log(tmp_path, size, number=number), site)
    assert "outside torch's pool 225.28 MiB, run 3 of its kind" in capsys.readouterr().out
    without = estimated(None).quantities["non_torch"]
    assert main(["estimate", "llama-3.1-8b", *flags(SERVE), "--site", site, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    now = result["quantities"]["non_torch"]
    assert now["expected"] == pytest.approx(0.22 * GIB, rel=1e-6)
    assert now["high"] - now["low"] < without.high - without.low
    used = next(note for note in result["notes"] if note.startswith("calibrated here: "))
    assert "outside torch's pool (3 runs)" in used
    changed = next(one for one in result["site"] if one["term"] == "non_torch")
    assert (changed["runs"], changed["program"], changed["series"]) == (3, "vllm", "0.11")
    assert changed["shipped"]["expected"] == without.expected
    assert changed["learned"]["expected"] == pytest.approx(now["expected"])


def flags(keys):
    return [word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def test_graphs_are_learned_as_a_ratio_for_the_type_of_model(tmp_path, site):
    learn(vllm_log(tmp_path, graphs="0.60"), site)
    before, after = (estimated(which).quantities["cuda_graph"] for which in (None, site))
    ratio = next(term for _, term in read_site(site).all() if term.name == "cuda_graphs").value
    assert after.expected == pytest.approx(before.expected * ratio, rel=1e-6)
    assert after.high - after.low < before.high - before.low
    other = [vramwise.estimate("qwen2.5-7b", site=which, **SERVE).quantities["cuda_graph"] for which in (None, site)]
    assert other[0] == other[1]


def test_the_same_log_counts_once(tmp_path, site):
    for _ in range(2):
        learn(vllm_log(tmp_path), site)
    assert len(read_site(site).runs) == 1


def test_other_versions_and_cards_are_kept_apart_and_said(tmp_path, site):
    learn(vllm_log(tmp_path, "0.22"), site)
    other = estimated(site, engine_version="0.19.0")
    assert other.quantities == estimated(None, engine_version="0.19.0").quantities
    assert any("has runs of vllm 0.11 on this card, which are kept apart" in note for note in other.notes)
    assert estimated(site, gpu="a40").quantities == estimated(None, gpu="a40").quantities
    assert estimated(site, tensor_parallel_size=2, num_gpus=2).site == ()


def test_runs_of_another_driver_are_kept_apart(site):
    run, _ = measured_run()
    add_runs(site, [run])
    for driver, learned in (("570.211.01", True), ("580.65.06", False), (None, True)):
        result = vramwise.estimate({**TRAIN, **({"driver": driver} if driver else {})}, site=site)
        assert ("context" in {one["term"] for one in result.site}) is learned


def test_an_outlier_is_kept_shown_and_not_used(site, capsys):
    sizes = [100, 101, 99, 100, 102, 101, 100, 99, 98, 100, 101, 100, 900]
    add_runs(site, [run_of(size * MIB, number, version="0.11.0") for number, size in enumerate(sizes)])
    result = estimated(site)
    assert result.quantities["non_torch"].high < 115 * MIB
    assert any("12 runs, 1 left out" in note for note in result.notes)
    assert result.site[0]["left_out"] == 1
    main(["calibrate", "--site", site])
    assert "900.00 MiB   left out: far from the others" in capsys.readouterr().out
    assert main(["calibrate", "prune", "--outliers", "--site", site]) == 0
    assert len(read_site(site).runs) == 12


def test_a_log_that_names_no_card_or_no_version_teaches_nothing(tmp_path, site, capsys):
    assert main(["compare", vllm_log(tmp_path), "--calibrate", "--site", site]) == 2
    assert "the log does not say which card it ran on: add --gpu NAME" in capsys.readouterr().err
    path = tmp_path / "sglang.log"
    path.write_text(logs.SGLANG)
    learn(str(path), site)
    assert "the log does not say the engine's version" in capsys.readouterr().out
    assert not os.path.exists(site)
    learn(str(path), site, "--set", "engine_version=0.5.4")
    assert [term.name for _, term in read_site(site).all()] == ["cuda_graphs"]


def test_sglangs_communicators_are_learned(tmp_path, site):
    path = tmp_path / "sglang.log"
    line = "[2025-08-01 10:00:05] Init torch distributed ends. mem usage=1.31 GB\n"
    path.write_text(line + logs.SGLANG.replace("tp_size=1", "tp_size=2"))
    learn(str(path), site, "--set", "engine_version=0.5.4", "--num-gpus", "2")
    keys = {"task": "serve", "engine": "sglang", "engine_version": "0.5.4", "gpu": "l40s", "num_gpus": 2}
    found = vramwise.estimate("qwen2.5-7b", **keys, tensor_parallel_size=2, site=site)
    node = found.phases[-1].components.find("outside torch/communicators")
    assert node.bytes == pytest.approx(1.31 * GIB, rel=1e-6)
    assert node.formula == "calibrated here: 1 run"


def test_estimates_with_and_without_a_site_do_not_mix(site):
    add_runs(site, [run_of()])
    first, learned, last = (estimated(which) for which in (None, site, None))
    assert first.to_dict() == last.to_dict()
    assert learned.to_dict() != first.to_dict()
    assert vramwise.Result.from_dict(learned.to_dict()).to_dict() == learned.to_dict()


def test_the_users_own_file_is_found_and_left_out_by_a_flag(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("VRAMWISE_SITE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    command = ["estimate", "llama-3.1-8b", *flags(SERVE), "--json"]
    main(command)
    plain = json.loads(capsys.readouterr().out)
    add_runs(str(tmp_path / "vramwise" / "site.toml"), [run_of()])
    main(command)
    assert json.loads(capsys.readouterr().out)["quantities"]["non_torch"]["expected"] == 100 * MIB
    main([*command, "--no-site"])
    assert json.loads(capsys.readouterr().out) == plain
    monkeypatch.setenv("VRAMWISE_SITE", "")
    main(command)
    assert json.loads(capsys.readouterr().out) == plain


def test_measured_cases_are_estimated_without_a_site(tmp_path, monkeypatch, site, capsys):
    add_runs(site, [run_of()])
    case = {
        "id": "a",
        "measured": {"non_torch": 1},
        "scenario": {"model": "llama-3.1-8b", "task": "serve", "gpu": "l40s"},
    }
    case["scenario"]["serve"] = {"engine_version": "0.11.0"}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    said = []
    for which in ("", site):
        monkeypatch.setenv("VRAMWISE_SITE", which)
        main(["accuracy", str(tmp_path / "cases.jsonl"), "--json"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"schema = [", "no TOML"),
        (b"\xff\xfe\x00", "no TOML"),
        (b'[tool.ruff]\nline-length = 120\n', "it has no runs of vramwise"),
        (b"schema = 2\n", "written by a newer vramwise"),
        (b"schema = 1\nrun = 3\n", "it has no runs of vramwise"),
        (b"schema = 1\n[[run]]\nid = 'a'\n", "a run is not whole"),
        (text_of([run_of()]).encode()[:-60], "no TOML"),
        (text_of([run_of()]).replace("non_torch", "weights").encode(), "unknown term weights"),
        (text_of([run_of()]).replace("104857600", "-1").encode(), "is no size"),
        (text_of([run_of()]).replace("104857600", "nan").encode(), "is no size"),
        (text_of([run_of()]).replace("l40s", "\\u001b[31m").encode(), "is no name"),
        (b"schema = 1\nx = " + b"[" * 100_000, "no TOML"),
        (b"# " + b"x" * (5 << 20), "it is larger than 4 MiB"),
    ],
    ids=lambda one: one[:20].decode("latin1") if isinstance(one, bytes) else "",
)  # fmt: skip
def test_a_broken_or_foreign_file_is_one_line(tmp_path, capsys, content, why):
    path = tmp_path / "site.toml"
    path.write_bytes(content)
    command = ["estimate", "gpt2", "--task", "load"]
    for words in ([*command, "--site", str(path)], ["calibrate", "--site", str(path)]):
        assert main(words) == 2
        complaint = capsys.readouterr().err
        assert complaint.count("\n") == 1
        assert len(complaint) < 500
        assert why in complaint
        assert "--no-site" in complaint
        assert "\x1b" not in complaint
    assert main([*command, "--no-site"]) == 0
    assert main(["compare", vllm_log(tmp_path), "--gpu", "l40s", "--calibrate", "--site", str(path)]) == 2
    assert path.read_bytes() == content


def test_a_named_file_that_is_not_there_is_said(tmp_path, capsys):
    assert main(["estimate", "gpt2", "--task", "load", "--site", str(tmp_path / "none.toml")]) == 4
    assert "none.toml" in capsys.readouterr().err
    with pytest.raises(SourceError):
        estimated(str(tmp_path))


def test_contradicting_flags_are_refused(tmp_path, site, capsys):
    for words in (["--no-site", "--site", site], ["--no-site", "--calibrate"], ["--calibrate"]):
        assert main(["compare", vllm_log(tmp_path), "--gpu", "l40s", *words]) == 2
    assert "VRAMWISE_SITE is empty" in capsys.readouterr().err


def test_processes_that_write_at_once_lose_nothing(site):
    program = (
        "import sys\nfrom vramwise.site.file import add_runs\nfrom vramwise.site.run import Run, Term\n"
        "first = int(sys.argv[2])\n"
        "for i in range(first, first + 12):\n"
        "    terms = (Term('context', 'torch', '2.8.0', 5.0, 1.0),)\n"
        "    add_runs(sys.argv[1], [Run(f'{i:012x}', 'measure', 'l4', terms)])\n"
    )
    with ThreadPoolExecutor(3) as pool:
        ends = pool.map(
            lambda i: subprocess.run([sys.executable, "-c", program, site, str(100 * i)]).returncode, range(3)
        )
        assert list(ends) == [0, 0, 0]
    assert len(read_site(site).runs) == 36
    assert os.listdir(os.path.dirname(site)) == ["site.toml"]


def test_a_lock_that_was_left_behind_is_taken_over(site):
    add_runs(site, [run_of()])
    lock = Path(f"{site}.lock")
    lock.touch()
    os.utime(lock, (1, 1))
    add_runs(site, [run_of(number=1)])
    assert len(read_site(site).runs) == 2
    assert not lock.exists()


def test_the_file_has_the_mode_that_the_user_gives_files(site):
    before = os.umask(0o027)
    try:
        add_runs(site, [run_of()])
    finally:
        os.umask(before)
    assert os.stat(site).st_mode & 0o777 == 0o640


def test_exported_cases_are_read_by_accuracy_and_name_nobody(tmp_path, site, capsys):
    home = tmp_path / "home" / "jane"
    (home / "models").mkdir(parents=True)
    config = {**vramwise.sources.resolve("llama-3.1-8b").config, "_name_or_path": "/home/jane/models/secret"}
    (home / "models" / "config.json").write_text(json.dumps(config))
    learn(vllm_log(tmp_path), site, "--model", str(home / "models"))
    out = tmp_path / "cases.jsonl"
    assert main(["calibrate", "export", "--site", site, "-o", str(out)]) == 0
    for text in (out.read_text(), Path(site).read_text()):
        assert "jane" not in text
        assert str(tmp_path) not in text
        assert os.uname().nodename not in text.replace("localhost", "")
    capsys.readouterr()
    assert main(["accuracy", str(out), "--json"]) == 0
    assert "non_torch" in capsys.readouterr().out


def test_pruning_keeps_the_newest_versions(site, capsys):
    add_runs(site, [run_of(number=0, version="0.10.1"), run_of(number=1), run_of(number=2)])
    assert main(["calibrate", "prune", "--old", "--site", site]) == 0
    assert "1 of 3 values pruned, 2 of 3 runs left" in capsys.readouterr().out
    assert main(["calibrate", "prune", "--run", "000000000001", "--site", site]) == 0
    assert [run.id for run in read_site(site).runs] == ["000000000002"]
    assert main(["calibrate", "prune", "--run", "nothing", "--site", site]) == 2
    assert main(["calibrate", "prune", "--site", site]) == 2
    assert main(["calibrate", "prune", "--all", "--site", site]) == 0
    assert read_site(site).runs == ()


def test_what_is_written_is_what_is_read(site):
    term = Term("context", "torch", "2.8.0+cu128", 5.5, 0.25, "of this", 3)
    model = {"model": 'it\'s "quoted" \\ é\x7f'}
    counters = {"peak_allocated": 3}
    run = Run("a" * 12, "measure", "l4", (term,), "2026-01-02", "570.86.15", "12.8", model, counters, counters)
    add_runs(site, [run])
    assert read_site(site).runs == (run,)


# -- what measure and watch teach ------------------------------------------------------------------------------

TRAIN = {
    "model": "gpt2",
    "task": "train",
    "gpu": "h100-sxm-80gb",
    "train": {"micro_batch_size": 8, "sequence_length": 1024},
}
FACTS = {
    "gpu": "NVIDIA H100 80GB HBM3", "gpu_total_bytes": 85_022_605_312, "driver": "570.86.15", "cuda": "12.8",
    "versions": {"torch": "2.8.0+cu128", "transformers": "4.55.0"},
}  # fmt: skip


def measured_run(slack=1.05, context=520 * MIB, processes=1, **changes):
    from vramwise.measure.learning import Counters, run_of_counters

    result, asked = terms_asked(Scenario.from_dict({**TRAIN, **changes}))
    allocated = int(result.quantities["peak_allocated"].expected)
    replayed = result.quantities["peak_reserved"].expected / asked["allocator_slack"].shipped[1]
    seen = Counters(
        allocated=allocated, reserved=round(replayed * slack), outside=context, context=400 * MIB,
        total=FACTS["gpu_total_bytes"], processes=processes,
    )  # fmt: skip
    return run_of_counters(seen, asked, result, FACTS, "measure", {**TRAIN})


def test_a_measured_run_teaches_context_and_allocator_slack(site):
    run, unlearned = measured_run()
    assert unlearned == ()
    assert {term.name: term.program for term in run.terms} == {"context": "torch", "allocator_slack": "transformers"}
    assert next(term.value for term in run.terms if term.name == "allocator_slack") == pytest.approx(1.05, rel=1e-6)
    add_runs(site, [run])
    before, after = (vramwise.estimate(TRAIN, site=which) for which in (None, site))
    ratio = after.quantities["peak_reserved"].expected / before.quantities["peak_reserved"].expected
    assert ratio == pytest.approx(1.05 / 1.02, rel=0.01)
    assert after.phases[-1].components.find("CUDA context").bytes == 520 * MIB
    assert {one["term"] for one in after.site} == {"context", "allocator_slack"}
    width = [one.quantities["peak_reserved"].high - one.quantities["peak_reserved"].low for one in (before, after)]
    assert width[1] < width[0]


def test_several_ranks_teach_nccl(site):
    run, _ = measured_run(processes=2, context=900 * MIB, num_gpus=2)
    assert [(term.name, term.value) for term in run.terms] == [("nccl", 500 * MIB)]
    add_runs(site, [run])
    after = vramwise.estimate({**TRAIN, "num_gpus": 2}, site=site)
    assert after.phases[-1].components.find("NCCL").bytes == 500 * MIB


def test_a_cpu_and_an_unknown_card_teach_nothing():
    from vramwise.measure.learning import Counters, run_of_counters

    nothing = Counters(allocated=1, reserved=1, outside=1, context=1, total=1, processes=1)
    result, asked = terms_asked(Scenario.from_dict(TRAIN))
    assert run_of_counters(nothing, asked, result, {}, "measure", {})[0] is None
    run, why = run_of_counters(nothing, asked, result, {"gpu": "Banana 9000"}, "measure", {})
    assert run is None
    assert "Banana 9000" in why[0]


def test_measure_on_a_cpu_says_that_it_taught_nothing(tmp_path, site, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    tiny = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "vocab_size": 64}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(tiny))
    words = ["measure", str(tmp_path), "--task", "train", "--sequence-length", "16", "--device", "cpu"]
    assert main([*words, "--calibrate", "--site", site]) == 0
    assert "nothing was learned" in (said := capsys.readouterr().out)
    assert "a CPU has neither a CUDA context nor a caching allocator" in said
    assert not os.path.exists(site)


def test_a_watch_keeps_what_its_counters_said(monkeypatch, site):
    torch = pytest.importorskip("torch")
    from vramwise.measure.recorder import Record

    class Meter:
        def open(self, label): ...
        def mark(self, label): ...
        def close(self):
            return [Record(label="step", start=0, end=0, peak=4 * GIB, reserved=5 * GIB)]

        def process(self):
            return 5 * GIB + 512 * MIB

    monkeypatch.setitem(vramwise.watch.__globals__, "meter_for", lambda *_: Meter())
    card = SimpleNamespace(name=FACTS["gpu"], total_memory=FACTS["gpu_total_bytes"])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    said = []
    with vramwise.watch(dict(TRAIN), device="cuda:0", log=said.append, calibrate=True, site=site) as watched:
        for _ in range(2):
            watched.step()
    terms = {term.name: term.value for _, term in read_site(site).all()}
    assert terms["context"] == 512 * MIB
    assert set(terms) == {"context", "allocator_slack"}
    assert any(
        line.startswith("calibrate: CUDA context and loaded kernels 512.00 MiB, allocator slack ×") for line in said
    )


def test_watch_on_the_command_line_needs_a_gpu_to_calibrate(site, capsys):
    pytest.importorskip("torch")
    if importlib.import_module("torch").cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["watch", "--calibrate", "--site", site, "--count", "1"]) == 1
    assert "no GPU" in capsys.readouterr().err


def test_without_a_site_file_calibrate_says_how_to_begin(site, capsys):
    assert main(["calibrate", "--site", site]) == 0
    assert "nothing yet" in " ".join(capsys.readouterr().out.split())  # a long path wraps the line
    assert main(["calibrate", "export", "--site", site]) == 0
    assert capsys.readouterr().out == ""
    with pytest.raises(UsageError):
        file_to_write(None)


def test_measure_keeps_what_each_repeat_showed(tmp_path, monkeypatch, site, capsys):
    """A card's reports as a process sends them, through the command into the file and the next estimate."""
    from vramwise.measure import launch
    from vramwise.measure.job import Report

    scenario = {**TRAIN, "gpu_total_bytes": FACTS["gpu_total_bytes"]}
    peak = int(vramwise.estimate(scenario).quantities["peak_allocated"].expected)
    contexts = iter((500 * MIB, 504 * MIB, 502 * MIB))

    def report(*_):
        row = {"start": 0, "end": 0, "peak": peak, "reserved": round(1.1 * peak)}
        records = tuple({**row, "label": f"{step}|{name}"} for step in (1, 2, 3) for name in ("forward", "backward"))
        outside = next(contexts)
        facts = {**FACTS, "context_bytes": 400 * MIB, "process_bytes": row["reserved"] + outside}
        return [Report(records=records, finished_steps=3, facts=facts | {"reserved_at_end_bytes": row["reserved"]})]

    card = {"name": FACTS["gpu"], "total_bytes": FACTS["gpu_total_bytes"]}
    monkeypatch.setattr(launch, "devices", lambda: {"gpus": [card]})
    monkeypatch.setattr(launch, "run_job", report)
    sizes = ["--micro-batch-size", "8", "--sequence-length", "1024"]
    words = ["measure", "gpt2", "--task", "train", *sizes, "--repeats", "3", "--calibrate", "--site", site]
    assert main(words) == 0
    assert "CUDA context and loaded kernels 502.00 MiB, run 3 of its kind" in capsys.readouterr().out
    kept = read_site(site)
    assert len(kept.runs) == 3
    assert {term.name for _, term in kept.all()} == {"context", "allocator_slack"}
    assert {(run.driver, run.cuda) for run in kept.runs} == {("570.86.15", "12.8")}
    result = vramwise.estimate(TRAIN, site=site)
    context = result.phases[-1].components.find("CUDA context")
    assert (context.bytes, context.formula) == (502 * MIB, "calibrated here: 3 runs")
    assert context.high - context.low < 20 * MIB
