"""Scripts and notebooks that load a model with transformers or unsloth and train nothing: generation, or loading alone.

Read in transformers 5.23 modeling_utils.py from_pretrained, generation/configuration_utils.py (`max_new_tokens`,
`num_beams`; 20 tokens where nothing says how many, `max_length`), pipelines/__init__.py, and unsloth 2026.8
models/loader.py (4 bits unless told otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.python_code import Call, first, known, refuse
from vramwise.interop.launch import Launch

_NEW_TOKENS = 20
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_ATTENTION = {"flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa", "eager": "eager"}
_READ = ("dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit", "quantization_config",
         "model_name", "max_seq_length", "device_map")  # fmt: skip
_TEXTS = ("text-generation", "text2text-generation", "image-text-to-text")


def launch_of_inference(
    given: Given, calls: list[Call], load: Call | None, model: str | None, *, in_four_bits: bool
) -> Launch | None:
    """What a script without a training runs; None where it loads nothing. `in_four_bits`: what is loaded unless told.

    Raises UsageError where the model's name is not written out and none is given.
    """
    pipeline = _pipeline(calls)
    source = pipeline or load
    if source is None:
        return None
    loaded, unread = known(source.named)
    inner = loaded.get("model_kwargs")
    if isinstance(inner, Mapping):
        loaded |= {str(key): value for key, value in inner.items()}
    name = model or _name(given, source)
    found: dict[str, object] = {**_quantized(source, loaded, calls, in_four_bits=in_four_bits)}
    dtype = _DTYPES.get(str(loaded.get("dtype", loaded.get("torch_dtype"))))
    if dtype:
        found["dtype"] = dtype
    attention = _ATTENTION.get(str(loaded.get("attn_implementation")))
    if attention:
        found["attention"] = attention
    notes = []
    generates = first(calls, "generate")
    if generates is None and pipeline is None:
        keys = {key: value for key, value in found.items() if key in ("dtype", "quantization")}
        notes.append("nothing is generated or trained in it: loading alone is counted")
        scenario: dict[str, object] = {"model": name, "task": "load", "serve": keys}
    else:
        found |= _length(calls, generates, notes)
        scenario = {"model": name, "task": "generate", "generate": found}
    left = [one for one in unread if one not in _READ]
    if left:
        notes.append(f"only a run would tell, left out: {', '.join(map(clipped, left))}")
    return Launch("transformers", scenario, tuple(notes), tuple(key for key in loaded if key in _READ))


def _pipeline(calls: list[Call]) -> Call | None:
    """`pipeline("text-generation", model="…")`."""
    for call in calls:
        if call.last == "pipeline" and isinstance(call.named.get("model"), str):
            task = call.positional[0] if call.positional else call.named.get("task", _TEXTS[0])
            if task in _TEXTS:
                return call
    return None


def _name(given: Given, source: Call) -> str:
    names = [source.named.get(key) for key in ("model_name", "pretrained_model_name_or_path", "model")]
    found = next((one for one in [*names, *source.positional[:1]] if isinstance(one, str)), None)
    if found is None:
        raise refuse(given.path, "the model's name is not written out: vramwise estimate MODEL FILE names it")
    return found


def _quantized(
    source: Call, loaded: Mapping[str, object], calls: list[Call], *, in_four_bits: bool
) -> dict[str, object]:
    config = source.named.get("quantization_config")
    bits = known(config.named)[0] if isinstance(config, Call) and config.last == "BitsAndBytesConfig" else {}
    if not bits and "quantization_config" in source.named:
        bits, _ = known(getattr(first(calls, "BitsAndBytesConfig"), "named", {}))
    if bits.get("load_in_8bit", loaded.get("load_in_8bit")):
        return {"quantization": "bitsandbytes-int8"}
    if bits.get("load_in_4bit", loaded.get("load_in_4bit", in_four_bits)):
        kind = bits.get("bnb_4bit_quant_type", "nf4" if in_four_bits else "fp4")
        return {"quantization": f"bitsandbytes-{'nf4' if kind == 'nf4' else 'fp4'}"}
    return {}


def _length(calls: list[Call], generates: Call | None, notes: list[str]) -> dict[str, object]:
    told: dict[str, object] = {}
    for call in [first(calls, "GenerationConfig"), generates, *(one for one in calls if "max_new_tokens" in one.named)]:
        told |= known(call.named)[0] if call is not None else {}
    new = told.get("max_new_tokens")
    found: dict[str, object] = {"new_tokens": new if isinstance(new, int) and new > 0 else _NEW_TOKENS}
    beams = told.get("num_beams")
    if isinstance(beams, int) and beams > 1:
        found["num_beams"] = beams
    notes.append("a prompt is as long as what is asked: --prompt-tokens says how long, --batch-size how many at once")
    return found
