"""The messages of a text, in order: where they start, how far each goes, and which of them are one failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from vramwise.errors import UsageError
from vramwise.measure.messages import compilers, drivers, engines, host, torch
from vramwise.measure.messages.message import OomMessage, Reading, Wording

LONGEST_TEXT: Final = 50_000_000
MOST_MESSAGES: Final = 4000
"""Each rank prints its own, chained exceptions print them twice; a log of more is a loop that goes on and on."""
_REACH: Final = 3000  # characters of one message, wrapped lines and log prefixes included
_HEADLINE: Final = 200  # between "CUDA out of memory." and "Tried to allocate", where a log breaks the line

# An engine's own words come before torch's, which they quote.
_STRONG: Final = (*engines.WORDINGS, *torch.WORDINGS, *compilers.WORDINGS, *drivers.WORDINGS, *host.WORDINGS)
_WEAK: Final = (*host.WEAK, *compilers.WEAK)
_WARM_UP: Final = "occurred when warming up"  # vLLM raises this from torch's error
_WENT_ON: Final = "retrying without pipeline parallelism"  # llama.cpp: smaller buffers are asked for, and it serves


def messages_in(text: str) -> list[OomMessage]:
    """Every message of a log that says for itself that memory ran out, in order, at most the first MOST_MESSAGES.

    Raises UsageError for a text longer than 50 MB.
    """
    return [message for message in _found(text, _STRONG) if _WENT_ON not in message.text]


def failures_in(text: str) -> list[OomMessage]:
    """The messages of a text that is known to tell of a failure: where it has no other, also kills and warnings.

    Raises UsageError for a text longer than 50 MB.
    """
    found = _found(text, _STRONG)
    return [message for message in found if _WENT_ON not in message.text] or found or _found(text, _WEAK)


def _found(text: str, wordings: Sequence[Wording]) -> list[OomMessage]:
    if len(text) > LONGEST_TEXT:
        raise UsageError("the log is longer than 50 MB: give the end of it, with the traceback")
    likely = [wording for wording in wordings if any(words in text for words in wording.words)]
    if not likely:
        return []
    readers = {wording.name: wording.read for wording in likely}
    signs = re.compile("|".join(f"(?P<{wording.name}>{wording.sign})" for wording in likely))
    starts = list(islice(signs.finditer(text), MOST_MESSAGES))
    found: list[OomMessage] = []
    covered = -1
    for i, match in enumerate(starts):
        if match.start() < covered:
            continue
        end = min(match.start() + _REACH, len(text))
        following = (starts[j].start() for j in range(i + 1, len(starts)) if _starts_another(starts[j], match))
        end = min(end, next(following, end))
        message = readers[match.lastgroup or ""](Reading(match, text, end))
        covered = end if match.lastgroup == "torch" else match.end()
        _append(found, message)
    return _without_repeats(found)


def _starts_another(later: re.Match[str], first: re.Match[str]) -> bool:
    """A headline and its "Tried to allocate" are one message; two headlines are two."""
    is_pair = (
        first.lastgroup == "torch"
        and not first.group(0).startswith("Tried")
        and later.group(0).startswith("Tried")
        and later.start() - first.end() < _HEADLINE
    )
    return not is_pair


def _append(found: list[OomMessage], message: OomMessage) -> None:
    """Puts a message behind the others, or into the last one where both are the same failure."""
    last = found[-1] if found else None
    if last is not None and (both := engines.one_of(last, message)) is not None:
        found[-1] = both
    elif last is not None and last.program == "torch" and message.program == "vLLM" and _WARM_UP in message.text:
        found[-1] = _with_numbers(message, last)
    else:
        found.append(message)


def _with_numbers(message: OomMessage, of: OomMessage) -> OomMessage:
    """vLLM's words on a failure that torch put into numbers before."""
    return replace(
        message, device=of.device, tried=of.tried, total=of.total, free=of.free, allocated=of.allocated,
        reserved=of.reserved, process=of.process, others=of.others, allowed=of.allowed,
    )  # fmt: skip


def _without_repeats(messages: list[OomMessage]) -> list[OomMessage]:
    """Python prints a chained exception twice, and launchers print each rank's again: equal ones count once."""
    kept: dict[tuple[object, ...], OomMessage] = {}
    for message in messages:
        key: tuple[object, ...] = (message.program, message.device, message.memory)
        if not message.is_vague:  # a program that asks again for less each time prints a vague one each time
            key += (message.tried, message.free, message.allocated, message.process, message.cause)
        kept.setdefault(key, message)
    found = list(kept.values())
    return [message for message in found if not message.is_vague] or found
