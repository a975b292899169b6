"""`vramwise estimate MODEL` without a task: run it, fine-tune it, train it on how many; commands that fit."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from by_turns import is_thorough
from vramwise.cli.main import main
from vramwise.estimation import estimate
from vramwise.planner.machine import machine_of
from vramwise.planner.ways import Way

GPT2_BY_SIZES = ("--model-type", "gpt2", "--hidden-size", "768", "--num-hidden-layers", "12",
                 "--num-attention-heads", "12", "--vocab-size", "50257")  # fmt: skip


def asked(capsys, *arguments, code=0):
    assert main(["estimate", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys, *arguments):
    assert main(["estimate", *arguments]) == 2
    return capsys.readouterr().err


def commands(screen):
    """The commands behind `next:`, as a shell splits them."""
    lines = screen[screen.index("next: ") + 6 :].replace("\\\n", "").splitlines()
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("Llama 3.1 8B", "--gpu", "4060"), 0),
        *([(("llama-3.1-405b", "--gpu", "4090"), 3)] if is_thorough() else []),  # its family's
        (("google/vit-base-patch16-224", "--gpu", "4060"), 0),
        (("openai/whisper-tiny", "--gpu", "2x4090"), 0),
        (("google-bert/bert-base-uncased", "--gpu-total-bytes", "6GiB"), 0),
        (("gpt2",), 0),
        (("Qwen/Qwen3-4B-AWQ", "--gpu", "m3-max-128gb"), 0),
        (("stabilityai/stable-diffusion-xl-base-1.0", "--gpu", "4060"), 0),
        (("stabilityai/stable-diffusion-xl-base-1.0",), 0),
        (GPT2_BY_SIZES, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_next_commands_can_be_copied_and_fit(arguments, code, capsys):
    found = commands(asked(capsys, *arguments, code=code))
    assert found
    for words in found:
        assert words[:2] == ["vramwise", "estimate"]
        assert json.loads(asked(capsys, *words[2:], "--json"))["verdict"]["fits"]


def test_tables_of_tokens_on_the_host_slow_nothing_and_layers_there_do(capsys):
    """llama.cpp keeps what tokens are looked up in on the host, that of every layer too (load_tensors)."""
    whole = asked(capsys, "google/gemma-3n-E4B", "--gpu", "4060")
    assert "4 bit   yes, context up to 32,768 (llama.cpp Q4_K_M)" in whole
    partly = asked(capsys, "google/gemma-2-9b", "--gpu", "4060")
    assert "4 bit   slowly: 37 of 43 layers" in partly  # its table of tokens lies on the card too, as the output


def test_a_model_that_no_usual_card_holds_leads_to_how_many_do(capsys):
    (words,) = commands(asked(capsys, "moonshotai/Kimi-K2.7-Code"))
    assert words == ["vramwise", "plan", "moonshotai/Kimi-K2.7-Code", "--goal", "run", "--gpu", "h200"]
    assert main(words[1:]) == 0
    assert "tensor_parallel_size 8 · 8 GPUs" in capsys.readouterr().out


def test_weights_as_published_are_no_answer_where_no_engine_for_them_runs(capsys):
    assert "published  " in asked(capsys, "Qwen/Qwen3-4B-AWQ", "--gpu", "4090")
    assert "published  " not in asked(capsys, "Qwen/Qwen3-4B-AWQ", "--gpu", "m3-max-128gb")


def test_a_setting_that_is_off_stands_in_a_command_as_its_flag():
    way = Way("serve", "llama.cpp", "Q8_0", {"fit": False, "kv_unified": True}, machine_of(gpu="4060"))
    assert list(way.flags())[2:4] == ["--no-fit", "--kv-unified"]


def test_full_is_what_task_train_alone_answers(capsys):
    door = json.loads(asked(capsys, "gpt2", "--gpu", "4060", "--json"))
    full = door["fine_tune"][-1]
    alone = {"model": "gpt2", "task": "train", "gpu": "4060", "train": {"micro_batch_size": full["micro_batch_size"]}}
    result = estimate(alone)
    assert full["total_needed"] == result.needed.to_dict()
    assert full["verdict"] == result.verdict.word == "fits"
    alone["train"]["micro_batch_size"] += 1
    assert estimate(alone).verdict.word != "fits"


def test_an_8_gb_card_runs_an_8b_model_in_4_bits_and_fine_tunes_it_with_qlora(capsys):
    screen = asked(capsys, "llama-3.1-8b", "--gpu", "4060")
    run, tune = screen[screen.index("run it") : screen.index("fine-tune it")], screen[screen.index("fine-tune it") :]
    assert re.search(r"16 bit +no: needs \d+\.\d\d GiB", run)
    assert re.search(r"4 bit +yes, context up to [\d,]{5,} \(llama\.cpp Q4_K_M\)", run)
    assert re.search(r"QLoRA, checkpointing +(yes|tight \(\d+ %\)), 1 × \d+ tokens", tune)
    assert re.search(r"full +1 × H100 80 GB", tune)


def test_the_usual_cards_stand_in_a_table_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    screen = asked(capsys, "llama-3.1-8b")
    assert max(map(len, screen.splitlines())) <= 80
    rows = {line[:15].strip(): line[15:].split() for line in screen.splitlines() if " GB " in line}
    assert list(rows) == ["RTX 4060 8 GB", "T4 16 GB", "RTX 4090 24 GB", "L40S 48 GB", "H100 80 GB", "H200 141 GB"]
    assert rows["RTX 4060 8 GB"][:2] == ["no", "no"]
    assert rows["H100 80 GB"] == ["131,072"] * 3 + ["yes"] * 3


@pytest.mark.parametrize("arguments", [(), ("--gpu", "4060")])
def test_a_model_of_images_is_not_asked_for_tokens(arguments, capsys):
    screen = asked(capsys, "google/vit-base-patch16-224", *arguments)
    assert not [word for word in ("context", "tokens", "serve") if word in screen]


def test_several_cards_share_the_model(capsys):
    door = json.loads(asked(capsys, "qwen2.5-72b", "--gpu", "h100", "-n", "4", "--json"))
    assert door["num_gpus"] == 4
    assert door["run"][0]["scenario"]["serve"]["tensor_parallel_size"] == 4
    assert door["run"][0]["verdict"] == "fits"


def test_where_nothing_fits_the_largest_of_the_family_stands_beside_it(capsys):
    screen = asked(capsys, "deepseek-v3", "--gpu", "4060", code=3)
    run, tune = (line for line in screen.splitlines() if line.startswith("of its family"))
    assert "run it: DeepSeek" in run
    assert "fine-tune it: deepseek" in tune.lower()
    assert re.search(r"train it +full +\d+ × H200 141 GB \(FSDP, checkpointing(, tight)?\)", screen)


def test_a_model_that_runs_slowly_alone_has_a_command_for_it(capsys):
    screen = asked(capsys, "mixtral-8x7b", "--gpu", "3090")
    assert "4 bit   slowly" in screen
    run, train = commands(screen)
    assert run[:5] == ["vramwise", "estimate", "mixtral-8x7b", "--task", "serve"]
    assert "--num-gpus" in train
    assert json.loads(asked(capsys, *run[2:], "--json"))["verdict"]["fits"]


def test_a_family_is_a_makers_and_no_mere_word(capsys):
    """gpt-j is no smaller gpt-oss; Llama 3.2 1B stands before others' copies of its type."""
    assert "of its family" not in asked(capsys, "gpt-oss-20b", "--gpu", "4060")
    small = asked(capsys, "llama-3.1-8b", "--gpu", "4060", "--gpu-free-bytes", "3GiB", code=3)
    assert "of its family  run it: Llama 3.2 1B" in small


def test_where_not_even_a_family_fits_the_next_command_says_what_does(capsys):
    found = commands(asked(capsys, "kimi-k2", "--gpu", "4060", "--gpu-free-bytes", "2GiB", code=3))
    assert found[0] == ["vramwise", "fit", "--gpu", "4060", "--gpu-free-bytes", "2GiB"]
    assert main([*found[0][1:], "--top", "1", "--json"]) == 0


def test_what_compares_images_with_texts_is_run_by_no_server(capsys):
    """The score of a pair is no text: its row was one of contexts, its command llama.cpp's."""
    door = asked(capsys, "google/siglip2-giant-opt-patch16-384", "--gpu", "4060")
    assert "llama.cpp" not in door


def test_a_card_of_other_code_is_said_to_be_one(capsys):
    assert "note          TPU v5e does not run CUDA code" in asked(capsys, "gpt2", "--gpu", "tpu-v5e")
    assert "does not run CUDA code" not in asked(capsys, "gpt2", "--gpu", "4090")


def test_a_card_that_is_named_after_its_memory_says_it_once(capsys):
    assert "× GB10 (DGX Spark) 128GB (FSDP" in asked(capsys, "gemma-3-27b", "--gpu", "gb10")


def test_experts_that_stay_in_16_bit_are_quantized_too_where_that_helps(capsys):
    door = json.loads(asked(capsys, "qwen3-30b-a3b", "--gpu", "5090", "--json"))
    qlora = door["fine_tune"][0]
    assert qlora["verdict"] != "does not fit"
    assert qlora["scenario"]["train"]["quantize_experts"] is True


def test_json_keeps_the_tables_keys_beside_the_answers(capsys):
    table = json.loads(asked(capsys, "gpt2", "--style", "table", "--json"))
    door = json.loads(asked(capsys, "gpt2", "--json"))
    assert table.items() <= door.items()
    assert set(door["cards"]) == {"4060", "t4", "4090", "l40s", "h100", "h200"}
    row = door["cards"]["4090"]["run"][0]
    assert row["verdict"] == "fits"
    assert re.fullmatch(r"ceiling, bandwidth 1,0\d\d GB/s", row["tokens_per_second_basis"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpu", "4900"), 'unknown GPU "4900": did you mean'),
        (("-n", "2"), "--num-gpus: 2 of which card? give --gpu CARD or --gpu-total-bytes SIZE"),
        (("--gpu", "4090", "-n", "0"), "--num-gpus: expected at least 1, got 0"),
        (("--gpu", "4090", "--sequence-length", "8"), "--sequence-length needs --task"),
        (("--gpu", "2x4090", "-n", "3"), 'gpu: "2x4090" contradicts num_gpus 3'),
    ],
)
def test_a_wrong_machine_is_one_line(arguments, says, capsys):
    assert says in refused(capsys, "gpt2", *arguments)


def test_why_the_whole_model_is_not_trained_on_these_cards_is_said_with_what_could(capsys):
    shown = " ".join(asked(capsys, "vicuna-65b", "--gpu", "v100-sxm2-32gb", "-n", "4").split())
    assert "full no: needs" in shown
    assert "because full: 16-bit weights alone are 121.60 GiB, 30.40 GiB on each of 4 cards" in shown
    assert "because full: flash-attention, which would keep less, does not run on Tesla V100" in shown
    assert "QLoRA, checkpointing yes" in shown
    assert 'note no "vicuna-65b" is known: took huggyllama/llama-65b' in shown
