"""What llama.cpp refuses at its start: architectures that a build does not have, more devices than its arrays hold."""

from __future__ import annotations

from vramwise.errors import ScenarioError
from vramwise.models import Model
from vramwise.models.type_facts import fact_of
from vramwise.scenario import Scenario

LIGHTNING_BUILD = 10410  # PR 27018 (opened August 13, 2026): MiniMax Text 01 and M1; no build before it runs them
MOST_DEVICES = 16  # llama_max_devices (src/llama.cpp), GGML_CUDA_MAX_DEVICES (ggml-cuda.h)


def check(scenario: Scenario, model: Model, build: int, is_ik: bool) -> None:
    """Raise ScenarioError for a build that does not load the model, or for too many GPUs."""
    _check_architecture(scenario, model, build, is_ik)
    if scenario.num_gpus > MOST_DEVICES:
        name = "ollama" if scenario.serve.engine == "ollama" else "llama.cpp"
        raise ScenarioError("num_gpus", f"{name} takes at most {MOST_DEVICES} GPUs, got {scenario.num_gpus:,}")


def _check_architecture(scenario: Scenario, model: Model, build: int, is_ik: bool) -> None:
    """ollama had runners and architectures of its own, and ik_llama.cpp counts its builds by itself: the rows of
    llama.cpp's builds are not theirs."""
    kind, name = model.config.model_type, "ik_llama.cpp" if is_ik else "llama.cpp"
    unknown = fact_of(name, "unknown", kind, (build,))
    if unknown is not None and unknown.stop is None and not is_ik:
        problem = f"{name} has no architecture for {kind} and reads no such file: take another engine"
        raise ScenarioError("serve.engine", problem)
    if unknown is not None:
        problem = f"{model.id} needs llama.cpp b{LIGHTNING_BUILD} or newer: lightning attention came in August 2026"
        raise ScenarioError("serve.variant" if is_ik else "serve.engine_version", problem)
    row = fact_of("llama.cpp", "no_class", kind, (build,))
    if row is not None and scenario.serve.engine == "llama.cpp" and not is_ik:
        problem = f"llama.cpp b{build} has no architecture for {kind} (src/llama-arch.cpp) and refuses the file"
        raise ScenarioError(
            "serve.engine_version", f"{problem}: say engine_version {row.value}, which has it, or newer"
        )
