"""`vramwise dry-run`: the real class beside the estimate, byte by byte where it can be, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramwise import Scenario
from vramwise.cli.main import main
from vramwise.measure import snapshot_from_pickle, timeline_of

pytest.importorskip("torch")
pytest.importorskip("transformers")

from vramwise.dryrun.scenario import dry_runs

CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512,
    "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
SIZES = {"micro_batch_size": 4, "sequence_length": 512}
JOBS = {
    "full": ("train", {"precision": "bf16", "optimizer_impl": "foreach", **SIZES}),
    "mixed": ("train", {"precision": "bf16-mixed", "checkpointing": "full", "gradient_accumulation_steps": 2, **SIZES}),
    "scaled": ("train", {"precision": "fp16-mixed", "attention": "eager", **SIZES}),
    "adapters": ("train", {"precision": "bf16", "method": "lora", "lora_rank": 4, **SIZES}),
    "adapters everywhere": (
        "train",
        {"precision": "bf16", "method": "lora", "lora_rank": 4, "lora_targets": ["all-linear"], **SIZES},
    ),
    "a plain loop": ("train", {"framework": "pytorch", "precision": "bf16", "optimizer_impl": "foreach", **SIZES}),
    "generate": ("generate", {"prompt_tokens": 300, "new_tokens": 40, "batch_size": 2}),
    "load": ("load", {"dtype": "bf16"}),
}
ROWS = Path(__file__).parents[1] / "oracles" / "traced_moments.jsonl"
TRACED = "train/qwen3-30b-a3b-4layers/lora-r8-q+v/bf16/adamw-foreach/ckpt-full/sdpa/b1/s2048"
OF_TRACE = {
    "forward_peak": "forward", "loss_peak": "loss", "backward_head_peak": "backward: head",
    "backward_layers_peak": "backward: layers", "clip_peak": "clipping", "optimizer_step_peak": "optimizer step",
}  # fmt: skip


NEO = {
    "model_type": "gpt_neo", "hidden_size": 256, "num_layers": 2, "num_heads": 4, "vocab_size": 1024,
    "attention_types": [[["global", "local"], 1]], "window_size": 64, "max_position_embeddings": 512,
}  # fmt: skip
TIED = CONFIG | {"tie_word_embeddings": True, "vocab_size": 8192}


def scenario_of(task, settings, model=CONFIG):
    return Scenario.from_dict(
        {"model": model, "task": task, "gpu": "a100-sxm-80gb", "serve" if task == "load" else task: settings}
    )


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Every job and a recorded trace, run in one process of its own."""
    rows = map(json.loads, ROWS.read_text("utf-8").splitlines())
    row = next(row for row in rows if row["id"] == TRACED)
    scenarios = [scenario_of(*job) for job in JOBS.values()]
    tied = scenario_of("train", {"precision": "bf16-mixed", "micro_batch_size": 1, "sequence_length": 32}, TIED)
    again = scenario_of("train", {"precision": "bf16", "checkpointing": "full", **SIZES}, NEO)
    found = list(dry_runs([*scenarios, tied, again, Scenario.from_dict(row["scenario"])]))
    return dict(zip([*JOBS, "tied", "again", "traced"], found, strict=True)), row


def tensors(phase):
    """Bytes of a moment's tensors alone."""
    beside = {"library workspace", "CUDA context", "unsplit remainders"}
    return sum(node.bytes for node in phase.components.children if node.name not in beside)


def test_a_recorded_trace_is_met_but_for_one_scalar(answered):
    (result, _), row = answered[0]["traced"], answered[1]
    moments = {phase.name: tensors(phase) for phase in result.phases}
    for name, ours in OF_TRACE.items():
        assert 0 <= moments[ours] - row["moments_tensors"][name] <= 512  # the loss divided by its micro-batches


@pytest.mark.parametrize("name", [name for name in JOBS if name not in ("generate", "load")])
def test_the_real_class_agrees_with_the_estimate(answered, name):
    """But for what is held for an instant while forward runs, which a tiny model shows (docs/dry-run.md)."""
    result, estimated = answered[0][name]
    of_estimate = {phase.name: tensors(phase) for phase in estimated.phases}
    assert result.peak_phase == max(estimated.phases, key=lambda phase: phase.bytes).name
    for phase in result.phases:
        if phase.name in of_estimate and phase.name not in ("forward", "forward return"):
            assert tensors(phase) == pytest.approx(of_estimate[phase.name], rel=0.005, abs=4096), phase.name
    assert result.model.num_parameters == estimated.model.num_parameters + (
        result.model.num_trainable_parameters if name.startswith("adapters") else 0
    )


def test_the_engine_adds_a_tied_weights_gradients_in_place(answered):
    """torch/csrc/autograd/input_buffer.cpp `accumulate`: two gradients of the table, not their sum as a third."""
    result, estimated = answered[0]["tied"]
    ours, theirs = ({phase.name: tensors(phase) for phase in one.phases} for one in (estimated, result))
    for moment in ("backward: layers", "first step"):
        assert theirs[moment] == pytest.approx(ours[moment], rel=0.005), moment


def test_a_layer_that_runs_again_makes_tensors_of_numbers(answered):
    """modeling_gpt_neo.py `torch.tensor(mask_value, device=...)`, on the engine's own thread."""
    result, estimated = answered[0]["again"]
    held = [max(tensors(phase) for phase in one.phases) for one in (result, estimated)]
    assert held[0] == pytest.approx(held[1], rel=0.01)


def test_the_estimates_terms_have_their_names(answered):
    result, estimated = answered[0]["full"]
    for moment in ("forward end", "backward: head", "optimizer step"):
        own, other = (
            next(phase.components for phase in one.phases if phase.name == moment) for one in (result, estimated)
        )
        for term in ("weights", "optimizer states", "gradients", "inputs", "activations", "logits and loss"):
            sizes = [node.bytes if (node := tree.find(term)) else 0 for tree in (own, other)]
            assert sizes[0] == pytest.approx(sizes[1], rel=0.01, abs=4096), (moment, term)


def test_every_part_says_who_allocated_it(answered):
    result, _ = answered[0]["full"]
    step = next(phase.components for phase in result.phases if phase.name == "forward end")
    parts = {part.name: part for part in step.find("activations").children}
    assert parts["model.layers.*.mlp.gate_proj mm"].inputs == {"count": 3}
    assert "transformers/models/llama/modeling_llama.py:" in parts["model.layers.*.mlp.gate_proj mm"].source


def test_memory_is_what_the_allocator_would_hold(answered):
    for name in JOBS:
        result, _ = answered[0][name]
        peak = result.quantities["peak_allocated"].expected
        assert peak <= result.quantities["peak_reserved"].expected
        assert result.quantities["total_needed"].low <= peak + result.phases[0].components.find("CUDA context").bytes
        assert result.verdict.fits


def test_generation_has_its_cache_and_loading_its_weights(answered):
    result, estimated = answered[0]["generate"]
    assert result.quantities["kv_cache_bytes"].expected == 2 * 3 * 2 * 2 * 32 * (300 + 39) * 2
    assert [phase.name for phase in result.phases] == ["load", "prefill", "decode"]
    result, estimated = answered[0]["load"]
    assert result.quantities["weights"].expected == pytest.approx(estimated.quantities["weights"].expected, rel=1e-3)


@pytest.mark.usefixtures("warm")
def test_the_command_prints_an_estimates_screen_and_writes_its_files(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    words = ["dry-run", str(tmp_path), "--task", "train", "--precision", "bf16", "--sequence-length", "64"]
    files = ["--out", str(tmp_path / "s.pickle"), "--flame", str(tmp_path / "peak.svg")]
    assert main([*words, "--gpu-total-bytes", "64MiB", *files]) == 3
    screen = capsys.readouterr().out
    assert "DOES NOT FIT" in screen
    assert "who allocated the peak" in screen
    assert timeline_of(snapshot_from_pickle((tmp_path / "s.pickle").read_bytes()), 0).peak > 2**22
    assert (tmp_path / "peak.svg").read_text("utf-8").startswith("<svg")


@pytest.mark.usefixtures("warm")
def test_a_sweep_shows_the_line_through_the_peaks(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    words = ["--task", "train", "--precision", "bf16", "--sweep", "micro_batch_size=2,4", "sequence_length=256..512"]
    assert main(["dry-run", str(tmp_path), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["sizes"]["micro_batch_size"] for run in found["runs"]] == [2, 2, 4, 4]
    assert found["fit"]["r_squared"] > 0.99
    assert found["stopped"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "serve"], "dry-run runs --task train, generate, load, not serve"),
        (["--task", "train", "--num-gpus", "2"], "on one GPU"),
        (["--task", "train", "--method", "qlora"], "bitsandbytes"),
        (["--task", "train", "--compile"], "torch.compile"),
        (["--task", "train", "--optimizer", "muon"], "is not something that dry-run runs"),
        (["--task", "train", "--sweep", "micro_batch_size=1", "--out", "x"], "leave out --out"),
        (["--task", "train", "--out", "/nowhere/x.pickle"], "the folder is not there"),
        (["--task", "train", "--timeout", "soon"], "--timeout"),
    ],
)
def test_what_it_does_not_run_is_one_line(words, said, capsys):
    assert main(["dry-run", "llama-3.2-1b", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_without_torch_one_sentence_says_what_installs_it(monkeypatch, capsys):
    monkeypatch.setattr("vramwise.dryrun.launch.is_installed", lambda name: False)
    assert main(["dry-run", "llama-3.2-1b", "--task", "train"]) == 1
    assert "pip install 'vramwise[torch]'" in capsys.readouterr().err
