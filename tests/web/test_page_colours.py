"""One table of colours and one set of numbers behind what the page draws and what the commands draw and print.

The page draws its bar and its map itself, from the numbers of an answer, so that they follow a slider; these tests hold
both to what `--picture` and `--sweep` say.
"""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from vramwise.cli.main import main
from vramwise.colours import NUMBER_OF_TERM, TERMS, VERDICTS, term_colours, term_number
from vramwise.web.api import answer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "vramwise" / "web" / "page"
WHITE, DARK_PANEL = "#ffffff", "#1b1f23"
SCENARIOS = (
    "#model=llama-3.1-8b&task=serve&gpu=rtx-4090&serve.max_model_len=8192",
    "#model=qwen2.5-0.5b&task=train&gpu=rtx-4060&train.method=lora&train.micro_batch_size=8",
    "#model=llama-3.1-8b&task=train&gpu=h100-sxm-80gb&num_gpus=8&train.fsdp=full-shard",
)


def luminance(colour: str) -> float:
    linear = [
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
        for one in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_page_has_the_colours_of_the_table() -> None:
    spec = importlib.util.spec_from_file_location("colours_tool", ROOT / "tools" / "site" / "colours.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert {name: (PAGE / name).read_text("utf-8") for name in tool.files()} == tool.files()


def test_colours_of_verdicts_and_terms_stand_in_one_table() -> None:
    ours = {one for both in (*VERDICTS.values(), *TERMS) for one in both}
    sources = [path for kind in ("py", "css", "js", "html") for path in (ROOT / "src").rglob(f"*.{kind}")]
    doubled = {
        path.name
        for path in sources
        if ours & set(re.findall(r"#[0-9a-f]{6}\b", path.read_text("utf-8").lower()))
        if path.name not in ("colours.py", "colours.css")
    }
    assert doubled == set()


def test_words_of_a_verdict_read_on_their_grounds() -> None:
    for light, dark in VERDICTS.values():
        assert contrast(light, WHITE) >= 4.5
        assert contrast(dark, DARK_PANEL) >= 4.5


def test_no_two_terms_of_a_picture_have_one_colour() -> None:
    names = ["gradient buckets", "CUDA graphs", "library workspace", "weights", "model weights", "a", "b", "c", "other"]
    assert len(set(term_colours(names).values())) == len(names)
    assert term_colours(["weights"])["weights"] == TERMS[0][0]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_page_and_its_picture_draw_the_same_numbers(page: Any, address: str, scenario: str) -> None:
    page.goto(f"{address}{scenario}&view=share")
    page.wait_for_selector(".ready .headline")
    page.wait_for_selector('[data-share="json"] pre')
    body = json.loads(page.inner_text('[data-share="json"] pre'))
    result = answer("result", body)
    drawn = bars_of_picture(answer("words", {"scenario": body})["picture"], result)
    shown = dict(page.eval_on_selector_all(".bar [data-term]", TITLES))
    both = (set(drawn) & set(shown)) - {"other"}
    assert len(both) > 3
    assert {name: drawn[name] for name in both} == {name: shown[name] for name in both}
    assert max(drawn, key=lambda name: float(drawn[name].split()[0])) == max(
        shown, key=lambda name: float(shown[name].split()[0]) if shown[name].endswith("GiB") else 0
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_bar_draws_every_byte_the_limit_and_the_interval_to_scale(page: Any, address: str, scenario: str) -> None:
    page.goto(f"{address}{scenario}&view=share")
    page.wait_for_selector(".ready .headline")
    page.wait_for_selector('[data-share="json"] pre')
    result = answer("result", json.loads(page.inner_text('[data-share="json"] pre')))
    phase = next(one for one in result["phases"] if one["name"] == result["peak_phase"])
    drawn = page.evaluate("""() => ({
        starts: [...document.querySelectorAll(".bar [data-term]")].map(one => Number(one.getAttribute("x"))),
        limit: Number(/M([\\d.]+)/.exec(document.querySelector(".bar .limit").getAttribute("d"))[1]),
        need: Number(document.querySelector(".whisker circle").getAttribute("cx")),
        ends: /M([\\d.]+) 64H([\\d.]+)/.exec(document.querySelector(".whisker path").getAttribute("d"))
            .slice(1).map(Number),
    })""")
    scale = drawn["limit"] / result["capacity"]["usable_bytes"]
    need = result["quantities"]["total_needed"]
    assert drawn["need"] == pytest.approx(need["expected"] * scale)
    assert drawn["ends"] == pytest.approx([need["low"] * scale, need["high"] * scale])
    sizes = sorted((one["bytes"] for one in phase["components"]["children"]), reverse=True)
    ends = list(accumulate(sizes, initial=0))[: len(drawn["starts"])]
    assert drawn["starts"] == pytest.approx([end * scale for end in ends])


def test_the_map_is_the_sweep_of_the_command_line(page: Any, address: str, capsys: Any) -> None:
    page.goto(f"{address}{SCENARIOS[1]}&view=map")
    page.wait_for_selector(".heat-table")
    batches, lengths = ([text.replace(",", "") for text in page.locator(where).all_inner_texts()] for where in AXES)
    question = ["--task", "train", "--method", "lora", "--gpu", "4060", "--json"]
    sweeps = ["--sweep", f"sequence_length={','.join(lengths)}", "--sweep", f"micro_batch_size={','.join(batches[1:])}"]
    main(["estimate", "qwen2.5-0.5b", *question, *sweeps])
    points = json.loads(capsys.readouterr().out)["sweep"]["points"]
    cells = page.eval_on_selector_all("td.heat", CELLS)
    said = [(one["needed_bytes"], one["word"].replace(" ", "-")) for one in points]
    assert [tuple(one[:2]) for one in cells] == said
    across = len(batches) - 1
    fits = [word != "does-not-fit" for _, word in said]
    edges = [[fits[i] and (i + 1) % across > 0 and not fits[i + 1],
              fits[i] and i + across < len(said) and not fits[i + across]] for i in range(len(said))]  # fmt: skip
    assert [one[2] for one in cells] == edges
    assert any(any(one) for one in edges)


@pytest.mark.parametrize("scenario", SCENARIOS[:1])
def test_the_page_numbers_terms_as_the_table_does(page: Any, address: str, scenario: str) -> None:
    page.goto(f"{address}{scenario}")
    page.wait_for_selector(".ready .headline")
    names = [*NUMBER_OF_TERM, "profile run: forward", "图像", "x" * 40]
    read = page.evaluate(
        "async names => { const m = await import('./colours.js'); return names.map(m.colourOf); }", names
    )
    assert read == [term_number(name) for name in names]


AXES = (".heat-table thead th", ".heat-table tbody th")
CELLS = """all => all.map(one => [Number(one.querySelector("[data-value]").dataset.value),
    ["fits", "tight", "does-not-fit"].find(word => one.classList.contains(word)),
    ["edge-right", "edge-below"].map(edge => one.classList.contains(edge))])"""
TITLES = """all => all.map(one => [one.dataset.term,
    one.querySelector('title').textContent.slice(one.dataset.term.length).trim()])"""


def bars_of_picture(picture: str, result: dict[str, Any]) -> dict[str, str]:
    """The sizes of 0.01 GiB and more that stand in the peak's row, by their terms."""
    root = ElementTree.fromstring(picture)
    boxes = [one for one in root.iter() if one.tag.endswith("rect") and len(one)]
    rows = sorted({float(one.attrib["y"]) for one in boxes})
    place = [one["name"] for one in result["phases"]].index(result["peak_phase"])
    titles = [one[0].text or "" for one in boxes if float(one.attrib["y"]) == rows[place]]
    found = {title.rsplit(" ", 2)[0]: " ".join(title.rsplit(" ", 2)[1:]) for title in titles}
    return {name: size for name, size in found.items() if not size.startswith("0.00")}
