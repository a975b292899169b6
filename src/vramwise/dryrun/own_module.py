"""A module of the user's own, by import path: made, fed and trained for two steps as `estimate`'s scenario has it."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.measure.libraries import library
from vramwise.measure.optimizing import optimizer_for
from vramwise.measure.steps import CLIP_NORM

if TYPE_CHECKING:
    from vramwise.dryrun.steps import Steps

_TARGET: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")
_INPUT: Final = re.compile(r"((?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]\w*)\[(?P<shape>[\d, ]*)\]")
_SHORT: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "int": "int64"}
_DTYPES: Final = (
    "float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
)  # fmt: skip
_LARGEST_DIMENSION: Final = 2**40
_MOST: Final = 64
_WORDS: Final = {"true": True, "false": False, "null": None, "none": None}


def names_a_module(model: str) -> bool:
    """Whether a text is MODULE:CLASS, and the module lies in this folder."""
    found = _TARGET.fullmatch(model)
    if found is None:
        return False
    first = found["module"].partition(".")[0]
    return os.path.isfile(f"{first}.py") or os.path.isdir(first)


def read_target(model: str) -> str:
    """MODULE:CLASS as it is; raises UsageError for anything else."""
    if not _TARGET.fullmatch(model):
        raise UsageError(f'--input is for a module of your own: expected MODULE:CLASS, got "{clipped(model)}"')
    return model


def read_inputs(given: Iterable[str]) -> list[dict[str, object]]:
    """`name=dtype[shape]`, or `dtype[shape]` for one by position. Raises UsageError for others."""
    found: list[dict[str, object]] = []
    for text in given:
        match = _INPUT.fullmatch(text.strip())
        dtype = _SHORT.get(match["dtype"], match["dtype"]) if match else ""
        if match is None or dtype not in _DTYPES:
            kinds = ", ".join((*_SHORT, *_DTYPES))
            raise UsageError(
                f'--input: expected name=dtype[shape] such as x=float32[8,3,224,224], got "{clipped(text)}" '
                f"(types: {kinds})"
            )
        shape = [int(size) for size in match["shape"].split(",") if size.strip()]
        if len(shape) > _MOST or any(size > _LARGEST_DIMENSION for size in shape):
            raise UsageError(f"--input {clipped(text)}: no tensor has such a shape")
        if match["name"] is None and any(one["name"] for one in found):
            raise UsageError(f"--input {clipped(text)}: inputs by position come before those by name")
        found.append({"name": match["name"], "dtype": dtype, "shape": shape})
    return found


def read_arguments(given: Iterable[str]) -> dict[str, object]:
    """`key=value`: Python's literals are read as such, everything else is text. Raises UsageError without a key."""
    found: dict[str, object] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f'--arg: expected key=value, got "{clipped(text)}"')
        found[key] = _literal(value)
    return found


def _literal(text: str) -> object:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


class _NoOptimizer:
    """Steps without an optimizer: gradients, and no states."""

    def __init__(self, parameters: list[Any]) -> None:
        self.param_groups = [{"params": parameters}]
        self.state: dict[Any, Any] = {}


class OwnModule:
    """Two steps, one forward pass, or loading, of a module that is made by `target` from `arguments`."""

    def __init__(self, asked: Mapping[str, Any], steps: Steps) -> None:
        self.asked, self.steps = asked, steps
        self.settings: Mapping[str, Any] = asked["settings"]
        self.precision = str(self.settings.get("precision") or "fp32")

    def run(self) -> None:
        """Ends by EnoughSteps once an optimizer has made its steps."""
        model = self._made()
        self.steps.loaded(model)
        if self.asked["task"] == "load":
            return
        if self.asked["task"] == "generate":
            self._infer(model)
        else:
            self._train(model)

    def _made(self) -> Any:
        torch = library("torch")
        module_name, _, name = self.asked["target"].partition(":")
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as missing:
            if missing.name is None or not module_name.startswith(missing.name):
                raise
            raise UsageError(f"{module_name}: no such module here (looked in {os.getcwd()} first)") from None
        make = getattr(module, name, None)
        if not callable(make):
            near = difflib.get_close_matches(
                name, [one for one, what in vars(module).items() if isinstance(what, type)], 1
            )
            raise UsageError(f"{module_name} has no class {name}" + (f": did you mean {near[0]}?" if near else ""))
        try:
            model = make(**self.asked["arguments"])
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise  # from inside of it, with a line of its own
            raise UsageError(f"{self.asked['target']}: {problem} (--arg)") from None
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"{self.asked['target']} makes a {type(model).__name__}, expected a torch.nn.Module")
        dtype = self.settings.get("param_dtype") or ("fp32" if "-mixed" in self.precision else self.precision)
        model = model.to("cuda") if dtype == "fp32" else model.to("cuda", getattr(torch, _SHORT[str(dtype)]))
        if self.asked["task"] != "train":
            return model.eval()
        if self.settings.get("checkpointing") == "full":
            if not hasattr(model, "gradient_checkpointing_enable"):
                raise UsageError("--checkpointing full: this class has no gradient_checkpointing_enable of its own")
            model.gradient_checkpointing_enable()
        return model.train()

    def _fed(self) -> tuple[list[Any], dict[str, Any]]:
        torch = library("torch")
        by_place: list[Any] = []
        by_name: dict[str, Any] = {}
        for one in self.asked["inputs"]:
            dtype = getattr(torch, one["dtype"])
            tensor = torch.zeros(one["shape"], dtype=dtype, device="cuda")
            if one["name"] is None:
                by_place.append(tensor)
            else:
                by_name[one["name"]] = tensor
        self.steps.watcher.name("inputs", [*by_place, *by_name.values()])
        return by_place, by_name

    def _cast(self) -> AbstractContextManager[Any]:
        torch = library("torch")
        if not self.precision.endswith("-mixed"):
            return nullcontext()
        kind = torch.float16 if self.precision.startswith("fp16") else torch.bfloat16
        found: AbstractContextManager[Any] = torch.autocast("cuda", dtype=kind)
        return found

    def _infer(self, model: Any) -> None:
        torch = library("torch")
        by_place, by_name = self._fed()
        with torch.no_grad(), self._cast():
            out = model(*by_place, **by_name)
        del out

    def _train(self, model: Any) -> None:
        torch = library("torch")
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = optimizer_for(self.settings, trained)
        scaler = torch.amp.GradScaler("cuda") if self.precision == "fp16-mixed" else None
        nobody = _NoOptimizer(trained)
        parts = int(self.settings.get("gradient_accumulation_steps") or 1)
        while True:
            by_place, by_name = self._fed()
            for _ in range(parts):
                with self._cast():
                    loss = self._loss(model(*by_place, **by_name))
                ((scaler.scale(loss) if scaler is not None else loss) / parts).backward()
                del loss
            if self.settings.get("clip_grad_norm", True):
                self.steps.watcher.mark(f"{self.steps.step}|clipping")
                if scaler is not None and optimizer is not None:
                    scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
            if optimizer is None:
                self.steps.before_step(nobody)
                self.steps.after_step(nobody)
            elif scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            for parameter in trained:
                parameter.grad = None

    def _loss(self, out: object) -> Any:
        """The output's own `loss`, else the mean of its first tensor that has a gradient."""
        self.steps.watcher.mark(f"{self.steps.step}|loss")
        own = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
        if own is not None:
            return own
        waiting, torch = [out], library("torch")
        while waiting:
            one = waiting.pop(0)
            if isinstance(one, torch.Tensor) and one.requires_grad:
                return one.mean()
            if isinstance(one, Mapping):
                waiting += one.values()
            elif isinstance(one, list | tuple):
                waiting += one
        raise VramwiseError(
            "what the module gives back holds no tensor with a gradient, so that nothing can be trained"
        )
