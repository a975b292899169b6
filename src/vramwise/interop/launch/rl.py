"""What programs for reinforcement learning have in common: who else is on the policy's cards, and its micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from vramwise.engines import engines
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.values import fraction

_ENGINES = {name: engine.name for engine in engines() for name in engine.rollout_names}


@dataclass(slots=True)
class Beside:
    """Models on the policy's cards, keys of the rollout engine among them, and notes."""

    models: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def rollout(self, engine: str, share: str, *, sleeps: bool) -> None:
        """An engine that samples on the policy's own cards."""
        self.models.append(f"rollout:{_ENGINES.get(engine, engine)}")
        self.settings |= {"rollout_gpu_memory_utilization": fraction(share), "rollout_sleep": sleeps}

    def table(self) -> dict[str, object]:
        """Keys of the `train` table."""
        return {**({"extra_models": self.models} if self.models else {}), **self.settings}


def by_tokens(budget: int, length: int, name: str) -> tuple[int, str]:
    """Sequences in a micro-batch that is filled up to a number of tokens, and the note that says so."""
    count = max(1, budget // length) if length else 1
    return count, f"{name}: micro-batches of at most {budget:,} tokens are {count} of the longest sequences"


def accumulated(samples: int | None, micro_batch: int, replicas: int) -> dict[str, object]:
    """Forward passes before a step: a step's samples over those of all replicas."""
    each = micro_batch * max(1, replicas)
    return {"gradient_accumulation_steps": max(1, samples // each)} if samples else {}


def recompute(options: Options, prefix: str) -> dict[str, object]:
    """Megatron's recomputation by its own names."""
    granularity = options.first(f"{prefix}.recompute_granularity")
    if granularity == "full":
        return {"checkpointing": "full"}
    if granularity == "selective":
        modules = options.several(f"{prefix}.recompute_modules") or ["core_attn"]
        return {"checkpointing": "selective", "recompute": [name.strip("[]'\" ") for name in modules]}
    return {"checkpointing": "none"}


def parallel_sizes(options: Options, prefix: str) -> dict[str, object]:
    """Ways in which Megatron cuts a model, where it does, by the names that its settings have under `prefix`."""
    found: dict[str, object] = {}
    sizes = {"tensor_model": "tensor", "pipeline_model": "pipeline", "context": "context", "expert_model": "expert"}
    for name, key in sizes.items():
        count = options.number(f"{prefix}.{name}_parallel_size")
        if count and count > 1:
            found[f"{key}_parallel_size"] = count
    experts = options.number(f"{prefix}.expert_tensor_parallel_size")
    if experts and "expert_parallel_size" in found:
        found["expert_tensor_parallel_size"] = experts
    return found
