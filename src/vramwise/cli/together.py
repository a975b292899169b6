"""`vramwise estimate A.toml B.toml --together`: several programs on one card, in one answer."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator

from vramwise.cli.scenario_flags import scenario_from_flags
from vramwise.errors import DOES_NOT_FIT, UsageError, clipped
from vramwise.scenario import Scenario
from vramwise.scenario.cards import card_here

_SEPARATOR = "--"


def run_together(args: argparse.Namespace) -> int:
    """Print the answer; 0 where all of them fit together, 3 where they do not."""
    from vramwise.estimation import estimate
    from vramwise.planner.together import together

    found = together(_distinct(list(_programs(args))), estimate)
    if args.json:
        print(json.dumps({"together": found.to_dict()}))
    else:
        from vramwise.cli.screens.paint import show
        from vramwise.cli.screens.together import together_screen

        show(together_screen(found))
    return 0 if found.verdict.fits else DOES_NOT_FIT


def _programs(args: argparse.Namespace) -> Iterator[tuple[str, Scenario]]:
    """Every file's and every command line's scenario, under the flags that stand beside them."""
    here = _HereOnce()
    for word in (args.model, args.scenario, *args.files):
        if isinstance(word, str):
            yield from _of_file(args, word, here)
    from vramwise.interop.launch import read_command

    for words in _commands(args.engine_command):
        yield words[0].rsplit("/", 1)[-1], here.on_it(_scenario(args, launch=read_command(words)))


class _HereOnce:
    """This machine's card, looked at for the first program that asks for it and the same for all."""

    def __init__(self) -> None:
        self._card: dict[str, object] = {}

    def on_it(self, scenario: Scenario) -> Scenario:
        from vramwise.estimation import on_this_machine

        if card_here(scenario.gpu) is None:
            return scenario
        if not self._card:
            found = on_this_machine(scenario)
            self._card = {
                key: getattr(found, key) for key in ("gpu", "gpus", "gpu_total_bytes", "gpu_free_bytes", "driver")
            }
        return scenario.replace(**self._card)


def _of_file(args: argparse.Namespace, path: str, here: _HereOnce) -> Iterator[tuple[str, Scenario]]:
    if not os.path.isfile(path):
        raise UsageError(f'--together: "{clipped(path)}" is no file here: give files, or command lines after --')
    from vramwise.interop.files.kinds import is_tools_file

    name = os.path.basename(path)
    if not is_tools_file(path):
        yield name, here.on_it(_scenario(args, scenario=path))
        return
    from vramwise.interop.files.launches import read_files

    launches = read_files([path], None, args.service)
    for one in launches:
        yield one.name if len(launches) > 1 else name, here.on_it(_scenario(args, launch=one.launch))


def _scenario(args: argparse.Namespace, *, scenario: str | None = None, launch: object = None) -> Scenario:
    """One program's scenario; where this machine's card is asked for, that is left for all of them together."""
    own = argparse.Namespace(**vars(args))
    own.model, own.files, own.scenario, own.launch, own.engine_command = None, [], scenario, launch, []
    return scenario_from_flags(own, locate=False)


def _commands(words: list[str]) -> list[list[str]]:
    """The command lines, which `--` separates."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == _SEPARATOR:
            found.append([])
        else:
            found[-1].append(word)
    return [command for command in found if command]


def _distinct(programs: list[tuple[str, Scenario]]) -> list[tuple[str, Scenario]]:
    """The programs with a number behind names that several have."""
    names = [name for name, _ in programs]
    seen: dict[str, int] = {}
    found = []
    for name, scenario in programs:
        seen[name] = seen.get(name, 0) + 1
        found.append((f"{name} {seen[name]}" if names.count(name) > 1 else name, scenario))
    return found
