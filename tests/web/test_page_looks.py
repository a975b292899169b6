"""How the page looks and what its numbers say: nothing cut off, nothing on two lines, one number said in one way."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from vramwise.cli.main import main
from vramwise.colours import TERMS
from vramwise.web.api import answer

sys.path.insert(0, str(Path(__file__).parent))
from given_files import EXAMPLES, FILES

SERVING = "#model=llama-3.1-8b&task=serve&gpu=rtx-4090&serve.max_model_len=8192"
TUNING = "#model=qwen2.5-0.5b&task=train&gpu=rtx-4060&train.method=lora&train.micro_batch_size=8"
CUT = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 60))"
BROKEN = "all => all.filter(one => one.getClientRects().length > 1).map(one => one.innerText)"

TIMELINE = """async () => {
  const { timeline } = await import("./timeline.js");
  const values = Float64Array.from({ length: 5000 }, (_, i) => i * 2 ** 20);
  window.box = timeline([{ name: "allocated", values }], "kept");
  document.getElementById("view").replaceChildren(window.box);
}"""
INK = """() => {
  const canvas = box.querySelector("canvas");
  const dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let i = 0; i < dots.length; i += 4) {
    const [red, green, blue, ink] = dots.subarray(i, i + 4);
    if (ink === 255) found.add("#" + [red, green, blue].map((one) => one.toString(16).padStart(2, "0")).join(""));
  }
  return [...found];
}"""


def shown(page: Any, address: str, scenario: str, view: str = "why") -> None:
    page.goto("about:blank")
    page.goto(f"{address}{scenario}&view={view}")
    page.wait_for_selector(".ready .headline")
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")


def given(page: Any, name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    page.set_input_files("#file", folder / name)
    page.wait_for_selector(f'.report h3:has-text("{name}")')


def test_a_chance_is_the_one_that_the_badge_and_the_command_say(page: Any, address: str) -> None:
    shown(page, address, SERVING.replace("8192", "14336"), "share")
    scenario = json.loads(page.inner_text('[data-share="json"] pre'))
    probability = answer("result", scenario)["verdict"]["probability"]
    said = f"{int(100 * probability)} %"
    assert 100 * probability % 1 > 0.5  # rounded it would be another one
    assert page.inner_text('.headline [data-path="verdict.probability"]') == said
    assert f"({said})" in page.inner_text('[data-share="markdown"] pre')


def test_a_log_keeps_the_card_that_it_names(page: Any, address: str, tmp_path: Path, capsys: Any) -> None:
    main(["compare", str(EXAMPLES / "vllm.log"), "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    shown(page, address, SERVING, "files")
    given(page, "vllm.log", FILES["vllm.log"][0](), tmp_path)
    errors = page.eval_on_selector_all(".report [data-path$='.error']", "all => all.map(one => one.dataset.value)")
    assert [float(one) for one in errors] == pytest.approx([row["error"] for row in rows])
    assert not any("−0.0" in text or "+0.0" in text for text in page.locator(".report td").all_inner_texts())


@pytest.mark.parametrize("width", [375, 1280])
def test_no_table_hides_a_column_and_no_number_breaks(page: Any, address: str, tmp_path: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 812})
    for view in ("cards", "compare", "files"):
        shown(page, address, SERVING, view)
        if view == "compare":
            page.click('[data-focus="keep"]')
            page.wait_for_selector(".sides")
        if view == "files":
            given(page, "rank0.pt.trace.json", FILES["rank0.pt.trace.json"][0](), tmp_path)
        assert page.eval_on_selector_all("#view .scroll", CUT) == [], view
        assert page.eval_on_selector_all("#view td .n", BROKEN) == [], view
    shown(page, address, SERVING, "cards")
    assert page.locator(".cards tbody .word").first.is_visible()


def test_all_moments_of_a_step_are_seen_at_once(page: Any, address: str) -> None:
    shown(page, address, TUNING)
    assert page.locator(".moment").count() > 10
    assert page.eval_on_selector_all("#view .scroll", CUT) == []


def test_a_moment_that_is_pointed_at_shows_its_terms(page: Any, address: str) -> None:
    shown(page, address, TUNING)
    # what makes it fit comes later and moves the columns from under the pointer
    page.wait_for_function("() => !document.querySelector('#answer').innerText.includes('Looking for')")
    moments, peak = page.locator(".moment"), page.inner_text(".readout")
    name = moments.first.locator(".name").inner_text()
    moments.first.hover()
    page.wait_for_function("name => document.querySelector('.readout').innerText.startsWith(name)", arg=name)
    page.wait_for_function(
        """() => {
          const all = [...document.querySelectorAll(".terms > details [data-path]")];
          return all.length > 0 && all.every(one => one.dataset.path.startsWith("phases.0."));
        }"""
    )
    page.mouse.move(0, 0)
    page.wait_for_function("peak => document.querySelector('.readout').innerText === peak", arg=peak)


def test_sizes_of_changes_stand_below_one_another(page: Any, address: str) -> None:
    shown(page, address, SERVING, "change")
    ends = page.eval_on_selector_all(".option > .amount", "all => all.map(one => one.getBoundingClientRect().right)")
    assert len(ends) > 1
    assert len(set(ends)) == 1


def test_a_setting_is_asked_for_in_words(page: Any, address: str) -> None:
    shown(page, address, SERVING)
    label = page.locator("label[for=serve-max_model_len]")
    assert label.locator(".says").inner_text() == "Tokens of the longest request"
    assert label.locator("code").inner_text() == "max_model_len"


def test_a_timeline_says_its_scale_and_what_is_pointed_at(page: Any, address: str, tmp_path: Path) -> None:
    shown(page, address, SERVING, "files")
    given(page, "snapshot.pickle", FILES["snapshot.pickle"][0](), tmp_path)
    page.hover(".timeline .u-over", position={"x": 600, "y": 50})
    assert page.inner_text(".pointed") == "Event 2 · allocated 512 B · reserved 2.00 KiB"
    assert "peak here 512 B" in page.inner_text(".readout")
    page.hover("h1, .brand")
    page.wait_for_function("() => document.querySelector('.pointed').textContent === ''")


def test_a_timeline_is_drawn_in_the_colours_of_the_moment(page: Any, address: str) -> None:
    shown(page, address, SERVING)
    page.evaluate(TIMELINE)
    page.wait_for_selector(".timeline canvas")
    light, dark = TERMS[0]
    assert light in page.evaluate(INK)
    page.click("#theme")
    page.wait_for_function(f"() => ({INK})().includes('{dark}')")
    assert light not in page.evaluate(INK)
    page.click("#theme")


def test_a_timeline_ends_with_its_view_and_comes_back_as_it_was(page: Any, address: str) -> None:
    """What draws it listens to the window: left behind, it would keep a million samples for each file dropped."""
    shown(page, address, SERVING)
    page.evaluate(TIMELINE)
    page.wait_for_selector(".timeline canvas")
    page.focus(".timeline")
    page.keyboard.press("+")
    assert "events 1,250 – 3,750 of 5,000" in page.inner_text(".readout")
    page.evaluate("() => box.remove()")
    page.wait_for_function("() => !box.querySelector('canvas')")
    page.evaluate("() => document.getElementById('view').replaceChildren(box)")
    page.wait_for_selector(".timeline canvas")
    assert "events 1,250 – 3,750 of 5,000" in page.inner_text(".readout")
    page.set_viewport_size({"width": 375, "height": 812})
    page.wait_for_function("() => box.querySelector('.uplot').clientWidth <= 375")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 375


def test_a_timeline_is_zoomed_by_the_wheel_and_moved_by_dragging(page: Any, address: str) -> None:
    shown(page, address, SERVING)
    page.evaluate(TIMELINE)
    place = page.locator(".timeline .u-over").bounding_box()
    middle, high = place["x"] + place["width"] / 2, place["y"] + 50

    def ends() -> list[int]:
        return [int(one.replace(",", "")) for one in re.findall(r"[\d,]+", page.inner_text(".readout"))[:2]]

    page.mouse.move(middle, high)
    page.mouse.wheel(0, -100)
    page.wait_for_function("() => !box.querySelector('.readout').textContent.includes('events 0 – 5,000')")
    assert ends() == pytest.approx([500, 4500], abs=5)
    page.mouse.down()
    page.mouse.move(middle - place["width"] / 16, high)
    page.mouse.up()
    page.mouse.move(middle, high)
    assert ends() == pytest.approx([750, 4750], abs=5)


def test_a_plan_that_changes_nothing_has_nothing_to_apply(page: Any, address: str) -> None:
    shown(page, address, SERVING, "change")
    page.click('[data-focus="plan"]')
    page.wait_for_selector(".plan .option")
    assert page.inner_text(".plan .option code") == "as asked"
    assert page.locator(".plan .apply").count() == 0


def test_a_press_of_a_slider_lays_out_the_page_a_few_times(page: Any, address: str) -> None:
    """Once for the slider, once for the answer, once for what follows: not again for fields that stay as they are."""
    shown(page, address, TUNING)
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")
    slider = page.locator('[data-focus="train-sequence_length-slider"]')

    def layouts() -> int:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return next(int(one["value"]) for one in found if one["name"] == "LayoutCount")

    def press(key: str) -> None:
        before = page.inner_text(".headline .big")
        slider.press(key)
        page.wait_for_function("before => document.querySelector('.headline .big').innerText !== before", arg=before)

    press("ArrowRight")
    begun = layouts()
    for key in ("ArrowRight", "ArrowLeft") * 3:
        press(key)
    assert layouts() - begun <= 6 * 4


ALONE = """
() => {
  const found = [];
  for (const id of ["answer", "view"]) {
    const texts = document.createTreeWalker(document.getElementById(id), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const parent = texts.currentNode.parentElement;
      const number = /^\\s*[+−-]?\\d[\\d,]*(\\.\\d+)?\\s*(GiB|MiB|KiB|%|s|tokens\\/s)?\\s*$/;
      const hasPlace = parent.closest("[data-path][data-value], code, pre, option");
      if (number.test(texts.currentNode.data) && !hasPlace) found.push(parent.outerHTML);
    }
  }
  return found;
}
"""


@pytest.mark.parametrize("view", ["why", "change", "map", "cards", "compare", "right", "share"])
def test_no_number_of_a_view_is_without_its_place(page: Any, address: str, view: str) -> None:
    shown(page, address, f"{TUNING}&with={quote(SERVING[1:])}", view)
    if view == "change":
        page.click('[data-focus="plan"]')
        page.wait_for_selector('.plan [data-path="searched"]')
    assert page.locator("#view [data-path]").count() > 0 or view == "share"
    assert page.evaluate(ALONE) == []
