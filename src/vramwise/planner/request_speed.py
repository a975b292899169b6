"""How fast an option of serving answers one request: the ceiling, and the share of it that published runs reach."""

from __future__ import annotations

from vramwise.engines import engine_named
from vramwise.errors import VramwiseError
from vramwise.estimation import estimate, model_of
from vramwise.planner.ceiling import Ceiling, ceiling_of
from vramwise.planner.machine import machine_keys, machine_of
from vramwise.planner.running import FILES, POOLED
from vramwise.planner.ways import Question, Way
from vramwise.records import record
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.utilization.roofline import published_band


@record
class RequestSpeed:
    """Tokens a second of one request at the option's context; `usual`: the band of `published_runs` runs."""

    ceiling: Ceiling
    usual: tuple[float, float]
    published_runs: int

    def to_dict(self) -> dict[str, object]:
        """Tokens a second, and what they are worked out from, as JSON-able data."""
        return {
            "ceiling": self.ceiling.tokens_per_second,
            "basis": self.ceiling.basis,
            "usual": list(self.usual),
            "published_runs": self.published_runs,
        }


def request_speed(scenario: Scenario, result: Result) -> RequestSpeed | None:
    """None where the card's bandwidth is not known, a part is on the host, or it is no serving."""
    table = result.scenario.get("serve")
    if scenario.task != "serve" or not isinstance(table, dict):
        return None
    try:
        machine = machine_of(**{key: getattr(scenario, key) for key in machine_keys() & scenario.explicit})
        model = model_of(scenario)[1]
    except VramwiseError:
        return None
    if not model.caches:  # an encoder, which writes nothing token by token
        return None
    reads_gguf = engine_named(scenario.serve.engine).reads_gguf
    if reads_gguf and str(scenario.model).endswith(".gguf"):
        return None  # what a token reads of a file's own mixture of types is not worked out
    method, precision = (FILES, str(table.get("gguf_quant"))) if reads_gguf else (POOLED, "")
    way = Way("serve", method, precision, {}, machine, result)
    ceiling = ceiling_of(Question(str(scenario.model), model, machine, estimate), way)
    band = published_band("decode", scenario.num_gpus)
    if ceiling is None or band is None:
        return None
    low, high, runs = band
    return RequestSpeed(ceiling, (low * ceiling.tokens_per_second, high * ceiling.tokens_per_second), runs)
