"""The process in which vLLM starts: a question in a file, one line of JSON as the answer.

    python -P -m vramwise.dryrun.vllm_start.worker QUESTION.json

A question has `arguments` (what follows `vllm serve`), `folder` (with the model's config.json), `card`, `vllm` (a
folder that holds the package, or null for an installed one), `ranks`, `pool_bytes` (what weights, activations and the
cache may take together) and `cache_bytes` (the cache itself, or null).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from vramwise.dryrun.vllm_start.stand_ins import set_environment

Question = dict[str, Any]
Answer = dict[str, Any]

_PARSERS = (
    ("vllm.entrypoints.common.cli_args", "vllm.utils.argparse_utils"),  # 0.33
    ("vllm.entrypoints.openai.cli_args", "vllm.utils.argparse_utils"),
    ("vllm.entrypoints.openai.cli_args", "vllm.utils"),  # up to 0.11
)
"""Where vLLM's releases keep the server's flags (`make_arg_parser`) and their parser (`FlexibleArgumentParser`)."""


class Refused(Exception):
    """vLLM's own words on arguments that it does not take."""


def answer_of(question: Question) -> Answer:
    """What vLLM allocated; `unable` with why no card can be stood in for, `refused` with what vLLM said in refusing its
    arguments, `failed` and `where` with what stopped it."""
    from vramwise.dryrun.fake_cuda import refusal
    from vramwise.dryrun.vllm_start.cache import cache_of
    from vramwise.dryrun.vllm_start.card import Card
    from vramwise.dryrun.vllm_start.profile_run import profile_run

    if (reason := refusal()) is not None:
        return {"unable": reason}
    facts = question["card"]
    card = Card(facts["name"], tuple(facts["capability"]), facts["total_bytes"], facts["multiprocessors"])
    try:
        return profile_run(card, question["ranks"], lambda: configuration(question), cache_of(question))
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception as problem:
        traceback.print_exc()
        said = " ".join(str(problem).split())
        return {"failed": f"{type(problem).__name__}: {said}", "where": _where(problem)}


def _where(problem: BaseException) -> str:
    """The innermost line of vLLM's own code, as ` (vllm/FILE.py:LINE)`; empty where none was reached."""
    frames = [one for one in traceback.extract_tb(problem.__traceback__) if "/vllm/" in one.filename]
    return f" (vllm/{frames[-1].filename.rpartition('/vllm/')[2]}:{frames[-1].lineno})" if frames else ""


def configuration(question: Question) -> Any:
    """vLLM's own reading of its server's arguments: eager, weights without values. Raises Refused."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    name_the_architecture(Path(question["folder"]) / "config.json")
    known = _parsed(question["arguments"])
    known.model = known.model_tag = question["folder"]  # before EngineArgs looks for the files of a name
    known.tokenizer = known.hf_config_path = known.revision = None
    known.skip_tokenizer_init = known.enforce_eager = True
    known.load_format = "dummy"
    try:
        engine = EngineArgs.from_cli_args(known)
        engine.distributed_executor_backend = "mp" if question["ranks"] > 1 else "uni"
        return engine.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, AssertionError, NotImplementedError) as problem:
        raise Refused(" ".join(str(problem).split())) from None


def name_the_architecture(path: Path) -> None:
    """vLLM chooses its model by `architectures`, which catalogs leave out: transformers' own for the model type.

    Raises Refused.
    """
    config = json.loads(path.read_text("utf-8"))
    if not config.get("architectures"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.get("model_type", ""))
        if name is None:
            raise Refused("the model's config.json names no architecture")
        config["architectures"] = [name]
        path.write_text(json.dumps(config), "utf-8")


def _parsed(arguments: list[str]) -> Any:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return _parser().parse_args(arguments)
    except SystemExit:
        raise Refused(said.getvalue().strip().rpartition("\n")[2]) from None


def _parser() -> Any:
    """The parser of `vllm serve`'s flags. Raises Refused where this release keeps it elsewhere."""
    for flags, parser in _PARSERS:
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return import_module(flags).make_arg_parser(import_module(parser).FlexibleArgumentParser(prog="vllm serve"))
    raise Refused("the parser of its flags is not where the releases have it that are known here")


def main() -> None:
    question: Question = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if question["vllm"]:
        sys.path.insert(0, question["vllm"])
    set_environment()
    out = os.dup(1)
    os.dup2(2, 1)  # what vLLM prints is no part of the answer
    answer = answer_of(question)
    os.write(out, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # finalizers of thousands of fakes have nothing to say


if __name__ == "__main__":
    main()
