"""Tokens that a class of transformers generates in somebody's script: one that ends no sequence, over and over.

So each sequence becomes as long as it may, which is what a card has to have room for, and code that reads the tokens
(a decoder of text, a reward) goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vramwise.dryrun.known import say
from vramwise.measure.libraries import is_installed, library

_CHOICES = ("multinomial", "argmax")
"""What picks the next token in `GenerationMixin._sample` (transformers 5.23 generation/utils.py)."""


def generated_tokens() -> list[tuple[Any, str, Any]]:
    """Attributes to replace: `generate`, and inside it what picks a token."""
    if not is_installed("transformers"):
        return []
    torch = library("torch")
    mixin = library("transformers.generation.utils").GenerationMixin
    tokens: list[int] = []

    def generate(self: object, *args: object, **kwargs: object) -> Any:
        tokens.append(_other_than(_said(self, kwargs)))
        try:
            return real(self, *args, **kwargs)
        finally:
            tokens.pop()

    real = mixin.generate
    return [
        (mixin, "generate", generate),
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


def _other_than(said: Iterable[Any]) -> int:
    """The smallest number that is none of these."""
    taken = {token for one in said for token in (one if isinstance(one, list | tuple) else [one])}
    return next(token for token in range(len(taken) + 1) if token not in taken)
