"""The engines' own command lines become scenarios."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.launch import names_a_program, read_command
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.llama_cpp import MEANINGS as LLAMA_CPP
from vramwise.interop.launch.llama_cpp_variables import VARIABLES
from vramwise.interop.launch.sglang import MEANINGS as SGLANG
from vramwise.interop.launch.tgi import MEANINGS as TGI
from vramwise.interop.launch.vllm import MEANINGS as VLLM
from vramwise.scenario import Scenario

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def read(line):
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


@pytest.mark.parametrize(
    ("line", "engine", "model", "expected"),
    [
        (
            f"vllm serve {LLAMA} --tensor-parallel-size 2 --max-model-len 32k --gpu-memory-utilization=0.95",
            "vllm", LLAMA, {"tensor_parallel_size": 2, "max_model_len": 32_000, "gpu_memory_utilization": 0.95},
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0,1 vllm serve {LLAMA} -tp=2 --max_num_seqs 64 --kv-cache-dtype fp8 --enforce-eager",
            "vllm", LLAMA,
            {"tensor_parallel_size": 2, "max_num_seqs": 64, "kv_cache_dtype": "fp8", "enforce_eager": True},
        ),
        (
            f"python3 -m vllm.entrypoints.openai.api_server --model {LLAMA}"
            " --kv-cache-memory-bytes 10G --no-enforce-eager",
            "vllm", LLAMA, {"kv_cache_memory_bytes": 10 * 2**30, "enforce_eager": False},
        ),
        (
            f"""vllm serve {LLAMA} -sc '{{"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}}'""",
            "vllm", LLAMA, {"speculative": {"method": "eagle3", "model": "a/b", "num_tokens": 3}},
        ),
        (
            f"vllm serve {LLAMA} -sc.method suffix --limit-mm-per-prompt image=2,video=0 --enable-lora",
            "vllm", LLAMA,
            {"speculative": {"method": "suffix"}, "limit_mm_per_prompt": {"image": 2, "video": 0}, "max_loras": 1},
        ),
        (
            f"docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.2 --model {LLAMA} --block-size 32",
            "vllm", LLAMA, {"engine_version": "0.11.2", "block_size": 32},
        ),
        (
            f"python -m sglang.launch_server --model-path {LLAMA} --tp 4 --mem-fraction-static 0.8 --ep-size 4"
            " --context-length 8192 --disable-cuda-graph --max-total-tokens 100000 --chunked-prefill-size -1",
            "sglang", LLAMA,
            {"tensor_parallel_size": 4, "mem_fraction_static": 0.8, "expert_parallel": True, "max_model_len": 8192,
             "enforce_eager": True, "max_total_tokens": 100_000},
        ),
        (
            f"text-generation-launcher --model-id {LLAMA} --num-shard 2"
            " --max-total-tokens 4096 --quantize bitsandbytes-nf4",
            "tgi", LLAMA, {"tensor_parallel_size": 2, "max_model_len": 4096, "quantization": "bitsandbytes-nf4"},
        ),
        (
            f"trtllm-serve {LLAMA} --tp_size 2 --kv_cache_free_gpu_memory_fraction 0.85",
            "tensorrt-llm", LLAMA, {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.85},
        ),
        (
            "./build/bin/llama-server -m /m/Meta-Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf -c 16384 -ngl 99 -fa"
            " -ctk q8_0 -ub 1024 -np 2 --port 8080",
            "llama.cpp", "Meta-Llama-3.1-8B-Instruct",
            {"gguf_quant": "Q4_K_M", "n_ctx": 16384, "n_gpu_layers": 99, "flash_attn": True, "cache_type_k": "q8_0",
             "n_ubatch": 1024, "n_parallel": 2},
        ),
        (
            "llama-server -hf unsloth/gpt-oss-20b-GGUF:Q8_0 -ngl all -fa auto -ot 'exps=CPU' --n-cpu-moe 4",
            "llama.cpp", "gpt-oss-20b", {"gguf_quant": "Q8_0", "override_tensor": ["exps=CPU"], "n_cpu_moe": 4},
        ),
        (
            "llama-server -m Qwen3-32B-Q4_K_M.gguf --spec-type draft-mtp,ngram-mod --spec-draft-n-max 2",
            "llama.cpp", "Qwen3-32B", {"gguf_quant": "Q4_K_M", "speculative": {"method": "mtp", "num_tokens": 2}},
        ),
        (
            "llama-server -m Qwen3-32B-Q4_K_M.gguf -ctk q8_0 --spec-type draft-mtp --spec-draft-type-k q8_0 -ctvd Q4_0",
            "llama.cpp", "Qwen3-32B",
            {"gguf_quant": "Q4_K_M", "cache_type_k": "q8_0", "speculative":
             {"method": "mtp", "num_tokens": 3, "cache_type_k": "q8_0", "cache_type_v": "q4_0"}},
        ),
        (
            "llama-server -m Qwen3-32B-Q4_K_M.gguf --spec-type draft-mtp",
            "llama.cpp", "Qwen3-32B", {"gguf_quant": "Q4_K_M", "speculative": {"method": "mtp", "num_tokens": 3}},
        ),
        (
            "llama-server -m Qwen3-32B-UD-Q4_K_XL.gguf -mla 2 -amb 512 -fmoe",
            "llama.cpp", "Qwen3-32B",
            {"gguf_quant": "custom", "variant": "ik_llama.cpp", "mla_attn": 2, "attn_max_b": 512, "fused_moe": 1},
        ),
        (
            "OLLAMA_CONTEXT_LENGTH=8192 ollama run llama3.1:8b-instruct-q4_K_M",
            "ollama", "meta-llama/Llama-3.1-8B-Instruct", {"gguf_quant": "Q4_K_M", "n_ctx": 8192},
        ),
    ],
)  # fmt: skip
def test_a_command_line_becomes_a_scenario(line, engine, model, expected):
    launch = read(line)
    assert launch.engine == engine
    assert launch.scenario["model"] == model
    settings = launch.scenario["serve"]
    assert {key: settings.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--limit-mm-per-prompt.video 0", {"limit_mm_per_prompt": {"video": 0}}),
        (
            "--limit-mm-per-prompt.image=2 --limit_mm_per_prompt.video 0",
            {"limit_mm_per_prompt": {"image": 2, "video": 0}},
        ),
        (
            "--limit-mm-per-prompt.image.count 3 --limit-mm-per-prompt.image.width 512",
            {"limit_mm_per_prompt": {"image": 3}},
        ),
        ("""--limit-mm-per-prompt '{"image": {"width": 512}}'""", {"limit_mm_per_prompt": {"image": 999}}),
        ("--compilation-config.level 3 --max-num-seqs 8", {"max_num_seqs": 8, "enforce_eager": None}),
        (
            "--compilation-config.cudagraph_capture_sizes+ 1,2 -cc.mode 3 -tp 2",
            {"cudagraph_capture_sizes": [1, 2], "tensor_parallel_size": 2},
        ),
        (
            "--compilation-config.cudagraph_capture_sizes+=1 --compilation-config.cudagraph_capture_sizes+ 2,4",
            {"cudagraph_capture_sizes": [1, 2, 4]},
        ),
        ("-cc.cudagraph_capture_sizes=[1,2,4] -cc.mode 3", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("-O3 --max-num-seqs 8", {"max_num_seqs": 8, "enforce_eager": None}),
        ("-O.level=3 --max-num-seqs 8", {"max_num_seqs": 8, "enforce_eager": None}),
        ("-O 0 --max-num-seqs 8", {"max_num_seqs": 8, "enforce_eager": True}),
        ("-O=0", {"enforce_eager": True}),
        ("""-O '{"cudagraph_capture_sizes": [8]}'""", {"cudagraph_capture_sizes": [8]}),
        (
            "--speculative-config.method ngram --speculative-config.num_speculative_tokens 4",
            {"speculative": {"method": "ngram", "num_tokens": 4}},
        ),
    ],
)
def test_parts_of_vllms_json_flags_come_together(flags, expected):
    """vllm/utils/argparse_utils.py: dotted parts become one JSON, `-O3` is a level of its own."""
    launch = read(f"vllm serve {LLAMA} {flags}")
    assert launch.scenario["model"] == LLAMA
    assert {key: launch.scenario["serve"].get(key) for key in expected} == expected
    assert not [note for note in launch.notes if "unknown" in note or "belong to no flag" in note]


def test_a_json_flag_nested_beyond_measure_is_one_line():
    with pytest.raises(UsageError, match="nested too deeply"):
        read(f"vllm serve {LLAMA} --compilation-config{'.a' * 3000} 1")


@pytest.mark.parametrize("flag", ["--no-enforce-eager.a", "--enforce-eag.a", "--cudagraph-capture-siz.a"])
def test_a_part_of_a_flag_without_its_value_is_one_line(flag):
    with pytest.raises(UsageError, match="needs a value"):
        read(f"vllm serve {LLAMA} {flag}")


@pytest.mark.parametrize("words", ["bench throughput --model {} -O0", "bench latency -O0 --model {}",
                                   "bench -O 0 startup --model {}"])  # fmt: skip
def test_benchmarks_of_vllm_that_start_an_engine_are_that_engine(words):
    launch = read("vllm " + words.format(LLAMA))
    assert launch.scenario == {"model": LLAMA, "task": "serve", "serve": {
        "engine": "vllm", "enforce_eager": True, "offline_inference": True,
    }}  # fmt: skip
    assert not any("belong to no flag" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench serve --model {} -O0", "vllm bench serve asks a server, which holds the memory"),
        ("bench sweep serve --serve-cmd 'vllm serve {}'", "vllm bench sweep asks a server"),
        ("complete --url http://x", "vllm complete asks a server"),
        ("collect-env", "vllm collect-env starts no engine: expected vllm serve MODEL"),
        ("bench throughput {}", "names no model: expected --model MODEL"),
    ],
)
def test_commands_of_vllm_that_start_no_engine_are_no_server(words, said):
    with pytest.raises(UsageError, match=said):
        read("vllm " + words.format(LLAMA))


def test_a_batch_of_vllm_is_a_server_s_engine():
    launch = read(f"vllm run-batch -i in.jsonl -o out.jsonl --model {LLAMA} --max-model-len 4096")
    assert (launch.scenario["model"], launch.scenario["serve"]["max_model_len"]) == (LLAMA, 4096)


_DIGEST = f"@sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    "tag", ["server", "full", "light-b5000", "server-b5000", f"server{_DIGEST}", f"full-b5000{_DIGEST}"]
)
def test_llama_cpps_image_without_a_backend_runs_on_the_cpu(tag):
    """docs/docker.md: only the images that name CUDA, ROCm, Vulkan, MUSA or SYCL have a GPU's backend."""
    launch = read(f"docker run ghcr.io/ggml-org/llama.cpp:{tag} -m /m/Qwen3-8B-Q4_K_M.gguf -ngl 99")
    assert launch.scenario["num_gpus"] == 0
    assert any("runs on the CPU" in note for note in launch.notes)


@pytest.mark.parametrize("tag", ["server-cuda", "server-vulkan-b5000", "full-rocm", "server-intel", "light-musa"])
def test_llama_cpps_other_images_run_on_a_gpu(tag):
    launch = read(f"docker run --gpus all ghcr.io/ggml-org/llama.cpp:{tag} -m /m/Qwen3-8B-Q4_K_M.gguf -ngl 99")
    assert "num_gpus" not in launch.scenario


@pytest.mark.parametrize(("tag", "gpus"), [("cu12-server", None), ("cu13-full", None), ("cpu-server", 0)])
def test_the_image_of_ik_llama_cpp_is_that_fork(tag, gpus):
    launch = read(f"docker run --gpus all ghcr.io/ikawrakow/ik-llama-cpp:{tag} -m /m/Qwen3-8B-Q4_K_M.gguf -ngl 99")
    assert (launch.scenario["serve"]["variant"], launch.scenario.get("num_gpus")) == ("ik_llama.cpp", gpus)


def test_devices_of_llama_cpp_are_counted():
    split = read("llama-server -m x-8b-Q8_0.gguf -ts 3,1,0,2 -mg 1 -sm row").scenario
    assert (split["num_gpus"], split["serve"]["tensor_split"]) == (4, [3.0, 1.0, 0.0, 2.0])
    assert (split["serve"]["split_mode"], split["serve"]["main_gpu"]) == ("row", 1)
    assert read("llama-server -m x-8b-Q8_0.gguf -dev none").scenario["num_gpus"] == 0
    assert read("llama-server -m x-8b-Q8_0.gguf -fit off").scenario["serve"]["fit"] is False
    assert read("llama-server -m x-8b-Q8_0.gguf -sm none").scenario["serve"]["split_mode"] == "none"


def test_drafts_and_projectors_of_llama_cpp():
    serve = read("llama-server -m x-8b-Q8_0.gguf -md /m/Llama-3.2-1B-Q4_0.gguf -ngld 99 -nkvo").scenario["serve"]
    draft = {"method": "draft_model", "model": "Llama-3.2-1B", "gguf_quant": "Q4_0", "n_gpu_layers": 99}
    assert (serve["speculative"], serve["no_kv_offload"]) == (draft, True)
    assert "mmproj" not in serve
    seeing = "llama-server -m gemma-3-4b-it-Q4_0.gguf --mmproj mmproj.gguf --no-mmproj-offload"
    assert read(seeing).scenario["serve"].items() >= {"mmproj": "auto", "mmproj_offload": False}.items()
    assert read("llama-server -hf ggml-org/gemma-3-4b-it-GGUF").scenario["serve"]["mmproj"] == "auto"
    assert "mmproj" not in read("llama-server -hf ggml-org/gemma-3-4b-it-GGUF --no-mmproj").scenario["serve"]


def test_variables_of_ollama():
    serve = read("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 "
                 "ollama run --keepalive 5m llama3.1:8b").scenario  # fmt: skip
    assert serve["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    told = {"n_ctx": 16384, "n_parallel": 2, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": True}
    assert serve["serve"].items() >= told.items()
    with pytest.raises(UsageError, match="OLLAMA_NUM_PARALLEL: expected a whole number"):
        read("OLLAMA_NUM_PARALLEL=some ollama run llama3.1:8b")
    with pytest.raises(UsageError, match="names no model"):
        read("OLLAMA_CONTEXT_LENGTH=8192 ollama serve")


def test_flags_that_do_not_matter_are_said_and_unknown_ones_named():
    notes = read(f"vllm serve {LLAMA} --port 80 --frobnicate 3 --enable-dbo").notes
    assert any("no effect" in note and "--port" in note and "--frobnicate" not in note for note in notes)
    assert any("unknown to vLLM" in note and "--frobnicate" in note for note in notes)
    assert any("--enable-dbo is not counted" in note for note in notes)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("vllm serve --tensor-parallel-size 2", "names no model"),
        (f"vllm serve {LLAMA} --max-model-len", "--max-model-len needs a value"),
        (f"vllm serve {LLAMA} --max-model-len lots", "--max-model-len: expected a whole number"),
        (f"vllm serve {LLAMA} --speculative-config [1", "expected a JSON object"),
        (f"vllm serve {LLAMA} --spec-method eagle --spec-tokens 3", "by eagle needs a draft model"),
        (f"vllm serve {LLAMA} --spec-method mtp", "by mtp needs num_speculative_tokens"),
        (f"vllm serve {LLAMA} --spec-method eagle3 --spec-model a/b", "by eagle3 needs num_speculative_tokens"),
        ("nginx -c x", "no engine in"),
    ],
)
def test_what_cannot_be_read_is_one_line(line, problem):
    with pytest.raises(UsageError, match=problem.replace("[", r"\[")):
        read_command(shlex.split(line))


@pytest.mark.parametrize(
    ("engine", "meanings"), [("vllm", VLLM), ("sglang", SGLANG), ("llama.cpp", LLAMA_CPP), ("tgi", TGI)]
)
def test_every_flag_that_is_read_is_a_flag_of_the_engine(engine, meanings):
    assert set(meanings) <= set(flags_of(engine))


def test_the_command_line_follows_two_dashes(capsys):
    words = ["--gpu", "h100", "--", "vllm", "serve", LLAMA, "--tensor-parallel-size", "2", "--max-model-len", "8192"]
    assert main(["estimate", *words]) == 0
    own = ["--task", "serve", "--engine", "vllm", "--tensor-parallel-size", "2", "--max-model-len", "8192"]
    through = capsys.readouterr().out
    assert main(["estimate", LLAMA, "--gpu", "h100", *own]) == 0
    assert through == capsys.readouterr().out


def test_own_flags_override_the_command_line(capsys):
    assert main(["estimate", "--gpu", "h100", "--max-model-len", "4096", "--", f"vllm serve {LLAMA}"]) == 0
    assert "context 4,096" in capsys.readouterr().out


def test_a_model_beside_a_command_line_is_refused(capsys):
    assert main(["estimate", "gpt2", "--", "vllm", "serve", LLAMA]) == 2
    assert "leave out MODEL" in capsys.readouterr().err


def test_one_word_after_two_dashes_is_still_the_model(capsys):
    assert main(["estimate", "--", "gpt2"]) == 0


def test_a_program_is_found_behind_what_stands_before_it():
    assert names_a_program(["sudo", "env", "A=1", "/usr/bin/python3.11", "-m", "sglang.launch_server"])
    assert not names_a_program(["python", "server.py"])


def test_a_prefill_of_tgi_2_follows_its_longest_input() -> None:
    command = "docker run ghcr.io/huggingface/text-generation-inference:2.4 --model-id {} --max-input-tokens 6000"
    assert read_command(command.format(LLAMA).split()).scenario["serve"]["max_num_batched_tokens"] == 6050


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_N_GPU_LAYERS=20 LLAMA_ARG_FLASH_ATTN=1 llama-server -m llama-3.1-8b.gguf",
         {"n_ctx": 8192, "n_gpu_layers": 20, "flash_attn": True}),
        ("docker run -e LLAMA_ARG_CTX_SIZE=8192 -e LLAMA_ARG_KV_UNIFIED=0 -e LLAMA_ARG_NO_KV_OFFLOAD=1"
         " ghcr.io/ggml-org/llama.cpp:server-cuda -m llama-3.1-8b.gguf -c 4096",
         {"n_ctx": 4096, "kv_unified": False, "no_kv_offload": True}),
        ("LLAMA_ARG_MODEL=llama-3.1-8b-Q4_K_M.gguf LLAMA_ARG_CPU_MOE=off llama-server", {"gguf_quant": "Q4_K_M"}),
        ("docker run -e NUM_SHARD=2 -e MAX_TOTAL_TOKENS=4096 -e MAX_BATCH_SIZE=8 -e MODEL_ID=llama-3.1-8b"
         " -e TRUST_REMOTE_CODE=true ghcr.io/huggingface/text-generation-inference:3.0 --max-batch-size 4",
         {"tensor_parallel_size": 2, "max_model_len": 4096, "max_num_seqs": 4}),
    ],
)  # fmt: skip
def test_variables_stand_for_flags_and_flags_win(line, expected):
    assert expected.items() <= read(line).scenario["serve"].items()


def test_a_variable_that_is_no_switch_is_refused_by_its_name():
    with pytest.raises(UsageError, match='LLAMA_ARG_CPU_MOE: expected on or off, got "some"'):
        read_command(["LLAMA_ARG_CPU_MOE=some", "llama-server", "-m", "llama-3.1-8b.gguf"])


def test_variables_of_other_programs_say_nothing():
    settings = read("NO_KV_OFFLOAD=1 CTX_SIZE=8192 llama-server -m llama-3.1-8b-Q4_K_M.gguf").scenario["serve"]
    assert not {"no_kv_offload", "n_ctx"} & settings.keys()


def test_every_variable_of_llama_cpp_stands_for_a_flag_it_has():
    assert {flag for flag in VARIABLES.values() if flag not in flags_of("llama.cpp")} == set()


def test_a_server_that_starts_now_keeps_few_logits() -> None:
    settings = read("llama-server -m llama-3.1-8b-Q4_K_M.gguf").scenario["serve"]
    assert settings["logits_all"] is False
    for line in ("llama-bench -m llama-3.1-8b.gguf", "llama-server -m llama-3.1-8b.gguf --embedding",
                 "llama-server -m llama-3.1-8b.gguf -fmoe"):  # fmt: skip
        assert "logits_all" not in read(line).scenario["serve"]


def test_a_path_of_the_machine_that_will_serve_is_the_known_model_of_that_name():
    launch = read_command(["vllm", "serve", "/models/Qwen3-32B", "--tensor-parallel-size", "2"])
    assert launch.scenario["model"] == "Qwen3-32B"
    assert any("/models/Qwen3-32B is not on this machine" in note for note in launch.notes)
    unknown = read_command(["vllm", "serve", "/models/mine-merged"])
    assert unknown.scenario["model"] == "/models/mine-merged"
    assert not any("not on this machine" in note for note in unknown.notes)


def test_ik_llama_cpp_can_be_told_to_reserve_for_few_logits() -> None:
    settings = read("llama-server -m llama-3.1-8b-Q4_K_M.gguf -ub 4096 -wgt 1 -mtp").scenario["serve"]
    assert (settings["variant"], settings["logits_all"]) == ("ik_llama.cpp", False)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.6.6.post1 --model", "0.6.6"),
        ("lmsysorg/sglang:v0.4.6.post5-cu124 python3 -m sglang.launch_server --model-path", "0.4.6"),
        ("vllm/vllm-openai:v0.11.0-x86_64 --model", "0.11.0"),
        ("vllm/vllm-openai:nightly --model", None),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b6123 -m", "b6123"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda -m", None),
    ],
)
def test_the_version_that_a_tag_says(image: str, version: str | None) -> None:
    launch = read_command([*image.split(), "Qwen/Qwen3-8B"])
    assert launch.scenario["serve"].get("engine_version") == version  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "mix", "near"),
    [
        ("-hf unsloth/DeepSeek-R1-0528-GGUF:UD-IQ1_S", "UD-IQ1_S", "IQ1_S"),
        ("-m C:\\models\\Qwen3-30B-A3B-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL", "Q4_K_M"),
        ("-hf unsloth/Qwen3-8B-GGUF --hf-file Qwen3-8B-UD-Q8_K_XL.gguf", "UD-Q8_K_XL", "Q8_0"),
    ],
)
def test_a_mix_of_its_makers_own_names_the_nearest_type(words: str, mix: str, near: str) -> None:
    launch = read_command(["llama-server", *words.split()])
    assert launch.scenario["serve"]["gguf_quant"] == "custom"  # type: ignore[index]
    [said] = [note for note in launch.notes if note.startswith(mix)]
    assert f"--gguf-quant {near}" in said


def test_llama_bench_has_a_context_for_its_longest_test() -> None:
    """llama.cpp tools/llama-bench/llama-bench.cpp: prompt, generated tokens and depth of each test, one sequence."""

    def serve(flags: str) -> dict[str, Any]:
        found = read_command(f"llama-bench -m Qwen2.5-7B-Instruct-Q4_K_M.gguf {flags}".split()).scenario["serve"]
        assert isinstance(found, dict)
        return found

    assert serve("")["n_ctx"] == 512
    assert serve("-p 0 -n 128")["n_ctx"] == 128
    assert serve("-p 512,2048 -d 0-8192+4096 -pg 1024,2048")["n_ctx"] == 3072 + 8192
    asked = serve("-fa 1 -ngl 20,99 -ub 128-512*2 -nkvo 0 -mmp 0 -r 3 -ctk q8_0")
    assert (asked["flash_attn"], asked["n_gpu_layers"], asked["n_ubatch"]) == (True, 99, 512)
    assert asked["cache_type_k"] == "q8_0"
    assert "no_kv_offload" not in asked
    with pytest.raises(UsageError, match="-p: expected numbers"):
        serve("-p many")


def test_llama_cpp_pythons_server_has_its_own_defaults() -> None:
    line = "python -m llama_cpp.server --model /models/Qwen3-8B-Q4_K_M.gguf --n_gpu_layers -1 --flash_attn true"
    serve = read_command(line.split()).scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["n_ctx"], serve["n_batch"], serve["flash_attn"]) == (2048, 512, True)
    assert "n_gpu_layers" not in serve


def test_vllms_benchmarks_are_its_class() -> None:
    for kind in ("throughput", "latency"):
        launch = read_command(["vllm", "bench", kind, "--model", "Qwen/Qwen3-8B", "--input-len", "512"])
        assert launch.scenario["serve"] == {"engine": "vllm", "offline_inference": True}
    served = read_command(["vllm", "bench", "throughput", "--model", "Qwen/Qwen3-8B", "--async-engine"])
    assert served.scenario["serve"] == {"engine": "vllm"}


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("lmdeploy serve api_server internlm/internlm2_5-7b-chat", "--gpu-memory-utilization 0.8"),
        (
            "docker run openmmlab/lmdeploy lmdeploy serve api_server --tp 2 internlm/internlm2_5-7b-chat"
            " --session-len=32768 --quant-policy 8 --cache-max-entry-count 0.5 --max-batch-size 64 --backend turbomind",
            "--tensor-parallel-size 2 --max-model-len 32768 --gpu-memory-utilization 0.5 --max-num-seqs 64"
            " --kv-cache-dtype int8",
        ),
    ],
)
def test_lmdeploy_is_one_line_with_the_nearest_engine(
    line: str, flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", "--", *shlex.split(line)]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "LMDeploy's engines are not described" in said
    nearest = said.partition("nearest is vramwise ")[2]
    assert set(flags.split()) <= set(nearest.split())
    assert main([*nearest.split(), "--gpu", "h100"]) == 0


def test_another_programs_word_is_no_lmdeploy() -> None:
    assert not names_a_program(["echo", "lmdeploy"])
    assert not names_a_program(["my-server", "--backend", "lmdeploy", "--port", "80"])


@pytest.mark.parametrize(("words", "said"), [
    ("vllm serv Qwen/Qwen3-8B", 'vllm: unknown command "serv": did you mean vllm serve?'),
    ("llama-servr -m x.gguf", "did you mean llama-server?"),
    ("axolotl trian ax.yaml", "did you mean axolotl train?"),
    ("pyton train.py", "did you mean python?"),
    ("FOO=1 acelerate launch train.py", "did you mean accelerate?"),
])  # fmt: skip
def test_a_misspelt_program_is_told_what_it_means(words: str, said: str) -> None:
    with pytest.raises(UsageError) as problem:
        read_command(words.split())
    assert said in str(problem.value)


def test_a_misspelt_flag_that_counts_is_told_what_it_means() -> None:
    launch = read_command(["vllm", "serve", "Qwen/Qwen3-8B", "--tensor-paralel-size", "2", "--some-plugin-flag", "1"])
    assert "--tensor-paralel-size: did you mean --tensor-parallel-size?" in launch.notes
    assert not any(note.startswith("--some-plugin-flag") for note in launch.notes)
