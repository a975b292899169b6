"""Units of systemd, files of variables alone, and what is pulled into ollama's server."""

from __future__ import annotations

import pytest

from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.scenario import Scenario

UNIT = """[Unit]
Description=vLLM serve
ExecStart=/not/this vllm serve wrong/model
[Service]
# ExecStart=vllm serve commented/out
Environment="HF_HOME=/data/hf" LENGTH=40960
Environment=VLLM_USE_FLASHINFER_SAMPLER=0
EnvironmentFile=-/etc/vllm.env
ExecStartPre=/bin/sleep 1
ExecStart=vllm serve forgotten/model
ExecStart=
ExecStart=-/opt/vllm/bin/vllm serve Qwen/Qwen3-32B-FP8 \\
    --host 0.0.0.0 --tensor-parallel-size 2 \\
    # a comment within
    --max-model-len ${LENGTH} --gpu-memory-utilization 0.9 --seed $UNSET
[Install]
WantedBy=multi-user.target
"""


def launch_of(tmp_path, name, text, model=None):
    file = tmp_path / name
    file.write_text(text, "utf-8")
    launch = read_files([str(file)], model)[0].launch
    Scenario.from_dict(launch.scenario)
    return launch


@pytest.mark.parametrize("name", ["vllm.service", "unit.txt"])
def test_a_unit_is_what_its_last_command_starts(tmp_path, name):
    launch = launch_of(tmp_path, name, UNIT)
    assert launch.scenario["model"] == "Qwen/Qwen3-32B-FP8"
    found = launch.scenario["serve"]
    assert (found["tensor_parallel_size"], found["max_model_len"]) == (2, 40960)
    assert (found["gpu_memory_utilization"], found["flashinfer_sampler"]) == (0.9, False)
    assert any("EnvironmentFile is not read: /etc/vllm.env" in note for note in launch.notes)
    assert any("only a run would tell, left out: $UNSET" in note for note in launch.notes)


@pytest.mark.parametrize("signs", ["@", "-@", "@!"])
def test_a_units_name_for_its_program_is_no_word_of_the_command(tmp_path, signs):
    text = f"[Service]\nExecStart={signs}/usr/bin/vllm llm-server serve Qwen/Qwen3-8B --max-model-len 4096\n"
    launch = launch_of(tmp_path, "llm.service", text)
    assert (launch.scenario["model"], launch.scenario["serve"]["max_model_len"]) == ("Qwen/Qwen3-8B", 4096)
    with pytest.raises(UsageError):
        launch_of(tmp_path, "llm.service", f"[Service]\nExecStart={signs}\n")


TEMPLATE = "[Service]\nExecStart=vllm serve %i --max-model-len ${LENGTH} --served-model-name at100%%\n"


def test_a_template_s_instance_is_what_stands_behind_the_at_sign(tmp_path):
    unit = TEMPLATE + "Environment=LENGTH=4096\n"
    launch = launch_of(tmp_path, "vllm@qwen3-8b.service", unit)
    assert (launch.scenario["model"], launch.scenario["serve"]["max_model_len"]) == ("qwen3-8b", 4096)
    with pytest.raises(UsageError, match="names no model"):
        launch_of(tmp_path, "vllm@.service", unit)
    fixed = unit.replace("serve %i", "serve qwen3-8b --port 80%i")
    notes = launch_of(tmp_path, "vllm@.service", fixed).notes
    assert any("only a run would tell, left out: %i (stands behind @ in the unit's name)" in note for note in notes)


@pytest.mark.parametrize("unset", ["LENGTH", "LENGTH=4096", "OTHER LENGTH"])
def test_what_a_unit_unsets_is_not_there(tmp_path, unset):
    unit = TEMPLATE.replace("%i", "qwen3-8b") + f"Environment=LENGTH=4096\nUnsetEnvironment={unset}\n"
    assert "max_model_len" not in launch_of(tmp_path, "vllm.service", unit).scenario["serve"]
    kept = TEMPLATE.replace("%i", "qwen3-8b") + "Environment=LENGTH=4096\nUnsetEnvironment=LENGTH=1 LENGTHS\n"
    assert launch_of(tmp_path, "vllm.service", kept).scenario["serve"]["max_model_len"] == 4096


def test_a_unit_of_ollamas_server_takes_the_model_that_is_given(tmp_path):
    text = "[Service]\nExecStart=/usr/bin/ollama serve\nEnvironment=OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2\n"
    launch = launch_of(tmp_path, "ollama.service", text, "qwen3:8b")
    assert launch.scenario["serve"]["n_ctx"] == 16384
    with pytest.raises(UsageError, match="names no model"):
        launch_of(tmp_path, "ollama.service", text)


@pytest.mark.parametrize(
    ("name", "text", "engine", "expected"),
    [
        (
            ".env",
            "# server\nLLAMA_ARG_MODEL=/models/Qwen3-8B-Q4_K_M.gguf\nexport LLAMA_ARG_CTX_SIZE=8192\n",
            "llama.cpp",
            {"n_ctx": 8192, "gguf_quant": "Q4_K_M"},
        ),
        (
            "tgi.env",
            "MODEL_ID=meta-llama/Llama-3.1-8B-Instruct\nMAX_INPUT_TOKENS=4000\nMAX_TOTAL_TOKENS='4096'\nNUM_SHARD=2\n",
            "tgi",
            {"max_model_len": 4096, "tensor_parallel_size": 2},
        ),
    ],
)
def test_variables_that_are_a_whole_command_are_answered(tmp_path, name, text, engine, expected):
    launch = launch_of(tmp_path, name, text)
    assert launch.engine == engine
    assert {key: launch.scenario["serve"].get(key) for key in expected} == expected


@pytest.mark.parametrize("beside", ["PORT=8000", "HOSTNAME=gpu-1", "API_KEY=x", "DTYPE=bfloat16", "MASTER_PORT=29500"])
def test_a_model_beside_what_any_service_has_says_no_engine(tmp_path, beside):
    with pytest.raises(UsageError, match="sets variables alone"):
        launch_of(tmp_path, ".env", f"MODEL_ID=Qwen/Qwen3-8B\n{beside}\n")


def test_variables_of_ollamas_server_hold_for_the_model_that_is_given(tmp_path):
    launch = launch_of(tmp_path, ".env", "OLLAMA_CONTEXT_LENGTH=4096\nOLLAMA_KV_CACHE_TYPE=q8_0\n", "llama3.1:8b")
    assert (launch.scenario["serve"]["n_ctx"], launch.scenario["serve"]["cache_type_k"]) == (4096, "q8_0")


def test_variables_that_start_nothing_are_one_line(tmp_path, capsys):
    file = tmp_path / "dot.env"
    file.write_text("MODEL=Qwen/Qwen3-14B\nVLLM_PORT=1\n", "utf-8")
    assert main(["estimate", str(file), "--gpu", "l40s"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "sets variables alone (MODEL, VLLM_PORT) and starts nothing: give the Compose file" in said


PULLED_FROM_OUTSIDE = """services:
  ollama:
    image: ollama/ollama
    environment: [OLLAMA_CONTEXT_LENGTH=16384]
  pull:
    image: curlimages/curl
    command: curl http://ollama:11434/api/pull -d '{"name":"qwen3:14b"}'
"""
PULLED_BY_A_SHELL = """services:
  ollama:
    image: ollama/ollama
    environment:
      OLLAMA_CONTEXT_LENGTH: 16384
  pull:
    image: curlimages/curl
    entrypoint: [sh, -c]
    command: ["sleep 5; curl -X POST http://ollama:11434/api/pull -d '{\\"model\\": \\"qwen3:14b\\"}'"]
"""
PULLED_WITHIN = """services:
  ollama:
    image: ollama/ollama
    environment: {OLLAMA_CONTEXT_LENGTH: 16384}
    entrypoint: ["/bin/sh", "-c", "ollama serve & sleep 5; ollama pull qwen3:14b; wait"]
"""


@pytest.mark.parametrize("text", [PULLED_FROM_OUTSIDE, PULLED_BY_A_SHELL, PULLED_WITHIN])
def test_what_is_pulled_into_ollamas_server_is_the_model(tmp_path, text):
    launch = launch_of(tmp_path, "compose.yml", text)
    assert (launch.scenario["model"], launch.scenario["serve"]["n_ctx"]) == ("Qwen/Qwen3-14B", 16384)


IN_A_SHELL = """services:
  q:
    image: vllm/vllm-openai:v0.8.5
    entrypoint:
      - bash
      - -c
      - |
        bash /opt/install.sh || exit 1
        more=(--enforce-eager)
        exec vllm serve "$$@" "$${more[@]}"
      - --
    command: ["--model", "Qwen/Qwen3-8B", "--max-model-len", "${LENGTH:-${CONTEXT:-8192}}"]
"""
IN_A_PODS_SHELL = """apiVersion: v1
kind: Pod
metadata: {name: q}
spec:
  containers:
  - {name: q, image: "vllm/vllm-openai:v0.8.5", command: [/bin/sh, -c], env: [{name: LENGTH, value: "8192"}],
     args: ["pip install x; vllm serve Qwen/Qwen3-8B --enforce-eager --max-model-len $LENGTH"]}
"""


@pytest.mark.parametrize(("name", "text"), [("compose.yml", IN_A_SHELL), ("pod.yaml", IN_A_PODS_SHELL)])
def test_a_shell_in_a_container_has_its_arguments_and_the_images_version(tmp_path, name, text):
    scenario = launch_of(tmp_path, name, text).scenario
    assert (scenario["model"], scenario["serve"]["engine_version"]) == ("Qwen/Qwen3-8B", "0.8.5")
    assert {key: scenario["serve"][key] for key in ("max_model_len", "enforce_eager")} == {
        "max_model_len": 8192, "enforce_eager": True
    }  # fmt: skip


def test_an_image_of_another_engine_leaves_the_command_as_it_is(tmp_path):
    other = IN_A_PODS_SHELL.replace("vllm/vllm-openai:v0.8.5", "lmsysorg/sglang:v0.5.5")
    scenario = launch_of(tmp_path, "pod.yaml", other).scenario
    assert scenario["serve"]["engine"] == "vllm"
    assert "engine_version" not in scenario["serve"]
