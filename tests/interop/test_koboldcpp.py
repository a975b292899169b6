"""KoboldCpp's command lines and settings are llama.cpp's, by its own parser and load_model (1.117.1)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.engines.llama_cpp import KOBOLDCPP
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.koboldcpp import READ, UNCOUNTED
from vramwise.scenario import Scenario

FILE = "Qwen3-14B-Q5_K_M.gguf"


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


def serve(line: str) -> dict[str, Any]:
    found = read(line).scenario["serve"]
    assert isinstance(found, dict)
    return found


def test_what_it_does_unasked() -> None:
    """default_maxctx 12288 and extra_context_handle_fragmentation 128; n_ubatch is n_batch; kv_unified; flash on."""
    found = serve(f"koboldcpp --model {FILE}")
    assert found["n_ctx"] == 12288 + 128
    assert (found["n_batch"], found["n_ubatch"], found["n_parallel"], found["kv_unified"]) == (512, 512, 1, True)
    assert (found["flash_attn"], found["cache_type_k"], found["cache_type_v"]) == (True, "f16", "f16")
    assert found["fit"] is True
    assert "n_gpu_layers" not in found
    assert found["logits_all"] is True
    assert (read(f"koboldcpp -m {FILE}").scenario["model"], found["gguf_quant"]) == ("Qwen3-14B", "Q5_K_M")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--gpulayers 33 --contextsize 8192", {"n_gpu_layers": 33, "n_ctx": 8320, "fit": False}),
        ("--gpulayers", {"n_gpu_layers": 1}),  # const=1
        ("--gpulayers --contextsize 8192", {"n_gpu_layers": 1, "n_ctx": 8320}),
        ("--gpulayers 20 --autofit", {"fit": True}),
        ("--quantkv 1", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        ("--quantkv 2 --noflashattention", {"cache_type_k": "q4_0", "cache_type_v": "f16", "flash_attn": False}),
        ("--quantkv bf16 --noflashattention", {"cache_type_k": "bf16", "cache_type_v": "bf16"}),
        ("--blasbatchsize 1024", {"n_batch": 1024, "n_ubatch": 1024}),
        ("--batchsize -1", {"n_batch": 1, "n_ubatch": 1}),
        ("--usecublas lowvram rowsplit", {"no_kv_offload": True, "split_mode": "row"}),
        ("--moecpu", {"n_cpu_moe": 999}),
        ("--moecpu 12", {"n_cpu_moe": 12}),
        ("--overridetensors ffn_up=CPU,ffn_down=CPU", {"override_tensor": ["ffn_up=CPU", "ffn_down=CPU"]}),
        ("--parallelrequests 4", {"n_parallel": 5}),  # n_seq_max = slots + 1
        ("--noswa", {"swa_full": True}),
        ("--usemtp --draftamount 6", {"speculative": {"method": "mtp", "num_tokens": 6}}),
        ("--tensor_split 7 3 --maingpu 1", {"tensor_split": [7.0, 3.0], "main_gpu": 1}),
    ],
)
def test_flags(flags: str, expected: dict[str, object]) -> None:
    found = serve(f"koboldcpp --model {FILE} {flags}")
    assert {key: found.get(key) for key in expected} == expected


def test_draft_projector_and_adapters() -> None:
    line = (
        f"koboldcpp --model {FILE} --draftmodel Qwen3-0.6B-Q8_0.gguf --lora style.gguf --mmproj eyes.gguf --mmprojcpu"
    )
    found = serve(line)
    assert found["speculative"] == {
        "method": "draft_model", "model": "Qwen3-0.6B", "gguf_quant": "Q8_0", "n_gpu_layers": 999,
    }  # fmt: skip
    assert (found["max_loras"], found["mmproj"], found["mmproj_offload"]) == (1, "auto", False)


def test_cards() -> None:
    """set_backend_props: a number is the one card that it sees, unless the split lists several."""
    assert read(f"koboldcpp -m {FILE} --usecuda 1").scenario["num_gpus"] == 1
    assert read(f"koboldcpp -m {FILE} --usevulkan 0 1").scenario["num_gpus"] == 2
    assert read(f"koboldcpp -m {FILE} --usecublas 0 --tensor_split 1 1 1").scenario["num_gpus"] == 3
    assert "num_gpus" not in read(f"koboldcpp -m {FILE} --usecuda all").scenario
    on_host = read(f"koboldcpp -m {FILE} --usecpu --gpulayers 20").scenario
    assert on_host["num_gpus"] == 0


@pytest.mark.parametrize("program", KOBOLDCPP)
def test_names_of_its_releases(program: str) -> None:
    python = "python " if program.endswith(".py") else ""
    for line in (f"{python}{program} {FILE} 5001 --contextsize 4096", f"./{program}.exe --model {FILE} -c 4096"):
        assert serve(line)["n_ctx"] == 4096 + 128


def test_an_address_of_several_files_is_its_first() -> None:
    line = "koboldcpp --model https://huggingface.co/a/b/resolve/main/Qwen3-8B-Q4_K_M.gguf?download=true --gpulayers 99"
    assert read(line).scenario["model"] == "Qwen3-8B"


def test_every_flag_is_read_said_or_named() -> None:
    assert READ | set(UNCOUNTED) <= set(flags_of("koboldcpp"))
    notes = " / ".join(read(f"koboldcpp {FILE} --sdmodel x.gguf --smartcache 3 --skiplauncher --nosuch 1").notes)
    assert "--sdmodel is not counted: the image model beside it" in notes
    assert "--smartcache is not counted: snapshots of the KV cache in host memory" in notes
    assert "no effect on the memory counted here: --skiplauncher" in notes
    assert "unknown to KoboldCpp, left out: --nosuch" in notes
    assert "read as llama-server -m" in notes


def test_what_it_refuses() -> None:
    with pytest.raises(UsageError, match="--quantkv: expected f16"):
        read(f"koboldcpp {FILE} --quantkv q3_K")
    with pytest.raises(UsageError, match="names no model"):
        read("koboldcpp --gpulayers 20 --usecuda")


SETTINGS = {
    "model": [], "model_param": r"D:\models\Mistral-Small-24B-Instruct-2501-Q4_K_M.gguf", "port": 5001,
    "port_param": 5001, "usecuda": ["normal", "0", "mmq"], "usevulkan": None, "contextsize": 16384, "gpulayers": 41,
    "tensor_split": None, "batchsize": 512, "quantkv": "q8_0", "flashattention": True, "lowvram": False,
    "sdmodel": "", "smartcache": 0, "moecpu": 0, "ropeconfig": [0.0, 10000.0], "lora": None, "draftgpulayers": 999,
}  # fmt: skip


def test_settings_in_a_file(tmp_path: Path) -> None:
    """save_config_cli writes every argument by its own name; load_config takes nothing from the command line."""
    file = tmp_path / "mistral.kcpps"
    file.write_text(json.dumps(SETTINGS), "utf-8")
    from_file = read_files([str(file)])[0].launch
    from_line = read(f"koboldcpp --config {file} --contextsize 4096")
    alone = read(f"koboldcpp {file}")
    assert from_file.scenario == from_line.scenario == alone.scenario
    found = from_file.scenario["serve"]
    assert isinstance(found, dict)
    assert (found["n_ctx"], found["n_gpu_layers"], found["cache_type_v"]) == (16384 + 128, 41, "q8_0")
    assert from_file.scenario["model"] == "Mistral-Small-24B-Instruct-2501"
    assert from_file.scenario["num_gpus"] == 1
    notes = " / ".join(from_file.notes)
    assert "settings of KoboldCpp" in notes
    assert "not counted" not in notes
    assert "unknown" not in notes
    other = read_files([str(file)], "Qwen/Qwen3-8B")[0].launch
    assert other.scenario["model"] == "Qwen3-8B"


def test_its_container(tmp_path: Path) -> None:
    """docker/docker-compose.yml: KCPP_MODEL and KCPP_ARGS."""
    file = tmp_path / "compose.yml"
    file.write_text(
        "services:\n  koboldcpp:\n    image: koboldai/koboldcpp\n    environment:\n"
        "      - KCPP_MODEL=https://huggingface.co/a/b/resolve/main/Qwen3-8B-Q4_K_M.gguf\n"
        '      - KCPP_ARGS=--usecuda --gpulayers 99 --contextsize 8192\n', "utf-8",
    )  # fmt: skip
    launch = read_files([str(file)])[0].launch
    assert launch.scenario["model"] == "Qwen3-8B"
    assert launch.scenario["serve"]["n_ctx"] == 8320  # type: ignore[index]


def test_a_broken_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.kcpps"
    file.write_text('{"contextsize": ', "utf-8")
    assert main(["estimate", "--", "koboldcpp", "--config", str(file)]) == 4
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
