"""Time of plans, each in a process of its own: python benchmarks/plan.py

Prints CPU seconds, scenarios estimated and scenarios a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

QUESTIONS = (
    ("one card, cold", ["qwen3-8b", "--goal", "fine-tune", "--gpu", "4090", "--keep", "num_gpus"]),
    ("one card, serving", ["llama-3.1-8b", "--goal", "run", "--gpu", "4060"]),
    ("a node", ["llama-3.1-70b", "--goal", "train", "--gpu", "h100", "-n", "8"]),
    (
        "405B on 1,024 GPUs",
        ["llama-3.1-405b", "--goal", "train", "--gpu", "h100", "-n", "1024", "--framework", "torchtitan"],
    ),
)


def main() -> None:
    print(f"{'plan':<22}{'CPU s':>8}{'scenarios':>11}{'a second':>10}")
    for name, words in QUESTIONS:
        before = os.times()
        command = [sys.executable, "-m", "vramwise", "plan", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        after = os.times()
        taken = after.children_user + after.children_system - before.children_user - before.children_system
        searched = json.loads(done.stdout)["searched"]
        print(f"{name:<22}{taken:>8.2f}{searched:>11,}{searched / taken:>10.1f}")


if __name__ == "__main__":
    main()
