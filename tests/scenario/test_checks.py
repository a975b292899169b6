from __future__ import annotations

import pytest

from vramwise.errors import ScenarioError
from vramwise.scenario import Scenario


def read(task, num_gpus=None, **table):
    top = {} if num_gpus is None else {"num_gpus": num_gpus}
    return Scenario.from_dict({"model": "m", "task": task, **top, task: table})


@pytest.mark.parametrize(
    ("task", "table", "message"),
    [
        (
            "train",
            {"fsdp": "full-shard", "zero_stage": 3},
            "train.zero_stage: 3 and fsdp full-shard exclude each other",
        ),
        ("train", {"lora_rank": 16}, "train.lora_rank: needs method lora or qlora; it is full"),
        ("train", {"method": "freeze", "dora": True}, "train.dora: needs method lora or qlora; it is freeze"),
        ("train", {"quantization": "nf4"}, "train.quantization: nf4 weights do not train themselves: method qlora"),
        (
            "train",
            {"virtual_pipeline_parallel_size": 2},
            "train.virtual_pipeline_parallel_size: needs",
        ),
        (
            "train",
            {
                "num_gpus": 2,
                "pipeline_parallel_size": 2,
                "virtual_pipeline_parallel_size": 2,
                "pipeline_schedule": "gpipe",
            },
            "train.virtual_pipeline_parallel_size: 2 needs pipeline_schedule interleaved-1f1b; it is gpipe",
        ),
        (
            "train",
            {"num_gpus": 6, "tensor_parallel_size": 4},
            "train.tensor_parallel_size: tensor_parallel_size 4 does not divide num_gpus 6",
        ),
        (
            "train",
            {"num_gpus": 8, "tensor_parallel_size": 4, "context_parallel_size": 4},
            "train.tensor_parallel_size: tensor_parallel_size 4 × context_parallel_size 4 = 16 does not divide",
        ),
        ("train", {"num_gpus": 0}, "num_gpus: 0 means CPU only"),
        ("generate", {"num_gpus": 0}, "num_gpus: 0 means CPU only"),
        ("serve", {"num_gpus": 0}, "num_gpus: 0 means CPU only"),
        (
            "serve",
            {"num_gpus": 1, "tensor_parallel_size": 2},
            "serve.tensor_parallel_size: tensor_parallel_size 2 does not divide num_gpus 1",
        ),
        (
            "serve",
            {"n_ctx": 4096},
            "serve.n_ctx: belongs to the engine llama.cpp; the engine is vllm: set max_model_len",
        ),
        (
            "serve",
            {"mem_fraction_static": 0.8},
            "serve.mem_fraction_static: belongs to the engine sglang; the engine is vllm",
        ),
    ],
)
def test_contradictions_are_refused(task, table, message):
    with pytest.raises(ScenarioError) as caught:
        read(task, **table)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("task", "table"),
    [
        ("train", {"method": "lora", "lora_rank": 16}),
        ("train", {"method": "full", "lora_rank": 8, "dora": False}),
        ("train", {"method": "lora", "quantization": "gptq-int4"}),
        ("train", {"recompute": ["mlp"]}),
        ("train", {"checkpointing": "none", "recompute": ["mlp"]}),
        ("train", {"num_gpus": 8, "tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
        ("serve", {"engine": "llama.cpp", "num_gpus": 0, "n_ctx": 4096}),
        ("serve", {"engine": "ollama", "n_gpu_layers": 0}),
        ("serve", {"engine": "sglang", "mem_fraction_static": 0.8}),
        ("serve", {"engine": "vllm", "variant": "llama.cpp", "override_tensor": []}),
    ],
)
def test_what_goes_together_is_read_without_a_note(task, table):
    assert read(task, **table).notes == ()


def test_qlora_without_a_format_takes_nf4_and_says_so():
    scenario = read("train", method="qlora")
    assert scenario.train.quantization == "nf4"
    assert scenario.notes == ("method qlora without a quantization: nf4 is assumed",)


def test_gpus_that_were_not_counted_follow_from_the_split():
    scenario = read("serve", tensor_parallel_size=4, pipeline_parallel_size=2)
    assert scenario.num_gpus == 8
    assert scenario.notes == ("num_gpus 8: tensor_parallel_size 4 × pipeline_parallel_size 2",)


def test_chunks_of_a_stage_take_turns_where_no_order_is_named():
    asked = {"num_gpus": 2, "pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 2}
    assert read("train", **asked).train.pipeline_schedule == "interleaved-1f1b"
    assert read("train", **asked, pipeline_schedule="zero-bubble").train.pipeline_schedule == "zero-bubble"
