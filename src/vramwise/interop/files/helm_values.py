"""The vLLM production stack: each `modelSpec` of its chart's values, and each VLLMRuntime of its operator, is a
`vllm serve`.

Read in vllm-project/production-stack a6c01db0 helm/templates/deployment-vllm-multi.yaml: vllmConfig's names and the
flags that they become; `extraArgs` follow them, `v0` or `v1` choose the engine by VLLM_USE_V1. The operator's names
and flags: operator/internal/controller/vllmruntime_controller.go, which states both switches either way.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.engines.vllm import RECORD as VLLM
from vramwise.errors import clipped
from vramwise.interop.files.programs import Program
from vramwise.interop.files.tables import Table, table_in, tables_in
from vramwise.interop.launch.options import NO_EFFECT

_FLAGS = {
    "tensorParallelSize": "--tensor-parallel-size", "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs", "maxModelLen": "--max-model-len", "dtype": "--dtype",
    "gpuMemoryUtilization": "--gpu-memory-utilization", "maxLoras": "--max-loras", "runner": "--runner",
    "convert": "--convert",
}  # fmt: skip
_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill",
             "enableLoRA": "--enable-lora"}  # fmt: skip
_OF_A_MODEL = frozenset({"name", "repository", "tag", "modelURL", "vllmConfig", "enableLoRA", "env", "lmcacheConfig",
                         "requestGPU"})  # fmt: skip
_CONNECTOR = ("--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}')
_USE_V1 = "VLLM_USE_V1"
_HANDLED = frozenset({*_FLAGS, *_SWITCHES, "extraArgs", "v0", "v1"})


def helm_programs(table: Mapping[str, object]) -> list[Program]:
    """The models that the values start."""
    engine = table.get("servingEngineSpec")
    specs = engine.get("modelSpec") if isinstance(engine, Mapping) else None
    return [_program(spec) for spec in (specs if isinstance(specs, list) else []) if isinstance(spec, Mapping)]


def _program(spec: Mapping[str, object]) -> Program:
    given = spec.get("vllmConfig")
    config: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    words = [f"{flag}={config[name]}" for name, flag in _FLAGS.items() if config.get(name) is not None]
    words += [flag for name, flag in _SWITCHES.items() if config.get(name) is True]
    extra = config.get("extraArgs")
    words += [str(one) for one in extra] if isinstance(extra, list) else []
    if spec.get("enableLoRA") is True and "--enable-lora" not in words:
        words.append("--enable-lora")
    before = [f"{_USE_V1}=0"] if str(config.get("v0")) == "1" or str(config.get("v1")) == "0" else []
    image = f"{spec.get('repository') or 'vllm/vllm-openai'}:{spec.get('tag') or 'latest'}"
    if config and "--enable-prefix-caching" not in words:
        words.append("--no-enable-prefix-caching")  # the template states it wherever there is a vllmConfig
    words += _CONNECTOR if table_in(spec.get("lmcacheConfig")).get("enabled") is True else ()
    before += [f"{one.get('name')}={one['value']}" for one in tables_in(spec.get("env")) if "value" in one]
    passed = [f"vllmConfig.{name}" for name in config if name not in _HANDLED]
    passed += [str(name) for name in spec if name not in _OF_A_MODEL]
    notes = (f"{NO_EFFECT}{', '.join(clipped(name, 60) for name in passed)}",) if passed else ()
    model = str(spec.get("modelURL") or "")
    return Program(str(spec.get("name") or model), (*before, image, "vllm", "serve", model, *words), notes)


_OF_THE_MODEL = {"maxModelLen": "--max-model-len", "dtype": "--dtype", "maxNumSeqs": "--max-num-seqs"}
_OF_THE_SERVER = {"tensorParallelSize": "--tensor-parallel-size", "gpuMemoryUtilization": "--gpu-memory-utilization",
                  "maxLoras": "--max-loras"}  # fmt: skip
_STATED_SWITCHES = {"enableChunkedPrefill": "enable-chunked-prefill", "enablePrefixCaching": "enable-prefix-caching"}
_RUNTIMES = frozenset({*_OF_THE_MODEL, *_OF_THE_SERVER, *_STATED_SWITCHES, "modelURL", "enableLoRA", "extraArgs", "v1",
                       "env"})  # fmt: skip


def vllm_runtime(document: object, name: str) -> list[Program] | None:
    """The engine of the operator's VLLMRuntime; None for other documents."""
    if not isinstance(document, Mapping) or document.get("kind") != "VLLMRuntime":
        return None
    spec = table_in(document.get("spec"))
    model, server = table_in(spec.get("model")), table_in(spec.get("vllmConfig"))
    words = ["--enable-lora"] if model.get("enableLoRA") is True else []
    words += [f"--{'' if server.get(key) is True else 'no-'}{flag}" for key, flag in _STATED_SWITCHES.items()]
    for flags, table in ((_OF_THE_MODEL, model), (_OF_THE_SERVER, server)):
        words += [f"{flag}={table[key]}" for key, flag in flags.items() if table.get(key)]
    extra = server.get("extraArgs")
    words += [str(one) for one in extra] if isinstance(extra, list) else []
    if table_in(spec.get("lmCacheConfig")).get("enabled") is True:
        words += [*_CONNECTOR]
    variables = [f"{one.get('name')}={one['value']}" for one in tables_in(server.get("env")) if "value" in one]
    before = [f"{_USE_V1}={1 if server.get('v1') is True else 0}", *variables]
    return [Program(name, (*before, *_image(spec), VLLM.name, "serve", str(model.get("modelURL") or ""), *words),
                    _passed({**model, **server}))]  # fmt: skip


def _image(spec: Table) -> tuple[str, ...]:
    image = table_in(table_in(spec.get("deploymentConfig")).get("image"))
    return (f"{image.get('registry') or 'docker.io'}/{image['name']}",) if image.get("name") else ()


def _passed(given: Table) -> tuple[str, ...]:
    names = sorted(str(key) for key in given if key not in _RUNTIMES)
    return (f"{NO_EFFECT}{', '.join(names)}",) if names else ()
