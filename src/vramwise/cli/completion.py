"""`vramwise completion bash|zsh|fish`: a script that completes commands, flags, their choices, and names.

Everything in it comes from where it is defined: the commands, the flags of each, the choices of a scenario's keys, the
cards and the models of the catalog. It starts nothing when a key is pressed.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping

from vramwise.cli.brief_help import choices_by_flag
from vramwise.cli.main import COMMANDS, command_parser
from vramwise.errors import UsageError, clipped, nearest
from vramwise.records import record

HELP = "a script that completes commands, flags and names in bash, zsh or fish"
SHELLS = ("bash", "zsh", "fish")
_PLAIN = re.compile(r"[\w.,:/@%+-]+")
_FILES = ("FILE", "PATH", "TRACE", "DIR", "LOGFILE", "FILE_OR_DIR", "DATA.jsonl")


@record
class Words:
    """What may stand where: flags by command, values by flag, flags that take a file, names by what they name."""

    flags: Mapping[str, tuple[str, ...]]
    choices: Mapping[str, tuple[str, ...]]
    file_flags: tuple[str, ...]
    gpus: tuple[str, ...]
    models: tuple[str, ...]
    with_models: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("shell", metavar="|".join(SHELLS), help='as in eval "$(vramwise completion bash)"')


def run(args: argparse.Namespace) -> int:
    """Print the script. Raises UsageError for another shell."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if args.shell not in makers:
        near = nearest(args.shell, SHELLS)
        hint = f": did you mean {near[0]}?" if near else ""
        raise UsageError(f'expected {", ".join(SHELLS[:-1])} or {SHELLS[-1]}, got "{clipped(args.shell)}"{hint}')
    print("\n".join(makers[args.shell](words_of_everything())))
    return 0


def words_of_everything() -> Words:
    """Commands, flags, choices and names as they are defined."""
    from vramwise.hardware.gpu import rows_by_id
    from vramwise.sources.catalog import names

    flags, choices, files, with_models = {}, dict(choices_by_flag()), set[str](), []
    for command in COMMANDS:
        actions = command_parser(command)._actions
        flags[command] = tuple(sorted(word for action in actions for word in action.option_strings if word[1] == "-"))
        for action in actions:
            kinds = str(action.metavar or "").split("|")
            if action.option_strings and action.choices:
                choices.setdefault(action.option_strings[-1], tuple(map(str, action.choices)))
            elif action.option_strings and all(re.fullmatch("[a-z]+", kind) for kind in kinds):
                choices.setdefault(action.option_strings[-1], tuple(kinds))
            files.update(word for word in action.option_strings if kinds[0] in _FILES)
        if any(action.metavar == "MODEL" for action in actions if not action.option_strings):
            with_models.append(command)
    models = sorted({name for written in names().exact.values() for name in written if _PLAIN.fullmatch(name)})
    return Words(flags, choices, tuple(sorted(files)), ("here", *rows_by_id()), tuple(models), tuple(with_models))


def _cases(words: Words) -> Iterator[tuple[str, str]]:
    """Patterns of the word before, with the variable or words that may follow it."""
    yield "--gpu|--gpus", "gpus"
    for flag, values in words.choices.items():
        yield flag, " ".join(value for value in values if _PLAIN.fullmatch(value))


def _lists(words: Words) -> Iterator[str]:
    """The long lists, as variables of a shell."""
    yield f"_vramwise_commands={shlex.quote(' '.join(COMMANDS))}"
    yield f"_vramwise_gpus={shlex.quote(' '.join(words.gpus))}"
    yield f"_vramwise_models={shlex.quote(' '.join(words.models))}"


def _flag_cases(words: Words, indent: str) -> Iterator[str]:
    """`case` of a command with its flags."""
    for command, flags in words.flags.items():
        yield f"{indent}{command}) flags={shlex.quote(' '.join(flags))} ;;"


def _bash(words: Words) -> Iterator[str]:
    yield '# vramwise completion bash: eval "$(vramwise completion bash)", or into bash_completion.d'
    yield from _lists(words)
    yield "_vramwise() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"'
    yield '  local flags="" found="" word'
    yield "  COMPREPLY=()"
    yield '  if [ "$COMP_CWORD" -eq 1 ]; then'
    yield '    COMPREPLY=($(compgen -W "$_vramwise_commands" -- "$cur")); return'
    yield "  fi"
    yield '  for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do'
    yield '    [ "$word" = -- ] && { COMPREPLY=($(compgen -c -f -- "$cur")); return; }'
    yield "  done"
    yield '  case "$prev" in'
    for pattern, values in _cases(words):
        text = '"$_vramwise_gpus"' if values == "gpus" else shlex.quote(values)
        yield f'    {pattern}) COMPREPLY=($(compgen -W {text} -- "$cur")); return ;;'
    if words.file_flags:
        yield f'    {"|".join(words.file_flags)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;'
    yield "  esac"
    yield '  case "$command" in'
    yield from _flag_cases(words, "    ")
    yield "  esac"
    yield '  case "$cur" in'
    yield '    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")); return ;;'
    yield "  esac"
    yield '  case "$command" in'
    yield f'    {"|".join(words.with_models)}) found="$_vramwise_models" ;;'
    yield '    gpus) found="$_vramwise_gpus" ;;'
    yield '    models) found="$_vramwise_models" ;;'
    yield f"    completion) found={shlex.quote(' '.join(SHELLS))} ;;"
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$found" -- "$cur") $(compgen -f -- "$cur"))'
    yield "}"
    yield "complete -F _vramwise vramwise"


def _zsh(words: Words) -> Iterator[str]:
    yield "#compdef vramwise"
    yield '# vramwise completion zsh: eval "$(vramwise completion zsh)", or into a file _vramwise of $fpath'
    yield from _lists(words)
    yield "_vramwise() {"
    yield '  local cur="${words[CURRENT]}" prev="${words[CURRENT-1]}" command="${words[2]}" flags="" found=""'
    yield "  if (( CURRENT == 2 )); then compadd -- ${=_vramwise_commands}; return; fi"
    yield "  if (( ${words[(I)--]} > 0 && ${words[(I)--]} < CURRENT )); then _files; return; fi"
    yield '  case "$prev" in'
    for pattern, values in _cases(words):
        text = "${=_vramwise_gpus}" if values == "gpus" else values
        yield f"    {pattern}) compadd -- {text}; return ;;"
    if words.file_flags:
        yield f"    {'|'.join(words.file_flags)}) _files; return ;;"
    yield "  esac"
    yield '  case "$command" in'
    yield from _flag_cases(words, "    ")
    yield "  esac"
    yield '  if [[ "$cur" == -* ]]; then compadd -- ${=flags}; return; fi'
    yield '  case "$command" in'
    yield f'    {"|".join(words.with_models)}|models) found="$_vramwise_models" ;;'
    yield '    gpus) found="$_vramwise_gpus" ;;'
    yield f"    completion) found={shlex.quote(' '.join(SHELLS))} ;;"
    yield "  esac"
    yield "  compadd -- ${=found}"
    yield "  _files"
    yield "}"
    yield "(( $+functions[compdef] )) && compdef _vramwise vramwise"


def _fish(words: Words) -> Iterator[str]:
    yield "# vramwise completion fish: vramwise completion fish | source, or into completions/vramwise.fish"
    yield f"set -g _vramwise_gpus {' '.join(words.gpus)}"
    yield f"set -g _vramwise_models {' '.join(words.models)}"
    for command, what in COMMANDS.items():
        yield f"complete -c vramwise -f -n __fish_use_subcommand -a {command} -d {_quoted(what)}"
    choices = dict(words.choices)
    for command, flags in words.flags.items():
        here = f"-n '__fish_seen_subcommand_from {command}'"
        for flag in flags:
            after = ""
            if flag in ("--gpu", "--gpus"):
                after = " -x -a '$_vramwise_gpus'"
            elif flag in choices:
                after = f" -x -a '{' '.join(value for value in choices[flag] if _PLAIN.fullmatch(value))}'"
            elif flag in words.file_flags:
                after = " -r -F"
            yield f"complete -c vramwise {here} -l {flag[2:]}{after}"
    with_models = " ".join([*words.with_models, "models"])
    yield f"complete -c vramwise -n '__fish_seen_subcommand_from {with_models}' -a '$_vramwise_models'"
    yield "complete -c vramwise -f -n '__fish_seen_subcommand_from gpus' -a '$_vramwise_gpus'"
    yield f"complete -c vramwise -f -n '__fish_seen_subcommand_from completion' -a '{' '.join(SHELLS)}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
