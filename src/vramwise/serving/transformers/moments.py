"""What transformers' `generate` holds at each moment: weights, keys and values, what one layer holds while it runs."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Node, Phase
from vramwise.serving.common.constants import constant
from vramwise.serving.common.forward.modules import forward_live_set
from vramwise.serving.common.heads import most_attention_heads
from vramwise.serving.common.layouts import PLAIN
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weight_nodes import weights_node, with_buffers
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.transformers.cards import Card
from vramwise.serving.transformers.dynamic_cache import FP32_BYTES, dynamic_cache, source_tokens
from vramwise.serving.transformers.fixed_cache import RESIDUAL_TOKENS, quantized_bytes, static_bytes
from vramwise.serving.transformers.inference import layer_peak_bytes
from vramwise.units import GIB, MIB

LAST_LOGITS_ONLY = (4, 45)  # generation/utils.py: num_logits_to_keep=1 for the prefill since 4.45
LATENT_CACHE = (5,)  # modeling_deepseek_v3.py: earlier versions cache whole heads
SCORED_BYTES = 8  # logits in fp32 and their log-softmax (loss/loss_utils.py ForCausalLMLoss, lm_eval's huggingface.py)
DEQUANTIZED_COPIES = 2  # keys and values of a layer unpacked, and joined with the newest
BLOCK_REMAINDER = MIB  # a cached tensor keeps up to this much of the block it was given (allocator)

_CACHE = "transformers cache_utils.py DynamicCache: torch.cat of every layer's keys and values"
_LIVE = "blocks of operations, executed in order; the frame of each module keeps its arguments"


@record
class Plan:
    """What is asked, with defaults in."""

    batch: int
    prompt: int
    new: int
    attention: str
    beams: int
    storage: Storage
    version: tuple[int, ...]
    cache_bytes_per_element: int
    cache: str
    cache_bits: int
    scored: bool = False

    @property
    def rows(self) -> int:
        return self.batch * self.beams


def _cached_tokens(model: Model, plan: Plan, prompt: int, new: int) -> int:
    """Tokens in the cache when `new` were made; the last of them is never fed back."""
    return new if model.head == "seq2seq-lm" else prompt + new - 1


def _cache_bytes(model: Model, plan: Plan, prompt: int, new: int) -> int:
    """Keys, values and states of all layers; `new` is 1 right after the prefill."""
    if plan.cache == "none":
        return 0
    shapes = dynamic_cache(model, whole_heads=plan.version < LATENT_CACHE)
    tokens, source = _cached_tokens(model, plan, prompt, new), source_tokens(model, prompt)
    size = plan.storage.bytes_per_element
    if plan.cache == "static":
        longest = _cached_tokens(model, plan, prompt, plan.new)
        return plan.rows * sum(static_bytes(shape, longest, source, size) for shape in shapes)
    if plan.cache == "quantized" and model.head != "seq2seq-lm":
        made = (quantized_bytes(shape, prompt, new, source, plan.cache_bits, size) for shape in shapes)
        return plan.rows * sum(made)
    cut = new > 1 or model.head == "seq2seq-lm"
    row = sum(
        shape.bytes(tokens, source, plan.cache_bytes_per_element, plan.storage.bytes_per_element, cut_to_window=cut)
        for shape in shapes
    )
    return row * plan.rows


def _largest_layer_cache(model: Model, plan: Plan, tokens: int) -> int:
    shapes = dynamic_cache(model, whole_heads=plan.version < LATENT_CACHE)
    widest = max((shape.elements_per_token for shape in shapes if not shape.of_source), default=0)
    if plan.cache in ("static", "none"):
        return 0
    if plan.cache == "quantized":
        return DEQUANTIZED_COPIES * widest * tokens * plan.rows * plan.storage.bytes_per_element
    return widest * tokens * plan.rows * plan.cache_bytes_per_element


def transient_bytes(model: Model, plan: Plan, tokens: int, *, embeds: bool = True) -> int:
    """Bytes alive in the fullest layer while `tokens` of every row pass, on a card that `embeds` them or does not."""
    size = plan.storage.bytes_per_element
    if tokens == 1:
        live = forward_live_set(model).elements * plan.rows * size
        return max(live, _decode_scores(model, plan))
    live = layer_peak_bytes(
        model, dtype=plan.storage.dtype, element_bytes=size, attention=plan.attention, batch=plan.rows,
        sequence=tokens, version=plan.version, embeds=embeds,
    )  # fmt: skip
    # an unpacked weight lives during its product, when the product's largest tensor is not there yet
    unpacked = _unpacked_bytes(model, plan, tokens)
    return max(live, unpacked and unpacked + live * 2 // 3)


def _decode_scores(model: Model, plan: Plan) -> int:
    """Eager attention of one token: scores in the compute dtype, their fp32 softmax and its cast, for every key."""
    if plan.attention != "eager":
        return 0
    per_key = 2 * plan.storage.bytes_per_element + 4
    return plan.rows * most_attention_heads(model) * (plan.prompt + plan.new) * per_key


def _card_transient_bytes(model: Model, plan: Plan, tokens: int, card: Card) -> int:
    """The same on one card: without layers the hidden states that arrive there, and their norm."""
    if card.has_layers:
        return transient_bytes(model, plan, tokens, embeds=card.is_first)
    return 2 * model.hidden_size * plan.rows * tokens * plan.storage.bytes_per_element


def _logits_bytes(model: Model, plan: Plan, tokens: int, card: Card) -> tuple[int, int, int]:
    """Low, expected and high bytes of logits: as the head makes them, and the fp32 copy that sampling works on.

    Of several cards the head's makes them, and the first samples, or scores them (lm_eval's huggingface.py
    `_model_call`); a loss lies with the head. Scored ones may be held in the dtype too, by whoever asked for them.
    """
    rows = plan.rows  # beams are expanded before the prefill (generation/utils.py _expand_inputs_for_generation)
    kept = 1 if plan.version >= LAST_LOGITS_ONLY and not plan.scored else tokens
    values = rows * kept * model.logit_width
    made = values * plan.storage.bytes_per_element
    worked_on = values * SCORED_BYTES if plan.scored else made + values * FP32_BYTES
    high = worked_on + made if plan.scored else worked_on
    if card.is_first:
        return worked_on, worked_on, high
    return (made, made, high if plan.scored else made) if card.has_head else (0, 0, 0)


def moments_of(model: Model, plan: Plan, card: Card, weights: Node, context: Node) -> tuple[Phase, ...]:
    """Of one card: load, prefill, the head's logits after it, and the fullest token of those that follow.

    Without a cache every token passes again with all before it. A prompt that is scored is followed by nothing.
    """
    load = _loading(card.held, plan, weights, context)
    if plan.scored:
        return load, _moment("scoring", model, plan, card, weights, context, 1, plan.prompt)
    again = 0 if plan.cache != "none" or model.head == "seq2seq-lm" else plan.prompt
    passing = ((token, 1 + (again and again + token - 2)) for token in _fullest_tokens(plan))
    tokens = (_moment("decode", model, plan, card, weights, context, token, more) for token, more in passing)
    return (
        load,
        _moment("prefill", model, plan, card, weights, context, 1, plan.prompt),
        max(tokens, key=lambda moment: moment.bytes),
    )


def _fullest_tokens(plan: Plan) -> set[int]:
    """The last token; a quantized cache is fullest, too, before the tokens that it keeps in full are packed."""
    before = plan.new // RESIDUAL_TOKENS * RESIDUAL_TOKENS if plan.cache == "quantized" else 0
    return {plan.new, before or plan.new}


def _moment(
    name: str, model: Model, plan: Plan, card: Card, weights: Node, context: Node, new: int, tokens: int
) -> Phase:
    cache = _cache_node(card.held, plan, new)
    layer = _card_transient_bytes(model, plan, tokens, card)
    low, logits, high = _logits_bytes(model, plan, tokens, card)
    cached = _cached_tokens(model, plan, plan.prompt, new)
    growth = 0 if name != "decode" else _largest_layer_cache(card.held, plan, cached)
    parts = [weights, cache]
    if logits > layer + growth:
        parts.append(Node(
            "logits", logits, "derived", low, high,
            formula=f"rows × kept tokens × vocabulary × {'2 × fp32' if plan.scored else '(dtype + fp32)'}",
            inputs={"vocabulary": model.logit_width}, source="transformers generation/utils.py",
        ))  # fmt: skip
    else:
        spread = constant("generate", "activation_spread", plan.version)
        parts.append(Node(
            "activations", layer, "derived", int(layer * spread.low), round(layer * spread.high),
            formula="largest live set of a layer", inputs={"tokens": tokens, "rows": plan.rows},
            source=_LIVE,
        ))  # fmt: skip
        if growth:
            parts.append(
                Node(
                    "KV cache concatenation",
                    growth,
                    "derived",
                    formula="new copy of one layer" if plan.cache == "dynamic" else "one layer unpacked, and joined",
                    source=_CACHE,
                )
            )
    parts.extend((_workspace(plan), context))
    return Phase(name, Node.group(name, parts))


def _workspace(plan: Plan) -> Node:
    """What libraries allocate through PyTorch beside the model."""
    value = constant("generate", "workspace", plan.version)
    low, expected, high = (round(size * GIB) for size in (value.low, value.expected, value.high))
    return Node("library workspaces", expected, value.kind, low, high, source=value.source)


def _unpacked_bytes(model: Model, plan: Plan, tokens: int) -> int:
    """bitsandbytes unpacks 4-bit layers for every product; AWQ above 1,024 tokens (awq gemm.py)."""
    rule = plan.storage.quantization
    if rule is None:
        return 0
    unpacks = rule.layout.startswith("bnb-4bit") and tokens > 1
    unpacks = unpacks or (rule.layout == "awq" and tokens * plan.rows >= 1024)
    if not unpacks:
        return 0
    return largest_unpacked(model, plan.storage)


def largest_unpacked(model: Model, storage: Storage) -> int:
    """Bytes of the largest quantized layer in the compute dtype."""
    return stage_weights(model, storage, PLAIN)[0].largest_linear_elements * storage.bytes_per_element


def _loading(model: Model, plan: Plan, weights: Node, context: Node) -> Phase:
    """After loading; AWQ makes the head's own weight before it is tied to the embedding (transformers 4.46 logs)."""
    parts = [weights, context]
    rule = plan.storage.quantization
    if rule is not None and rule.layout == "awq":
        heads = [p for p in model.all_parameters if p.part == "head" and p.tied_to is not None]
        size = sum(p.numel for p in heads) * plan.storage.bytes_per_element
        parts.insert(1, Node("head before it is tied", size, "derived", source="transformers 4.46 AWQ measurements"))
    return Phase("load", Node.group("load", parts))


def generate_weights(model: Model, storage: Storage) -> Node:
    """Weights, buffers, and that into which exllama unpacks 4-bit GPTQ layers (auto_gptq qlinear_exllamav2)."""
    weights = with_buffers(weights_node(model, storage, PLAIN, 0), model, storage)
    rule = storage.quantization
    if rule is None or rule.layout != "gptq" or rule.bits != 4:
        return weights
    buffer = Node(
        "exllama buffer", largest_unpacked(model, storage), "derived",
        formula="elements of the largest layer × dtype", source="auto_gptq qlinear_exllamav2.py temp_dq",
    )  # fmt: skip
    return Node.group("weights", (*weights.children, buffer))


def _cache_node(model: Model, plan: Plan, new: int) -> Node:
    """Keys and values; every tensor above 1 MiB may keep a remainder of its block."""
    size, tokens = _cache_bytes(model, plan, plan.prompt, new), _cached_tokens(model, plan, plan.prompt, new)
    layers = len(model.caches)
    one_tensor = size // (2 * layers) if layers else 0
    slack = 2 * layers * BLOCK_REMAINDER if one_tensor > MIB else 0
    cells = Node(
        "keys and values", size, "exact", formula="rows × tokens × Σ elements a token × dtype",
        inputs={"rows": plan.rows, "tokens": tokens, "layers": layers}, source=_CACHE,
    )  # fmt: skip
    if not slack:
        return Node.group("KV cache", (cells,))
    rest = Node(
        "block remainders", slack // 2, "derived", 0, slack, formula="0 to 1 MiB a tensor", source="torch allocator"
    )
    return Node.group("KV cache", (cells, rest))
