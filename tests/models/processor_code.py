"""Functions of transformers' image processors, compiled from its files: importing those needs torchvision."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

MODELS = Path(transformers.__file__).parent / "models"


def functions(path: str, *names: str, **given: Any) -> dict[str, Any]:
    """The functions and methods `names` of a file under transformers/models, without decorators and annotations."""
    tree = ast.parse((MODELS / path).read_text(encoding="utf-8"))
    found: list[ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list, node.returns = [], None
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation = None
            found.append(node)
    space: dict[str, Any] = {
        "math": math, "np": np, "torch": torch, "lru_cache": lru_cache, "defaultdict": defaultdict, **given,
    }  # fmt: skip
    code = ast.Module(found, [])
    exec(compile(ast.fix_missing_locations(code), path, "exec"), space)  # the oracle is that very code
    assert all(name in space for name in names)
    return space
