"""Every view and every kind of file on both back ends as they are run: `vramwise web`, and the folder of `--static`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vramwise.web.api import answer

sys.path.insert(0, str(Path(__file__).parent))
from given_files import FILES

VIEWS = ("why", "change", "map", "cards", "compare", "right", "files", "share")
TUNING = {"model": "qwen2.5-0.5b", "task": "train", "gpu": "rtx-4060", "train": {"method": "lora"}}
HASH = "#model=qwen2.5-0.5b&task=train&gpu=rtx-4060&train.method=lora"
NEED = '.headline [data-path="quantities.total_needed.expected"]'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real `vramwise web`."""
    pytest.importorskip("fastapi")
    command = [sys.executable, "-m", "vramwise", "web", "--port", "0", "--offline"]
    folder = tmp_path_factory.mktemp("server")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(params=["running", "static_address"])
def page(request: pytest.FixtureRequest, standing_page: Callable[[str], Any]) -> Any:
    """The page of a back end with the scenario answered that every test here begins with."""
    found = standing_page(request.getfixturevalue(request.param))
    found.evaluate("scenario => { location.hash = scenario; }", HASH)
    need = answer("result", TUNING)["quantities"]["total_needed"]["expected"]
    found.wait_for_function(f"() => document.querySelector('{NEED}').dataset.value === '{need}'")
    return found


def settled(page: Any) -> None:
    page.wait_for_function("() => !document.querySelector('#view .waiting') && document.querySelector('#view h2')")


def test_every_view_is_answered(page: Any) -> None:
    for view in VIEWS:
        page.click(f"#tab-{view}")
        settled(page)
        if view == "compare":
            page.click('[data-focus="keep"]')
            page.wait_for_selector(".sides")
        assert page.locator("#view .error").all_inner_texts() == [], view
        assert page.locator("#view [data-value], #view pre, #view textarea").count() > 0, view


def test_every_kind_of_file_is_read(page: Any, tmp_path: Path, gguf_head: bytes) -> None:
    page.click("#tab-files")
    settled(page)
    for name, (content, kind) in {**FILES, "tiny.gguf": (lambda: gguf_head + bytes(500_000), "model")}.items():
        (tmp_path / name).write_bytes(content())
        page.evaluate("document.querySelector('.report').replaceChildren()")
        page.set_input_files("#file", tmp_path / name)
        page.wait_for_selector(".report h3, .report .error")
        assert page.inner_text(".report").startswith(f"{name} · {kind}"), page.inner_text(".report")
        assert page.locator(".report [data-value]").count() > 0, name


def test_the_page_of_the_api_lists_all_and_asks_for_one(chromium: Any, running: str) -> None:
    page = chromium.new_page()
    page.goto(f"{running}api/v1/docs")
    page.wait_for_selector("#names section")
    names = page.locator("#names h2").all_inner_texts()
    assert set(names) == {f"/api/v1/{name}" for name in answer("version", {})["names"]}
    body = json.loads(page.input_value("#body"))
    section = page.locator("#names section", has=page.get_by_role("heading", name="/api/v1/result", exact=True))
    section.get_by_role("button").click()
    section.locator("pre").wait_for()
    status, _, text = section.locator("pre").inner_text().partition("\n")
    assert status == "200"
    assert text.startswith(json.dumps(answer("result", body))[:19_000])
    assert "micro_batch_size" in page.inner_text("#keys")
    page.close()


DROP = """async ([name, text]) => {
  document.querySelector('.report')?.replaceChildren();
  const carried = new DataTransfer();
  carried.items.add(new File([text], name));
  for (const type of ['dragenter', 'dragover', 'drop'])
    document.body.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: carried}));
}"""
DROPPED = {
    "axolotl.yml": ("base_model: Qwen/Qwen2.5-0.5B\nmodel_type: LlamaForCausalLM\nadapter: lora\nlora_r: 4\n", "train"),
    "serve.yaml": ("model: Qwen/Qwen2.5-0.5B\nmax-model-len: 4096\n", "serve"),
    "task.yaml": ("resources: {accelerators: L4}\nrun: vllm serve Qwen/Qwen2.5-0.5B --max-model-len 4096\n", "serve"),
    "swap.yaml": ("models:\n  a:\n    cmd: llama-server -m Qwen2.5-0.5B-Q4_K_M.gguf -c 4096\n", "serve"),
    "command.txt": ("$ vllm serve Qwen/Qwen2.5-0.5B --max-model-len 4096\n", "serve"),
    "config.json": ('{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 1000}', "serve"),
}


def test_what_is_dropped_anywhere_on_the_page_can_be_asked_about(page: Any) -> None:
    page.click("#tab-why")
    for name, (text, task) in DROPPED.items():
        page.evaluate(DROP, [name, text])
        page.wait_for_selector(".report h3, .report .error")
        assert page.locator("#drop").is_hidden()
        assert page.inner_text(".report").startswith(f"{name} · "), page.inner_text(".report")
        before = page.evaluate("location.hash")
        page.click(".report button:last-of-type")
        page.wait_for_function(f"() => location.hash !== {json.dumps(before)} && location.hash.includes('task={task}')")
