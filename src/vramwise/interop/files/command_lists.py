"""Python scripts that start a server by a list of words: `subprocess.Popen(["vllm", "serve", MODEL, …])`, as those of
Modal do, whose functions name the card (`gpu="H100:2"`) and whose image the version (`vllm==0.19.0`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from vramwise.errors import VramwiseError
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program
from vramwise.interop.files.python_code import assigned, code_of, left_out, tree_of, value_in
from vramwise.interop.launch import names_a_program

_STARTS = re.compile(r"""["'](?:vllm|sglang|sglang\.launch_server|trtllm-serve|llama-server|text-generation-launcher|"""
                     r"""vllm\.entrypoints\.openai\.api_server)["']""")  # fmt: skip
_SCALARS = str | int | float


def has_command_list(given: Given) -> bool:
    """Whether a Python text names a server's program as a word of its own."""
    return _STARTS.search(given.text) is not None


def listed_programs(given: Given) -> list[Program]:
    """The servers that lists of words start, with what is added to them later in the text."""
    tree = tree_of(code_of(given), given.path)
    values = assigned(tree)
    found: list[Program] = []
    for name, nodes in _lists(tree):
        words, unknown = _words(nodes, values)
        if names_a_program(words) and not any(words == one.words for one in found):
            found.append(Program(name, words, left_out(unknown), _card(tree, values), serve=pinned(given.text, words)))
    return found


def _lists(tree: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """Every list of words, by the name it is given, with those that are added to that name."""
    grown: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.List):
            grown.setdefault(node.target.id, []).extend(node.value.elts)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            name, first = node.func.value, node.args[0]
            if isinstance(name, ast.Name) and node.func.attr == "extend" and isinstance(first, ast.List):
                grown.setdefault(name.id, []).extend(first.elts)
    named = {id(node.value): node.targets[0].id for node in ast.walk(tree)
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.List) and node.elts:
            own = named.get(id(node), "")
            yield own, [*node.elts, *grown.get(own, [])]


def _words(nodes: list[ast.expr], values: Mapping[str, object]) -> tuple[tuple[str, ...], list[str]]:
    """The words that are known; an unknown one goes with the flag before it, which is named."""
    words: list[str] = []
    unknown: list[str] = []
    for node in nodes:
        text = _text(node, values)
        if text is not None:
            words += text.split() if text.startswith("--") and " " in text else [text.strip("'")]
        elif words and words[-1].startswith("-") and "=" not in words[-1]:
            unknown.append(words.pop())
        else:
            unknown.append(ast.unparse(node)[:40])
    return tuple(words), unknown


def _text(node: ast.expr, values: Mapping[str, object]) -> str | None:
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return "python"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return _text(node.args[0], values)
    if isinstance(node, ast.IfExp):
        test = value_in(node.test, values)
        return _text(node.body if test else node.orelse, values) if isinstance(test, bool) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_text(one.value if isinstance(one, ast.FormattedValue) else one, values) for one in node.values]
        return None if None in parts else "".join(part for part in parts if part is not None)
    value = value_in(node, values)
    return str(value) if isinstance(value, _SCALARS) and not isinstance(value, bool) else None


def _card(tree: ast.AST, values: Mapping[str, object]) -> dict[str, object]:
    """What a function of Modal asks for: `gpu="H100:2"`, the first of several."""
    from vramwise.hardware import find_gpu

    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "gpu":
            named, _, count = (_text(node.value, values) or "").strip("!+").partition(":")
            number: dict[str, object] = (
                {"num_gpus": int(count)} if count.isdecimal() and 0 < len(count) < 4 and int(count) > 1 else {}
            )
            try:
                return {"gpu": find_gpu(named).gpu.id, **number} if named else {}
            except VramwiseError:
                return number
    return {}


def pinned(text: str, words: tuple[str, ...]) -> dict[str, object]:
    """The version of the server's package that a text installs (`pip install vllm==0.19.0`)."""
    inner = [word for word in words if "=" not in word][:3]
    engine = next((one for one in ("vllm", "sglang") if any(one in word for word in inner)), "")
    found = re.search(rf"\b{engine}(?:\[[\w,-]+\])?==(\d+(?:\.\d+)+)", text) if engine else None
    return {"engine_version": found[1]} if found else {}
