"""A serving estimate in the engine's own words: its budget line by line, requests that run at once at several lengths,
and which flag gives more. Every number is a full estimate of the changed scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramwise.cli.screens.paint import Line, columns, wrapped
from vramwise.engines import engine_named
from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.serving.shares import is_told, share_of
from vramwise.units import MIB, gib

Estimate = Callable[[Scenario], Result]
LENGTHS = (2048, 8192, 32768, 131072)
MOST_CHANGES = 4
LEAST_GAIN = 1.02  # of the tokens; a smaller one is no help
STEP, HIGHEST = 0.05, 0.97
_CHANGES: tuple[tuple[str, object, str], ...] = (
    ("kv_cache_dtype", "fp8_e4m3", "a little quality"),
    ("max_num_seqs", 256, "fewer requests at once"),
    ("max_num_batched_tokens", 2048, "slower prefill"),
    ("enforce_eager", True, "slower decoding"),
    ("quantization", "fp8", "8-bit weights"),
    ("quantization", "awq", "4-bit; some quality"),
)


def serving_lines(scenario: Scenario, result: Result, estimate: Estimate, width: int) -> list[Line]:
    """Budget, concurrency and what gives more, for engines with a pool of cache tokens on a known card."""
    if scenario.task != "serve" or engine_named(scenario.serve.engine).memory_share is None or result.capacity is None:
        return []
    lines: list[Line] = [*_budget(scenario, result, width)]
    if "kv_cache_tokens" in result.quantities and result.quantities["kv_cache_tokens"].expected:
        lines += _concurrency(scenario, result, estimate, width)
        if result.verdict is not None and result.verdict.fits:
            lines += _more(scenario, result, estimate)
    return lines


def _budget(scenario: Scenario, result: Result, width: int) -> list[str]:
    """share × card = weights + … + KV cache, and what lies outside the share."""
    gpu = find_gpu(result.capacity.gpu).gpu if result.capacity is not None and result.capacity.gpu else None
    share = share_of(result, scenario.serve, gpu)
    if share is None:
        return []
    pieces = [
        f"{'budget':<12}{share.name} {share.fraction:g} × {gib(share.card_bytes):,.2f} = {gib(share.bytes):,.2f}:"
    ]
    pieces += [f"{label} {gib(size):,.2f}" for label, size in share.inside]
    over = sum(size for _, size in share.inside) - share.bytes
    if over > MIB:
        pieces.append(f"too much by {gib(over):,.2f}")
    lines = wrapped(pieces, width, indent=12)
    outside = [f"{label} {gib(size):,.2f}" for label, size in share.outside]
    return lines + wrapped([f"{'outside it':<12}{outside[0]}", *outside[1:]], width, indent=12) if outside else lines


def longest_request(result: Result) -> int:
    """Tokens of the longest request: as asked for, or what the cache holds where the engine lowers it to that."""
    asked = result.scenario["serve"].get("max_model_len")
    held = result.quantities.get("max_seq")
    return int(asked or (held.expected if held is not None else 0))


def _concurrency(scenario: Scenario, result: Result, estimate: Estimate, width: int) -> list[str]:
    """Requests at once when all are as long as that."""
    longest = longest_request(result)
    pieces = []
    for length in [*(one for one in LENGTHS if one < longest), longest]:
        other = _tried(scenario, {"max_model_len": length}, estimate)
        if other is not None and "max_concurrency" in other.quantities:
            pieces.append(f"{length:,} tokens {other.quantities['max_concurrency'].expected:,.2f}")
    return wrapped([f"{'at once':<12}{pieces[0]}", *pieces[1:]], width, indent=12) if pieces else []


def _more(scenario: Scenario, result: Result, estimate: Estimate) -> list[str]:
    """Flags that give the cache more tokens, best first."""
    tokens, longest = result.quantities["kv_cache_tokens"].expected, longest_request(result)
    is_lowered = result.scenario["serve"].get("max_model_len") is None  # each change is asked for the same requests
    found = []
    for flag, changes, cost in _candidates(scenario, result):
        other = _tried(scenario, {"max_model_len": longest, **changes} if is_lowered else changes, estimate)
        if other is None or other.verdict is None or not other.verdict.fits:
            continue
        more = other.quantities["kv_cache_tokens"].expected
        if more > tokens * LEAST_GAIN:
            found.append(
                (more, [f"  {flag}", f"{more:,}", f"{other.quantities['max_concurrency'].expected:,.2f}"], cost)
            )
    if not found:
        return []
    best = sorted(found, key=lambda item: -item[0])[:MOST_CHANGES]
    head, *rows = columns([["more room for requests", "tokens", f"of {longest:,}"], *(cells for _, cells, _ in best)])
    return ["", f"{head}   cost", *(f"{row}   {cost}" for row, (_, _, cost) in zip(rows, best, strict=True))]


def _candidates(scenario: Scenario, result: Result) -> Iterator[tuple[str, dict[str, object], str]]:
    settings, resolved = scenario.serve, result.scenario["serve"]
    name = engine_named(settings.engine).memory_share if is_told(settings) else None
    share = resolved.get(name) if name is not None else None
    if name is not None and share is not None and share < HIGHEST:
        higher = min(HIGHEST, round(share + STEP, 3))
        yield f"{name} {higher:g}", {name: higher}, "less room beside it"
    ranks = settings.tensor_parallel_size
    yield f"tensor_parallel_size {2 * ranks}", {"tensor_parallel_size": 2 * ranks}, "twice the GPUs"
    for key, value, cost in _CHANGES:
        present = resolved.get(key)
        if present == value or (
            key.startswith("max_num") and isinstance(present, int) and isinstance(value, int) and present <= value
        ):
            continue
        if key == "quantization" and (present or "quantization_config" in str(scenario.model)):
            continue
        text = "" if value is True else f" {'fp8' if value == 'fp8_e4m3' else value}"
        yield f"{key}{text}", {key: value}, cost


def _tried(scenario: Scenario, changes: dict[str, object], estimate: Estimate) -> Result | None:
    """The estimate with other settings; None where the engine refuses them."""
    settings = scenario.serve.replace(**changes)
    needed = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
    try:
        return estimate(scenario.replace(serve=settings, num_gpus=max(scenario.num_gpus, needed)))
    except VramwiseError:
        return None
