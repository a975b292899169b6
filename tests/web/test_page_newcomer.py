"""What people try first: several cards, an Apple chip, absurd numbers, a pasted command line, what was assumed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vramwise.web.api import answer

SERVING = "#model=llama-3.1-70b&task=serve&gpu=h100-sxm-80gb"
COMMANDS = {
    "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192": ("serve", "vllm"),
    "$ llama-server -m Llama-3.1-8B-Q4_K_M.gguf \\\n    -c 8192 -ngl 99\n": ("serve", "llama.cpp"),
    "ollama run llama3.1:8b": ("serve", "ollama"),
    "CUDA_VISIBLE_DEVICES=0 trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name d": ("train", None),
}


def shown(page: Any, address: str, scenario: str, view: str = "why") -> None:
    page.goto("about:blank")
    page.goto(f"{address}{scenario}&view={view}")
    page.wait_for_selector(".ready .headline")
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")


def counted(page: Any, many: str) -> str:
    page.fill("#num_gpus", many)
    page.press("#num_gpus", "Enter")
    page.locator("#num_gpus").blur()
    page.wait_for_function(f"() => location.hash.includes('num_gpus={many}') || '{many}' === '1'")
    page.wait_for_timeout(300)
    return str(page.evaluate("location.hash"))


def test_two_cards_are_both_used(page: Any, address: str) -> None:
    shown(page, address, SERVING)
    assert "serve.tensor_parallel_size=2" in counted(page, "2")
    page.wait_for_selector('#question .fields > .field label[for="serve-tensor_parallel_size"]')
    page.wait_for_function("() => document.querySelector('[data-path=\"phases.0.bytes\"]').textContent < '80'")
    assert "of 2 GPUs is used" not in page.inner_text("#view")
    assert "serve.tensor_parallel_size=4" in counted(page, "4")
    assert "tensor_parallel_size" not in counted(page, "1")


@pytest.mark.parametrize("stated", ["serve.pipeline_parallel_size=2", "serve.engine=llama.cpp"])
def test_what_was_said_of_sharing_stays(page: Any, address: str, stated: str) -> None:
    shown(page, address, f"{SERVING}&{stated}")
    assert "tensor_parallel_size" not in counted(page, "2")


@pytest.mark.parametrize("elsewhere", ["serve.max_num_seqs=32", "serve.engine=sglang"])  # the second has other fields
def test_a_count_that_is_being_typed_stays_when_an_answer_comes(page: Any, address: str, elsewhere: str) -> None:
    shown(page, address, SERVING)
    page.fill("#num_gpus", "2")
    page.evaluate(f"location.hash = location.hash + '&{elsewhere}'")
    page.wait_for_function("() => document.querySelector('#num_gpus').value === '2'")
    page.wait_for_selector(".ready .headline")
    page.wait_for_timeout(300)
    page.press("#num_gpus", "Enter")
    page.wait_for_function("() => location.hash.includes('num_gpus=2')")


def test_a_chip_of_apple_is_asked_about_an_engine_that_runs_there(page: Any, address: str) -> None:
    shown(page, address, "#model=qwen3-8b&task=serve&gpu=rtx-4090")
    page.fill("#gpu", "m3-max")
    page.press("#gpu", "Tab")
    page.wait_for_function("() => location.hash.includes('serve.engine=llama.cpp')")
    page.wait_for_selector('.card-line strong:has-text("Apple M3 Max (30-core) 36 GB")')
    shown(page, address, "#model=qwen3-8b&task=serve&gpu=rtx-4090&serve.max_model_len=4096")
    page.fill("#gpu", "m3-max")
    page.press("#gpu", "Tab")
    page.wait_for_function("() => location.hash.includes('gpu=m3-max')")
    assert "engine" not in page.evaluate("location.hash")  # what was asked of another engine is not thrown away


@pytest.mark.parametrize("width", [375, 1280])
def test_absurd_numbers_stay_on_the_screen(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 812})
    huge = "&train.micro_batch_size=1000000000&train.sequence_length=99999999"
    shown(page, address, f"#model=llama-3.1-8b&task=train&gpu=rtx-4090{huge}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.inner_text(".big") == "7.45e14 GiB"
    over = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)"
    assert page.eval_on_selector_all(".counters > div, .moment .size", over) == []


def test_what_was_assumed_is_a_press_away(page: Any, address: str) -> None:
    shown(page, address, SERVING, "cards")
    link = page.locator("#answer .to-notes")
    assert int(link.inner_text().split()[-1]) > 1
    link.click()
    page.wait_for_selector(".notes-heading")
    assert page.evaluate("document.activeElement.className") == "notes-heading"
    assert page.locator(".notes-heading").is_visible()


@pytest.mark.parametrize(
    "scenario", ["#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=lora", f"{SERVING}&num_gpus=2"]
)
def test_changes_stand_in_the_order_of_the_program(page: Any, address: str, scenario: str) -> None:
    shown(page, address, scenario, "share")
    page.wait_for_selector('[data-share="json"] pre')
    told = answer("suggestions", json.loads(page.inner_text('[data-share="json"] pre')))["suggestions"]
    page.wait_for_selector(".fix")
    needs = page.eval_on_selector_all(".fix [data-value]", "all => all.map(one => Number(one.dataset.value))")
    assert needs == [one["total_needed"]["expected"] for one in told if one["fits"]][:3]
    assert len(needs) > 1


def test_one_term_that_is_left_keeps_its_name(page: Any, address: str) -> None:
    shown(page, address, "#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=lora")
    names = page.eval_on_selector_all(".legend li", "all => all.map(one => one.dataset.term)")
    assert len(names) == 9
    assert "other" not in names


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pasted_command_line_is_read(page: Any, address: str, command: str) -> None:
    task, engine = COMMANDS[command]
    shown(page, address, SERVING, "files")
    page.fill("#pasted", command)
    page.click("#view .field button")
    page.wait_for_selector(".report .program")
    assert page.inner_text(".report h3").endswith("command line")
    assert page.locator(".report dt").first.inner_text() == "needed in total"
    read = answer("read", {"name": "pasted.txt", "text": command, "gpu": "h100-sxm-80gb"})
    assert read["kind"] == "command"
    scenario = read["programs"][0]["scenario"]
    assert (scenario["task"], scenario.get("serve", {}).get("engine", "vllm" if task == "serve" else None)) == (
        task,
        engine,
    )
    page.click(".report .program button")
    page.wait_for_function(f"() => location.hash.includes('task={task}')")
    page.wait_for_selector("#answer .headline")
    assert json.loads(page.evaluate("JSON.stringify(document.querySelectorAll('#answer .error').length)")) == 0


@pytest.mark.parametrize("text", ["hello vllm serve\nand more", "why does vllm take so much?", 'vllm serve "open'])
def test_what_is_no_command_line_is_not_taken_for_one(text: str) -> None:
    found = answer("read", {"name": "pasted.txt", "text": text})
    assert "nothing known here" in found["error"]["message"] if "error" in found else found["kind"] != "command"
