"""One row of what fits: a model, how it runs or trains on a machine, what that needs, and how fast it is at most."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from vramwise.planner.ceiling import Ceiling, ceiling_of
from vramwise.planner.in_the_way import reasons_of
from vramwise.planner.running import context_of, host_bytes_of, host_experts_of, is_whole, layers_of, requests_of
from vramwise.planner.tuning import batch_of, tokens_of
from vramwise.planner.ways import Question, Way
from vramwise.records import record, replace
from vramwise.result import Quantity, VerdictWord
from vramwise.verdict import LateReasons


@record
class Row:
    """`method`: the engine, or full, lora, qlora; `sequence_length`: the context, or tokens of a training sequence.

    `n_gpu_layers`, `num_layers`: of a GGUF file, where a part of it stays on the host; `host_experts`: layers whose
    experts do. `scenario`: the settings without the model. `reasons`: why a training of the whole model does not fit.
    """

    model: str
    task: str
    method: str
    quantization: str
    sequence_length: int
    micro_batch_size: int | None
    concurrency: float | None
    total_needed: Quantity | None
    ceiling: Ceiling | None
    verdict: VerdictWord
    probability: float
    num_parameters: int
    num_active_parameters: int
    n_gpu_layers: int | None
    num_layers: int | None
    host_experts: int
    host_bytes: int | None
    is_whole: bool
    scenario: Mapping[str, object]
    command: tuple[str, ...]
    refusal: str = ""
    reasons: Sequence[str] = ()

    @property
    def fits(self) -> bool:
        """True for *fits* and for *tight*."""
        return self.verdict != "does not fit"

    def of(self, model: str) -> Row:
        """The same row of another model that differs by its name alone."""
        if model == self.model:
            return self
        at = self.command.index(self.model)
        return replace(self, model=model, command=(*self.command[:at], model, *self.command[at + 1 :]))

    def to_dict(self) -> dict[str, object]:
        """The row as JSON-able data."""
        ceiling = self.ceiling
        table: dict[str, object] = {
            "model": self.model,
            "task": self.task,
            "method": self.method,
            "quantization": self.quantization,
            "sequence_length": self.sequence_length or None,
            "micro_batch_size": self.micro_batch_size,
            "concurrency": self.concurrency,
            "total_needed": self.total_needed.to_dict() if self.total_needed is not None else None,
            "tokens_per_second": None if ceiling is None else ceiling.tokens_per_second,
            "tokens_per_second_basis": None if ceiling is None else ceiling.basis,
            "verdict": self.verdict,
            "probability": self.probability,
            "num_parameters": self.num_parameters,
            "num_active_parameters": self.num_active_parameters,
            "scenario": dict(self.scenario),
            "command": shlex.join(self.command),
        }
        if self.num_layers is not None:
            table |= {"n_gpu_layers": self.n_gpu_layers, "num_layers": self.num_layers, "n_cpu_moe": self.host_experts,
                      "host_bytes": self.host_bytes}  # fmt: skip
        table |= {"reasons": list(self.reasons)} if self.reasons else {}
        return table | ({"refused": self.refusal} if self.refusal else {})


def row_of(question: Question, way: Way, asked: Sequence[str]) -> Row:
    """The row of a way; `asked`: the words that name the model on a command line."""
    model, result = question.model, way.result
    trains = way.task == "train"
    layers = layers_of(way, model)
    return Row(
        model=model.id,
        task=way.task,
        method=way.method,
        quantization=way.precision,
        sequence_length=tokens_of(way, model) if trains else context_of(way),
        micro_batch_size=batch_of(way) if trains else None,
        concurrency=requests_of(way),
        total_needed=result.needed if result is not None else None,
        ceiling=ceiling_of(question, way),
        verdict=way.word,
        probability=way.probability,
        num_parameters=model.num_parameters,
        num_active_parameters=model.num_active_parameters,
        n_gpu_layers=layers[0] if layers is not None else None,
        num_layers=layers[1] if layers is not None else None,
        host_experts=host_experts_of(way),
        host_bytes=host_bytes_of(way),
        is_whole=is_whole(question, way),
        scenario=way.scenario,
        command=("vramwise", "estimate", *asked, *way.flags()),
        refusal=way.refusal,
        reasons=() if result is None or way.fits else LateReasons((), lambda: reasons_of(result)),
    )
