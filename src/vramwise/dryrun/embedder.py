"""A model of sentence-transformers on fake tensors: a step over pairs of texts, or one batch that `encode` embeds.

Its own loader reads a folder that has the configs and no weights. A step is that of SentenceTransformerTrainer
with MultipleNegativesRankingLoss (6.2.0 sentence_transformer/losses/multiple_negatives_ranking.py): anchors and
positives go through the model one after another, and backward needs what both keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.card import Card
from vramwise.dryrun.fake_cuda import replaced
from vramwise.dryrun.run import DryRun, FakeTraining, ForwardPass
from vramwise.dryrun.session import Session
from vramwise.dryrun.weights import weights_from_configs
from vramwise.dryrun.whose import FILES, OWN_LENGTH
from vramwise.errors import UsageError
from vramwise.measure.building import config_of, prepared, weight_dtype
from vramwise.measure.job import Job
from vramwise.measure.libraries import library

_COLUMNS: Final = ("anchor", "positive")
_TOKENIZER: Final[Mapping[str, object]] = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "[PAD]": 1}, "unk_token": "[UNK]"},
}  # fmt: skip
"""A tokenizer that the library finds beside a model; the ids of a batch are made without it."""


class EmbedderRun(DryRun):
    """Two steps, or one forward pass, of what SentenceTransformer makes of a model's files."""

    def __init__(self, job: Job, card: Card, workspace_bytes: int, progress: Callable[[int, int], None]) -> None:
        super().__init__(job, card, workspace_bytes, progress, Session(card, workspace_bytes, assumed=Assumptions({})))

    def prepared(self) -> tuple[Any, bool]:
        sentences = library("sentence_transformers")
        self.facts["versions"] |= {"sentence-transformers": sentences.__version__}  # type: ignore[operator]
        wanted = {} if self.job.settings.get("dtype", "") == "auto" else {"dtype": weight_dtype(self.job)}
        if self.job.settings.get("attention") == "eager":
            wanted["attn_implementation"] = "eager"
        with _folder(self.job.config) as folder, replaced([*weights_from_configs(), *_without_weights()]):
            model = sentences.SentenceTransformer(str(folder), device="cuda", model_kwargs=wanted)
        return prepared(model, self.job) if self.job.task == "train" else model.eval(), False

    def runner(self, model: Any, sharded: bool) -> Any:
        if self.job.task == "train":
            return _Training(self.job, model, self.recorder)
        settings = self.job.settings
        tokens = length(self.job, model, "prompt_tokens")
        features = texts(int(settings.get("batch_size") or 1), tokens, self.job.device)
        self.recorder.capture("inputs", list(features.values()))
        self.remarks.append(f"one batch that encode embeds: {len(features['input_ids'])} texts of {tokens} tokens")
        return ForwardPass(self.recorder, lambda: model(dict(features)))


class _Training(FakeTraining):
    def __init__(self, job: Job, model: Any, recorder: Any) -> None:
        super().__init__(job, model, recorder)
        self.loss = library("sentence_transformers.losses").MultipleNegativesRankingLoss(model)
        self.tokens = length(job, model, "sequence_length")
        self.pairs = pairs_of(int(self.settings.get("micro_batch_size") or 1))
        self.remarks.append(
            f"{self.pairs} pairs of texts of {self.tokens} tokens a step, of which each text is a sequence "
            "(MultipleNegativesRankingLoss): another loss or trainer is a script's"
        )

    def batch(self) -> dict[str, Any]:
        found: dict[str, object] = {}
        for column in _COLUMNS:
            features = texts(self.pairs, self.tokens, self.job.device)
            found |= {f"{column}_{name}": tensor for name, tensor in features.items()}
        return found

    def _loss(self, batch: Mapping[str, Any]) -> Any:
        columns = [
            {key.removeprefix(f"{name}_"): tensor for key, tensor in batch.items() if key.startswith(name)}
            for name in _COLUMNS
        ]
        return self.loss(columns, None)

    def _mark_the_loss(self, model: object) -> None:
        """It begins where the second column's pass ends, which no hook of the model tells from the first's."""


def pairs_of(sequences: int) -> int:
    """Pairs whose texts are so many sequences; one where nobody said. Raises UsageError for an odd number."""
    if sequences > 1 and sequences % 2:
        raise UsageError(f"a pair of texts is two sequences: --micro-batch-size {sequences} is odd")
    return max(1, sequences // 2)


def length(job: Job, model: object, key: str) -> int:
    """Tokens of a text: as asked for, else at most what the model's own files say."""
    found = int(job.settings.get(key) or 1)
    own = getattr(model, "max_seq_length", None) if job.config.get(OWN_LENGTH) else None
    return min(found, int(own)) if own else found


def texts(count: int, tokens: int, device: str) -> dict[str, Any]:
    """What a tokenizer gives of texts of one length, moved to the card."""
    torch = library("torch")
    ids = torch.zeros((count, tokens), dtype=torch.int64).to(device)
    return {"input_ids": ids, "attention_mask": torch.ones((count, tokens), dtype=torch.int64).to(device)}


@contextmanager
def _folder(config: Mapping[str, Any]) -> Iterator[Path]:
    """A folder with the model's configs, as the library's loader reads it."""
    own = config_of({key: value for key, value in config.items() if key not in (FILES, OWN_LENGTH)})
    with TemporaryDirectory(prefix="vramwise-") as name:
        folder = Path(name)
        own.save_pretrained(folder)
        files: dict[str, Any] = {
            **config[FILES], "tokenizer.json": _TOKENIZER,
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]",
                                      "pad_token": "[PAD]"},
        }  # fmt: skip
        for path, content in files.items():
            place = (folder / path).resolve()
            if not place.is_relative_to(folder.resolve()):
                raise UsageError(f"modules.json: {path} lies outside of the model's folder")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(content), "utf-8")
        yield folder


def _without_weights() -> list[tuple[object, str, object]]:
    """Modules such as Dense stay as they were made."""
    module = library("sentence_transformers.base.modules.module").Module
    return [(module, "load_torch_weights", classmethod(lambda _cls, *_, model=None, **__: model))]
