"""What a checkpoint's files hold beyond the model: further-token prediction, buffers, tied copies, scales.

Loaders skip the first; buffers are loaded but are no parameters; a tied weight is one tensor in memory. Held against
published totals of safetensors files (tests/models/test_checkpoint_contents.py).
"""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models import Block, Model
from vramwise.models.lengths import text_config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.type_facts import ANY, has_fact
from vramwise.records import record
from vramwise.serving.common.storage import Storage, storage_of

_PREDICTION_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


@record
class FileContents:
    """Values in the files and what of them is not a parameter of the model.

    `with_tied_copies` is the number in files that keep tied weights as often as they are used; `unknown` says what the
    config promises and no rule here counts.
    """

    in_the_model: int
    prediction: int
    buffers: int
    scales: int
    untied: int
    unread: int
    with_tied_copies: int
    unknown: str = ""

    @property
    def num_values(self) -> int:
        return self.in_the_model + self.prediction + self.buffers + self.scales + self.untied + self.unread

    def beyond_the_model(self) -> dict[str, int]:
        """What the files hold beyond the model's parameters, by what it is; nothing where nothing is."""
        named = {
            "layers that predict further tokens": self.prediction, "buffers": self.buffers,
            "scales of quantized weights": self.scales, "weights tied in the model": self.untied,
            "keys and values of layers that read those of earlier ones": self.unread,
        }  # fmt: skip
        return {name: count for name, count in named.items() if count}


def file_contents(model: Model) -> FileContents:
    """The number of values in a checkpoint of `model`, by rules that published totals of files agree with."""
    layer = _prediction_layer(model)
    count = _prediction_layers(model)
    described = _has(model, "prediction_with_copies") or _has(model, "prediction_without_copies")
    unknown = "" if described or not count else f"{count} layers that predict further tokens"
    count = count if described else 0
    prediction = count * _prediction_numel(model, layer) if count else 0
    buffers = _buffers(model) + count * (_experts(layer) if _has(model, "corrected_routers") else 0)
    try:
        storage = storage_of(model, "auto", None, None)
    except UnsupportedModelError as problem:
        storage, unknown = Storage("bf16"), f"{unknown}; {problem}" if unknown else str(problem)
    scales = sum(_scales(storage, block) for block in model.blocks) + count * _scales(storage, layer)
    tied = sum(parameter.numel for parameter in model.all_parameters if parameter.tied_to is not None)
    untied = _untied_in_files(model)
    unread = sum(_unread_keys(model, block) for block in model.layers())
    whole = model.num_parameters + prediction + buffers + scales + tied + unread
    return FileContents(model.num_parameters, prediction, buffers, scales, untied, unread, whole, unknown)


def _has(model: Model, fact: str) -> bool:
    return has_fact(ANY, fact, model.config.model_type)


def _prediction_layers(model: Model) -> int:
    config = text_config(model)
    return next((config.size(key, least=0) for key in _PREDICTION_KEYS if config.has(key)), 0)


def _prediction_layer(model: Model) -> Block:
    """The largest layer that attends to everything, which layers of prediction are like: with experts and indexer."""
    layers = [block for block in model.layers() if block.modality == "text"]
    attending = [block for block in layers if any(cache.kind in ("full", "latent") for cache in block.caches)]
    return max(attending or layers or model.blocks, key=lambda block: sum(p.numel for p in block.parameters))


def _prediction_numel(model: Model, layer: Block) -> int:
    width = model.hidden_size
    own = sum(parameter.numel for parameter in layer.parameters) + 2 * width**2 + 3 * width
    if _has(model, "prediction_without_copies"):
        return own
    return own + sum(p.numel for p in model.all_parameters if p.part in ("embedding", "head") and len(p.shape) == 2)


def _experts(block: Block) -> int:
    return sum(op.num_experts for op in block.operations(ExpertMlps))


def _buffers(model: Model) -> int:
    """Values of buffers that are in the state dict."""
    if _has(model, "corrected_routers"):
        return sum(_experts(block) for block in model.blocks)
    if _has(model, "biased_logits"):
        return model.logit_width if model.head == "seq2seq-lm" else 0
    return sum(block.modality == "text" for block in model.layers()) if _has(model, "layer_scalars") else 0


def _unread_keys(model: Model, block: Block) -> int:
    """Products that make keys and values, and the keys' norm, of a layer that reads an earlier layer's (Gemma 3n, 4).

    The files have them and the classes name them among what loading leaves out.
    """
    shared = [(name, value.width) for name, value in block.inputs.items() if name in ("full_keys", "sliding_keys")]
    if not shared:
        return 0
    (name, head_dim), config = shared[0], text_config(model)
    groups = next(block.operations(Attention)).num_key_value_heads
    products = 1 if name == "full_keys" and config.flag("attention_k_eq_v") else 2
    rows = model.hidden_size + config.flag("attention_bias")
    return products * groups * head_dim * rows + head_dim


def _scales(storage: Storage, block: Block) -> int:
    """Scales of the checkpoint's own quantization, where weights are one value each (fp8)."""
    rule = storage.quantization
    if rule is None or not rule.name.startswith("fp8"):
        return 0
    found = 0
    for parameter in block.parameters:
        if parameter.name.endswith("indexer.weights_proj.weight"):  # 16 bit, as published totals show
            continue
        quantized = storage.quantizes(parameter) or (parameter.part == "experts" and len(parameter.shape) == 3)
        if quantized and parameter.tied_to is None:
            shapes = [parameter.shape[1:]] * parameter.shape[0] if len(parameter.shape) == 3 else [parameter.shape]
            values = sum(size for _, size in rule.tensors_for(shapes[0]))
            found += len(shapes) * (values - shapes[0][0] * shapes[0][1]) // 4
    return found


def _untied_in_files(model: Model) -> int:
    tied = has_fact("transformers", "tied_against_the_config", model.config.model_type)
    if not tied or model.config.flag("tie_word_embeddings", True):
        return 0
    return sum(p.numel for p in model.all_parameters if p.tied_to is not None and p.part == "head")
