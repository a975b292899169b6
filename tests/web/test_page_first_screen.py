"""The first screen: there before the program is, by keyboard, on a phone, and with what makes it fit."""

from __future__ import annotations

import json
import shutil
import urllib.request
from typing import Any

import pytest

from vramwise.web.api import answer

TOO_LARGE = "#model=llama-3.1-8b&task=train&gpu=rtx-4060&train.method=lora"
NEED = '.headline [data-path="quantities.total_needed.expected"]'
SHOWN = "all => all.map(e => [e.dataset.path, e.dataset.value])"


def shown(page: Any, address: str, scenario: str = "") -> None:
    page.goto("about:blank")
    page.goto(address + scenario)
    page.wait_for_selector(".ready .headline")


def test_an_answer_and_the_form_stand_there_before_python_does(page: Any, static_address: str) -> None:
    held: list[Any] = []
    page.route("**/*.wasm", lambda route: held.append(route))  # the runtime never comes
    page.goto(static_address)
    page.wait_for_selector(".ready .headline")
    first = answer("keys", {})["first"]
    told = answer("result", first)
    assert int(page.get_attribute(NEED, "data-value")) == told["quantities"]["total_needed"]["expected"]
    assert page.input_value("#model") == first["model"]
    page.wait_for_function("() => document.querySelector('#starting').textContent.includes('Starting Python')")
    page.click("#language")
    page.wait_for_function("() => document.querySelector('#starting').textContent.includes('正在浏览器中启动 Python')")
    assert page.is_enabled("#serve-max_model_len")


def test_the_answer_that_came_first_is_the_programs_own(page: Any, static_address: str) -> None:
    page.goto(static_address)
    page.wait_for_selector(".ready .headline")
    before = page.eval_on_selector_all("#answer [data-path]", SHOWN)
    with urllib.request.urlopen(f"{static_address}start.json") as response:
        written = json.load(response)
    own = page.evaluate(
        """async (scenario) => {
          const { ask } = await import("./api.js");  // of the page's own worker, which asks nothing but the program
          return ask("result", scenario);
        }""",
        written["keys"]["first"],
    )
    assert own == written["result"]
    page.wait_for_function("() => document.querySelector('#starting').textContent === ''")
    assert page.eval_on_selector_all("#answer [data-path]", SHOWN) == before


def test_what_is_loaded_is_said_while_it_comes(page: Any, static_address: str) -> None:
    page.add_init_script(
        """window.said = new Set();
        document.addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
          window.said.add(document.querySelector("#starting").textContent);
        }).observe(document.querySelector("#starting"), { childList: true }));"""
    )
    page.goto(static_address + TOO_LARGE)
    page.wait_for_selector(".ready .headline")
    said = page.evaluate("[...window.said]")
    assert [one for one in said if one.startswith("Loading Python and vramwise … ")], said
    assert "Starting vramwise …" in said
    assert said[-1] == ""


def test_a_page_starts_from_the_image_of_the_started_program(page: Any, static_address: str) -> None:
    if not shutil.which("node"):
        pytest.skip("the image is made by Node")
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    shown(page, static_address, TOO_LARGE)
    assert [url for url in asked if "/started.image?" in url]
    assert said == []


def test_without_its_image_the_program_starts_itself(page: Any, static_address: str) -> None:
    shown(page, static_address, TOO_LARGE)
    need = page.get_attribute(NEED, "data-value")
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.route("**/started.image?*", lambda route: route.fulfill(status=200, body="no image"))
    page.goto("about:blank")
    shown(page, static_address, TOO_LARGE)
    assert page.get_attribute(NEED, "data-value") == need
    assert [one for one in said if one.startswith("the program starts without its memory image: ")]


def test_a_program_that_cannot_start_is_said(page: Any, static_address: str) -> None:
    page.route("**/vramwise.tar.gz?*", lambda route: route.fulfill(status=200, body="no archive"))
    page.goto(static_address)
    page.wait_for_selector("#starting.error")
    assert page.inner_text("#starting").startswith("It could not start:")


def test_the_way_past_the_form_keeps_the_scenario(page: Any, address: str) -> None:
    shown(page, address, TOO_LARGE)
    need = page.get_attribute(NEED, "data-value")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"
    page.wait_for_timeout(300)
    assert page.url.endswith(TOO_LARGE)
    assert page.get_attribute(NEED, "data-value") == need


def test_what_does_not_fit_says_at_once_what_would(page: Any, address: str) -> None:
    shown(page, address, TOO_LARGE)
    page.wait_for_selector('[data-focus="fix-0"]')
    need = page.get_attribute('[data-focus="fix-0"] [data-path]', "data-value")
    page.click('[data-focus="fix-0"]')
    page.wait_for_function(f"""() => document.querySelector('{NEED}').dataset.value === '{need}'""")
    assert page.get_attribute(".verdict", "data-value") in ("fits", "tight")


def test_changes_are_a_press_away(page: Any, address: str) -> None:
    shown(page, address, "#model=llama-3.1-70b&task=train&gpu=rtx-4060")
    page.click('[data-focus="fixes-more"]')
    page.wait_for_selector(".suggestions .option")
    assert "view=change" in page.url


def test_a_phone_shows_the_verdict_while_one_asks(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    shown(page, address, TOO_LARGE)
    assert page.is_visible("#summary")
    assert "does not fit" in page.inner_text("#summary")
    page.click("#summary")
    page.wait_for_function("() => document.querySelector('.headline').getBoundingClientRect().top < innerHeight / 2")
    page.wait_for_selector("#summary", state="hidden")
    assert page.url.endswith(TOO_LARGE)


def test_an_unknown_name_offers_the_nearest(page: Any, address: str) -> None:
    page.goto(f"{address}#model=qwen2.5-7bbb&task=load")
    page.click('[data-focus="meant-0"]')
    page.wait_for_selector(".ready .headline")
    assert "Qwen2.5-7B" in page.inner_text(".subject")
    page.fill("#gpu", "4900")
    page.keyboard.press("Enter")
    page.click('[data-focus="meant-0"]')
    page.wait_for_function("() => document.querySelector('.card-line strong')?.textContent === 'GeForce RTX 4090'")
