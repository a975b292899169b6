"""A scenario whose model was named by an adapter, or by files of a type: their settings where it says nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.engines import engine_named
from vramwise.scenario.definition import Scenario, engines_of
from vramwise.units import format_bytes

_LORA = ("lora", "qlora")


def with_adapter(
    scenario: Scenario, name: str, trained: Mapping[str, object], rank: int, stored_bytes: int | None
) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario, and a note that says what was taken from the adapter `name`.

    `trained` are its settings as keys of the table `train`; what the scenario says itself stays.
    """
    if scenario.task == "train":
        return _trained(scenario, name, trained)
    engine = engine_named(scenario.serve.engine)
    ranks = (rank,) if engine.takes_any_adapter_rank else engine.adapter_ranks
    fitting = next((one for one in ranks if one >= rank), None) if scenario.task == "serve" else None
    if rank and fitting is not None:
        targets = trained.get("lora_targets") if engine.name in engines_of("lora_targets") else None
        chosen = {"lora_targets": targets} if targets else {}
        return _with(scenario, "serve", name, {"max_loras": 1, "max_lora_rank": fitting, **chosen})
    size = "" if stored_bytes is None else f" ({format_bytes(stored_bytes, 'MiB')} in its file)"
    return scenario, (f"the adapter {name}{size} is not counted: the numbers are those of its base model",)


def with_file_type(scenario: Scenario, gguf_quant: str) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario of a model that was named by GGUF files of a type, and a note where its task takes no such files."""
    if scenario.task not in ("serve", "load"):
        return scenario, ("GGUF files are not what this task takes: the model's own weights are counted",)
    serve = scenario.serve
    reads = engine_named(serve.engine).reads_gguf
    settings = {"gguf_quant": gguf_quant} | ({} if reads else {"quantization": "gguf"})
    taken = {key: value for key, value in settings.items() if key not in serve.explicit}
    if not taken or (not reads and "quantization" in serve.explicit and serve.quantization != "gguf"):
        return scenario, ()
    return scenario.replace(serve=serve.replace(**taken)).checked(), ()


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
