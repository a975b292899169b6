"""The page in a real Chromium: what a person sees, does and takes away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from by_turns import is_thorough
from vramwise.web.api import answer

SERVING = "#model=llama-3.1-8b&task=serve&gpu=rtx-4090&serve.max_model_len=8192"
TUNING = "#model=qwen2.5-0.5b&task=train&gpu=rtx-4090&train.method=lora&train.micro_batch_size=2"


LARGEST = "moonshotai/Kimi-K3"
"""Of the catalog, by parameters: 2.8 trillion."""
CUT = """() => {
  const isOurs = (one) => one.getClientRects().length && !one.closest('.scroll, .tabs, pre, textarea, .hidden');
  return [...document.querySelectorAll('#question *, .right *')].filter(isOurs)
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120));
}"""
"""What reaches over the edge of the screen, without what scrolls by itself."""


def shown(page: Any, address: str, scenario: str = SERVING) -> None:
    page.goto("about:blank")
    page.goto(address + scenario)
    page.wait_for_selector(".ready .headline")


NEED = '.headline [data-path="quantities.total_needed.expected"]'


def needed(page: Any) -> int:
    return int(page.get_attribute(NEED, "data-value"))


def test_the_answer_is_the_estimate_and_every_number_says_its_place(page, address):
    shown(page, address)
    told = answer(
        "result", {"model": "llama-3.1-8b", "task": "serve", "gpu": "rtx-4090", "serve": {"max_model_len": 8192}}
    )
    assert needed(page) == told["quantities"]["total_needed"]["expected"]
    assert page.get_attribute(".verdict", "data-value") == told["verdict"]["word"]
    for path, value in page.eval_on_selector_all(
        "#answer [data-path], #view [data-path]", "all => all.map(e => [e.dataset.path, e.dataset.value])"
    ):
        found: Any = told
        for part in filter(None, path.split(".")):
            found = found[int(part)] if isinstance(found, list) else found[part]
        assert not path or str(found) == value or float(found) == float(value), path


def test_a_change_is_answered_and_stands_in_the_address(page, address):
    shown(page, address, TUNING)
    before = needed(page)
    page.focus('[data-focus="train-micro_batch_size-slider"]')
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => !document.querySelector('.need [data-value=\"{before}\"]')")
    assert "train.micro_batch_size=3" in page.url
    assert needed(page) > before


def test_the_address_restores_the_scenario(page, address):
    shown(page, address, TUNING)
    assert page.is_checked("#goal-tune")
    assert page.input_value("#model") == "qwen2.5-0.5b"
    assert page.input_value("#train-micro_batch_size") == "2"


def test_three_questions_and_the_model_is_found_by_keyboard(page, address):
    shown(page, address)
    page.focus("#goal-run")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#train-micro_batch_size")
    assert "task=train&train.method=lora" in page.url.replace("&gpu=rtx-4090", "")
    page.fill("#model", "qwen2.5 0.5b instruct")
    page.wait_for_selector("#model-list:not([aria-busy]) [role=option]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.subject').textContent.includes('Qwen2.5-0.5B-Instruct')")


def test_a_term_shows_how_it_is_known(page, address):
    shown(page, address)
    page.click('.legend [data-term="KV cache"] button')
    term = page.locator('.terms > details[data-term="KV cache"]')
    term.locator(".source").first.wait_for()
    assert term.get_attribute("open") is not None
    assert "Source:" in term.inner_text()


def test_a_moment_is_chosen_by_keyboard(page, address):
    shown(page, address)
    page.focus('[data-focus="moment-0"]')
    assert page.inner_text(".readout").startswith("load")
    assert page.get_attribute('[data-focus="moment-0"]', "aria-pressed") == "true"


def test_what_is_wrong_is_said_at_the_key(page, address):
    shown(page, address)
    page.fill("#serve-max_model_len", "-5")
    page.keyboard.press("Tab")
    page.wait_for_selector("#serve-max_model_len[aria-invalid=true]")
    assert "max_model_len" in page.inner_text("#serve-max_model_len-problem")


def test_what_is_wrong_stays_said_when_the_list_of_cards_comes_late(page, address):
    held: list[Any] = []
    page.route("**/api/v1/gpus", lambda route: held.append(route))
    shown(page, address)
    page.fill("#serve-max_model_len", "-5")
    page.keyboard.press("Tab")
    page.wait_for_selector("#serve-max_model_len[aria-invalid=true]")
    page.wait_for_selector("#answer.stale .before")
    page.focus("#serve-max_num_seqs")
    page.keyboard.type("12")
    before = page.inner_text(".card-line strong")
    assert held  # it is asked for once the first answer stands there
    for one in held:
        one.continue_()
    page.wait_for_function(f"() => document.querySelector('.card-line strong').textContent !== '{before}'")
    assert page.get_attribute("#serve-max_model_len", "aria-invalid") == "true"
    assert page.locator("#answer.stale .before").count() == 1
    assert page.input_value("#serve-max_num_seqs") == "12"


def test_what_is_being_typed_stays_when_an_answer_comes(page, address):
    shown(page, address)
    held: list[Any] = []
    page.route("**/api/v1/result", lambda route: held.append(route))
    page.fill("#serve-max_model_len", "4096")
    page.keyboard.press("Enter")
    while not held:
        page.wait_for_timeout(20)
    page.focus("#serve-max_num_seqs")
    page.keyboard.type("12")
    before = needed(page)
    for one in held:
        one.continue_()
    page.wait_for_function(f"() => document.querySelector('{NEED}').dataset.value !== '{before}'")
    assert page.input_value("#serve-max_num_seqs") == "12"
    page.unroute("**/api/v1/result")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('serve.max_num_seqs=12')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 375, "height": 812})
    scenarios = (
        TUNING,
        f"#model={LARGEST}&task=serve&gpu=h200&num_gpus=16&serve.tensor_parallel_size=16",
        "#model=deepseek-ai/DeepSeek-V3&task=train&gpu=h200&num_gpus=64&train.fsdp=full-shard",
    )
    for scenario in scenarios if scheme == "light" or is_thorough() else scenarios[1:2]:
        shown(page, address, scenario)
        for view in ("why", "change", "map", "cards", "compare", "right", "files", "share"):
            page.click(f"#tab-{view}")
            page.wait_for_function(
                "() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')"
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= 375, (scenario, view)
            assert page.evaluate(CUT) == [], (scenario, view)


def test_chinese_and_back(page, address):
    shown(page, address)
    page.click("#language")
    page.wait_for_function("() => document.querySelector('#tab-why').textContent === '为什么'")
    assert page.get_attribute("html", "lang") == "zh-Hans"
    page.wait_for_function("() => document.querySelector('#answer').innerText.includes('所需显存')")
    page.click("#language")
    page.wait_for_function("() => document.querySelector('#tab-why').textContent === 'Why'")


def test_the_picture_of_a_json_answer_is_not_markup(page, address):
    shown(page, address)
    hostile = json.dumps({"model": "<img src=x onerror=alert(1)>", "task": "serve"})
    page.click("#tab-files")
    page.fill("#pasted", hostile)
    page.click("text=Read it")
    page.wait_for_selector(".report .error")
    assert page.locator(".report img").count() == 0


def test_the_browser_alone_gives_the_same_answers(page, address, static_address, standing_page):
    alone = standing_page(static_address)
    assert alone.get_attribute("html", "data-back-end") == "browser"
    for scenario in (SERVING, TUNING):
        shown(page, address, scenario)
        asked = "all => all.map(e => [e.dataset.path, e.dataset.value])"
        local = page.eval_on_selector_all("#answer [data-path]", asked)
        alone.evaluate("scenario => { location.hash = scenario; }", scenario)
        alone.wait_for_function(f"() => document.querySelector('{NEED}').dataset.value === '{needed(page)}'")
        assert alone.eval_on_selector_all("#answer [data-path]", asked) == local


def test_an_element_shows_an_answer_in_another_page(page, address):
    theirs = f"""<!doctype html><title>their docs</title><script type="module" src="{address}element.js"></script>
    <vramwise-estimate scenario="{SERVING.removeprefix("#").replace("&", "&amp;")}"></vramwise-estimate>"""
    page.route("**/their-docs.html", lambda route: route.fulfill(body=theirs, content_type="text/html"))
    page.goto(f"{address}their-docs.html")
    frame = page.frame_locator("vramwise-estimate iframe")
    frame.locator(".headline").wait_for()
    assert not frame.locator("#question").is_visible()
    told = answer(
        "result", {"model": "llama-3.1-8b", "task": "serve", "gpu": "rtx-4090", "serve": {"max_model_len": 8192}}
    )
    need = frame.locator('.headline [data-path="quantities.total_needed.expected"]').get_attribute("data-value")
    assert int(need) == told["quantities"]["total_needed"]["expected"]
    page.wait_for_function(  # as high as the answer: nothing of it is cut
        """() => {
          const frame = document.querySelector("iframe");
          return frame.clientHeight >= frame.contentDocument.body.scrollHeight && frame.clientHeight < 1500;
        }"""
    )
