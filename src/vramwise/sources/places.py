"""Where repositories are looked for, one place after another, each asked once: caches on disk, then hubs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from vramwise.errors import SourceError, clipped, in_one
from vramwise.records import replace
from vramwise.sources.browser_http import given_token
from vramwise.sources.described import model_in
from vramwise.sources.hub import (
    NO_CLIENT,
    NoClient,
    NoSuchRepository,
    is_offline,
    kept_hub,
    names_on_hub,
    open_hub,
)
from vramwise.sources.hub_cache import cached_repository, known_missing
from vramwise.sources.known_names import HINT, known, meant, unknown
from vramwise.sources.local_paths import folder_model
from vramwise.sources.modelscope import downloaded, kept_modelscope, open_modelscope
from vramwise.sources.reference import AUTO, CACHE, HUB, MODELSCOPE, Reference
from vramwise.sources.repository import Folder, ModelSource, Repository
from vramwise.sources.web_reader import Unreachable

REMEMBERED_S = 300.0
"""How long an answer of the network is taken for the present one; a batch is over by then, a server lives on."""
REFUSAL_REMEMBERED_S = 30.0
DOWN_REMEMBERED_S = 120.0
_MOST_REMEMBERED = 4096

Open = Callable[[str, str | None], Repository]
_Surroundings = tuple[str | None, ...]
_answers: dict[tuple[Reference, bool, _Surroundings], tuple[float, ModelSource | SourceError]] = {}
_down: dict[tuple[str, _Surroundings], tuple[float, Unreachable]] = {}


class WouldAsk(SourceError):
    """A hub would have to be asked, in a process that asks none."""


_asks = True


def ask_nobody() -> None:
    """From now on this process raises WouldAsk where it would ask a hub, and leaves that to another one."""
    global _asks
    _asks = False


def model_somewhere(asked: Reference, *, network: bool = True) -> ModelSource:
    """The model in the first place that has the repository; without the network of those on this machine.

    Raises SourceError that says where it was looked for.
    """
    repository = on_disk(asked)
    if repository is not None:
        return folder_model(repository, asked.name, asked.pick)
    offline = not network or is_offline()
    question = asked, offline, _surroundings()
    until, answer = _answers.get(question, (0.0, None))
    if answer is None or until < time.monotonic():
        answer = _looked_for(asked, offline)
        if len(_answers) >= _MOST_REMEMBERED:
            _answers.clear()
        kept_for = REFUSAL_REMEMBERED_S if isinstance(answer, SourceError) else REMEMBERED_S
        _answers[question] = time.monotonic() + kept_for, answer
    if isinstance(answer, SourceError):
        raise answer.with_traceback(None)
    return answer


def _surroundings() -> _Surroundings:
    """What else an answer hangs on."""
    named = (os.environ.get(name) for name in ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "VRAMWISE_CACHE", "HF_TOKEN"))
    return *named, given_token()


def _looked_for(asked: Reference, offline: bool) -> ModelSource | SourceError:
    try:
        repository = _kept(asked) if offline or asked.source == CACHE else _from_network(asked)
        found = model_in(repository, asked.name, asked.pick)
        return replace(found, note=in_one(found.note, f"read from {found.origin}"))
    except (NoSuchRepository, NoClient, Unreachable) as problem:
        return _guessed(asked, problem)
    except SourceError as problem:
        return problem


def on_disk(asked: Reference) -> Folder | None:
    """What was downloaded by the hubs' own clients."""
    if asked.source in (AUTO, CACHE):
        found = cached_repository(asked.name, asked.revision)
        if found is not None:
            return found
    if asked.source in (AUTO, CACHE, MODELSCOPE):
        folder = downloaded(asked.name, asked.revision)
        if folder is not None:
            return Folder(str(folder), origin=f"ModelScope cache: {folder}")
    return None


def _kept(asked: Reference) -> Repository:
    """What this program read before. Raises NoSuchRepository."""
    for source, kept in ((HUB, kept_hub), (MODELSCOPE, kept_modelscope)):
        if asked.source in (AUTO, CACHE, source):
            found = kept(asked.name, asked.revision)
            if found is not None:
                return found
    at = f" at {clipped(asked.revision)}" if asked.revision else ""
    why = "" if asked.source == CACHE else "offline: "
    if known_missing(asked.name, asked.revision, "config.json"):
        raise NoSuchRepository(f"{why}the Hub said before that {asked.name}{at} has no config.json")
    raise NoSuchRepository(f"{why}no cache on this machine has {asked.name}{at}")


def found_on_hub(query: str, most: int) -> list[str]:
    """Names of models on the Hugging Face Hub that hold a query. Raises WouldAsk, or SourceError where it fails."""
    if not _asks:
        raise WouldAsk(f"{clipped(query, 60)}: a hub would have to be asked")
    return names_on_hub(query, most)


def _from_network(asked: Reference) -> Repository:
    """Raises NoClient, NoSuchRepository or Unreachable with what every hub said, or another SourceError."""
    if not _asks:
        raise WouldAsk(f"{asked.name}: a hub would have to be asked")
    hubs: list[tuple[str, Open]] = []
    if asked.source in (AUTO, HUB):
        hubs.append((HUB, open_hub))
    if asked.source in (AUTO, MODELSCOPE):
        hubs.append((MODELSCOPE, open_modelscope))
    said: list[SourceError] = []
    for hub, opened in hubs:
        try:
            return _once_a_while(hub, opened, asked)
        except (NoSuchRepository, Unreachable) as problem:
            said.append(problem)
    together = "; ".join(str(problem) for problem in said)
    if all(isinstance(problem, Unreachable) for problem in said):
        raise Unreachable(together)
    raise NoSuchRepository(together)


def _once_a_while(hub: str, opened: Open, asked: Reference) -> Repository:
    """A hub that cannot be reached is not waited for again by every line of a batch."""
    place = hub, _surroundings()
    until, problem = _down.get(place, (0.0, None))
    if problem is not None and until > time.monotonic():
        raise problem.with_traceback(None)
    try:
        return opened(asked.name, asked.revision)
    except Unreachable as now:
        _down[place] = time.monotonic() + DOWN_REMEMBERED_S, now
        raise


def _guessed(asked: Reference, problem: SourceError) -> ModelSource | SourceError:
    """What the name alone says where no place has the repository, or the error."""
    plain = asked.revision is None and asked.pick is None and asked.source == AUTO
    try:
        found = meant(asked.name) if plain else None
    except SourceError as several:
        return several
    if found is None and asked.revision is None and asked.source in (AUTO, HUB):
        from vramwise.sources.named_files import of_gguf_files

        found = of_gguf_files(asked.name if asked.pick is None else f"{asked.name}:{asked.pick}")
    if found is not None:
        return found
    if isinstance(problem, NoClient):
        file = f"https://huggingface.co/{asked.name}/resolve/{asked.revision or 'main'}/config.json"
        return unknown(asked.name, f"not in the catalog or a cache; {NO_CLIENT}; or fetch {file} and give its path")
    if known(asked.name) is not None:  # with a revision, a pick or another source
        return SourceError(f"{asked.name}: {problem}; without @REVISION, :PICK and source the catalog answers")
    where = "in neither the catalog nor a cache, and " if isinstance(problem, Unreachable) else ""
    name = asked.name if asked.pick is None else f"{asked.name}:{asked.pick}"
    return unknown(name, f"{where}{problem}; {HINT}")
