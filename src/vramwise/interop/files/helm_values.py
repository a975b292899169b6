"""Values of the vLLM production stack's chart: each `modelSpec` is a `vllm serve`.

Read in vllm-project/production-stack a6c01db0 helm/templates/deployment-vllm-multi.yaml: vllmConfig's names and the
flags that they become; `extraArgs` follow them, `v0` or `v1` choose the engine by VLLM_USE_V1.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.files.programs import Program

_FLAGS = {
    "tensorParallelSize": "--tensor-parallel-size", "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs", "maxModelLen": "--max-model-len", "dtype": "--dtype",
    "gpuMemoryUtilization": "--gpu-memory-utilization", "maxLoras": "--max-loras",
}  # fmt: skip
_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill",
             "enableLoRA": "--enable-lora"}  # fmt: skip
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
    before = ["VLLM_USE_V1=0"] if str(config.get("v0")) == "1" or str(config.get("v1")) == "0" else []
    image = f"{spec.get('repository') or 'vllm/vllm-openai'}:{spec.get('tag') or 'latest'}"
    passed = sorted(str(name) for name in config if name not in _HANDLED)
    notes = (f"vllmConfig, without effect on the memory counted here: {', '.join(passed)}",) if passed else ()
    model = str(spec.get("modelURL") or "")
    return Program(str(spec.get("name") or model), (*before, image, "vllm", "serve", model, *words), notes)
