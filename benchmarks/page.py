"""The page in a real Chromium: the time to its first answer, from a slider to the new picture, and a timeline's redraw.

python benchmarks/page.py [--runs 5] [--runtime FOLDER]      (--runtime: Pyodide's files, where npm is not there)

Needs `pip install 'vramwise[web]' playwright` and Chromium on the path.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import sync_playwright

from vramwise.web.static import write_static

SERVING = "#model=llama-3.1-8b&task=serve&gpu=rtx-4090&serve.max_model_len=2048"
TRAINING = "#model=llama-3.1-8b&task=train&gpu=rtx-4090&train.method=qlora&train.sequence_length=512"
OTHER = TRAINING.replace("llama-3.1-8b", "qwen3-32b").replace("rtx-4090", "h100-sxm-80gb")
SLIDERS = {SERVING: "serve-max_model_len-slider", TRAINING: "train-sequence_length-slider"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
POINTS = 1_000_000
GOALS = {"first answer": 3500, "slider": 50, "timeline": 100}
PRESSES = """
async ([slider, presses]) => {
  const input = document.querySelector(`[data-focus="${slider}"]`);
  const need = () => document.querySelector('.headline [data-path="quantities.total_needed.expected"]').dataset.value;
  const frame = () => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
  const times = [];
  let by = 1;
  for (let press = 0; press < presses; press++) {
    if (Number(input.value) + by > Math.min(Number(input.max), 10) || Number(input.value) + by < 0) by = -by;
    const before = need();
    const began = performance.now();
    input.value = String(Number(input.value) + by);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    while (need() === before && performance.now() - began < 5000) await new Promise((later) => setTimeout(later));
    await frame();
    times.push(performance.now() - began);
    await new Promise((rested) => setTimeout(rested, 300));
  }
  return times;
}
"""
REDRAWS = """
async (points) => {
  const { timeline } = await import("./timeline.js");
  const values = Float64Array.from({ length: points }, (_, i) =>
    2 ** 30 * (8 + 6 * Math.sin(i / 5000) + (i % 17) / 17),
  );
  const box = timeline(["allocated", "reserved"].map((name) => ({ name, values })), "a million points");
  document.getElementById("view").replaceChildren(box);
  while (!box.querySelector("canvas")) await new Promise((later) => setTimeout(later, 20));
  await new Promise((drawn) => setTimeout(drawn, 300));
  const plot = box.querySelector(".timeline");
  const times = [];
  for (const key of ["-", "+", "+", "ArrowRight", "+", "ArrowLeft", "-", "-", "0", "+", "-"]) {
    const began = performance.now();
    plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    times.push(performance.now() - began);
  }
  return times;
}
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def folder_served(runtime: str | None) -> Iterator[str]:
    """The address of the folder that `vramwise web --static` writes."""
    with tempfile.TemporaryDirectory(prefix="vramwise-page-") as parent:
        folder = os.path.join(parent, "site")
        write_static(folder, runtime)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def server_running() -> Iterator[str]:
    """The address of `vramwise web`."""
    command = [sys.executable, "-m", "vramwise", "web", "--port", "0", "--offline"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        yield server.stderr.readline().split()[1]
    finally:
        server.terminate()
        server.wait()


def opened(browser: Any, address: str) -> tuple[Any, float]:
    """A page in a new profile, nothing of it cached, and the milliseconds until its answer stands there."""
    page = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".ready .headline")
    return page, 1000 * (time.perf_counter() - begun)


def told(what: str, times: list[float], goal_ms: float | None = None) -> None:
    times = sorted(times)
    goal = "" if goal_ms is None else f"  (goal: median at most {goal_ms:,} ms)"
    print(f"{what:<66} median {statistics.median(times):6,.0f} ms, "
          f"fastest {times[0]:6,.0f}, slowest {times[-1]:6,.0f}{goal}", flush=True)  # fmt: skip


def measured(browser: Any, where: str, base: str, runs: int) -> None:
    """First answers, then sliders once warm."""
    for what, address in (("default question", ""), ("training", TRAINING), ("training of a model not yet met", OTHER)):
        times = []
        for _ in range(runs):
            page, took = opened(browser, base + address)
            times.append(took)
            page.context.close()
        told(f"{where}: empty page to the first answer, {what}", times, GOALS["first answer"])
    for what, address in (("serving", SERVING), ("training", TRAINING)):
        page, _ = opened(browser, base + address)
        page.evaluate(PRESSES, [SLIDERS[address], 20])  # every step of the slider has been asked once
        told(f"{where}: slider to redraw, {what}", page.evaluate(PRESSES, [SLIDERS[address], 25]), GOALS["slider"])
        page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--runtime", default=os.environ.get("VRAMWISE_PYODIDE"))
    args = parser.parse_args()
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        print(f"Chromium {browser.version}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        with folder_served(args.runtime) as base:
            measured(browser, "browser alone", base, args.runs)
        with server_running() as base:
            measured(browser, "server", base, args.runs)
            page, _ = opened(browser, base)
            times = page.evaluate(REDRAWS, POINTS)
            told(f"timeline of two series of {POINTS:,} points, a redraw", times, GOALS["timeline"])
        browser.close()


if __name__ == "__main__":
    main()
