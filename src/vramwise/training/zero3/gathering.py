"""What stage 3 gathers in a step, by all that it hangs on: many settings of a scenario leave that as it is."""

from __future__ import annotations

from vramwise.memo import Memo
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.zero3.coordinator import Gathered, Limits, ViewsKept, gathered
from vramwise.training.zero3.module_calls import Weight, calls_of_step, module_tree


@record
class Gathering:
    """A step as the coordinator sees it.

    `weights`: those of the model's `all_parameters`; `added`: adapters' beside the parameter of a name; `images`,
    `input_gradients`: as in `module_tree`; `checkpointing`, `reentrant`: as in `calls_of_step`; the rest: as in
    `gathered`.
    """

    model: Model
    weights: tuple[Weight, ...]
    added: tuple[tuple[str, tuple[Weight, ...]], ...]
    images: bool
    input_gradients: bool
    checkpointing: bool
    reentrant: bool
    limits: Limits
    ranks: int
    quantized: bool
    views: ViewsKept | None
    from_host: bool
    copies_alone: bool


_known: Memo[Gathering, Gathered] = Memo(64)


def gathered_by(asked: Gathering) -> Gathered:
    """What is gathered in such a step."""
    return _known.get(asked, lambda: _gathered(asked))


def _gathered(asked: Gathering) -> Gathered:
    of_name = {p.name: weight for p, weight in zip(asked.model.all_parameters, asked.weights, strict=True)}
    added = dict(asked.added)
    root = module_tree(
        asked.model, lambda p: of_name[p.name], (lambda p: added.get(p.name, ())) if added else None,
        images=asked.images, input_gradients=asked.input_gradients,
    )  # fmt: skip
    calls, in_forward = calls_of_step(root, checkpointing=asked.checkpointing, reentrant=asked.reentrant)
    return gathered(
        calls, in_forward, asked.limits, asked.ranks, quantized=asked.quantized, views=asked.views,
        from_host=asked.from_host, copies_alone=asked.copies_alone,
    )  # fmt: skip
