"""Scripts and notebooks that serve, generate or only load: what is read in them and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch
from vramwise.scenario import Scenario

QWEN = "Qwen/Qwen2.5-7B-Instruct"


def read(folder: Path, text: str, model: str | None = None, name: str = "run.py") -> Launch:
    file = folder / name
    file.write_text(text, "utf-8")
    (answer,) = read_files([str(file)], model)
    Scenario.from_dict(answer.launch.scenario)
    return answer.launch


def test_vllms_class_is_the_server_with_larger_batches(tmp_path: Path) -> None:
    text = f"""
from vllm import LLM, SamplingParams
SIZE = 2
llm = LLM("{QWEN}", tensor_parallel_size=SIZE, max_model_len=4096, enforce_eager=True, seed=pick(), max_num_seqs=64,
          speculative_config={{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}})
"""
    launch = read(tmp_path, text)
    assert launch.scenario["model"] == QWEN
    serve: Any = launch.scenario["serve"]
    assert serve["offline_inference"] is True
    assert {key: serve[key] for key in ("tensor_parallel_size", "max_model_len", "enforce_eager", "max_num_seqs")} == {
        "tensor_parallel_size": 2, "max_model_len": 4096, "enforce_eager": True, "max_num_seqs": 64,
    }  # fmt: skip
    assert serve["speculative"]["method"] == "ngram"
    assert any("only a run would tell, left out: seed" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("gpu", "server", "script"), [("h100-sxm-80gb", 8192, 16384), ("a100-sxm-80gb", 2048, 8192), ("l4", 2048, 8192)]
)
def test_tokens_of_a_batch_by_card(gpu: str, server: int, script: int) -> None:
    """v0.33.0 and v0.10.1 engine/arg_utils.py: UsageContext.LLM_CLASS and OPENAI_API_SERVER."""
    from vramwise.hardware import find_gpu
    from vramwise.serving.vllm.profile import default_batched_tokens

    card = find_gpu(gpu).gpu
    for version in ((0, 10, 1), (0, 33, 0)):
        assert default_batched_tokens(version, card, None)[0] == server
        assert default_batched_tokens(version, card, None, offline=True)[0] == script
    given = {"model": QWEN, "task": "serve", "gpu": gpu, "serve": {"engine": "vllm", "max_model_len": 4096}}
    offline = {**given, "serve": {"engine": "vllm", "max_model_len": 4096, "offline_inference": True}}
    if gpu != "l4":
        online, alone = (estimate(Scenario.from_dict(one)) for one in (given, offline))
        assert alone.quantities["activation_peak"].expected > online.quantities["activation_peak"].expected
        assert any("LLM's default" in note for note in alone.notes)


def test_engine_arguments_and_sglangs_engine(tmp_path: Path) -> None:
    served = read(tmp_path, f'from vllm import AsyncEngineArgs\nargs = AsyncEngineArgs(model="{QWEN}", dtype="half")\n')
    assert served.scenario["serve"] == {"engine": "vllm", "dtype": "half"}
    text = f'import sglang as sgl\nllm = sgl.Engine(model_path="{QWEN}", tp_size=2, mem_fraction_static=0.7)\n'
    launch = read(tmp_path, text)
    assert launch.engine == "sglang"
    assert launch.scenario["serve"] == {"engine": "sglang", "tensor_parallel_size": 2, "mem_fraction_static": 0.7}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            'Llama(model_path="./Qwen3-8B-Q4_K_M.gguf", n_gpu_layers=-1, n_ctx=16384, type_k=8, flash_attn=True)',
            {"n_ctx": 16384, "cache_type_k": "q8_0", "flash_attn": True, "gguf_quant": "Q4_K_M", "n_batch": 512},
        ),
        (
            'Llama.from_pretrained(repo_id="Qwen/Qwen2.5-7B-Instruct-GGUF", filename="*q8_0.gguf", offload_kqv=False)',
            {"n_ctx": 512, "n_gpu_layers": 0, "flash_attn": False, "gguf_quant": "Q8_0", "no_kv_offload": True},
        ),
    ],
)
def test_llama_cpps_python_class(tmp_path: Path, call: str, expected: dict[str, Any]) -> None:
    """llama-cpp-python 0.3.36 llama.py: 512 tokens, nothing on the GPU and no flash attention unless asked."""
    launch = read(tmp_path, f"from llama_cpp import Llama\nllm = {call}\n")
    serve: Any = launch.scenario["serve"]
    assert launch.engine == "llama.cpp"
    assert {key: serve.get(key) for key in expected} == expected


def test_an_engine_whose_model_a_run_would_tell_needs_its_name(tmp_path: Path) -> None:
    text = "from vllm import LLM\nllm = LLM(model=args.model, max_model_len=2048)\n"
    with pytest.raises(UsageError, match="names no model"):
        read(tmp_path, text)
    assert read(tmp_path, text, QWEN).scenario["model"] == QWEN


def test_a_notebook_that_runs_an_engine(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["!pip install vllm\n", "from vllm import LLM\n", f'LLM(model="{QWEN}")']}]
    assert read(tmp_path, json.dumps({"cells": cells}), name="run.ipynb").engine == "vllm"


@pytest.mark.parametrize(
    ("text", "task", "table"),
    [
        (
            "bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4')\n"
            f"m = AutoModelForCausalLM.from_pretrained('{QWEN}', quantization_config=bits, dtype=torch.bfloat16)\n"
            "m.generate(**x, max_new_tokens=512, num_beams=4)\n",
            "generate",
            {"quantization": "bitsandbytes-nf4", "dtype": "bf16", "new_tokens": 512, "num_beams": 4},
        ),
        (
            f"pipe = pipeline('text-generation', model='{QWEN}', model_kwargs={{'torch_dtype': torch.float16}})\n"
            "pipe(text, max_new_tokens=64)\n",
            "generate",
            {"dtype": "fp16", "new_tokens": 64},
        ),
        (
            f"m = AutoModelForCausalLM.from_pretrained('{QWEN}', load_in_8bit=True, attn_implementation='eager')\n"
            "m.generate(x)\n",
            "generate",
            {"quantization": "bitsandbytes-int8", "attention": "eager", "new_tokens": 20},
        ),
        (
            f"model, tokenizer = FastLanguageModel.from_pretrained(model_name='{QWEN}', max_seq_length=2048)\n",
            "load",
            {"quantization": "bitsandbytes-nf4"},
        ),
        (f"m = AutoModel.from_pretrained('{QWEN}', dtype='float32')\n", "load", {"dtype": "fp32"}),
    ],
)  # fmt: skip
def test_a_script_that_trains_nothing(tmp_path: Path, text: str, task: str, table: dict[str, Any]) -> None:
    scenario = read(tmp_path, f"import torch\n{text}").scenario
    assert (scenario["model"], scenario["task"]) == (QWEN, task)
    assert scenario["generate" if task == "generate" else "serve"] == table


def test_a_pipeline_of_diffusers(tmp_path: Path) -> None:
    text = """
pipe = FluxPipeline.from_pretrained("black-forest-labs/FLUX.1-dev", torch_dtype=torch.bfloat16)
pipe.enable_model_cpu_offload()
pipe.vae.enable_tiling()
image = pipe("a cat", height=768, width=1024, guidance_scale=3.5, num_inference_steps=50).images[0]
"""
    scenario = read(tmp_path, text).scenario
    assert scenario["generate"] == {"dtype": "bf16", "offload": "model", "vae_tiling": True, "image_size": "1024x768",
                                    "guidance_scale": 3.5}  # fmt: skip


def test_mlx_lms_load(tmp_path: Path) -> None:
    text = 'from mlx_lm import load, generate\nmodel, tok = load("mlx-community/Qwen2.5-7B-Instruct-4bit")\n'
    launch = read(tmp_path, text)
    assert (launch.engine, launch.scenario["model"]) == ("mlx", "mlx-community/Qwen2.5-7B-Instruct-4bit")


@pytest.mark.parametrize("loop", ["loss.backward()", "accelerator.backward(loss)", "L.Trainer(devices=2)", "t.fit(m)"])
def test_a_loop_of_ones_own_is_no_loading_alone(tmp_path: Path, loop: str) -> None:
    with pytest.raises(UsageError, match="vramwise dry-run -- python FILE"):
        read(tmp_path, f"m = AutoModelForCausalLM.from_pretrained('{QWEN}')\n{loop}\n")


def test_a_script_that_loads_nothing_is_refused(tmp_path: Path) -> None:
    for text in ("print(1)\n", "from vllm import SamplingParams\nSamplingParams(n=2)\n"):
        with pytest.raises(UsageError, match="trains nothing that is read here"):
            read(tmp_path, text)
    with pytest.raises(UsageError, match="name is not written out"):
        read(tmp_path, "m = AutoModelForCausalLM.from_pretrained(path)\nm.generate(x)\n")


_TRAINING = f"""
config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained(
    "{QWEN}",
    # quantization_config = config
)
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"]))
args = TrainingArguments(output_dir="x", per_device_train_batch_size=2, bf16=True)
"""


def test_a_quantization_that_is_given_to_nothing_quantizes_nothing(tmp_path: Path) -> None:
    launch = read(tmp_path, _TRAINING)
    train: Any = launch.scenario["train"]
    assert train["method"] == "lora"
    assert "quantization" not in train
    assert any("given to nothing" in note for note in launch.notes)
    given = read(tmp_path, _TRAINING.replace("# quantization_config", "quantization_config")).scenario["train"]
    assert isinstance(given, dict)
    assert (given["method"], given["quantization"]) == ("qlora", "nf4")
    table = 'kwargs = {"quantization_config": config}\n' + _TRAINING.replace(
        "# quantization_config = config", "**kwargs"
    )
    assert isinstance(found := read(tmp_path, table).scenario["train"], dict)
    assert found["method"] == "qlora"


def test_unsloths_engine_counts_whatever_the_trainer_is(tmp_path: Path) -> None:
    text = f"""
model, _ = FastLanguageModel.from_pretrained("{QWEN}", fast_inference=True, gpu_memory_utilization=0.6)
model = FastLanguageModel.get_peft_model(model, r=8)
SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=1))
"""
    train: Any = read(tmp_path, text).scenario["train"]
    assert train["extra_models"] == ["rollout:vllm"]
    assert train["rollout_gpu_memory_utilization"] == 0.6
    without: Any = read(tmp_path, text.replace("fast_inference=True, ", "")).scenario["train"]
    assert "extra_models" not in without
