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


def test_an_image_pipeline_is_found_by_name_and_run_by_its_own_task(page: Any, address: str) -> None:
    shown(page, address, SERVING)
    page.fill("#model", "flux.1-dev")
    page.press("#model", "Enter")
    page.wait_for_function(
        "() => location.hash.includes('model=flux.1-dev') && location.hash.includes('task=generate')"
    )
    page.wait_for_selector('#question .fields > .field label[for="generate-image_size"]')
    page.wait_for_selector("#answer:not(.stale) .subject:has-text('diffusers')")
    assert page.input_value("#model") == "flux.1-dev"
    assert page.locator('[for="generate-new_tokens"]').count() == 0
    page.click("label.goal:has(#goal-train)")
    page.click('[data-focus="meant-0"]')  # it is not trained here: what can be asked is a press away
    page.wait_for_function("() => location.hash.includes('task=generate')")
    page.click("#tab-map")
    page.wait_for_selector('.heat-table th:has-text("1536x1536")')
    page.fill("#model", "qwen3-8b")
    page.press("#model", "Enter")
    page.wait_for_function("() => location.hash.includes('task=serve')")
    page.wait_for_selector("#answer:not(.stale) .subject:has-text('Qwen3-8B')")
    assert page.input_value("#model") == "qwen3-8b"


def test_what_is_being_looked_for_is_said(page: Any, address: str) -> None:
    page.route("**/api/v1/suggestions", lambda route: None)  # it never comes
    shown(page, address, f"{SERVING}&num_gpus=2")
    assert page.inner_text(".fixes") == "Looking for what makes it fit …"
    page.unroute_all(behavior="ignoreErrors")


def test_a_name_that_is_none_is_not_answered_with_a_command(page: Any, address: str) -> None:
    page.goto(f"{address}#model=qwen3-8b&task=serve&gpu=rtx-4099")
    page.wait_for_selector("#answer .error")
    assert page.inner_text("#answer .error").endswith("?")
    assert "vramwise gpus" not in page.inner_text("#question")


@pytest.mark.parametrize("width", [375, 1280])
def test_thirteen_moments_are_seen_at_once_and_a_map_keeps_its_lengths(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 812})
    shown(page, address, "#model=llama-3.1-70b&task=train&gpu=h100-sxm-80gb&num_gpus=8&train.fsdp=full-shard")
    moments = page.locator(".moment")
    assert moments.count() == 13
    if width == 1280:
        assert page.evaluate("(one => one.scrollWidth <= one.clientWidth + 1)(document.querySelector('#view .scroll'))")
    shown(page, address, SERVING, "map")
    page.evaluate("document.querySelector('#view .scroll').scrollLeft = 500")
    assert page.evaluate("document.querySelector('.heat-table tbody th').getBoundingClientRect().left") >= 0


def test_a_command_that_names_a_file_asks_for_the_file() -> None:
    command = (
        "torchrun --nproc_per_node 8 train.py --deepspeed nowhere.json --model_name_or_path meta-llama/Llama-3.1-8B"
    )
    message = answer("read", {"name": "pasted.txt", "text": command})["error"]["message"]
    assert message.startswith("the command names a file that is not here: give the file itself")
    assert "nowhere.json" in message


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
