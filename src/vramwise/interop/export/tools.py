"""The tools that a scenario is written for: the one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from typing import Any

from vramwise.engines import engine_named
from vramwise.engines.engine import NONE
from vramwise.errors import UnknownNameError, UsageError, clipped, nearest
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft
from vramwise.records import record
from vramwise.scenario import Scenario

_SCRIPTS = ("transformers", "deepspeed", "pytorch")


@record
class Tool:
    """A tool: what it is called in sentences, the file that it reads, and whose scenarios it runs.

    `sets` are the tables' values that a scenario gets which leaves its engine or framework open; `settles` is what the
    tool does unasked and another program of its framework does not, as MODULE:FUNCTION of a scenario. `cards`: what it
    calls those that it knows, where it does not take any.
    """

    name: str
    title: str
    module: str
    task: str
    runs: tuple[str, ...]
    sets: str = ""
    file: str = ""
    settles: str = ""
    cards: Mapping[str, str] = field(default_factory=lambda: NONE)

    def knows(self, card: str | None) -> bool:
        """Whether it takes a card, or a scenario that names none."""
        return not self.cards or (card is not None and find_gpu(card).gpu.id in self.cards)


_SIMULATED = {
    "a100-sxm-80gb": "a100_sxm", "b200-sxm-180gb": "b200_sxm", "b300-sxm-288gb": "b300_sxm", "gb200-186gb": "gb200",
    "gb300-288gb": "gb300", "h100-sxm-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm", "l40s": "l40s",
    "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}  # fmt: skip

TOOLS: tuple[Tool, ...] = (
    Tool("vllm", "vLLM", "vllm", "serve", ("vllm",), "vllm"),
    Tool("sglang", "SGLang", "sglang", "serve", ("sglang",), "sglang"),
    Tool(
        "llama-server",
        "llama-server",
        "llama_server",
        "serve",
        ("llama.cpp",),
        "llama.cpp",
        settles="llama_server:as_llama_server_does",
    ),
    Tool(
        "k8s",
        "Kubernetes",
        "k8s",
        "serve",
        ("vllm", "sglang", "llama.cpp"),
        "vllm",
        "deployment.yaml",
        "llama_server:as_llama_server_does",
    ),
    Tool(
        "aisimulate",
        "AISimulate",
        "aisimulate",
        "serve",
        ("vllm", "sglang", "tensorrt-llm"),
        "vllm",
        "aisimulate.yaml",
        cards=_SIMULATED,
    ),
    Tool("accelerate", "accelerate", "script:write_accelerate", "train", _SCRIPTS, "transformers", "accelerate.yaml"),
    Tool("deepspeed", "DeepSpeed", "script:write_deepspeed", "train", _SCRIPTS, "transformers", "ds_config.json"),
    Tool("axolotl", "axolotl", "axolotl", "train", ("axolotl",), "axolotl", "axolotl.yaml"),
    Tool(
        "llamafactory",
        "LLaMA-Factory",
        "llamafactory",
        "train",
        ("llamafactory", "unsloth"),
        "llamafactory",
        "llamafactory.yaml",
    ),
    Tool(
        "torchtune",
        "torchtune",
        "torchtune",
        "train",
        ("torchtune",),
        "torchtune",
        settles="torchtune:as_torchtune_does",
    ),
    Tool("trl", "TRL", "trl", "train", ("transformers",), "transformers", "trl.yaml", "trl:as_trl_does"),
    Tool(
        "k8s",
        "Kubernetes",
        "k8s:write_job",
        "train",
        ("transformers", "axolotl", "llamafactory"),
        "transformers",
        "job.yaml",
        "k8s:as_its_trainer_does",
    ),
)


TOOL_NAMES = tuple(dict.fromkeys(tool.name for tool in TOOLS))


def tool_named(name: str, task: str | None = None) -> Tool:
    """The tool of a name, for a task where it has several. Raises UnknownNameError with the nearest."""
    found = [tool for tool in TOOLS if tool.name == name]
    if not found:
        raise UnknownNameError("tool", name, nearest(name, TOOL_NAMES), f"--export takes {', '.join(TOOL_NAMES)}")
    return next((tool for tool in found if tool.task == task), found[0])


def tools_for(scenario: Scenario) -> tuple[Tool, ...]:
    """The tools that take a scenario: those of its task, and of its engine or framework where one is stated."""
    key = {"serve": "engine", "train": "framework"}.get(scenario.task)
    if key is None or not isinstance(scenario.model, str):
        return ()
    stated = getattr(scenario.settings, key) if key in scenario.settings.explicit else None
    mine = (tool for tool in TOOLS if tool.task == scenario.task and stated in (None, *tool.runs))
    return tuple(tool for tool in mine if tool.knows(scenario.gpu))


def for_tool(scenario: Scenario, tool: Tool) -> Scenario:
    """The scenario as the tool's: its engine or framework where none is stated.

    Raises UsageError where the tool does not do what is asked, with the tools that do.
    """
    if not isinstance(scenario.model, str):
        raise UsageError(f"--export {tool.name}: the model is a table of its own: a tool needs its name or path")
    if scenario.task != tool.task:
        does = {"serve": "serves models", "train": "trains"}[tool.task]
        other = ", ".join(one.name for one in TOOLS if one.task == scenario.task)
        raise UsageError(
            f"--export {tool.name}: {tool.title} {does}, and the task is {scenario.task}: "
            + (f"expected {other}" if other else "no tool is written for that task")
        )
    key = "engine" if tool.task == "serve" else "framework"
    stated = str(getattr(scenario.settings, key)) if key in scenario.settings.explicit else None
    if stated is None:
        own = scenario.replace(**{tool.task: scenario.settings.replace(**{key: tool.sets})}).checked()
        return settled(own, tool)
    if stated not in tool.runs:
        fitting = ", ".join(one.name for one in TOOLS if one.task == tool.task and stated in one.runs)
        title = engine_named(stated).title if key == "engine" else stated
        raise UsageError(
            f"--export {tool.name}: the scenario's {key} is {clipped(title)}, whose settings {tool.title} does not "
            f"have: {f'expected {fitting}, or ' if fitting else ''}leave out --{key}"
        )
    return settled(scenario, tool)


def settled(scenario: Scenario, tool: Tool) -> Scenario:
    """With what the tool does unasked and another program of its framework does not."""
    if not tool.settles:
        return scenario
    settle: Callable[[Scenario], Scenario] = _of_writer(tool.settles, "")
    return settle(scenario)


def draft_of(tool: Tool, asked: Asked) -> Draft:
    """What the tool's writer makes of it."""
    write: Callable[[Asked], Draft] = _of_writer(tool.module, "write")
    return write(asked)


def _of_writer(place: str, usual: str) -> Any:
    module, _, function = place.partition(":")
    return getattr(import_module(f"vramwise.interop.export.{module}"), function or usual)
