"""A scenario whose model was named by an adapter: the adapter's own settings where the scenario says nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.scenario.definition import Scenario
from vramwise.units import format_bytes

# vLLM 0.26.0 config/lora.py MaxLoRARanks; without 1, which older releases do not take
_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_LORA = ("lora", "qlora")


def with_adapter(
    scenario: Scenario, name: str, trained: Mapping[str, object], rank: int, stored_bytes: int | None
) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario, and a note that says what was taken from the adapter `name`.

    `trained` are its settings as keys of the table `train`; what the scenario says itself stays.
    """
    if scenario.task == "train":
        return _trained(scenario, name, trained)
    engine = scenario.serve.engine
    if scenario.task == "serve" and engine == "vllm" and rank and rank <= _VLLM_RANKS[-1]:
        fitting = next(one for one in _VLLM_RANKS if one >= rank)
        return _with(scenario, "serve", name, {"max_loras": 1, "max_lora_rank": fitting})
    size = "" if stored_bytes is None else f" ({format_bytes(stored_bytes, 'MiB')} in its file)"
    return scenario, (f"the adapter {name}{size} is not counted: the numbers are those of its base model",)


def _trained(scenario: Scenario, name: str, trained: Mapping[str, object]) -> tuple[Scenario, tuple[str, ...]]:
    train = scenario.train
    if "method" in train.explicit and train.method not in _LORA:
        return scenario, (f"method {train.method} trains without the adapter {name}",)
    method = "qlora" if "quantization" in train.explicit else "lora"
    return _with(scenario, "train", name, {"method": method, **trained})


def _with(
    scenario: Scenario, table: str, name: str, settings: Mapping[str, object]
) -> tuple[Scenario, tuple[str, ...]]:  # fmt: skip
    own = getattr(scenario, table)
    taken = {key: value for key, value in settings.items() if key not in own.explicit}
    if not taken:
        return scenario, ()
    said = ", ".join(f"{key} {' '.join(value) if isinstance(value, tuple) else value}" for key, value in taken.items())
    return scenario.replace(**{table: own.replace(**taken)}).checked(), (f"from the adapter {name}: {said}",)
