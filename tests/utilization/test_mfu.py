"""FLOPs by blocks and by convention, against published figures that each of them must reproduce."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main
from vramwise.estimation import described_model
from vramwise.models.execution import Lora
from vramwise.models.flops import step_flops
from vramwise.training.recipe.adapters import target_paths
from vramwise.utilization.conventions import Sizes, convention
from vramwise.utilization.published import comparable_runs, inference_runs, training_runs
from vramwise.utilization.roofline import decode_bound, published_band
from vramwise.utilization.throughput import from_examples, from_step, from_tokens, utilization_pct

PER_RUN = [run for run in training_runs() if run.tokens_per_s_per_gpu and run.mfu_pct]


def sizes_of(run) -> Sizes:
    return Sizes(run.num_parameters, run.embedding_parameters, run.num_hidden_layers, run.hidden_size,
                 run.attention_width, run.vocab_size, run.embedding_parameters)  # fmt: skip


def pct(run, name: str) -> float:
    tflops = run.tokens_per_s_per_gpu * convention(name).per_token(sizes_of(run), run.sequence_length) / 1e12
    return utilization_pct(tflops, run.peak_tflops)


def test_many_published_runs_are_there():
    assert len(training_runs()) >= 170
    assert len(PER_RUN) >= 130
    assert all(run.source for run in (*training_runs(), *inference_runs()))


def test_palm_reproduces_llm_foundry():
    runs = [run for run in PER_RUN if run.source.startswith("mosaicml")]
    assert len(runs) == 130
    for run in runs:
        assert pct(run, "palm") == pytest.approx(run.mfu_pct, abs=0.012), run.id
        if run.recompute == "full":
            assert run.hfu_pct == pytest.approx(run.mfu_pct * 4 / 3, abs=0.02), run.id


@pytest.mark.parametrize(
    ("run_id", "name", "tolerance"),
    [("palm-540B", "palm", 0.05), ("tinyllama-1.1b", "titan", 0.5), ("nanogpt-sizing-124m", "nanogpt", 0.05),
     ("korthikanti-22B", "megatron", 0.2), ("korthikanti-175B", "megatron", 0.2), ("korthikanti-530B", "megatron", 0.2),
     ("korthikanti-1T", "megatron", 0.2)],
)  # fmt: skip
def test_conventions_reproduce_what_used_them(run_id, name, tolerance):
    run = next(run for run in training_runs() if run.id == run_id)
    assert pct(run, name) == pytest.approx(run.mfu_pct, abs=tolerance)


def test_korthikanti_hardware_formula():
    for run in training_runs():
        if run.id.startswith("korthikanti"):
            assert pct(run, "korthikanti-hardware") == pytest.approx(run.hfu_pct, abs=0.15), run.id


def test_sc21_percent_of_peak_is_hardware_utilization():
    runs = [run for run in training_runs() if run.id.startswith("megatron-sc21")]
    assert len(runs) == 10
    for run in runs:
        assert utilization_pct(run.tflops_per_gpu, run.peak_tflops) == pytest.approx(run.hfu_pct, abs=0.51)


@pytest.mark.parametrize("name", ["sft", "lora"])
def test_fine_tuning_formulas(name):
    runs = [run for run in training_runs() if run.convention == name]
    assert len(runs) == 3
    for run in runs:
        tflops = run.tokens_per_s_per_gpu * convention(name).per_token(sizes_of(run), run.sequence_length) / 1e12
        assert tflops == pytest.approx(run.tflops_per_gpu, rel=0.011)


def test_gpt2_has_nanogpts_exact_count():
    _, model = described_model("gpt2")
    flops = step_flops(model, 1, 1024).model()
    assert flops == 874_944_921_600  # nanoGPT's transformer_sizing notebook
    run = next(run for run in training_runs() if run.id == "nanogpt-sizing-124m")
    tflops = run.tokens_per_s_per_gpu * flops / 1024 / 1e12
    assert utilization_pct(tflops, run.peak_tflops) == pytest.approx(run.mfu_pct, abs=0.005)


def test_recomputation_repeats_the_layers():
    _, model = described_model("llama-3.1-8b")
    flops = step_flops(model, 2, 4096)
    heads = 2 * 2 * 4096 * 4096 * 128256  # two sequences' logits
    assert flops.hardware("full") - flops.model() == flops.forward - heads
    assert flops.hardware("selective") - flops.model() == flops.attention_forward == 2 * 4 * 32 * 4096 * 4096**2
    assert flops.model("full") == 3 * flops.forward  # every weight trains: backward is twice forward
    hidden = 3 * flops.attention_forward * 4095 // (2 * 4096)
    assert flops.model("causal") == flops.model() - hidden


def test_lora_needs_no_gradient_of_frozen_weights():
    _, model = described_model("llama-3.1-8b")
    full = step_flops(model, 1, 2048)
    lora = step_flops(model, 1, 2048, Lora(8, target_paths(model, "all-linear")))
    products = full.forward - full.attention_forward
    assert 0.60 < (lora.model() - full.attention_forward * 3) / (3 * products) < 0.70  # two products of three


def test_mixture_counts_the_chosen_experts():
    _, model = described_model("mixtral-8x7b")
    per_token = step_flops(model, 1, 2048).model() / 2048
    assert 6 * model.num_active_parameters < per_token < 6.5 * model.num_active_parameters


def test_throughput_from_what_trainers_print():
    assert from_examples(3, 2048, 4).tokens_per_s_per_gpu == 1536
    assert from_step(2.0, 8, 1000, 4).tokens_per_s_per_gpu == 1000
    assert from_tokens(8000, 8).tokens_per_s_per_gpu == 1000
    assert from_tokens(8000, 8).tflops(48e9) == 48  # 1,000 tokens/s of 48e9 FLOPs each


def test_every_tflops_of_the_command_is_tokens_times_flops(capsys):
    arguments = ["mfu", "gpt2", "--tokens-per-second", "8000", "--gpu", "a100-sxm-80gb", "-n", "8", "--json"]
    assert main([*arguments, "--recompute", "full"]) == 0
    found = json.loads(capsys.readouterr().out)
    rate = found["tokens_per_s_per_gpu"]
    assert rate == 1000
    assert found["tflops_per_gpu"] == pytest.approx(rate * found["flops_per_token"] / 1e12)
    assert found["hardware_tflops_per_gpu"] == pytest.approx(rate * found["hardware_flops_per_token"] / 1e12)
    assert found["hardware_flops_per_token"] > found["flops_per_token"]
    for one in found["conventions"]:
        assert one["tflops_per_gpu"] == pytest.approx(rate * one["flops_per_token"] / 1e12)


@pytest.mark.parametrize("run", [run for run in inference_runs() if run.kind == "decode"], ids=lambda run: run.id)
def test_published_decoding_stays_below_the_ceiling(run):
    bound = decode_bound(run.weight_bytes, 0, run.bandwidth_gb_s, run.num_gpus)
    assert 0.2 < bound.fraction(run.tokens_per_s) < 0.8


def test_published_bands():
    low, high, runs = published_band("decode", 1)
    assert (round(low, 2), round(high, 2), runs) == (0.40, 0.69, 7)


def test_many_sequences_hit_the_matrix_rate():
    assert decode_bound(10**9, 0, 1000, batch=10**6, flops_per_token=1e9, peak_tflops=100).limit == "matrix rate"


def test_comparable_runs_are_near():
    for run in comparable_runs(8_030_261_248, 8192, "h100-sxm-80gb", "bf16"):
        assert run.dtype == "bf16"
        assert 4096 <= run.sequence_length <= 16384
        assert 5.9e9 < run.num_parameters < 10.9e9


def answer(capsys, *arguments):
    assert main(["mfu", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_document_flops_ratio(capsys):
    assert round(answer(capsys, "--tflops", "100", "--gpu", "a100")["utilization_pct"], 2) == 32.05


def test_document_throughput_ratio(capsys):
    said = answer(capsys, "--examples-per-second", "3", "--sequence-length", "2048", "-n", "4", "--reference", "3300")
    assert said["tokens_per_s_per_gpu"] == 1536
    assert said["reference"]["pct"] == pytest.approx(46.545, abs=0.001)


def test_torchtitans_own_percentage(capsys):
    said = answer(capsys, "llama-3.1-8b", "--tokens-per-second-per-gpu", "5762", "--sequence-length", "8192",
                  "--gpu", "h100-sxm-80gb", "-n", "8")  # fmt: skip
    assert said["mfu_pct"] == pytest.approx(33.73, abs=0.02)
    assert {row["name"] for row in said["conventions"]} > {"palm", "titan", "megatron"}
    assert said["published"][0]["sequence_length"] == 8192


def test_decode_screen(capsys):
    assert (
        main(["mfu", "llama-2-7b", "--task", "decode", "--gpu", "a100-sxm-80gb", "--tokens-per-second", "104.9"]) == 0
    )
    printed = capsys.readouterr().out
    assert "154.3 tokens/s" in printed
    assert "68.0 % of the ceiling" in printed


def test_screen_names_what_was_chosen(capsys):
    assert main(["mfu", "mixtral-8x7b", "--step-time", "2", "--global-batch-size", "64", "--gpu", "h100-sxm-80gb",
                 "-n", "8", "--recompute", "full", "--attention", "causal"]) == 0  # fmt: skip
    printed = capsys.readouterr().out
    for words in ("MFU", "HFU", "active", "every layer recomputed", "a causal mask hides left out", "12 L H Q s"):
        assert words in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "how fast did it run"),
        (["--tflops", "100"], "a share of which peak"),
        (["--tflops", "0", "--gpu", "a100"], "expected a number > 0"),
        (["--tflops", "5", "--tokens-per-second", "5"], "both say how fast"),
        (["--step-time", "5", "--gpu", "a100"], "needs --global-batch-size"),
        (["--tokens-per-second", "5", "--gpu", "a100"], "MFU needs the model's FLOPs"),
        (["--tflops", "100", "--gpu", "v100", "--dtype", "fp8"], "no known fp8 rate"),
        (["--task", "decode"], "needs MODEL and --gpu"),
        (["--tflops", "100", "--gpu", "a101"], "unknown GPU"),
    ],
)
def test_refusals(capsys, arguments, said):
    assert main(["mfu", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


SUMMARY = """
[2026-01-01 00:00:00,000] [INFO] [profiler.py:1] step 1
-------------------------- DeepSpeed Flops Profiler --------------------------
Profile Summary at step 1:
world size:                                                   8
batch size per GPU:                                           2
params per GPU:                                               124.44 M
params of model = params per GPU * mp_size:                   124.44 M
fwd MACs per GPU:                                             280.00 GMACs
fwd flops per GPU:                                            560.00 G
fwd flops of model = fwd flops per GPU * mp_size:             560.00 G
fwd latency:                                                  10.5 ms
fwd FLOPS per GPU = fwd flops per GPU / fwd latency:          53.33 TFLOPS
bwd latency:                                                  20 ms
step latency:                                                 500 us
iter latency:                                                 31 ms
FLOPS per GPU = 3 * fwd flops per GPU / iter latency:         54.19 TFLOPS
samples/second:                                               516.13
"""


def test_deepspeeds_summary(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_text(SUMMARY)
    said = answer(
        capsys, "gpt2", "--deepspeed-output", str(path), "--gpu", "a100-sxm-40gb", "--sequence-length", "1024"
    )
    assert said["tflops_per_gpu"] == pytest.approx(54.19, abs=0.01)
    assert said["utilization_pct"] == pytest.approx(17.37, abs=0.01)
    profile = said["deepspeed"]
    assert (profile["forward_s"], profile["step_s"], profile["num_parameters_per_gpu"]) == (0.0105, 0.0005, 124.44e6)
    assert profile["forward_flops_by_blocks"] == 2 * 874_944_921_600 // 3
    assert profile["counted_pct"] == pytest.approx(96.0, abs=0.1)
    assert main(["mfu", "gpt2", "--deepspeed-output", str(path), "--gpu", "a100-sxm-40gb"]) == 0
    assert "beware" in capsys.readouterr().out


def test_a_log_without_a_summary(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_text("iter latency: 31 ms\n")
    assert main(["mfu", "--deepspeed-output", str(path), "--gpu", "a100"]) == 4
    assert "no summary of DeepSpeed" in capsys.readouterr().err


def test_deepspeeds_configuration(capsys):
    assert main(["mfu", "--deepspeed-config"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "flops_profiler": {"enabled": True, "profile_step": 1, "module_depth": -1, "top_modules": 1,
                           "detailed": True, "output_file": None}
    }  # fmt: skip


def test_peak_needs_a_gpu(capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["mfu", "--measure-peak"]) == 1
    assert "no GPU" in capsys.readouterr().err
    assert main(["mfu", "--measure-peak", "--dtype", "fp8"]) == 2


@pytest.mark.parametrize(
    "model", ["RWKV/rwkv-4-7b-pile", "facebook/xglm-564M", "state-spaces/mamba-130m-hf", "t5-small"]
)
def test_models_without_attention_or_of_other_names(capsys, model):
    said = answer(capsys, model, "--tokens-per-second", "1000", "--gpu", "h100-sxm-80gb")
    assert 0 < said["mfu_pct"] < 100
    palm = next(row for row in said["conventions"] if row["name"] == "palm")
    assert 0.5 < palm["flops_per_token"] / said["flops_per_token"] < 2


def test_the_peak_of_a_processor_is_measured(monkeypatch, capsys):
    """The code that a GPU runs but for its clock, on shapes that take milliseconds."""
    pytest.importorskip("torch")
    from vramwise.utilization import peak

    monkeypatch.setitem(peak.SIDES, "cpu", (32, 64))
    monkeypatch.setitem(peak.INNER, "cpu", (64,))
    assert main(["mfu", "--measure-peak", "--device", "cpu", "--dtype", "fp32", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["shapes"], answer["dtype"], answer["shape"][2]) == (2, "fp32", 64)
    assert 0 < answer["tflops"] < 100
    assert main(["mfu", "--measure-peak", "--device", "cpu", "--dtype", "fp32"]) == 0
    assert "--peak-tflops" in capsys.readouterr().out


def test_the_gpu_clock_of_the_peak(monkeypatch):
    """The sweep on a stand-in for torch whose events say that each product took 1 ms."""
    from types import SimpleNamespace

    from vramwise.utilization import peak

    class Event:
        times = iter(range(10_000))

        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(self.times)

        def elapsed_time(self, other):
            return other.at - self.at

    tensor = SimpleNamespace(to=lambda kind: tensor)
    torch = SimpleNamespace(
        randn=lambda *_, device: tensor, empty=lambda *_, device, dtype: tensor, matmul=lambda *_, out: None,
        bfloat16="bf16", backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace())),
        cuda=SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "stand-in", Event=Event,
                             synchronize=lambda: None),
    )  # fmt: skip
    monkeypatch.setattr(peak, "import_module", lambda _: torch)
    answer = peak.measured_peak("bf16")
    assert (answer["gpu"], answer["shape"], answer["shapes"]) == ("stand-in", (16384, 16384, 8192), 14)
    assert answer["tflops"] == pytest.approx(2 * 16384 * 16384 * 8192 / 1e-3 / 1e12)
