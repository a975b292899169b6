"""Scripts around sentence-transformers' trainers: what a batch of theirs is beside a Trainer's of one text a sample.

Read in sentence-transformers 6.2.0: a loss encodes every column of a batch (anchor, positive, negative) one after
another and keeps what all of them need for backward (sentence_transformer/losses/*.py); Cached… losses hold one
mini-batch of 32 at a time (cached_multiple_negatives_ranking.py); a CrossEncoder reads both texts in one sequence,
and its ranking loss makes 4 wrong pairs for each right one (cross_encoder/losses/multiple_negatives_ranking.py).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.python_code import Call, first, known, refuse
from vramwise.interop.launch import Launch
from vramwise.interop.launch.model_facts import model_type
from vramwise.interop.launch.values import whole_in
from vramwise.models.type_facts import has_fact

TRAINERS = ("SentenceTransformerTrainer", "CrossEncoderTrainer", "SparseEncoderTrainer", "MultiVectorEncoderTrainer")
ARGUMENTS = ("SentenceTransformerTrainingArguments", "CrossEncoderTrainingArguments")
OF_ITS_OWN = frozenset(
    {"batch_sampler", "multi_dataset_batch_sampler", "prompts", "router_mapping", "learning_rate_mapping"}
)
"""Arguments of its own, without effect on memory."""
_MODELS = ("SentenceTransformer", "CrossEncoder")
_MODULES = ("Transformer",)
_ONE_TEXT = ("DenoisingAutoEncoderLoss", "BatchAllTripletLoss", "BatchHardTripletLoss", "BatchSemiHardTripletLoss",
             "BatchHardSoftMarginTripletLoss", "EmbedDistillLoss")  # fmt: skip
_THREE_TEXTS = ("TripletLoss", "MarginMSELoss")
_MINI_BATCH, _WRONG_PAIRS = 32, 4
_LENGTHS = ("max_seq_length", "max_length")


def trainer_in(calls: list[Call]) -> Call | None:
    """The call of one of its trainers."""
    return first(calls, *TRAINERS)


def loading(given: Given, calls: list[Call], trainer: Call) -> Call:
    """What the script loads, as a call of from_pretrained. Raises UsageError for encoders of other kinds."""
    if trainer.last not in ("SentenceTransformerTrainer", "CrossEncoderTrainer"):
        raise refuse(given.path, f"{trainer.last.removesuffix('Trainer')} is not described: its outputs are wider than "
                                 "an embedding")  # fmt: skip
    sources = [call for call in calls if call.last in (*_MODULES, *_MODELS) and not call.name.startswith("losses.")]
    named = next((call for call in sources if _name_in(call) is not None), Call("SentenceTransformer"))
    inner = {**_table(named.named.get("model_args")), **_table(named.named.get("model_kwargs"))}
    name = _name_in(named)
    return Call("from_pretrained", [] if name is None else [name], inner)


def as_embeddings(launch: Launch, tree: ast.AST, calls: list[Call], trainer: Call) -> Launch:
    """A Trainer's launch with the head, the sequences of a batch and the length of sentence-transformers' trainer."""
    given = launch.scenario.get("train")
    train: dict[str, object] = dict(given) if isinstance(given, Mapping) else {}
    batch = whole_in(train, "micro_batch_size")
    pairs = trainer.last == "CrossEncoderTrainer"
    count, said = _of_pairs(calls, batch) if pairs else _of_columns(calls, batch)
    notes = [said]
    head = "sequence-classification" if pairs else "none"
    kind = model_type(str(launch.scenario.get("model")))
    if pairs and has_fact("transformers", "headless_class", kind):
        head = "none"
        notes.append(f"the classifier of {kind}, which reads one vector a sequence, is not counted")
    train |= {"head": head, "micro_batch_size": count}
    length = _length(tree, calls)
    if length:
        train["sequence_length"] = length
    else:
        notes.append("nothing says how long the texts are (max_seq_length): --sequence-length does")
    guide = next((call for call in calls if "guide" in call.named), None)
    if guide is not None:
        notes.append(f"{clipped(guide.last)}: the guide's weights and outputs are not counted")
    return replace(launch, scenario={**launch.scenario, "train": train}, notes=(*notes, *launch.notes))


def _of_columns(calls: list[Call], batch: int) -> tuple[int, str]:
    """Sequences whose activations backward needs at once, and what was taken."""
    losses = [call for call in calls if call.last.endswith("Loss")]
    cached = next((call for call in losses if call.last.startswith("Cached")), None)
    if cached is not None:
        mini = cached.named.get("mini_batch_size")
        size = mini if isinstance(mini, int) and mini > 0 else _MINI_BATCH
        return min(batch, size), f"{cached.last}: a mini-batch of {min(batch, size)} texts is on the GPU at a time"
    names = {call.last for call in losses}
    columns = 1 if names & set(_ONE_TEXT) else 3 if names & set(_THREE_TEXTS) or _has_triplets(calls) else 2
    texts = {1: "one text", 2: "two texts", 3: "three texts"}[columns]
    taken = f"a sample is taken as {texts}, each a sequence: --micro-batch-size says how many sequences a step has"
    return batch * columns, taken


def _of_pairs(calls: list[Call], batch: int) -> tuple[int, str]:
    ranking = first(calls, "MultipleNegativesRankingLoss")
    cached = first(calls, "CachedMultipleNegativesRankingLoss")
    if cached is not None:
        return _of_columns(calls, batch)
    if ranking is None:
        return batch, "a sample is one sequence of two texts"
    wrong = ranking.named.get("num_negatives")
    count = wrong if isinstance(wrong, int) else _WRONG_PAIRS
    return batch * (1 + count), f"{ranking.last}: {count} wrong pairs for each right one"


def _has_triplets(calls: list[Call]) -> bool:
    """Whether the part of a dataset that is loaded is called after triplets."""
    loads = [call for call in calls if call.last == "load_dataset"]
    parts = [part for call in loads for part in (*call.positional[1:2], call.named.get("name"))]
    return any("triplet" in str(part).lower() for part in parts)


def _length(tree: ast.AST, calls: list[Call]) -> int | None:
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    for node in plain:
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if isinstance(value, int) and any(getattr(one, "attr", "") in _LENGTHS for one in node.targets):
            return value
    told = (known(call.named)[0].get(name) for call in calls if call.last in (*_MODELS, *_MODULES) for name in _LENGTHS)
    return next((value for value in told if isinstance(value, int) and value > 0), None)


def _name_in(call: Call) -> str | None:
    names = (*call.positional[:1], call.named.get("model_name_or_path"), call.named.get("model_name"))
    return next((name for name in names if isinstance(name, str)), None)


def _table(value: object) -> dict[str, object]:
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}
