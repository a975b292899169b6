"""The answers of `vramwise mfu` as JSON-able tables; the screens are in `screens/mfu.py`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vramwise.cli.mfu_question import Question, read_output, throughput_of
from vramwise.errors import UsageError
from vramwise.formats import dtype
from vramwise.planner.model_sizes import sizes_of
from vramwise.utilization.conventions import CONVENTIONS, inference_flops_per_token
from vramwise.utilization.published import comparable_runs
from vramwise.utilization.roofline import decode_bound, prefill_bound, published_band
from vramwise.utilization.throughput import utilization_pct

if TYPE_CHECKING:
    from vramwise.models import Model
    from vramwise.models.execution import Lora


def training_answer(question: Question, args: argparse.Namespace) -> dict[str, object]:
    """MFU and HFU with the names of everything that was chosen, other conventions, and comparisons.

    Raises UsageError where FLOPs, a step's time or a peak to divide by is missing.
    """
    throughput = throughput_of(args, question.sequence)
    tflops, profile = args.tflops, None
    if args.deepspeed_output is not None:
        profile = _deepspeed(question, args)
        tflops = profile["tflops_per_gpu"]
        if tflops is None:
            raise UsageError("the profile has no iteration latency (wall_clock_breakdown was off): give --step-time")
    answer: dict[str, object] = {
        "schema": 1,
        "model": question.model_id or None,
        "gpu": question.gpu.id if question.gpu else None,
        "num_gpus": args.num_gpus,
        "sequence_length": question.sequence,
        "dtype": args.dtype,
        "peak_tflops": question.peak_tflops,
        "peak_source": question.peak_source if question.peak_tflops else None,
        "notes": [question.gpu_note] if question.gpu_note else [],
        "deepspeed": profile,
    }
    if throughput is not None:
        rate = throughput.tokens_per_s_per_gpu
        answer["tokens_per_s_per_gpu"], answer["worked_out"] = rate, throughput.worked_out
        if args.reference is not None:
            answer["reference"] = {"tokens_per_s_per_gpu": args.reference, "pct": 100 * rate / args.reference}
        if question.model is not None:
            answer |= _by_blocks(question, question.model, args, rate)
    elif args.reference is not None:
        raise UsageError("--reference is in tokens/s/GPU: give a rate in tokens, examples or steps")
    if tflops is not None:
        answer["tflops_per_gpu"] = tflops
        if question.peak_tflops is None:
            raise UsageError("a share of which peak? give --gpu NAME or --peak-tflops X")
        answer["utilization_pct"] = utilization_pct(tflops, question.peak_tflops)
    if question.model is None and question.peak_tflops is not None and tflops is None and args.reference is None:
        raise UsageError("MFU needs the model's FLOPs: give MODEL (or the rate in --tflops)")
    return answer


def _by_blocks(question: Question, model: Model, args: argparse.Namespace, rate: float) -> dict[str, object]:
    from vramwise.models.flops import step_flops

    lora = _lora(model, args.lora_rank)
    flops = step_flops(model, 1, question.sequence, lora)
    needed = flops.model(args.attention) / question.sequence
    computed = flops.hardware(args.recompute, args.attention) / question.sequence
    peak = question.peak_tflops
    sizes = sizes_of(model, question.sequence)
    found: dict[str, object] = {
        "flops_per_token": needed,
        "hardware_flops_per_token": computed,
        "attention_rule": args.attention,
        "attention_told_apart": flops.attention_forward > 0,
        "recompute": args.recompute,
        "method": "full" if lora is None else f"lora, rank {args.lora_rank}",
        "num_parameters": model.num_parameters,
        "num_active_parameters": model.num_active_parameters,
        "tflops_per_gpu": rate * needed / 1e12,
        "hardware_tflops_per_gpu": rate * computed / 1e12,
        "mfu_pct": _share(rate * needed, peak),
        "hfu_pct": _share(rate * computed, peak),
    }
    rows = []
    for one in CONVENTIONS:
        per_token = one.per_token(sizes, question.sequence)
        rows.append(
            {
                "name": one.name,
                "formula": one.formula,
                "parameters": one.parameters,
                "attention": one.attention,
                "used_by": one.used_by,
                "source": one.source,
                "kind": "HFU" if one.counts_recomputation else "MFU",
                "flops_per_token": per_token,
                "tflops_per_gpu": rate * per_token / 1e12,
                "pct": _share(rate * per_token, peak),
            }
        )
    found["conventions"] = rows
    found["published"] = _published(question, model, args.dtype)
    return found


def _published(question: Question, model: Model, of_dtype: str) -> list[dict[str, object]]:
    if question.gpu is None:
        return []
    runs = comparable_runs(model.num_active_parameters, question.sequence, question.gpu.id, dtype(of_dtype).name)
    keys: tuple[str, ...] = (
        "model",
        "num_parameters",
        "sequence_length",
        "num_gpus",
        "dtype",
        "recompute",
        "tokens_per_s_per_gpu",
    )
    keys += ("mfu_pct", "hfu_pct", "convention", "measured_on", "source")
    return [{key: getattr(run, key) for key in keys} for run in runs]


def _lora(model: Model, rank: int | None) -> Lora | None:
    if rank is None:
        return None
    from vramwise.models.execution import Lora
    from vramwise.training.recipe.adapters import target_paths

    return Lora(rank, target_paths(model, "all-linear"))


def _share(flops_per_s: float, peak_tflops: float | None) -> float | None:
    return None if peak_tflops is None else utilization_pct(flops_per_s / 1e12, peak_tflops)


def _deepspeed(question: Question, args: argparse.Namespace) -> dict[str, object]:
    """The profiler's summary, and what of the model's FLOPs it missed where a model is given."""
    from vramwise.utilization.deepspeed_profiler import BLIND_SPOTS, read_flops_profile

    profile = read_flops_profile(read_output(args.deepspeed_output))
    found: dict[str, object] = {
        **profile.values,
        "tflops_per_gpu": profile.tflops_per_gpu,
        "blind_spots": list(BLIND_SPOTS),
    }
    batch, forward = profile["batch_size_per_gpu"], profile["forward_flops"]
    if question.model is not None and batch and forward:
        from vramwise.models.flops import step_flops

        true = step_flops(question.model, int(batch), question.sequence).forward
        found["forward_flops_by_blocks"] = true
        found["counted_pct"] = 100 * forward / true
    return found


def inference_answer(question: Question, args: argparse.Namespace) -> dict[str, object]:
    """The ceiling of prefill or decoding, the band that published runs reach, and the share that was reached.

    Raises UsageError without a model and a card whose rate and bandwidth are known.
    """
    if question.model is None or question.gpu is None:
        raise UsageError(f"--task {args.task} needs MODEL and --gpu NAME")
    model, gpu = question.model, question.gpu
    sizes = sizes_of(model, question.sequence)
    weight_dtype = dtype(args.weight_dtype or args.dtype)
    weights = weight_dtype.bytes_for(_weights_read(model, args.batch_size) - sizes.embedding_parameters)
    cache = sum(each.elements(args.context_length) for each in model.caches) * 2
    if args.task == "prefill":
        if question.peak_tflops is None:
            raise UsageError(f"{gpu.id} has no known rate: state --peak-tflops")
        bound = prefill_bound(sizes, question.sequence, question.peak_tflops, args.num_gpus)
    else:
        if gpu.bandwidth_gb_s is None:
            raise UsageError(f"the bandwidth of {gpu.id} is not known")
        per_token = inference_flops_per_token(sizes, args.context_length)
        bound = decode_bound(weights, cache, gpu.bandwidth_gb_s, args.num_gpus, args.batch_size, per_token,
                             question.peak_tflops)  # fmt: skip
    band = published_band(args.task, args.num_gpus)
    throughput = throughput_of(args, question.sequence)
    reached = None if throughput is None else throughput.tokens_per_s_per_gpu * args.num_gpus
    return {
        "schema": 1,
        "task": args.task,
        "model": question.model_id,
        "gpu": gpu.id,
        "num_gpus": args.num_gpus,
        "batch_size": args.batch_size,
        "weight_bytes": weights,
        "weight_dtype": weight_dtype.name,
        "cache_bytes_per_sequence": cache,
        "bandwidth_gb_s": gpu.bandwidth_gb_s,
        "peak_tflops": question.peak_tflops,
        "bound_tokens_per_s": bound.tokens_per_s,
        "limit": bound.limit,
        "formula": bound.formula,
        "published_band": None if band is None else {"low": band[0], "high": band[1], "runs": band[2]},
        "tokens_per_s": reached,
        "fraction_of_bound": None if reached is None else bound.fraction(reached),
        "notes": [question.gpu_note] if question.gpu_note else [],
    }


def _weights_read(model: Model, batch: int) -> int:
    """Parameters that one decoding step reads: of a mixture the active ones for one sequence, all for many."""
    inactive = model.num_parameters - model.num_active_parameters
    return model.num_parameters - (inactive if batch == 1 else 0)
