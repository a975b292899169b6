"""One estimate on one screen: the answer, then why, then what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vramwise.cli import language
from vramwise.cli.language import cells, padded
from vramwise.cli.screens.bar import FILLS, STYLES, bar, segments_of
from vramwise.cli.screens.breakdown import breakdown_lines
from vramwise.cli.screens.paint import Line, Segment, columns, screen_width, wrapped, wrapped_text
from vramwise.engines import engine_named
from vramwise.errors import UnknownNameError
from vramwise.hardware import find_gpu
from vramwise.planner import Suggestion
from vramwise.result import Phase, Quantity, Result, Verdict
from vramwise.units import format_bytes, gib
from vramwise.verdict import Advice, percent

BYTE_COUNTERS = {
    "weights": "weights",
    "kv_cache_bytes": "KV cache",
    "activation_peak": "activation peak",
    "non_torch": "non-torch",
    "cuda_graph": "CUDA graphs",
    "peak_allocated": "allocated",
    "peak_reserved": "reserved",
    "nvidia_smi": "process (nvidia-smi)",
    "total_needed": "needed in total",
    "host_memory": "host memory of a node",
    "weights_gpu": "weights on GPU",
    "weights_host": "weights on host",
    "compute_buffer": "compute buffer",
    "host_buffer": "host buffer",
    "output_buffer": "output buffer",
    "recurrent_state_bytes": "recurrent state",
}
_PARALLEL = {
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "context_parallel_size": "CP",
    "expert_parallel_size": "EP",
}
_SERVED_AS = ("engine", "engine_version", "dtype", "quantization", "gguf_quant")
COUNTS = {
    "kv_cache_tokens": "tokens in cache",
    "kv_cache_blocks": "blocks",
    "max_concurrency": "requests of full length",
    "max_batch": "largest micro batch",
    "max_seq": "longest sequence",
}


NOTHING_FITS = (
    "no single change makes it fit, nor do the combinations that were tried",
    "vramwise plan, asked the same, tries many more",
)
PLANNED_TASKS = ("serve", "train")


def estimate_screen(
    result: Result, suggestions: Sequence[Suggestion] | None = None, engine_lines: Sequence[Line] = ()
) -> list[Line]:
    """The lines of `vramwise estimate MODEL --task ...`; `engine_lines` are what only a serving engine has.

    `suggestions`: what was found to save most, None where nothing was tried.
    """
    width = screen_width()
    peak = next((phase for phase in result.phases if phase.name == result.peak_phase), None)
    lines: list[Line] = [*_heading(result, width), "", *_answer(result, peak, width)]
    if peak is not None:
        parts = segments_of(peak.components)
        capacity = result.capacity.usable_bytes * _summed_cards(result) if result.capacity else None
        lines.append(bar(parts, capacity, width - 2))
        lines.extend(_legend(parts, width))
    lines.append("")
    lines += breakdown_lines(result, width)
    if len(result.phases) > 1:
        moments = [f"{phase.name} {gib(phase.bytes):,.2f}" for phase in result.phases]
        lines += wrapped([f"{'moments':<12}" + moments[0], *moments[1:]], width, indent=12)
    lines += _counters(result, width)
    if len(result.ranks) > 1:
        ranks = [f"{rank.name} {gib(rank.bytes):,.2f}" for rank in result.ranks]
        lines += wrapped([f"{'ranks':<12}" + ranks[0], *ranks[1:]], width, indent=12)
    lines += engine_lines
    lines += _reasons_and_notes(result, width)
    if suggestions is not None:
        lines += _suggestions(suggestions, result, width)
    lines.append("")
    lines.append("sizes in GiB (2^30 bytes); --explain shows every term, formula and source")
    return lines


def _summed_cards(result: Result) -> int:
    """Over how many cards the moments are sums: llama.cpp's ranks are its cards."""
    return max(1, sum(rank.name.startswith("GPU ") for rank in result.ranks))


def model_title(model_id: str) -> str:
    """A hub id as a person says it: `meta-llama/Llama-3.1-8B` -> `Llama 3.1 8B`."""
    return model_id.rsplit("/", 1)[-1].replace("-", " ").replace("_", " ")


def settings_summary(result: Result) -> list[str]:
    """The settings that matter most, as short words."""
    scenario = result.scenario
    task = str(scenario["task"])
    table: dict[str, object] = dict(scenario.get(task) or {})
    if task == "train":
        return _training_summary(result, table)
    if task == "serve" and table.get("max_model_len") is None and "max_seq" in result.quantities:
        table["max_model_len"] = result.quantities["max_seq"].expected or None  # the engine lowers it to what fits
    if task == "generate" and table.get("image_size") and table.get("guidance_scale") is not None:
        return [task, *_pipeline_summary(table)]
    words = [str(table[key]) for key in _SERVED_AS if table.get(key) not in (None, "auto")]
    sizes = {"max_model_len": "context {:,}", "batch_size": "batch {:,}", "prompt_tokens": "prompt {:,}",
             "new_tokens": "{:,} new tokens", "n_ctx": "context {:,}"}  # fmt: skip
    if table.get("n_ctx") == table.get("max_model_len"):
        table.pop("n_ctx", None)  # of one request at once it is the same length
    counted = (form.format(table[key]) for key, form in sizes.items() if table.get(key) not in (None, 1))
    return [task, *words, *counted, *_parallel_summary(table)]


def _pipeline_summary(table: Mapping[str, object]) -> Iterator[str]:
    """How an image or video pipeline runs."""
    yield "diffusers"
    yield from (str(table[key]) for key in ("dtype", "quantization", "image_size") if table.get(key))
    forms = {"num_frames": "{:,} frames", "batch_size": "batch {:,}"}
    yield from (form.format(table[key]) for key, form in forms.items() if table.get(key) not in (None, 1))
    yield f"guidance {table.get('guidance_scale'):g}"
    if table.get("offload") not in (None, "none"):
        yield f"offload {table['offload']}"
    yield from (key.replace("_", " ").replace("vae", "VAE") for key in ("vae_tiling", "vae_slicing") if table.get(key))


def _training_summary(result: Result, table: dict[str, object]) -> list[str]:
    facts = result.model
    method = str(table.get("method", "full"))
    if method in ("lora", "qlora"):
        share = facts.num_trainable_parameters / (facts.num_parameters + facts.num_trainable_parameters)
        targets = table.get("lora_targets", "all-linear")
        names = ", ".join(targets) if isinstance(targets, list | tuple) else "all linear"
        trainable = f"{facts.num_trainable_parameters / 1e6:,.1f} M trainable, {100 * share:.4f} %"
        method = f"{'QLoRA' if method == 'qlora' else 'LoRA'} r={table.get('lora_rank')}, {names} ({trainable})"
    precision, weights = str(table.get("precision")), table.get("param_dtype")
    if precision.endswith("-mixed") and weights not in (None, "fp32"):
        precision = f"{precision} over {weights} weights"
    words = [method if method != "full" else "full training", precision, str(table.get("optimizer"))]
    batch, length = table.get("micro_batch_size"), table.get("sequence_length")
    samples = "1 sample" if batch == 1 else f"{batch:,} samples"
    words += [str(table.get("attention")), samples if length is None else f"{batch} × {length:,} tokens"]
    if table.get("checkpointing") not in (None, "none"):
        words.append(f"checkpointing {table['checkpointing']}")
    return [*words, *_layout_summary(table), str(table.get("framework"))]


def _layout_summary(table: Mapping[str, object]) -> Iterator[str]:
    """How GPUs share what a training run holds."""
    if table.get("zero_stage"):
        yield f"ZeRO {table['zero_stage']}"
    if table.get("fsdp") not in (None, "none"):
        yield f"FSDP {table['fsdp']}"
    yield from _parallel_summary(table)


def _parallel_summary(table: Mapping[str, object]) -> Iterator[str]:
    """Over how many GPUs each part is cut."""
    for key, short in _PARALLEL.items():
        if table.get(key) not in (None, 1):
            yield f"{short} {table[key]}"


def _heading(result: Result, width: int) -> list[Line]:
    words = [model_title(result.model.id), *settings_summary(result)]
    lines: list[Line] = list(wrapped(words, width, gap=" · "))
    count = result.scenario.get("num_gpus", 1)
    if result.capacity:
        capacity = result.capacity
        total, usable = format_bytes(capacity.total_bytes), format_bytes(capacity.usable_bytes)
        card = card_name(capacity.gpu) or ("a card" if count == 1 else "cards")
        lines.append(f"{f'{count} × ' if count != 1 else ''}{card} · {total} in total, {usable} usable")
    return lines


def card_name(gpu: str) -> str:
    """A catalog id as the card is called; anything else as it was given."""
    try:
        return find_gpu(gpu).gpu.name
    except UnknownNameError:
        return gpu


def interval_text(quantity: Quantity) -> str:
    """`(low – high)` where it is wider than the last digit shown, else nothing."""
    low, high = gib(int(quantity.low)), gib(int(quantity.high))
    return f"  ({low:,.2f} – {high:,.2f})" if f"{low:.2f}" != f"{high:.2f}" else ""


def _answer(result: Result, peak: Phase | None, width: int) -> list[Line]:
    """What is needed in total against the card, and at which moment.

    An engine that takes a share of the card needs a card of a size, which no moment holds.
    """
    needed = _needed(result, peak)
    word = "needs" if "total_needed" in result.quantities else "needs at least"  # where only tensors are known
    text = f"{word}  {format_bytes(int(needed.expected))}{interval_text(needed)}"
    answer: list[Segment] = [(text, "bold")]
    if result.verdict is not None:
        answer.append(verdict_segment(result.verdict))
    tail = [f"moment: {result.peak_phase}"] if result.peak_phase else []
    if peak is not None and _takes_a_share(result) and peak.bytes != needed.expected:
        tail = ["the smallest card for its share"]
        if peak.bytes > needed.expected:
            tail.append(f"takes {format_bytes(peak.bytes)} of this one")
    used = sum(len(piece) for piece, _ in answer)
    if not tail or used + sum(len(piece) + 6 for piece in tail) <= width:
        return [[*answer, ("".join(f"      {piece}" for piece in tail), "")]]
    return [answer, *wrapped([f"      {tail[0]}", *tail[1:]], width, indent=6)]


def _takes_a_share(result: Result) -> bool:
    """Whether an engine fills a share of the card with its cache."""
    if result.capacity is None or result.scenario["task"] != "serve":
        return False
    return engine_named(result.scenario["serve"]["engine"]).memory_share is not None


def _needed(result: Result, peak: Phase | None) -> Quantity:
    """What the verdict is about; of a model whose tensors alone are known, the largest moment."""
    if "total_needed" in result.quantities or peak is None:
        return result.needed
    return Quantity(peak.components.low, peak.bytes, peak.components.high)


def verdict_segment(verdict: Verdict) -> Segment:
    """What is said behind the need."""
    gap = format_bytes(abs(verdict.headroom_bytes))
    if verdict.word == "tight":
        return f"   TIGHT: fits with {percent(verdict.probability)}, {gap} to spare", "bold yellow"
    if verdict.fits:
        return f"   fits with {gap} to spare", "bold green"
    if verdict.headroom_bytes < 0:
        return f"   DOES NOT FIT by {gap}", "bold red"
    return "   DOES NOT RUN as asked", "bold red"


def _legend(parts: list[tuple[str, int]], width: int) -> list[Line]:
    pieces = [f"{FILLS[i]} {name} {gib(size):,.2f}" for i, (name, size) in enumerate(parts)]
    if sum(len(piece) + 3 for piece in pieces) > width:
        return list(wrapped(pieces, width))
    line: list[tuple[str, str]] = []
    for i, piece in enumerate(pieces):
        line += [(piece[0], STYLES[i]), (piece[1:] + "   ", "")]
    return [line]


def _counters(result: Result, width: int) -> list[Line]:
    pieces = []
    for name, label in BYTE_COUNTERS.items():
        quantity = result.quantities.get(name)
        if quantity is not None:
            pieces.append(f"{label} {gib(int(quantity.expected)):,.2f}{interval_text(quantity)}")
    for name, label in COUNTS.items():
        quantity = result.quantities.get(name)
        if quantity is not None:
            number = f"{quantity.expected:,.2f}" if name == "max_concurrency" else f"{quantity.expected:,}"
            label = label if result.scenario["task"] == "train" else label.replace("micro batch", "batch")
            pieces.append(f"{label} {number}")
    return [*_labelled("counters", pieces, width), *_labelled("speed", _speeds(result), width)]


def _speeds(result: Result) -> list[str]:
    """Seconds of a step, and tokens a second of all GPUs, with their intervals."""
    pieces = []
    step = result.quantities.get("step_time_s")
    if step is not None:
        low, expected, high = (f"{seconds:,.3g}" for seconds in (step.low, step.expected, step.high))
        pieces.append(f"step {expected} s  ({low} – {high})")
    tokens = result.quantities.get("tokens_per_second")
    if tokens is not None:
        low, expected, high = (f"{round(rate):,}" for rate in (tokens.low, tokens.expected, tokens.high))
        pieces.append(f"tokens/s {expected}  ({low} – {high})")
    return pieces


def _labelled(label: str, pieces: list[str], width: int) -> list[Line]:
    return list(wrapped([f"{label:<12}" + pieces[0], *pieces[1:]], width, indent=12)) if pieces else []


def _reasons_and_notes(result: Result, width: int) -> list[Line]:
    reasons = result.verdict.reasons if result.verdict else ()
    said = [("try" if isinstance(reason, Advice) else "because", reason) for reason in reasons]
    said += [("note", note) for note in result.notes]
    lines: list[Line] = [""] if said else []
    for label, text in said:
        lines += wrapped_text(f"{label:<12}", text, width)
    return lines


def _suggestions(suggestions: Sequence[Suggestion], result: Result, width: int) -> list[Line]:
    """The changes with what is then needed and said; a line of its own where none is enough."""
    verdict = result.verdict
    lines: list[Line] = []
    if suggestions:
        heads = ["what saves most", "needs", "saves"] + (["then"] if verdict is not None else [])
        rows = [heads, *(_suggestion(item) for item in suggestions)]
        table = columns(rows, left={3})
        if max(map(cells, table)) > width:
            lines += ["", heads[0], *(line for item in suggestions for line in _on_two_lines(item, width))]
        else:
            lines += ["", *with_costs(table, ["cost", *(item.change.cost for item in suggestions)], width)]
    if verdict is not None and not verdict.fits and not any(item.fits for item in suggestions):
        said_of_it = NOTHING_FITS[: 2 if result.scenario.get("task") in PLANNED_TASKS else 1]
        lines += ["", *wrapped_text("", "; ".join(said_of_it), width)]
    return lines


def with_costs(table: Sequence[str], costs: Sequence[str], width: int) -> list[str]:
    """Rows with what each change costs behind them, or below where the line ends before."""
    start = max(map(cells, table)) + 3
    lines: list[str] = []
    for line, cost in zip(table, map(language.said, costs), strict=True):
        if start + cells(cost) <= width:
            lines.append(padded(line, start) + cost)
        else:
            lines += [line, *wrapped_text("      ", cost, width, quoted=True)]
    return lines


def _on_two_lines(item: Suggestion, width: int) -> list[str]:
    """A change of many words, and below it what the columns hold."""
    _, needs, saves, *then = _suggestion(item)
    said_of = [f"needs {needs}", f"saves {saves}", *then, item.change.cost]
    return [
        *wrapped_text("  ", item.change.words, width),
        *wrapped(["      " + said_of[0], *said_of[1:]], width, indent=6),
    ]


def _suggestion(item: Suggestion) -> list[str]:
    then = [said(item.verdict)] if item.verdict is not None else []
    return [f"  {item.change.words}", format_bytes(int(item.needed.expected)), f"{gib(item.saved_bytes):,.2f}", *then]


def said(verdict: Verdict) -> str:
    """The word of a verdict, with the probability where it is tight."""
    return f"tight, {percent(verdict.probability)}" if verdict.word == "tight" else verdict.word
