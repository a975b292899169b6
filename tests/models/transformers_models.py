"""The real transformers model of a config, without data (meta device) or with random weights (CPU)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import transformers
from timm_tower import stand_in_for_timm
from transformers.initialization import no_init_weights

_LOADERS = (
    ("causal-lm", transformers.AutoModelForCausalLM),
    ("masked-lm", transformers.AutoModelForMaskedLM),
    ("seq2seq-lm", transformers.AutoModelForSeq2SeqLM),
    ("multimodal-lm", transformers.AutoModelForMultimodalLM),
    ("image-classification", transformers.AutoModelForImageClassification),
    ("contrastive", transformers.AutoModel),
    ("speech-seq2seq", transformers.AutoModelForSpeechSeq2Seq),
)


# Their configs map to a text-only class too, which leaves out the vision tower that their checkpoints hold.
_PUBLISHED_WITH_VISION = frozenset(
    {
        *("dots3_note", "gemma3n", "gemma4", "gemma4_unified", "got_ocr2", "llama4", "mllama"),
        *("qwen3_5", "qwen3_5_moe", "qwen4_exp"),
    }
)

# Make some parameters in fp32, XLNet on the CPU, whatever is asked for, with which they do not run before a cast.
_FP32_WHATEVER_ASKED = frozenset({"deberta", "xlnet"})

# The class's own random numbers do not fit into its fused weights.
_NOT_INITIALIZED = frozenset({"xlstm"})

# The mappings hold only their decoders, which take another config, or those of other tasks.
_IN_NO_MAPPING = {
    "audioflamingo3": "AudioFlamingo3ForConditionalGeneration",
    "blip-2": "Blip2ForConditionalGeneration",
    "instructblip": "InstructBlipForConditionalGeneration",
    "instructblipvideo": "InstructBlipVideoForConditionalGeneration",
    "csm": "CsmForConditionalGeneration",
    "evolla": "EvollaForProteinText2Text",
    "florence2": "Florence2ForConditionalGeneration",
    "depth_anything": "DepthAnythingForDepthEstimation",
    "vitpose": "VitPoseForPoseEstimation",
    "colpali": "ColPaliForRetrieval",
    "colqwen2": "ColQwen2ForRetrieval",
    "shieldgemma2": "ShieldGemma2ForImageClassification",
    "musicflamingo": "MusicFlamingoForConditionalGeneration",
    "musicgen": "MusicgenForConditionalGeneration",
    "musicgen_melody": "MusicgenMelodyForConditionalGeneration",
}


def model_config(values: dict[str, Any]) -> Any:
    """The configuration object of a `config.json`'s values."""
    values = dict(values)
    return transformers.CONFIG_MAPPING[values.pop("model_type")](**values)


def real_model(
    values: dict[str, Any],
    head: str,
    *,
    device: str = "meta",
    attention: str | dict[str, str] = "eager",
    dtype: torch.dtype = torch.float32,
) -> Any:
    """An instance of the class that transformers chooses for this config and head; fake CUDA tensors hold nothing."""
    if device != "cuda" and values["model_type"] not in _NOT_INITIALIZED:
        return _made(values, head, device, attention, dtype)
    with no_init_weights():
        model = _made(values, head, device, attention, dtype)
    model.tie_weights()  # which making random numbers would have done
    return model


def _made(values: dict[str, Any], head: str, device: str, attention: str, dtype: torch.dtype) -> Any:
    config = model_config(values)
    if config.model_type in _IN_NO_MAPPING:
        with torch.device(device):
            named = getattr(transformers, _IN_NO_MAPPING[config.model_type])
            return named._from_config(config, attn_implementation=attention, dtype=dtype)
    if head == "none":
        named = getattr(transformers, (config.architectures or [""])[0], None)
        with torch.device(device):
            return named._from_config(config) if named else transformers.AutoModel.from_config(config)
    if config.model_type == "gemma3n" and find_spec("timm") is None:
        stand_in_for_timm()
    loader = dict(_LOADERS)[head]
    if type(config) not in loader._model_mapping or config.model_type in _PUBLISHED_WITH_VISION:
        loader = dict(_LOADERS)["speech-seq2seq" if head == "seq2seq-lm" else "multimodal-lm"]
    with torch.device(device):
        model = loader.from_config(config, attn_implementation=attention, dtype=dtype)
    return _cast(model, dtype, device) if config.model_type in _FP32_WHATEVER_ASKED else model


def _cast(model: Any, dtype: torch.dtype, device: str) -> Any:
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dtype != dtype or parameter.device.type != device:
                setattr(module, name, torch.nn.Parameter(parameter.to(device, dtype)))
    return model


def model_inputs(model: Any, head: str, batch: int, sequence: int) -> dict[str, Any]:
    """Arguments of a training forward pass: token ids or a sound's features, and labels."""
    ids = torch.zeros(batch, sequence, dtype=torch.int64, device=model.device)
    if head in ("image-classification", "contrastive"):
        tower = getattr(model.config, "vision_config", model.config)
        shape = (batch, tower.num_channels, tower.image_size, tower.image_size)
        pixels = torch.zeros(shape, device=model.device, dtype=model.dtype)
        if head == "contrastive":
            return {"pixel_values": pixels, "input_ids": ids, "return_loss": True}
        return {"pixel_values": pixels, "labels": ids[:, 0].clone()}
    inputs: dict[str, Any] = {"input_ids": ids, "labels": ids.clone()}
    if head == "seq2seq-lm" and hasattr(model.config, "num_mel_bins"):
        shape = (batch, model.config.num_mel_bins, 2 * model.config.max_source_positions)
        inputs["input_features"] = torch.zeros(shape, device=model.device, dtype=model.dtype)
        del inputs["input_ids"]
    if model.config.model_type == "molmo2":  # which it wants to train, whether images come or not
        inputs["mm_token_type_ids"] = torch.zeros_like(ids)
    if head != "masked-lm":
        inputs["use_cache"] = False
    return inputs


def parameter_table(model: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Shape of every parameter by name, and for tied names the name whose storage they share."""
    shapes: dict[str, tuple[int, ...]] = {}
    ties: dict[str, str] = {}
    first_name: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        shapes[name] = tuple(parameter.shape)
        owner = first_name.setdefault(id(parameter), name)
        if owner != name:
            ties[name] = owner
    return shapes, ties
