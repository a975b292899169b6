"""Names that the catalog answers to: as they stand in it, as people write them, and with a quantization behind them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.errors import SourceError, clipped
from vramwise.sources.catalog import entry, written, written_behind_organisation
from vramwise.sources.human_names import MIRRORS, Match, base_of_that_size, find, near
from vramwise.sources.model_source import ModelSource

HINT = "vramwise models lists all; a folder or config.json also works"
_LISTED = 6


@lru_cache(maxsize=512)
def known(name: str) -> ModelSource | None:
    """A name of the catalog: an id or an alias, without regard to letter case."""
    found = written(name)
    return _from_catalog(*found) if found is not None else None


def by_name(name: str) -> ModelSource:
    """A name of the catalog, or one as people write it. Raises SourceError with the nearest names."""
    found = known(name) or meant(name)
    if found is None:
        raise unknown(name, HINT)
    return found


def is_repository_of_its_own(name: str) -> bool:
    """Whether ORG/NAME may be another model than the one of the catalog that its name recalls.

    Organisations that publish other people's checkpoints unchanged say whose they are.
    """
    org, _, short = name.rpartition("/")
    return bool(org) and not (org.lower() in MIRRORS and written_behind_organisation(short))


@lru_cache(maxsize=512)
def meant(name: str) -> ModelSource | None:
    """The model of the catalog that a name means, None where it means none."""
    org, _, short = name.rpartition("/")
    match = find(short) if not org or org.lower() in MIRRORS else None
    if match is None:
        return _quantized(name) or (None if org else _of_that_size(name))
    source = _from_catalog(match.id, match.spelling)
    notes = [note for note in (_taken(name, match), source.note) if note]
    return replace(source, note="; ".join(notes) or None, others=match.others)


def _taken(name: str, match: Match) -> str | None:
    """What was chosen where the name left a choice."""
    if match.others:
        shown = ", ".join(match.others[:_LISTED]) + (", …" if len(match.others) > _LISTED else "")
        return f'"{clipped(name)}" fits several models: took {match.spelling} (others: {shown})'
    short = name.rpartition("/")[2]
    exact = match.spelling.partition("/")[2].lower() == "-".join(short.lower().split())
    return None if exact and short == name else f'"{clipped(name)}" taken as {match.spelling}'


def unknown(name: str, hint: str) -> SourceError:
    """The error for a name that nothing answers to."""
    close = near(name)
    meant = f": did you mean {', '.join(close)}?" if close else ""
    return SourceError(f'unknown model "{clipped(name)}"{meant}  ({hint})')


def _quantized(name: str) -> ModelSource | None:
    """A name that is a known model's with the format of its weights behind it, whoever published it."""
    from vramwise.sources.quantized_names import base_of

    found = base_of(name)
    if found is None:
        return None
    base, words, table = found
    base_model = known(base)
    if base_model is None:
        named = written_behind_organisation(base.rpartition("/")[2])
        base_model = _from_catalog(*named[0]) if named else None
    if base_model is None:
        return None
    config = {**base_model.config, "quantization_config": table}
    note = f"{clipped(name)}: sizes of {base_model.id} with {words}, as its name says"
    return replace(base_model, id=name, config=config, note=note)


def _of_that_size(name: str) -> ModelSource | None:
    """A size that no model of that name has, where the others are made from another family that has it."""
    base = base_of_that_size(name)
    if base is None:
        return None
    note = f'no "{clipped(name)}" is known: took {base}, of the family and size that it would be made from'
    return replace(_from_catalog(base, base), note=note, stands_in=True)


def _from_catalog(model_id: str, spelling: str) -> ModelSource:
    found = entry(model_id)
    note = f"{spelling}: sizes of {found.like}, the same architecture" if found.like else None
    return ModelSource(spelling, found.hyperparameters, f"catalog: {found.source}", note)
