"""What LLaMA-Factory does beside training: `chat`, `api` and `webchat` answer, `export` merges, `do_predict` generates.

Read in LLaMA-Factory 0.9.5 (ff6d4d12e): chat/{hf,vllm,sglang}_engine.py, hparams/{model,generating}_args.py,
hparams/parser.py get_infer_args, train/tuner.py export_model, train/sft/workflow.py, and
model/model_utils/quantization.py. A training file without `do_train` loads the model, and trains nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch import sglang, vllm
from vramwise.interop.launch.command import Launch, Start, launched_by, one_model
from vramwise.interop.launch.launchers import Launcher, by_environment
from vramwise.interop.launch.model_facts import config_of
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.trainer_settings import BATCH, attention_of

ANSWERS = ("chat", "api", "webchat")
EXPORT = "export"
_HUGGINGFACE, _VLLM, _SGLANG = ("huggingface", "hf"), "vllm", "sglang"
_NEW_TOKENS, _LENGTH = 1024, 2048
_MAXLEN, _SHARE, _RANK = "4096", "0.7", "32"
_ITEMS = {"image": 4, "video": 2, "audio": 2}
_MODEL = ("model_name_or_path", "adapter_name_or_path")
_QUANTIZATION = ("quantization_bit", "quantization_method", "quantization_type", "double_quantization")


def other_than_training(start: Start, options: Options) -> Launch | None:
    """The scenario of a command that trains nothing; None where it trains. Raises UsageError for a setting of another
    form than LLaMA-Factory's, and where no model is named.

    A file that states how to train, but not `do_train: true`, is meant for training: `read` says that it would not.
    """
    if start.program == EXPORT:
        return _export(options)
    if start.program in ANSWERS:
        return _answering(start, options)
    if options.is_on("do_train") or not options.is_on("do_predict", "do_eval"):
        return None
    return _predicting(options)


def untrained_note(options: Options) -> list[str]:
    """What is said of a training file that would not train."""
    if options.is_on("do_train"):
        return []
    return ["do_train is not true: LLaMA-Factory loads the model and trains nothing; answered as with do_train: true"]


def _answering(start: Start, options: Options) -> Launch:
    backend = (options.first("infer_backend") or _HUGGINGFACE[0]).lower()
    if backend in _HUGGINGFACE:
        return _generating(options, batch=1, read=("infer_backend",), notes=[
            "a chat's prompt is as long as what was said: --prompt-tokens says how long; one request at a time runs "
            "(MAX_CONCURRENT)",
        ])  # fmt: skip
    if backend == _VLLM:
        return _vllm(options, by_environment(start))
    if backend == _SGLANG:
        return _sglang(options, by_environment(start))
    raise UsageError(f'infer_backend: expected huggingface, vllm, sglang, got "{clipped(backend)}"')


def _predicting(options: Options) -> Launch:
    """Seq2SeqTrainer's generation on each GPU alone: prompts are cut at `cutoff_len`; without it the same forward."""
    batch = options.number("per_device_eval_batch_size") or BATCH
    read = ("per_device_eval_batch_size", "cutoff_len", "do_predict", "do_eval", "predict_with_generate")
    prompt = options.number("cutoff_len") or _LENGTH
    if options.is_on("predict_with_generate"):
        return _generating(options, batch=batch, prompt=prompt, read=read, notes=[
            "do_predict: nothing trains; a prompt of cutoff_len tokens is the longest",
        ])  # fmt: skip
    return _generating(options, batch=batch, prompt=prompt, read=read, scored=True, notes=[
        "do_eval: nothing trains; a batch of cutoff_len tokens is scored, on each GPU one",
    ])  # fmt: skip


def _generating(
    options: Options, *, batch: int, read: tuple[str, ...], notes: list[str], prompt: int | None = None,
    scored: bool = False,
) -> Launch:  # fmt: skip
    model = _model(options)
    attention, said = attention_of(options)
    found: dict[str, object] = {"batch_size": batch, **attention, **_quantized(options, notes)}
    if prompt is not None:
        found["prompt_tokens"] = prompt
    if scored:
        found |= {"prompt_logits": True, "new_tokens": 1}
    else:
        is_none = (options.first("max_new_tokens") or "").startswith("-")  # hparams/generating_args.py: max_length then
        asked = 0 if is_none else options.number("max_new_tokens")
        length = options.number("max_length") if asked is not None and asked <= 0 else None
        found["new_tokens"] = max(1, length - (prompt or 0)) if length else asked or _NEW_TOKENS
        read = (*read, "max_new_tokens", "num_beams")
        if beams := options.number("num_beams"):
            found["num_beams"] = beams
    read = (*read, "flash_attn", *_QUANTIZATION)
    if options.first("adapter_name_or_path"):
        quantized = "the adapter stays beside the quantized weights and is not counted"
        notes.append(quantized if "quantization" in found else "adapter_name_or_path: merged into the weights")
    return _launch("transformers", {"model": model, "task": "generate", "generate": found}, options, read,
                   [*notes, *said])  # fmt: skip


def _quantized(options: Options, notes: list[str]) -> dict[str, object]:
    """On-the-fly quantization; `double_quantization` takes part of its scales away."""
    bits = options.number("quantization_bit")
    if not bits:
        return {}
    method = (options.first("quantization_method") or "bnb").lower()
    if method not in ("bnb", "bitsandbytes") or bits not in (4, 8):
        notes.append(f"quantization_method {clipped(method)}, {bits} bits: not described, bitsandbytes is taken")
    if bits == 8:
        return {"quantization": "bitsandbytes-int8"}
    kind = options.first("quantization_type") or "nf4"
    return {"quantization": f"bitsandbytes-{kind}"}


def _vllm(options: Options, launcher: Launcher) -> Launch:
    """The arguments that VllmEngine hands to vLLM, its own `vllm_config` last."""
    words = [
        "--model", _model(options), "--dtype", options.first("infer_dtype") or "auto",
        "--max-model-len", options.first("vllm_maxlen") or _MAXLEN,
        "--gpu-memory-utilization", options.first("vllm_gpu_util") or _SHARE,
    ]  # fmt: skip
    if options.is_on("vllm_enforce_eager"):
        words.append("--enforce-eager")
    if options.first("adapter_name_or_path"):
        words += ["--enable-lora", "--max-lora-rank", options.first("vllm_max_lora_rank") or _RANK]
    if _takes_media(options):
        words += ["--limit-mm-per-prompt", json.dumps(_ITEMS)]
    words += _tensor_parallel(launcher, "--tensor-parallel-size")
    words += _of_config(options, "vllm_config")
    found = vllm.read(Start("vllm", None, tuple(words), {}))
    read = ("infer_backend", "infer_dtype", "vllm_maxlen", "vllm_gpu_util", "vllm_enforce_eager",
            "vllm_max_lora_rank", "vllm_config")  # fmt: skip
    return _launch("vllm", found.scenario, options, read, [*found.notes, *_gpus_said(launcher)])


def _sglang(options: Options, launcher: Launcher) -> Launch:
    """The command with which SGLangEngine starts SGLang's server; `sglang_config` is not part of it."""
    words = [
        "--model-path", _model(options), "--dtype", options.first("infer_dtype") or "auto",
        "--context-length", options.first("sglang_maxlen") or _MAXLEN,
        "--mem-fraction-static", options.first("sglang_mem_fraction") or _SHARE,
    ]  # fmt: skip
    stated = options.first("sglang_tp_size")
    each = Launcher(int(stated)) if stated and stated.isdecimal() and len(stated) < 6 else launcher
    words += _tensor_parallel(each, "--tp-size")
    adapter = options.first("adapter_name_or_path")
    if adapter:
        words += ["--max-loras-per-batch", "1", "--lora-paths", f"lora0={adapter}", "--disable-radix-cache"]
    found = sglang.read(Start("sglang", None, tuple(words), {}))
    read = ("infer_backend", "infer_dtype", "sglang_maxlen", "sglang_mem_fraction", "sglang_tp_size")
    return _launch("sglang", found.scenario, options, read, [*found.notes, *_gpus_said(each)])


def _tensor_parallel(launcher: Launcher, flag: str) -> list[str]:
    return [flag, str(launcher.gpus)] if launcher.gpus else []


def _gpus_said(launcher: Launcher) -> list[str]:
    if launcher.gpus:
        return []
    return ["every GPU of the machine shares the model: one is taken, --tensor-parallel-size says how many"]


def _of_config(options: Options, name: str) -> list[str]:
    """Arguments of the engine in a table, or in the text of one. Raises UsageError for what is neither."""
    given = options.values.get(name)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise UsageError(f'{name}: expected a JSON object, got "{clipped(given)}"') from None
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise UsageError(f'{name}: expected a table, got "{clipped(str(given))}"')
    words = []
    for key, value in given.items():
        flag = f"--{str(key).replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words.append(f"{flag}={json.dumps(value) if isinstance(value, Mapping | list) else value}")
    return words


def _takes_media(options: Options) -> bool:
    config = config_of(_model(options))
    return any(key in config for key in ("vision_config", "audio_config"))


def _export(options: Options) -> Launch:
    """Merging and saving: on the CPU unless `export_device` is auto; GPTQ quantizes on the GPU, block by block."""
    scenario: dict[str, object] = {"model": _model(options), "task": "load"}
    notes = []
    bits = options.number("export_quantization_bit")
    if bits:
        notes.append(f"export_quantization_bit {bits}: GPTQ loads the model in 16 bits on the GPU; the samples that "
                     "pass through one block at a time are not counted")  # fmt: skip
        scenario["serve"] = {"dtype": "fp16"}
    elif (options.first("export_device") or "cpu").lower() == "cpu":
        scenario["num_gpus"] = 0
        notes.append("export_device cpu: the weights lie in the machine's memory, no GPU takes part")
    if options.first("adapter_name_or_path"):
        notes.append("adapter_name_or_path: merged into the weights, one layer at a time")
    read = ("export_dir", "export_device", "export_quantization_bit")
    return _launch("transformers", scenario, options, read, notes)


def _model(options: Options) -> str:
    return one_model("LLaMA-Factory", options.first("model_name_or_path"), "model_name_or_path")


def _launch(
    engine: str, scenario: dict[str, object], options: Options, read: Sequence[str], notes: Sequence[str]
) -> Launch:
    return launched_by(engine, scenario, options, (*_MODEL, *read), notes)
