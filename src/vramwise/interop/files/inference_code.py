"""Scripts and notebooks that load a model with transformers, unsloth or Diffusers and train nothing: generation, or
loading alone.

Read in transformers 5.23 modeling_utils.py from_pretrained, generation/configuration_utils.py (`max_new_tokens`,
`num_beams`; 20 tokens where nothing says how many, `max_length`), pipelines/__init__.py, and unsloth 2026.8
models/loader.py (4 bits unless told otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.python_code import Call, first, known, left_out, refuse
from vramwise.interop.launch import Launch

_NEW_TOKENS = 20
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_ATTENTION = {"flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa", "eager": "eager"}
_READ = ("dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit", "quantization_config",
         "model_name", "max_seq_length", "device_map")  # fmt: skip
_OFFLOADS = {"enable_group_offload": "group", "enable_model_cpu_offload": "model",
             "enable_sequential_cpu_offload": "sequential"}  # fmt: skip
_OF_THE_VAE = {"vae_tiling": ("enable_vae_tiling", "enable_tiling"),
               "vae_slicing": ("enable_vae_slicing", "enable_slicing")}  # fmt: skip
_MADE = frozenset({"height", "width", "num_inference_steps", "num_frames", "num_images_per_prompt"})
_OWN_LOOPS = frozenset({"backward", "fit", "train_batch", "manual_backward", "prepare_model_for_kbit_training"})
_TEXTS = ("text-generation", "text2text-generation", "image-text-to-text")


def launch_of_inference(
    given: Given, calls: list[Call], load: Call | None, model: str | None, *, in_four_bits: bool
) -> Launch | None:
    """What a script without a training runs; None where it loads nothing. `in_four_bits`: what is loaded unless told.

    Raises UsageError where the model's name is not written out and none is given.
    """
    if trains_by_itself(calls):
        return None
    diffusion = _diffusion(calls)
    if diffusion is not None:
        return _images(given, calls, diffusion, model)
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
    return Launch(
        "transformers", scenario, (*notes, *left_out(map(clipped, left))), tuple(key for key in loaded if key in _READ)
    )


def trains_by_itself(calls: list[Call]) -> bool:
    """Whether a script trains by a loop or a trainer that is not read here."""
    return any(call.last in _OWN_LOOPS or call.last.endswith("Trainer") for call in calls)


def _diffusion(calls: list[Call]) -> Call | None:
    """`FluxPipeline.from_pretrained("…")` and its like of Diffusers."""
    owners = ((call, call.name.split(".")[-2] if "." in call.name else "") for call in calls)
    return next((call for call, owner in owners if call.last == "from_pretrained"
                 and ("Pipeline" in owner or owner.startswith("AutoPipeline"))), None)  # fmt: skip


def _images(given: Given, calls: list[Call], source: Call, model: str | None) -> Launch:
    """What a pipeline of Diffusers makes: its size, offloading and tiling as the calls after it say."""
    loaded, unread = known(source.named)
    found: dict[str, object] = {}
    dtype = _DTYPES.get(str(loaded.get("torch_dtype", loaded.get("dtype"))))
    if dtype:
        found["dtype"] = dtype
    for name, offload in _OFFLOADS.items():
        if first(calls, name) is not None:
            found["offload"] = offload
    for key, names in _OF_THE_VAE.items():
        if first(calls, *names) is not None:
            found[key] = True
    made = next((call for call in calls if not _MADE.isdisjoint(call.named) and call is not source), None)
    told = known(made.named)[0] if made is not None else {}
    width, height = told.get("width"), told.get("height")
    if isinstance(width, int) and isinstance(height, int):
        found["image_size"] = f"{width}x{height}"
    for key, name in (("num_frames", "num_frames"), ("guidance_scale", "guidance_scale"),
                      ("batch_size", "num_images_per_prompt")):  # fmt: skip
        value = told.get(name)
        if isinstance(value, int | float):
            found[key] = value
    scenario: dict[str, object] = {"model": model or _name(given, source), "task": "generate", "generate": found}
    return Launch("diffusers", scenario, left_out(map(clipped, unread)), (*loaded, *(_MADE & told.keys())))


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
