"""`vramwise estimate MODEL` of a pipeline of Diffusers without a task: its components, and the usual cards."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping

from vramwise.cli.scenario_flags import given_keys
from vramwise.errors import UndescribedTypeError
from vramwise.result import Result
from vramwise.sources import ModelSource

WAYS: Mapping[str, Mapping[str, object]] = {
    "as it is": {},
    "VAE tiling": {"vae_tiling": True},
    "offload model": {"offload": "model", "vae_tiling": True},
    "offload group": {"offload": "group", "vae_tiling": True},
    "denoiser in nf4, offload model": {"quantization": "bitsandbytes-nf4", "offload": "model", "vae_tiling": True},
}
"""How people run a pipeline, each with the keys that say so; all but the first with VAE tiling."""


def answer_pipeline(args: argparse.Namespace, found: ModelSource) -> int | None:
    """Print what every way of running it needs, on the card that was named or on the usual ones; 3 where a card was
    named and none fits. None for what is no described pipeline."""
    answers = answers_of(args, found)
    if not answers:
        return None
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.pipeline_door import pipeline_screen
    from vramwise.scenario.definition import KINDS, Scenario

    if args.json:
        ways = {way: one.to_dict(suggestions=False) for way, one in answers.items()}
        json.dump({"model": found.id, "ways": ways}, sys.stdout)
        print()
    else:
        top = {key: str(value) for key, value in given_keys(args).items() if key in KINDS[Scenario]}
        words = ["vramwise", "estimate", args.model or found.id, "--task", "generate", *_flags(top)]
        show(pipeline_screen({way: (one, [*words, *_flags(WAYS[way])]) for way, one in answers.items()}))
    judged = [one.verdict.fits for one in answers.values() if one.verdict is not None]
    return 3 if judged and not any(judged) else 0


def _flags(keys: Mapping[str, object]) -> Iterator[str]:
    for key, value in keys.items():
        yield f"--{key.replace('_', '-')}"
        if value is not True:
            yield str(value)


def answers_of(args: argparse.Namespace, found: ModelSource) -> dict[str, Result]:
    """An estimate for each way; none where the pipeline is not described."""
    from vramwise.estimation import estimate, pipeline_parts
    from vramwise.scenario.definition import KINDS, Scenario

    if "_class_name" not in found.config or not pipeline_parts(found):
        return {}
    kinds = KINDS[Scenario]
    top = {key: kinds[key].from_text(value) if isinstance(value, str) else value
           for key, value in given_keys(args).items() if key in kinds}  # fmt: skip
    try:
        return {
            way: estimate({**top, "model": args.model, "task": "generate", "generate": dict(table)})
            for way, table in WAYS.items()
        }
    except UndescribedTypeError:
        return {}
