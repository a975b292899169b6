"""Which class of transformers a config is trained and loaded as, and what a batch of it holds.

A class's own `main_input_name` says what it is fed: token ids, the pixels of images, or the features of sound.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from vramwise.errors import UsageError
from vramwise.measure.libraries import library

_MASKED: Final = "AutoModelForMaskedLM"
_CLASSIFIER: Final = "AutoModelForSequenceClassification"
_OF_A_HEAD: Final = {"masked-lm": _MASKED, "sequence-classification": _CLASSIFIER}
_TEXT: Final = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForMultimodalLM")
_ENCODER_DECODERS: Final = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
_IMAGES: Final = ("AutoModelForImageClassification", "AutoModelForZeroShotImageClassification")
_TOWERS: Final = ("vision", "audio")
_IMAGE_SIDE: Final = 224
_FRAMES_A_POSITION: Final = 2  # the second convolution of Whisper's encoder has stride 2 (modeling_whisper.py)


def loader_of(config: object, head: str) -> Any:
    """transformers' auto class for a config: the one that has the class which `architectures` names.

    That is the bare model where it names that. Without a name, of encoder-decoders both halves, of images and text the
    whole model, of encoders the one that fills masks; else the bare model.
    """
    transformers = library("transformers")
    if head in _OF_A_HEAD:
        return getattr(transformers, _OF_A_HEAD[head])
    halves = _ENCODER_DECODERS if getattr(config, "is_encoder_decoder", False) else ()
    named = set(getattr(config, "architectures", None) or ())
    for name in (*_ENCODER_DECODERS, *_unnamed_order(config), _CLASSIFIER, *_IMAGES, "AutoModel"):
        auto = getattr(transformers, name, None)  # the last of text are newer than the rest
        if auto is not None and named & _classes(auto, config):
            return auto
    for name in (*halves, *_unnamed_order(config)):
        auto = getattr(transformers, name, None)
        if auto is not None and _classes(auto, config):
            return auto
    return transformers.AutoModel


def _unnamed_order(config: object) -> tuple[str, ...]:
    """Auto classes of text in the order in which one that has the config is taken.

    An encoder's class of its own decoder wants `is_decoder`; one of text alone leaves out a model's towers.
    """
    if any(getattr(config, f"{kind}_config", None) is not None for kind in _TOWERS):
        return (*_TEXT[1:], _TEXT[0], _MASKED)
    return (*_TEXT, _MASKED) if getattr(config, "is_decoder", False) else (_MASKED, *_TEXT)


def _classes(auto: Any, config: Any) -> set[str]:
    """Names of the classes that an auto class has for a config."""
    if type(config) not in auto._model_mapping:
        return set()
    found = auto._model_mapping[type(config)]
    return {one.__name__ for one in (found if isinstance(found, list | tuple) else [found])}


def _inner(model: object) -> Any:
    """The class of transformers inside of DDP's and peft's."""
    inner = getattr(model, "module", model)
    return getattr(inner, "get_base_model", lambda: inner)()


def sees_more_than_text(model: object) -> bool:
    """Whether a model that is fed texts has a part that they do not go through."""
    inner = _inner(model)
    if getattr(inner, "main_input_name", None) != "input_ids":
        return False
    takes = inspect.signature(type(inner).forward).parameters
    return "labels" in takes and any(getattr(inner.config, f"{kind}_config", None) is not None for kind in _TOWERS)


def fills_masks(model: object) -> bool:
    """Whether a class of transformers is an encoder's that fills masks: it has no cache, and peft no kind for it."""
    return type(model).__name__.endswith("ForMaskedLM")


def batch_of(model: object, settings: Mapping[str, Any], device: str, *, caches: bool = False) -> dict[str, Any]:
    """What one forward pass of training is called with, and its labels; `caches`: nobody turns the cache of keys and
    values off that the model's config asks for. Raises UsageError for what has no loss."""
    torch, inner = library("torch"), _inner(model)
    samples, tokens = int(settings.get("micro_batch_size", 1)), int(settings.get("sequence_length", 1))
    takes = inspect.signature(type(inner).forward).parameters
    if "labels" not in takes and "return_loss" not in takes:
        raise UsageError(
            f"{type(inner).__name__} has no loss of its own: run code of yours (dry-run -- python FILE.py)"
        )
    config = inner.config
    if inner.main_input_name == "pixel_values":
        labels = torch.zeros(samples, dtype=torch.int64, device=device)
        return {"pixel_values": _pixels(config, samples, inner, device), "labels": labels}
    if "labels" not in takes:  # images beside their captions
        ids = torch.randint(0, config.text_config.vocab_size, (samples, tokens), device=device)
        return {"input_ids": ids, "pixel_values": _pixels(config.vision_config, samples, inner, device),
                "return_loss": True}  # fmt: skip
    ids = torch.randint(0, _vocabulary(inner), (samples, tokens), device=device)
    if type(inner).__name__.endswith("ForSequenceClassification"):
        return {"input_ids": ids, "labels": torch.zeros(samples, dtype=ids.dtype, device=device)}
    without_cache = {} if caches or fills_masks(inner) else {"use_cache": False}
    if inner.main_input_name == "input_features":
        frames = samples, config.num_mel_bins, _FRAMES_A_POSITION * config.max_source_positions
        return {"input_features": torch.zeros(frames, dtype=inner.dtype, device=device), "labels": ids, **without_cache}
    labels = ids.clone()
    if getattr(config, "is_encoder_decoder", False) and settings.get("decoder_sequence_length"):
        labels = ids.new_zeros((samples, int(settings["decoder_sequence_length"])))
    return {"input_ids": ids, "labels": labels, **without_cache}


def _pixels(config: object, samples: int, model: Any, device: str) -> Any:
    side = getattr(config, "image_size", None) or _IMAGE_SIDE
    sides = tuple(side) if isinstance(side, list | tuple) else (side, side)
    shape = samples, getattr(config, "num_channels", 3), *sides
    return library("torch").zeros(shape, dtype=model.dtype, device=device)


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])
