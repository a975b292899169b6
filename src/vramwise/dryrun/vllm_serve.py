"""`dry-run -- vllm serve …`: what vLLM's own Python would print at its start, beside the estimate of the same start."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.launch import need_torch, output_of
from vramwise.dryrun.scenario import card_of
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.measure.libraries import is_installed
from vramwise.records import record
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.serving.vllm.profile import HEADROOM_VERSION, release
from vramwise.sources import resolve

_RUNNER: Final = "v1/worker/gpu/"
"""Where the second runner's own buffers are made, which are no weights."""
_SERVER: Final = ("-m", "vllm.entrypoints.openai.api_server")
_FORMATS: Final[Mapping[str, Mapping[str, object]]] = {
    "fp8": {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "awq": {"bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
}
"""What vLLM reads of a format's settings and a catalog's config may leave out, as Qwen's files have it."""


@record
class StartRow:
    """A figure of a start: what vLLM's code makes of it, and the estimate where it has such a term."""

    name: str
    found: float
    estimated: Quantity | None


@record
class VllmStart:
    """A dry run of one rank of a server. `places`: what is alive at the largest moment, largest first."""

    version: str
    rows: tuple[StartRow, ...]
    places: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    estimated: Result

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        rows = {
            row.name: {"vllm": row.found, "estimated": None if row.estimated is None else row.estimated.to_dict()}
            for row in self.rows
        }
        return {
            "schema": 1, "engine": "vllm", "engine_version": self.version, "rows": rows,
            "places": [dict(place) for place in self.places], "notes": list(self.notes),
            "estimated": self.estimated.to_dict(),
        }  # fmt: skip


def server_arguments(words: Sequence[str]) -> list[str] | None:
    """What follows `vllm serve` or `python -m vllm.entrypoints.openai.api_server`; None for any other command."""
    if len(words) > 1 and Path(words[0]).name == "vllm" and words[1] == "serve":
        return list(words[2:])
    if len(words) > 2 and Path(words[0]).name.startswith("python") and tuple(words[1:3]) == _SERVER:
        return list(words[3:])
    return None


def dry_run_of_vllm(
    arguments: Sequence[str], scenario: Scenario, timeout_s: float, package: str | None = None
) -> VllmStart:
    """The start of vLLM's server; `scenario` is what its arguments say, `package` a folder that holds vLLM.

    Raises UsageError where vLLM refuses its arguments or is not there, VramwiseError where its start ends early.
    """
    need_torch("torch")
    version = _version(package)
    _refuse_what_is_not_run(scenario)
    serve = scenario.serve.replace(engine_version=version)
    as_asked = estimate(scenario.replace(serve=serve).checked())
    eager = serve.replace(enforce_eager=True, flashinfer_sampler=False)
    like_it = estimate(scenario.replace(serve=eager).checked())
    found = _answer(_question(arguments, scenario, version, as_asked, like_it, package), _config(scenario), timeout_s)
    if "unable" in found:
        raise VramwiseError(found["unable"])
    if "refused" in found:
        raise UsageError(f"vLLM {version} refuses it: {clipped(found['refused'], 400)}")
    if "failed" in found:
        raise VramwiseError(
            f"vLLM {version} stops on fake tensors{found['where']}: {clipped(found['failed'], 400)}; "
            "vramwise estimate -- vllm serve … answers without running it"
        )
    return _start(found, as_asked, like_it)


def _refuse_what_is_not_run(scenario: Scenario) -> None:
    serve = scenario.serve
    if scenario.gpu is None:
        raise UsageError("vLLM sizes itself by its card: dry-run --gpu CARD -- vllm serve …")
    if serve.pipeline_parallel_size > 1:
        raise UsageError("dry-run starts one rank of a tensor-parallel server: leave out --pipeline-parallel-size")
    if serve.speculative:
        raise UsageError("dry-run starts a server without a draft model: leave out --speculative-config")


def _version(package: str | None) -> str:
    """The version of the vLLM that would run, without a build's name.

    Raises UsageError where there is no vLLM, or one that does not say its version.
    """
    from importlib.metadata import distributions, version

    if package is None:
        if not is_installed("vllm"):
            raise UsageError(
                "vllm is not installed beside vramwise: pip install vllm, or name a folder that a wheel was unpacked "
                "into: pip download --no-deps vllm, unzip vllm-*.whl -d FOLDER, --vllm FOLDER"
            )
        return version("vllm").partition("+")[0]
    if not (Path(package) / "vllm" / "__init__.py").is_file():
        raise UsageError(f"--vllm {clipped(package)}: holds no package vllm, as an unpacked wheel does")
    named = [one.version for one in distributions(path=[package]) if one.name == "vllm"]
    if not named:
        raise UsageError(f"--vllm {clipped(package)}: the wheel's *.dist-info is missing, which tells its version")
    return named[0].partition("+")[0]


def _question(
    arguments: Sequence[str], scenario: Scenario, version: str, as_asked: Result, like_it: Result, package: str | None
) -> dict[str, Any]:  # fmt: skip
    gpu = find_gpu(str(scenario.gpu)).gpu
    estimated = as_asked.quantities
    # what is compiled and FlashInfer's sampler, which vLLM does not run here, differ on neither side of the cache's row
    pool = sum(int(estimated[name].expected) for name in ("weights", "kv_cache_bytes") if name in estimated)
    charged = ("profile run", "sampler state") if release(version) >= HEADROOM_VERSION else ("profile run",)
    pool += sum(term.bytes for term in _terms(like_it) if term.name.startswith(charged))
    return {
        "arguments": list(arguments), "ranks": scenario.serve.tensor_parallel_size,
        "card": {**card_of(gpu, scenario.gpu_total_bytes), "multiprocessors": gpu.sm_count or 132},
        "pool_bytes": pool, "cache_bytes": scenario.serve.kv_cache_memory_bytes,
        "vllm": None if package is None else str(Path(package).resolve()),
    }  # fmt: skip


def _config(scenario: Scenario) -> dict[str, Any]:
    """The model's config.json, with all of a format's settings."""
    model = scenario.model
    config = dict(resolve(model).config if isinstance(model, str) else model)
    stored = config.get("quantization_config")
    if isinstance(stored, Mapping):
        config["quantization_config"] = {**_FORMATS.get(str(stored.get("quant_method")), {}), **stored}
    return config


def _answer(question: Mapping[str, Any], config: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """What the process says that starts vLLM. Raises VramwiseError with its last line where it ends early."""
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        asked = Path(folder) / "question.json"
        (Path(folder) / "config.json").write_text(json.dumps(config), "utf-8")
        asked.write_text(json.dumps({**question, "folder": folder}), "utf-8")
        out, early = output_of("vramwise.dryrun.vllm_start.worker", asked, timeout_s, {})
    if not out.strip():
        raise VramwiseError(f"vLLM's start: {early}")
    answer: dict[str, object] = json.loads(out.strip().splitlines()[-1])
    return answer


def _terms(result: Result) -> Sequence[Node]:
    moment = next((one for one in result.phases if one.name == "profile run"), None)
    return moment.components.children if moment is not None else ()


def _largest(found: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The phase with the fullest moment, and that moment; what lies between the phases only where it is fuller."""
    peaks: Mapping[str, Mapping[str, Any]] = found["peaks"]
    return max(peaks.items(), key=lambda pair: (pair[1]["bytes"], pair[0] != "profile run"))


def _start(found: Mapping[str, Any], as_asked: Result, like_it: Result) -> VllmStart:
    buffers = sum(one["bytes"] for one in found["beside_parameters"] if one["function"].startswith(_RUNNER))
    phase, peak = _largest(found)
    largest = next((one for one in _terms(like_it) if one.name.startswith("profile run")), None)
    activation = like_it.quantities["activation_peak"]
    if largest is not None:
        activation = Quantity(largest.low, largest.bytes, largest.high)
    kept = [Quantity(one.low, one.bytes, one.high) for one in _terms(like_it) if one.name == "sampler state"]
    rows = [
        StartRow("weights", found["weights_bytes"] - buffers, as_asked.quantities["weights"]),
        StartRow("runner_buffers", found["runner_bytes"] + buffers, kept[0] if kept else None),
        StartRow("activation_peak", peak["bytes"], activation),
    ]
    names = {"kv_cache_bytes": "cache_bytes", "kv_cache_blocks": "cache_blocks", "kv_cache_tokens": "cache_tokens",
             "max_concurrency": "max_concurrency"}  # fmt: skip
    rows += [StartRow(name, found[key], as_asked.quantities.get(name)) for name, key in names.items() if key in found]
    return VllmStart(found["version"], tuple(rows), tuple(peak["live"]), tuple(_notes(found, phase)), as_asked)


def _notes(found: Mapping[str, Any], phase: str) -> list[str]:
    notes = [
        "vLLM's own Python ran eagerly, on fake tensors and with its own sampler: compiled kernels may keep less or "
        f"more (the largest moment: {phase})",
        "the CUDA context, NCCL, CUDA graphs and what lies outside torch are the estimate's, and so is what compiling "
        "and FlashInfer's sampler change; the cache is what all of it leaves",
    ]
    if "cache_said" in found:
        notes.append(f"vLLM says: {found['cache_said']}")
    if found["unanswered"]:
        names = ", ".join(sorted(found["unanswered"]))
        notes.append(
            f"compiled operations that did nothing, which is right where they fill what they are given: {names}"
        )
    return notes
