"""The views of the page: changes, map, cards, side by side, files, pictures; and that everybody can use them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from by_turns import is_thorough

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))
LLAMA_CPP = importlib.import_module("sample_logs").LLAMA_CPP

VIEWS = ["why", "change", "map", "cards", "compare", "right", "files", "share"]
SERVING = "#model=qwen2.5-0.5b&task=serve&gpu=rtx-4090&serve.max_model_len=8192"
TUNING = "#model=qwen2.5-0.5b&task=train&gpu=rtx-4060&train.method=lora&train.micro_batch_size=8"
TOO_LARGE = "#model=llama-3.1-8b&task=train&gpu=rtx-4060&train.method=lora"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB "
    "of which 1.14 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the "
    "allocated memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
)


def shown(page, address, scenario, view="why"):
    page.goto("about:blank")
    page.goto(f"{address}{scenario}&view={view}")
    page.wait_for_selector(".ready .headline")
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")


def test_a_suggestion_applies(page, address):
    shown(page, address, TUNING, "change")
    before = page.get_attribute(".need [data-path]", "data-value")
    page.click('[data-focus="apply-0"]')
    page.wait_for_function(f"() => document.querySelector('.need [data-path]').dataset.value !== '{before}'")
    assert float(page.get_attribute(".need [data-path]", "data-value")) < float(before)


def test_a_plan_is_searched_on_demand(page, address):
    shown(page, address, TUNING, "change")
    page.click('[data-focus="plan"]')
    page.wait_for_selector('.plan [data-path="options.0.total_needed.expected"]')


def test_the_map_has_a_frontier_and_a_cell_is_taken(page, address):
    shown(page, address, TUNING, "map")
    assert page.locator(".heat.edge-right, .heat.edge-below").count() > 0
    page.click('[data-focus="cell-0-0"]')
    page.wait_for_function("() => location.hash.includes('train.micro_batch_size=1&train.sequence_length=512')")


def test_a_card_of_all_cards_is_taken(page, address):
    shown(page, address, SERVING, "cards")
    page.click('[data-focus="card-rtx-4060"]')
    page.wait_for_function("() => location.hash.includes('gpu=rtx-4060')")
    page.wait_for_function("() => document.querySelector('.card-line strong').textContent === 'GeForce RTX 4060'")


def test_two_scenarios_side_by_side_differ_by_terms_that_add_up(page, address):
    shown(page, address, TUNING, "compare")
    page.click('[data-focus="keep"]')
    page.wait_for_function(
        "() => location.hash.includes('with=') && document.querySelector('.sides [data-path=\"difference\"]')"
    )
    page.fill("#train-micro_batch_size", "2")
    page.keyboard.press("Tab")
    page.wait_for_function(
        "() => Number(document.querySelector('.sides [data-path=\"difference\"]')?.dataset.value ?? 0) < 0"
    )
    said = page.eval_on_selector_all(
        '[data-path^="terms."][data-path$=".difference"]', "all => all.map(e => +e.dataset.value)"
    )
    assert sum(said) == int(page.get_attribute('.sides [data-path="difference"]', "data-value"))
    assert "with=model%3Dqwen2.5-0.5b" in page.url


def test_ranks_of_a_pipeline_stand_one_below_the_other(page, address):
    many = "&num_gpus=4&train.framework=megatron&train.pipeline_parallel_size=4"
    shown(page, address, "#model=llama-3.1-8b&task=train&gpu=h100" + many)
    assert page.locator(".ranks li").count() == 4


def test_the_nearest_cases_show_their_errors(page, address):
    shown(page, address, SERVING, "right")
    assert page.locator('.nearest [data-path$=".error"]').count() > 0


def test_a_pasted_message_is_explained(page, address):
    shown(page, address, SERVING, "files")
    page.fill("#pasted", MESSAGE)
    page.click("text=Read it")
    page.wait_for_selector(".failure")
    assert "fragmentation" in page.inner_text(".failure")


def test_a_log_stands_beside_its_estimate(page, address):
    shown(page, address, SERVING, "files")
    page.fill("#pasted", LLAMA_CPP)
    page.click("text=Read it")
    page.wait_for_selector('[data-path="report.rows.0.printed"]')
    assert page.locator('.report [data-path$=".error"]').count() > 3


def test_files_of_several_kinds_are_read(page, address, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
                                  "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 256,
                                  "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}))  # fmt: skip
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('model = "qwen2.5-0.5b"\ntask = "serve"\ngpu = "4090"\n')
    trace = ROOT / "docs" / "examples" / "small.pt.trace.json"
    shown(page, address, SERVING, "files")
    for path, kind in ((config, "model"), (scenario, "scenario"), (trace, "profiler trace")):
        page.set_input_files("#file", path)
        page.wait_for_function(f"() => document.querySelector('.report h3')?.textContent === '{path.name} · {kind}'")


def test_a_planted_peak_stays_visible_among_a_million_points_however_near_one_looks(page, address):
    shown(page, address, SERVING)
    drawn = page.evaluate(
        """async () => {
          const { timeline } = await import("./timeline.js");
          const values = new Float64Array(1_000_000).fill(2 ** 30);
          values[500_100] = 8 * 2 ** 30;
          const half = values.map((one) => one / 2);
          const box = timeline([{ name: "allocated", values }, { name: "reserved", values: half }], "planted");
          document.getElementById("view").replaceChildren(box);
          while (!box.querySelector("canvas")) await new Promise((later) => setTimeout(later, 20));
          const canvas = box.querySelector("canvas");
          const pen = canvas.getContext("2d");
          const found = [];
          for (const key of ["0", ..."+++++++++++++++"]) {
            box.querySelector(".timeline").dispatchEvent(new KeyboardEvent("keydown", { key }));
            await new Promise((later) => requestAnimationFrame(() => setTimeout(later)));
            const high = pen.getImageData(0, Math.floor(canvas.height * 0.3), canvas.width, 1).data;
            const [, first, last] = /([\\d,]+) – ([\\d,]+)/.exec(box.querySelector(".readout").textContent);
            found.push({
              inked: high.some((one, i) => i % 4 === 3 && one === 255),
              shown: Number(last.replaceAll(",", "")) - Number(first.replaceAll(",", "")),
              peak: box.querySelector("[data-path]").dataset.value,
            });
          }
          return found;
        }"""
    )
    assert drawn[0]["shown"] == 1_000_000
    near = [one for one in drawn if one["peak"] == str(8 * 2**30)]
    assert len(near) > 10
    assert all(one["inked"] for one in near)
    assert not any(one["inked"] for one in drawn if one not in near)
    assert near[-1]["shown"] < 1000


def test_what_is_taken_away_is_the_scenario(page, address, tmp_path):
    shown(page, address, TUNING, "share")
    command = page.inner_text('[data-share="command"] pre')
    assert command == ("vramwise estimate qwen2.5-0.5b --task train --gpu rtx-4060 --method lora --micro-batch-size 8")
    assert page.inner_text('[data-share="address"] pre') == address + TUNING
    for label, magic in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("Badge", b"<svg")):
        with page.expect_download() as taken:
            page.click(f"#view button:text-is('{label}')")
        taken.value.save_as(tmp_path / label)
        assert (tmp_path / label).read_bytes().startswith(magic)


def test_an_embedded_page_shows_the_answer_alone(page, address):
    page.goto(f"{address}?embed{SERVING}")
    page.wait_for_selector(".ready .headline")
    assert not page.is_visible("#question")
    assert page.is_visible(".bar")


WAYS = [("light", "en", 1280), ("dark", "zh", 375), ("dark", "zh", 1280), ("light", "zh", 375), ("dark", "en", 375)]
"""Both grounds, languages and widths in the first two; the others in a thorough run."""


@pytest.mark.parametrize(("scheme", "language", "width"), WAYS if is_thorough() else WAYS[:2])
def test_everybody_can_use_every_view(page, address, axe, scheme, language, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 812})
    shown(page, address, TOO_LARGE)
    if language == "zh":
        page.click("#language")
        page.wait_for_function("() => document.querySelector('#tab-why').textContent === '为什么'")
    page.evaluate(axe)
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")
        nothing_serious(page, view)
    assert page.get_attribute("html", "lang") == {"en": "en", "zh": "zh-Hans"}[language]


def test_everybody_can_use_what_opens(page, address, axe):
    """A plan's options, a comparison, a file's report, what is wrong with a value, and a list of models."""
    shown(page, address, TUNING, "change")
    page.evaluate(axe)
    page.click('[data-focus="plan"]')
    page.wait_for_selector(".plan .option")
    nothing_serious(page, "a plan")
    page.click("#tab-compare")
    page.click('[data-focus="keep"]')
    page.wait_for_selector(".sides")
    nothing_serious(page, "a comparison")
    page.click("#tab-files")
    page.fill("#pasted", MESSAGE)
    page.click("text=Read it")
    page.wait_for_selector(".failure")
    nothing_serious(page, "a report")
    page.fill("#train-micro_batch_size", "-5")
    page.keyboard.press("Tab")
    page.wait_for_selector("#train-micro_batch_size[aria-invalid=true]")
    nothing_serious(page, "a wrong value")
    page.fill("#model", "qwen")
    page.wait_for_selector("#model-list [role=option]")
    nothing_serious(page, "a list")


def nothing_serious(page, where):
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(where, one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in serious] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_white_and_has_nothing_to_press(page, address, scheme):
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}#model=qwen2.5-0.5b&task=train&gpu=rtx-4060&train.method=lora")
    page.wait_for_selector(".ready .headline")
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", scheme)
    page.emulate_media(media="print", color_scheme=scheme)
    ground, ink = page.evaluate("(one => [one.backgroundColor, one.color])(getComputedStyle(document.body))")
    assert ground == "rgb(255, 255, 255)"
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 80
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    for place in (".question", ".tools", ".tabs", ".tagline"):
        assert not page.locator(place).first.is_visible(), place
    assert page.locator(".terms").is_visible()


def test_what_goes_into_a_formula_stands_apart(page, address):
    page.goto(f"{address}#model=qwen2.5-0.5b&task=train&gpu=rtx-4060")
    page.wait_for_selector(".ready .headline")
    page.evaluate("document.querySelectorAll('details.term').forEach(one => { one.open = true; })")
    assert re.fullmatch(r"\w+ = [\d,]+(, \w+ = [\d,]+)+", page.locator(".inputs").first.inner_text())


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_moment_is_wider_than_its_column(page, address, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}#model=llama-3.1-8b&task=train&gpu=h100&num_gpus=8&train.fsdp=full-shard")
    page.wait_for_selector(".ready .headline")
    over = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
    assert page.eval_on_selector_all(".moment", over) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def _hash(page):
    return page.evaluate("() => decodeURIComponent(location.hash)")


def test_a_trainer_brings_its_models_along_and_takes_them_away(page, address):
    shown(page, address, "#model=qwen2.5-0.5b&task=train&gpu=rtx-4090&train.method=lora&train.micro_batch_size=4")
    assert page.input_value("#trainer") == "sft"
    page.select_option("#trainer", "grpo")
    page.wait_for_function("() => decodeURIComponent(location.hash).includes('train.extra_models=rollout:vllm')")
    assert "train.rollout_gpu_memory_utilization=0.3" in _hash(page)
    page.wait_for_function("() => [...document.querySelectorAll('#answer')].some(e => /rollout/.test(e.textContent))")
    page.select_option("#trainer", "dpo")
    page.wait_for_function("() => location.hash.includes('train.micro_batch_size=8')")
    assert "train.extra_models=reference" in _hash(page)
    assert "rollout" not in _hash(page)
    assert page.inner_text("#trainer-help").startswith("A sample is two sequences")
    page.select_option("#trainer", "sft")
    page.wait_for_function("() => location.hash.includes('train.micro_batch_size=4')")
    assert "extra_models" not in _hash(page)
    page.goto(f"{address}#model=qwen2.5-0.5b&task=train&gpu=rtx-4090&train.extra_models=critic")
    page.wait_for_function("() => document.querySelector('#trainer').value === 'other'")
