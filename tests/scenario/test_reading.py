from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import ScenarioError
from vramwise.scenario import Scenario
from vramwise.scenario.definition import DEFAULTS, KINDS, TABLES
from vramwise.scenario.values import Choice, Fraction

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"


def train(**table):
    return {"model": "m", "task": "train", "train": table}


def serve(**table):
    return {"model": "m", "task": "serve", "serve": table}


def problem_of(data):
    with pytest.raises(ScenarioError) as caught:
        Scenario.from_dict(data)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


def test_model_and_task_are_enough():
    scenario = Scenario.from_dict({"model": "gpt2", "task": "train"})
    assert scenario.train.framework == "transformers"
    assert scenario.train.precision == "bf16-mixed"
    assert scenario.train.micro_batch_size == 1
    assert scenario.train.sequence_length is None
    assert (scenario.num_gpus, scenario.gpus_per_node, scenario.gpu) == (1, 8, None)
    assert scenario.train.explicit == frozenset()


def test_the_first_name_of_a_choice_is_its_default():
    for cls, kinds in KINDS.items():
        for key, kind in kinds.items():
            names = getattr(kind, "names", None)
            if names and not kind.optional and key != "task":
                expected = "fp32" if key == "lora_dtype" else names[0]
                assert DEFAULTS[cls][key] == expected, key


def test_every_default_is_a_value_that_its_kind_reads():
    for cls, kinds in KINDS.items():
        for key, kind in kinds.items():
            default = DEFAULTS[cls][key]
            if default is None:
                assert kind.optional, key
            elif key not in ("model", "task"):
                assert kind.read(default, key) == default


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (train(micro_batch_size="two"), 'train.micro_batch_size: expected a whole number ≥ 1, got "two"'),
        (train(micro_batch_size=0), "train.micro_batch_size: expected a whole number ≥ 1, got 0"),
        (train(micro_batch_size=-4), "train.micro_batch_size: expected a whole number ≥ 1, got -4"),
        (train(micro_batch_size=True), "train.micro_batch_size: expected a whole number ≥ 1, got true"),
        (train(micro_batch_size=4.0), "train.micro_batch_size: expected a whole number ≥ 1, got 4.0"),
        (train(micro_batch_size=None), "train.micro_batch_size: expected a whole number ≥ 1, got null"),
        (
            train(sequence_length=10**30),
            "train.sequence_length: expected a whole number below 2^53, got a number of 31 digits",
        ),
        (
            train(sequence_length=10**4000),
            "train.sequence_length: expected a whole number below 2^53, got a huge number",
        ),
        (train(zero_stage=4), "train.zero_stage: expected a whole number ≤ 3, got 4"),
        (train(packing=1), "train.packing: expected true or false, got 1"),
        (train(packing="yes"), 'train.packing: expected true or false, got "yes"'),
        (train(lora_dropout=1), "train.lora_dropout: expected a number ≥ 0 and < 1, got 1"),
        (
            serve(gpu_memory_utilization=90),
            "serve.gpu_memory_utilization: expected a number > 0 and ≤ 1, got 90: did you mean 0.9?",
        ),
        (
            serve(gpu_memory_utilization=float("nan")),
            "serve.gpu_memory_utilization: expected a number > 0 and ≤ 1, got NaN",
        ),
        (
            train(checkpointing="ful"),
            'train.checkpointing: expected one of none, full, selective; got "ful": did you mean full?',
        ),
        (train(checkpointing=True), "train.checkpointing: expected one of none, full, selective; got true"),
        (
            train(mico_batch_size=1),
            "train.mico_batch_size: unknown key: did you mean micro_batch_size, num_microbatches?",
        ),
        (train(num_gpus=2), "train.num_gpus: belongs to the top of the scenario: num_gpus"),
        (train(n_ctx=2), "train.n_ctx: belongs to the task serve, not to train: here it is sequence_length"),
        (
            {"model": "m", "task": "train", "zero_stage": 3},
            "zero_stage: belongs into the table of the task: train.zero_stage",
        ),
        ({"model": "m", "task": "train", "num_gpu": 3}, "num_gpu: unknown key: did you mean num_gpus?"),
        ({"model": "m", "tsk": "train"}, "tsk: unknown key: did you mean task?"),
        ({"model": "m"}, "task: is missing: expected one of train, serve, generate, load"),
        ({"task": "load"}, "model: is missing: expected a model's name, URL, path or table"),
        ({"model": {}, "task": "load"}, "model: the table is empty: expected the keys of a config.json"),
        (
            {"model": "m", "task": "tarin"},
            'task: expected one of train, serve, generate, load; got "tarin": did you mean train?',
        ),
        (
            {"model": "m", "task": "train", "serve": {}},
            "serve: this table belongs to the task serve or load, but the task is train",
        ),
        ({"model": "m", "task": "train", "train": [1]}, "train: expected a table, got a list"),
        (serve(engine_version=0.1), "serve.engine_version: expected text (write it in quotes), got 0.1"),
        (
            train(kernels="liger,zzz"),
            "train.kernels[1]: expected one of liger, unsloth, fms, transformer-engine, apex, xielu, axolotl, "
            'flash-linear-attention, causal-conv1d; got "zzz"',
        ),
        (train(kernels=7), "train.kernels: expected a list, got 7"),
        (train(lora_targets=7, method="lora"), 'train.lora_targets: expected a list or "all-linear", got 7'),
        (serve(limit_mm_per_prompt="x"), 'serve.limit_mm_per_prompt: expected a table, got "x"'),
        (
            serve(limit_mm_per_prompt={"image": -1}),
            "serve.limit_mm_per_prompt.image: expected a whole number ≥ 0, got -1",
        ),
        (serve(speculative={"tokens": 1}), "serve.speculative.tokens: unknown key: did you mean num_tokens?"),
        (
            {"model": "m", "task": "load", "gpu_total_bytes": "80G"},
            'gpu_total_bytes: "80G" is ambiguous: write "80 GB" (powers of 1000) or "80 GiB" (powers of 2)',
        ),
        (
            {"model": "m", "task": "load", "gpu_total_bytes": 0},
            'gpu_total_bytes: expected a number of bytes or a size such as "80 GiB", got 0',
        ),
        (
            {"model": "m\0", "task": "load"},
            'model: expected a model\'s name, URL or path, or a table that holds a config.json, got "m\\u0000"',
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_path(data, message):
    assert problem_of(data) == message


@pytest.mark.parametrize("data", [None, [], 3, "text"])
def test_a_scenario_is_a_table(data):
    assert problem_of(data).startswith("expected a table with a model and a task")


@pytest.mark.parametrize(
    ("data", "key", "value"),
    [
        (train(param_dtype="bfloat16"), "param_dtype", "bf16"),
        (train(param_dtype="Float16"), "param_dtype", "fp16"),
        (train(fsdp="FULL_SHARD"), "fsdp", "full-shard"),
        (train(optimizer="adamw_8bit"), "optimizer", "adamw-8bit"),
        (train(attention="flash_attention_2"), "attention", "flash"),
        (train(pipeline_schedule="Interleaved1F1B"), "pipeline_schedule", "interleaved-1f1b"),
        (train(framework="LLaMA Factory"), "framework", "llamafactory"),
        (train(kernels="liger, fms"), "kernels", ("liger", "fms")),
        (train(recompute="core_attn"), "recompute", ("core_attn",)),
        (train(method="lora", lora_targets="q_proj,v_proj"), "lora_targets", ("q_proj", "v_proj")),
        (train(method="lora", lora_targets="all-linear"), "lora_targets", "all-linear"),
        (serve(kv_cache_dtype="fp8"), "kv_cache_dtype", "fp8_e4m3"),
        (serve(dtype="half"), "dtype", "fp16"),
        (serve(engine="llama-cpp", gguf_quant="q4_k_m"), "gguf_quant", "Q4_K_M"),
        (serve(engine="llama.cpp", override_tensor="a,b=CPU"), "override_tensor", ("a,b=CPU",)),
        (serve(kv_cache_memory_bytes="8 GiB"), "kv_cache_memory_bytes", 8 * 2**30),
        (serve(quantization="none"), "quantization", None),
        (serve(max_model_len=None), "max_model_len", None),
    ],
)
def test_other_spellings_are_read(data, key, value):
    assert getattr(Scenario.from_dict(data).settings, key) == value


def test_a_fraction_may_be_an_end_of_its_range_where_that_is_no_nonsense():
    fractions = [kind for kinds in KINDS.values() for kind in kinds.values() if isinstance(kind, Fraction)]
    assert fractions
    for kind in fractions:
        for end, is_left_out in ((0, kind.above_zero), (1, kind.below_one)):
            if is_left_out:
                with pytest.raises(ScenarioError):
                    kind.read(end, "key")
            else:
                assert kind.read(end, "key") == end


def test_null_leaves_open_what_may_be_open():
    scenario = Scenario.from_dict({"model": "m", "task": "load", "gpu": None, "gpu_total_bytes": None})
    assert (scenario.gpu, scenario.gpu_total_bytes, scenario.explicit) == (None, None, {"model", "task"})
    assert problem_of({"model": "m", "task": "load", "num_gpus": None}).startswith("num_gpus: expected a whole number")


def test_an_engine_may_take_the_whole_card():
    assert Scenario.from_dict(serve(gpu_memory_utilization=1)).serve.gpu_memory_utilization == 1.0


def measured_scenarios():
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            yield json.loads(line)["scenario"]


def test_every_measured_case_is_read_and_survives_being_written():
    count = 0
    for data in measured_scenarios():
        scenario = Scenario.from_dict(data)
        assert not [note for note in scenario.notes if "changed nothing here" not in note]
        written = scenario.to_dict()
        json.dumps(written, allow_nan=False)
        again = Scenario.from_dict(written)
        assert again.settings == scenario.settings
        assert {**again.to_dict(), "model": 0} == {**written, "model": 0}
        given_keys = set(data) - {"train", "serve", "generate"}
        assert given_keys <= set(written)
        count += 1
    assert count >= 756


def test_what_was_set_is_written():
    data = serve(limit_mm_per_prompt={"image": 2}, speculative={"method": "eagle"}, enforce_eager=False)
    written = Scenario.from_dict(data).to_dict()
    assert data["serve"].items() <= written["serve"].items()
    assert "train" not in written


def test_a_load_names_an_engine_only_when_it_was_given():
    assert "serve" not in Scenario.from_dict({"model": "m", "task": "load"}).to_dict()
    data = {"model": "m", "task": "load", "serve": {"engine": "sglang"}}
    scenario = Scenario.from_dict(data)
    assert "engine" in scenario.serve.explicit
    assert scenario.to_dict()["serve"]["engine"] == "sglang"


def test_an_embedder_is_trained_without_a_head_unless_one_is_named():
    of_a_library = {**train(), "library": "sentence-transformers"}
    assert Scenario.from_dict(of_a_library).train.head == "none"
    assert Scenario.from_dict({**of_a_library, "train": {"head": "sequence-classification"}}).train.head != "none"
    assert Scenario.from_dict(train()).train.head != "none"


def test_replace_keeps_what_was_given():
    scenario = Scenario.from_dict(train(micro_batch_size=2))
    changed = scenario.replace(train=scenario.train.replace(checkpointing="full"))
    assert changed.train.explicit == {"micro_batch_size", "checkpointing"}
    assert (changed.train.micro_batch_size, changed.train.checkpointing) == (2, "full")
    assert changed.replace(num_gpus=4).explicit >= {"model", "task", "num_gpus"}


def test_scenarios_compare_and_hash():
    one, two = Scenario.from_dict(train()), Scenario.from_dict(train(micro_batch_size=1))
    assert one == two
    assert hash(one) == hash(two)
    inline = Scenario.from_dict({"model": {"model_type": "gpt2"}, "task": "load"})
    assert hash(inline) == hash(inline.replace())
    assert repr(Scenario.from_dict(train(zero_stage=3))) == (
        "Scenario(model='m', task='train', train=TrainSettings(zero_stage=3))"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
all_keys = sorted({key for cls in KINDS for key in KINDS[cls]} | set(TABLES))


@given(
    st.sampled_from(["train", "serve", "generate", "load"]),
    st.dictionaries(st.sampled_from(all_keys), json_values, max_size=4),
    st.dictionaries(st.sampled_from(all_keys), json_values, max_size=2),
)
def test_anything_is_read_or_refused_with_a_path(task, table, top):
    data = {"model": "m", "task": task, **top, "serve" if task == "load" else task: table}
    try:
        scenario = Scenario.from_dict(data)
    except ScenarioError as refused:
        error = refused
    else:
        assert Scenario.from_dict(scenario.to_dict()).settings == scenario.settings
        return
    assert error.path
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"task": "inference"}, r'got "inference": that is serve \(an engine\) or generate'),
        ({"task": "fine-tune"}, r'got "fine-tune": that is train \(method full, lora or qlora\)'),
        ({"task": "train", "train": {"sequence_length": "4k"}}, r'\(such as 4000 or 4096, written out\), got "4k"'),
        ({"task": "serve", "serve": {"gpu_memory_utilization": 90}}, "got 90: did you mean 0.9"),
        ({"task": "serve", "serve": {"gpu_memory_utilization": 1.5}}, r"≤ 1, got 1\.5$"),
        ({"task": "serve", "serve": {"quantization": "Q4_K_M"}}, "llama.cpp and ollama read: gguf_quant Q4_K_M"),
        ({"task": "serve", "serve": {"quantization": "4bit"}}, "4 bits are awq, gptq, w4a16 or bitsandbytes-nf4"),
        ({"task": "serve", "serve": {"gguf_quant": "Q4_K_M"}}, "llama.cpp and ollama read GGUF as it is: set engine"),
    ],
)
def test_what_people_write_instead_says_what_they_look_for(data, said):
    with pytest.raises(ScenarioError, match=said):
        Scenario.from_dict({"model": "llama-3.1-8b", **data})


def test_a_spelling_stands_for_one_of_the_names():
    choices = [kind for table in KINDS.values() for kind in table.values() if isinstance(kind, Choice)]
    assert len(choices) > 30
    for kind in choices:
        assert {*kind.spellings.values()} - {None} <= {*kind.names}, kind.help


@pytest.mark.parametrize(
    ("task", "key", "given", "said"),
    [
        ("serve", "dtype", "fp8", "quantized weights are quantization fp8"),
        ("generate", "dtype", "fp8_e4m3", "expected one of auto, bf16, fp16, fp32"),
        ("generate", "dtype", "nf4", "quantized weights are quantization bitsandbytes-nf4"),
        ("serve", "dtype", "int4", "quantized weights are no dtype; 4 bits are awq"),
        ("train", "precision", "4bit", "frozen weights of 4 bits are method qlora"),
    ],
)
def test_a_dtype_of_quantized_weights_is_told_its_key(task, key, given, said):
    assert said in problem_of({"model": "m", "task": task, task: {key: given}})
