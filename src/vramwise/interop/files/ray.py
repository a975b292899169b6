"""Ray's jobs, whose `entrypoint` is a shell's text, and Ray Serve's models, whose `engine_kwargs` are vLLM's arguments.

Read in Ray python/ray/llm/_internal/serve: core/configs/llm_config.py LLMConfig (`model_source`, else `model_id` is the
model; a mirror is the weights of `model_id`), engines/vllm/vllm_models.py from_llm_config; applications are given
`llm_configs`, `llm_config`, or `prefill_config` and `decode_config`, each a table or a file's path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program, programs_in_text
from vramwise.interop.files.python_code import Call, Unknown, assigned, calls_in, code_of, left_out, tree_of
from vramwise.interop.launch.options import NO_EFFECT

Beside = Callable[[str], Mapping[str, object]]
"""The table in a file that another one names, empty where there is none."""
Table = Mapping[str, object]
_MOST_NODES = 200_000
_ROLES = {"llm_config": "", "prefill_config": "prefill", "decode_config": "decode"}
_READ = frozenset(
    {"model_loading_config", "engine_kwargs", "accelerator_type", "runtime_env", "llm_engine", "server_cls"}
)
_ENGINES = {"vLLM": ("vllm", "serve"), "SGLang": ("sglang", "serve", "--model-path")}
_SCRIPT_FLAGS = {"TENSOR_PARALLELISM": "--tensor-parallel-size", "PIPELINE_PARALLELISM": "--pipeline-parallel-size",
                 "MAX_MODEL_LEN": "--max-model-len", "DTYPE": "--dtype", "MAX_NUM_SEQ": "--max-num-seqs",
                 "TENSOR_PARALLEL_SIZE": "--tensor-parallel-size", "PIPELINE_PARALLEL_SIZE": "--pipeline-parallel-size",
                 "GPU_MEMORY_UTILIZATION": "--gpu-memory-utilization", "MAX_NUM_SEQS": "--max-num-seqs",
                 "MAX_NUM_BATCHED_TOKENS": "--max-num-batched-tokens", 
                 "KV_CACHE_DTYPE": "--kv-cache-dtype", "QUANTIZATION": "--quantization"}  # fmt: skip


def tables_in(document: object) -> Iterator[Table]:
    """Every table of a document, wherever it stands."""
    waiting, seen = [document], 0
    while waiting and seen < _MOST_NODES:
        value = waiting.pop(0)
        seen += 1
        if isinstance(value, Mapping):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def ray_programs(table: Table, name: str, beside: Beside) -> Iterator[Program]:
    """What a Ray job starts, and the models of an application."""
    entrypoint, serving = table.get("entrypoint"), table.get("serveConfigV2")
    if isinstance(entrypoint, str):
        yield from programs_in_text(entrypoint, _environment(table), name)
    if isinstance(serving, str):
        from vramwise.scenario.files import parse_documents

        for inner in (one for document in parse_documents(serving, "serveConfigV2") for one in tables_in(document)):
            yield from _served(inner, beside)
    else:
        yield from _served(table, beside)


def is_serve_script(given: Given) -> bool:
    """Whether a Python text builds Ray Serve's applications."""
    return "LLMConfig(" in given.text and "ray.serve" in given.text


def script_models(given: Given) -> list[Program]:
    """The models of a Python text's calls of LLMConfig; what only a run would tell is named."""
    tree = tree_of(code_of(given), given.path)
    calls = [call for call in calls_in(tree, assigned(tree)) if call.last == "LLMConfig"]
    found = []
    for call in calls:
        unknown: list[str] = []
        server = call.named.get("server_cls")
        named = (
            {**call.named, "server_cls": _class_in(given.text)} if isinstance(server, Unknown | Call) else call.named
        )
        program = _model(plain_table(named, "", unknown), "")
        said = left_out(clipped(one, 40) for one in unknown[:8])
        found.append(Program(program.name, program.words, (*program.notes, *said), program.settings))
    return found


def _class_in(text: str) -> str:
    """The class that the calls of a script hand over as `server_cls`."""
    found = re.search(r"\bserver_cls\s*=\s*([\w.]{1,200})", text)
    return found[1] if found else ""


def plain_table(value: Table, path: str, unknown: list[str]) -> dict[str, object]:
    """A table of known values; names of the others go to `unknown`."""
    found: dict[str, object] = {}
    for key, one in value.items():
        if isinstance(one, Mapping):
            found[key] = plain_table(one, f"{path}{key}.", unknown)
        elif isinstance(one, Call) and one.last in ("ModelLoadingConfig", "LoraConfig"):
            found[key] = plain_table(one.named, f"{path}{key}.", unknown)
        elif isinstance(one, Unknown | Call) or (
            isinstance(one, list) and any(isinstance(x, Unknown | Call) for x in one)
        ):
            unknown.append(f"{path}{key}")
        else:
            found[key] = one
    return found


def _served(table: Table, beside: Beside) -> Iterator[Program]:
    """The models that an application's arguments name."""
    yield from _own_script(table)
    given = table.get("llm_configs")
    for config in given if isinstance(given, list) else []:
        yield from _configured(config, "", beside)
    for key, role in _ROLES.items():
        if key in table:
            yield from _configured(table[key], role, beside)


def _configured(config: object, role: str, beside: Beside) -> Iterator[Program]:
    if isinstance(config, str):
        found = beside(config)
        if not isinstance(found.get("model_loading_config"), Mapping):
            raise UsageError(
                f"it names {clipped(config)}, which is not there, or no model's configuration: give it too"
            )
        config = found
    if isinstance(config, Mapping) and isinstance(config.get("model_loading_config"), Mapping):
        yield _model(config, role)


def model_program(table: Table) -> list[Program]:
    """The model of a configuration that stands in a file of its own."""
    return [_model(table, "")]


def _model(config: Table, role: str) -> Program:
    from vramwise.sources.elsewhere import known_in_path

    loading, given = config.get("model_loading_config"), config.get("engine_kwargs")
    loading = loading if isinstance(loading, Mapping) else {}
    served, source = str(loading.get("model_id") or ""), loading.get("model_source")
    mirror = str(source.get("bucket_uri") or "") if isinstance(source, Mapping) else ""
    model = source if isinstance(source, str) else known_in_path(mirror) or served
    if not model:
        raise UsageError("model_loading_config names no model_id")
    notes = []
    if isinstance(source, Mapping):
        notes.append(f"model_source is a mirror: its weights are taken for those of {clipped(model)}")
    passed = [key for key in config if key not in _READ]
    if passed:
        notes.append(f"{NO_EFFECT}{', '.join(clipped(key, 40) for key in passed)} (each replica needs this much)")
    engine = str(config.get("llm_engine") or _of_class(config.get("server_cls")))
    if engine not in _ENGINES:
        raise UsageError(f'llm_engine: unknown engine "{clipped(engine)}": expected {" or ".join(_ENGINES)}')
    words = [word for pair in (given.items() if isinstance(given, Mapping) else ()) for word in flag_words(*pair)]
    variables = [f"{key}={value}" for key, value in _environment(config).items()]
    settings = _named_card(config.get("accelerator_type"))
    return Program(role or served or model, (*variables, *_ENGINES[engine], model, *words), tuple(notes), settings)


def _of_class(server: object) -> str:
    """The engine of a `server_cls` (ray.llm._internal.serve.engines.sglang.SGLangServer), vLLM where none is given."""
    if not server:
        return "vLLM"
    named = str(server).rpartition(".")[2] or str(server)
    engine = next((engine for engine in _ENGINES if named.lower().startswith(engine.lower())), None)
    if engine is None:
        raise UsageError(f"server_cls: unknown class {clipped(named)}: expected that of {' or '.join(_ENGINES)}")
    return engine


def _own_script(table: Table) -> Iterator[Program]:
    """A script around vLLM's engine that variables tell what to do: KubeRay's (ray-operator/config/samples/vllm) and
    those of awslabs/ai-on-eks 41a979e (blueprints/inference/vllm-rayserve-gpu/vllm_serve.py)."""
    variables, command = _environment(table), _ENGINES["vLLM"]
    model = variables.get("MODEL_ID", "")
    if command[0] not in str(table.get("import_path") or "").lower() or not model or model.startswith("$"):
        return
    stated = {name: flag for name, flag in _SCRIPT_FLAGS.items() if variables.get(name)}
    flags = [word for name, flag in stated.items() for word in (flag, variables[name])]
    pinned = re.search(r"\bvllm==(\d+(?:\.\d+)+)", json.dumps(table.get("runtime_env")))
    script = clipped(str(table["import_path"]))
    notes = [f"{script} is taken as vllm serve: its variables {', '.join(('MODEL_ID', *stated))} say how"]
    others = [clipped(name, 40) for name in variables if name not in stated and name != "MODEL_ID"]
    notes += [f"variables that only {script} knows, left out: {', '.join(others)}"] if others else []
    yield Program(str(table.get("name") or model), (*command, model, *flags), tuple(notes),
                  serve={"engine_version": pinned[1]} if pinned else {})  # fmt: skip


def _environment(table: Table) -> dict[str, str]:
    """`env_vars` of a runtime environment, a table or a text of YAML."""
    value = table.get("runtimeEnvYAML") or table.get("runtime_env")
    if isinstance(value, str):
        from vramwise.scenario.files import parse_documents

        value = (parse_documents(value, "runtimeEnvYAML") or [None])[0]
    given = value.get("env_vars") if isinstance(value, Mapping) else None
    found = given.items() if isinstance(given, Mapping) else ()
    return {str(key): str(one).lower() if isinstance(one, bool) else str(one) for key, one in found}


def _named_card(name: object) -> dict[str, object]:
    from vramwise.hardware import find_gpu

    try:
        return {"gpu": find_gpu(name).gpu.id} if isinstance(name, str) else {}
    except VramwiseError:
        return {}


def flag_words(key: object, value: object) -> tuple[str, ...]:
    """The words of a command line that an argument of the engine is."""
    flag = "--" + str(key).replace("_", "-")
    if isinstance(value, bool):
        return (flag,) if value else (flag.replace("--", "--no-", 1),)
    if isinstance(value, Mapping | list):
        return (flag, json.dumps(value))
    return () if value is None else (flag, str(value))
