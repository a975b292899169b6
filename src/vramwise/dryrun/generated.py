"""Tokens that a class of transformers generates in somebody's script: one that ends no sequence, over and over.

So each sequence becomes as long as it may, which is what a card has to have room for, and code that reads the tokens
(a decoder of text, a reward) goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vramwise.dryrun.generated_before import Before
from vramwise.dryrun.known import say, value_of
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.libraries import is_installed, library

_CHOICES = ("multinomial", "argmax")
"""What picks the next token in `GenerationMixin._sample` (transformers 5.23 generation/utils.py)."""


def generated_tokens(watcher: Watcher) -> list[tuple[object, str, object]]:
    """Attributes to replace: `generate`, and inside it what picks a token."""
    if not is_installed("transformers"):
        return []
    torch = library("torch")
    mixin = library("transformers.generation.utils").GenerationMixin
    tokens: list[int] = []
    before = Before(watcher)

    def generate(self: object, *args: object, **kwargs: object) -> Any:
        token = _other_than(_said(self, kwargs))
        known = before.answer(self, args, kwargs, token)
        if known is not None:
            return known
        tokens.append(token)
        for one in (*args[:1], kwargs.get("inputs"), kwargs.get("input_ids")):
            _prompt(one, token)
        try:
            out = real(self, *args, **kwargs)
        finally:
            tokens.pop()
        before.remember(self, args, kwargs, out)
        return out

    real = mixin.generate
    return [
        (mixin, "generate", generate),
        *_beams(mixin, tokens),
        *((torch, name, _picking(getattr(torch, name), tokens)) for name in _CHOICES),
    ]


def _picking(pick: Callable[..., Any], tokens: list[int]) -> Callable[..., Any]:
    torch, fakes = library("torch"), library("torch._subclasses.fake_tensor")

    def picked(*args: object, **kwargs: object) -> Any:
        out = pick(*args, **kwargs)
        if tokens and isinstance(out, fakes.FakeTensor):
            with fakes.unset_fake_temporarily():
                say(out, torch.full(tuple(out.shape), tokens[-1], dtype=out.dtype, device="cpu"))
        return out

    return picked


def _prompt(ids: Any, token: int) -> None:
    """A prompt that was made on the card has this token, too: transformers asks whether one of its is below zero."""
    fakes = library("torch._subclasses.fake_tensor")
    if isinstance(ids, fakes.FakeTensor) and not ids.is_floating_point() and value_of(ids) is None:
        with fakes.unset_fake_temporarily():
            say(ids, library("torch").full(tuple(ids.shape), token, dtype=ids.dtype, device="cpu"))


def _beams(mixin: Any, tokens: list[int]) -> list[tuple[Any, str, Any]]:
    """Beam search whose best continuations are known: one token for every beam, none of which ends.

    transformers 5.23 generation/utils.py `_beam_search` asks after each token whether scores still can get better, and
    cuts its result to what `beam_indices` count.
    """
    if not hasattr(mixin, "_get_top_k_continuations"):  # before 4.50
        return []
    torch, aside = library("torch"), library("torch._subclasses.fake_tensor").unset_fake_temporarily
    continued = mixin._get_top_k_continuations

    def known(self: Any, *args: Any, **kwargs: Any) -> Any:
        scores, sequences, indices = found = continued(self, *args, **kwargs)
        beams, made = kwargs["num_beams"], kwargs["cur_len"] - kwargs["decoder_prompt_len"] + 1
        with aside():
            rows, kept = scores.shape
            numbers = torch.arange(kept)
            say(scores, -1.0 - numbers.expand(rows, kept).to(scores.dtype))
            say(sequences, torch.full(tuple(sequences.shape), tokens[-1], dtype=sequences.dtype))
            chosen = torch.full(tuple(indices.shape), -1, dtype=indices.dtype)
            chosen[:, :, :made] = (numbers % beams + beams * torch.arange(rows)[:, None])[:, :, None]
            say(indices, chosen)
        return found

    return [(mixin, "_get_top_k_continuations", known)]


def _said(model: object, kwargs: dict[str, Any]) -> Iterable[Any]:
    """Tokens that mean something to a generation, one by one or in lists."""
    owners = (
        kwargs.get("generation_config"),
        getattr(model, "generation_config", None),
        getattr(model, "config", None),
    )
    for name in ("eos_token_id", "pad_token_id", "bos_token_id"):
        yield kwargs.get(name)
        for owner in owners:
            yield getattr(owner, name, None)


def _other_than(said: Iterable[object]) -> int:
    """The smallest number that is none of these."""
    taken = {token for one in said for token in (one if isinstance(one, list | tuple) else [one])}
    return next(token for token in range(len(taken) + 1) if token not in taken)
