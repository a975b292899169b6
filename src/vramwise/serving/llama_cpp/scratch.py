"""What a block's own tensors take while the graph runs: attention scores, latent projections, MLP and experts.

u = physical batch, n = cells of one stream, E = hidden size, H = heads. The forms of the newest llama.cpp are those of
the graph allocator itself: llama-fit-params at 0c1e57098 over RPC devices, files of metadata and shapes alone. Those
of ik_llama.cpp follow src/graphs/build_deepseek2.cpp and its forerunner in src/llama.cpp, node by node, and were held
against llama-cli at 8337e4cd3.
"""

from __future__ import annotations

from vramwise.memo import of_model
from vramwise.models import Block, LayerCache, Model
from vramwise.models.blocks import Operation
from vramwise.models.operations.attention import AnyAttention, HeadedAttention
from vramwise.models.operations.chunk_scan import ChunkScan
from vramwise.models.operations.delta_rule import GatedDeltaRule
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.mixers import CausalConv1d, SelectiveScan
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.serving.common.convolutions import engine_conv_elements
from vramwise.serving.common.gguf.tensors import gguf_tensors
from vramwise.serving.llama_cpp.builds import (
    FUSED_GATES_BUILD,
    IK_BOUND_SCORES_BUILD,
    IK_CHUNKED_LATENT_BUILD,
    IK_HALF_MASK_BUILD,
    VALUE_INDEX_BUILD,
)
from vramwise.serving.llama_cpp.settings import Plan
from vramwise.units import MIB


@record
class Latent:
    """Widths of multi-head latent attention."""

    rank: int
    rope: int
    key: int
    value: int
    query_rank: int
    index: int


@record
class Mixer:
    """A layer with a state that does not grow: its scan, channels of its convolution, width, a sequence's state."""

    scan: type[Operation]
    channels: int
    width: int
    state: int


@record
class Sizes:
    """What the formulas read of a model."""

    vocabulary: int
    hidden: int
    heads: int
    value_width: int
    latent: Latent | None
    mixer: Mixer | None
    one_copy: bool
    caps_logits: bool
    gates: int
    mlp: int
    chosen_experts: int
    expert: int
    deep_inputs: int


_SCANS = SelectiveScan | ChunkScan | GatedDeltaRule
_DEEP_LAYERS = (8, 16, 24)  # Qwen3VLVisionConfig


@of_model
def sizes_of(model: Model) -> Sizes:
    """Vocabulary, widths, heads and experts of a model."""
    heads = values = chosen = 0
    latent: Latent | None = None
    mixer: Mixer | None = None
    for block in model.layers():
        for op in block.ops:
            if isinstance(op, HeadedAttention) and not heads and len(op.inputs) > 2:  # one input: lightning attention
                heads = op.num_heads
                values = op.inputs[2].width * (op.num_key_value_heads if isinstance(op, AnyAttention) else heads)
            if isinstance(op, ExpertMlps):
                chosen = max(chosen, op.experts_per_token)
        for cache in block.caches:
            if cache.kind == "recurrent" and mixer is None:
                mixer = _mixer(model, block, cache)
            if cache.kind == "latent" and latent is None:
                attention = next(block.operations(AnyAttention))
                key, value = attention.inputs[1].width, attention.inputs[2].width
                rank = model.config.size("q_lora_rank", default=0, least=0)
                index = max(each.index_dim for one in model.layers() for each in one.caches)
                latent = Latent(cache.latent_dim, cache.rope_dim, key, value, rank, index)
    tensors = gguf_tensors(model)
    mlp = max((t.shape[-1] for t in tensors if t.name in ("ffn_down", "ffn_down_shexp")), default=0)
    both = any(t.name == "ffn_up" and t.shape[0] == 2 * mlp for t in tensors)
    gates = 1 if both else 2 if any(t.name.startswith("ffn_gate") for t in tensors) else 0
    expert = max((t.shape[-1] for t in tensors if t.name == "ffn_down_exps"), default=0)
    norms = max((sum(isinstance(op, RmsNorm | LayerNorm) and op.module.count(".") == 0 for op in block.ops)
                 for block in model.layers()), default=0)  # fmt: skip
    one_copy = norms > 2 or latent is not None or has_fact("llama.cpp", "one_hidden_copy", model.config.model_type)
    language = model.config.table("text_config") or model.config
    capped = bool(language.get("final_logit_softcapping"))
    return Sizes(
        model.logit_width,
        model.hidden_size,
        heads,
        values,
        latent,
        mixer,
        one_copy,
        capped,
        gates,
        mlp,
        chosen,
        expert,
        deep_inputs(model),
    )


def deep_inputs(model: Model) -> int:
    """Features of earlier vision layers that enter beside the embeddings, each of the hidden size (Qwen3-VL)."""
    vision = model.config.table("vision_config")
    if vision is None or not has_fact("llama.cpp", "deep_vision_inputs", model.config.model_type):
        return 0
    return len(vision.items("deepstack_visual_indexes") or _DEEP_LAYERS)


def _mixer(model: Model, block: Block, cache: LayerCache) -> Mixer | None:
    """None for the mixers whose graphs were not measured (short convolutions, RWKV, Kimi's delta rule)."""
    scan = next((op for op in block.ops if isinstance(op, _SCANS)), None)
    convolution = next(block.operations(CausalConv1d), None)
    if scan is None or convolution is None:
        return None
    kept = engine_conv_elements(model, cache.conv_state_elements) + cache.state_elements
    return Mixer(type(scan), convolution.inputs[0].width, scan.outputs[0].width, kept)


def mixer_bytes(plan: Plan, s: Sizes, u: int) -> int:
    """A mixer's live set, within 8 % of what 0c1e57098 reserves for Mamba 1 and 2 and gated delta networks.

    C = channels of the convolution, D = width of the scan; the states of all slots are read and written once.
    """
    if s.mixer is None:
        return 0
    c, d = s.mixer.channels, s.mixer.width
    a_token = {SelectiveScan: 6 * d, ChunkScan: 4 * c + 2 * d, GatedDeltaRule: 3 * c + 2 * s.hidden}
    return 4 * (u * a_token[s.mixer.scan] + plan.slots * s.mixer.state)


def index_bytes(plan: Plan, s: Sizes, u: int) -> int:
    """Where each element of the values goes in a transposed cache, int64: 8 · u · width, without flash attention."""
    if plan.flash or plan.is_ik or s.latent or plan.build < VALUE_INDEX_BUILD:
        return 0
    return 8 * u * s.value_width


def masks_of_a_cache(plan: Plan, s: Sizes) -> int:
    """An indexer's keys have a cache, whose mask is beside the latent one's (llm_graph_input_attn_k_dsa)."""
    return 2 if plan.has_index_cache and s.latent is not None and s.latent.index else 1


def attention_bytes(plan: Plan, s: Sizes, u: int, n: int) -> int:
    """The largest live set of a block's attention, without masks and indices; 0 where the MLP's is larger anyway."""
    if s.latent is not None and plan.latent is not None:
        return _ik_latent(plan, s, s.latent, u, n) if plan.is_ik else _latent(plan, s, s.latent, u, n)
    if plan.flash or not s.heads:
        return 0
    return 4 * u * s.heads * n + 16 * u * s.hidden


def _latent(plan: Plan, s: Sizes, latent: Latent, u: int, n: int) -> int:
    """Queries, their part without position taken into the latent space, the part with it, both joined, and three
    hidden-size tensors; scores without flash attention, and an indexer's, in f32."""
    a_head = latent.key + latent.rank + latent.rope + (latent.rank + latent.rope)
    scores = (0 if plan.flash else 4 * u * s.heads * n) + 4 * u * n * (masks_of_a_cache(plan, s) - 1)
    return 4 * u * (s.heads * a_head + 3 * s.hidden) + scores


def _ik_latent(plan: Plan, s: Sizes, latent: Latent, u: int, n: int) -> int:
    """-mla 2 and 3 with flash attention: keys and values of every head in f16, those of some heads in f32 at a time
    (-amb MiB bounds them), the latent in f32, queries and residual. Since January 2026 no more than the heads at hand
    are unpacked at once; a run whose version is not stated is charged for all of them. Flash attention of other modes
    is not counted.
    """
    if not plan.flash:
        return _ik_scores(plan, s, latent, u, n)
    if plan.latent not in (2, 3):
        return 0
    nope = latent.key - latent.rope
    at_once = _heads_at_once(s.heads, (nope + latent.value) * n * 4, plan)
    unpacked = 2 * (latent.key + latent.value) * n
    raw = 4 * (nope + latent.value) * n
    chunked = plan.build_is_stated and plan.build >= IK_CHUNKED_LATENT_BUILD
    if chunked and at_once < s.heads:  # beside them the joined queries, those before joining, and what is put together
        joined = 4 * u * (s.heads * (2 * latent.key + latent.value) + s.hidden)
        return at_once * (raw + 2 * (nope + latent.value + latent.rope) * n) + joined
    queries = 4 * u * (s.heads * (latent.key + latent.rope) + s.hidden + latent.query_rank)
    return s.heads * unpacked + at_once * raw + 4 * latent.rank * n + queries


def _ik_scores(plan: Plan, s: Sizes, latent: Latent, u: int, n: int) -> int:
    """Without flash attention: scores of as many heads as -amb allows (e787c0014, March 2025), what they give, which is
    joined step by step, queries with and without position, and, but for -mla 1, which keeps it, the latent transposed.

    Pull requests 235 and 237 print 4,466 and 5,088 MiB for a GPU with four copies of every input (128 and 2,560 MiB of
    masks, 56 and 224 MiB of hidden states); the rest is this to within 2 MiB.
    """
    bound, size = plan.settings.attn_max_b or 0, 4 * u * s.heads * n // MIB
    steps = min(-(-size // bound), s.heads) if 0 < bound < size and plan.build >= IK_BOUND_SCORES_BUILD else 1
    given = latent.rank * (2 if steps > 1 else 1)
    a_head = latent.rank + latent.rope + (latent.key - latent.rope) + given
    transposed = 0 if plan.latent == 1 else 2 * latent.rank * n
    return 4 * u * (s.heads * a_head + -(-s.heads // steps) * n) + transposed


def _heads_at_once(heads: int, bytes_a_head: int, plan: Plan) -> int:
    """As many heads as stay within -amb MiB, a divisor of all of them."""
    bound = plan.settings.attn_max_b or 0
    if not bound or heads * bytes_a_head // MIB <= bound:
        return heads
    return next((heads // part for part in range(2, heads) if not heads % part
                 and heads * bytes_a_head // MIB // part <= bound), 1)  # fmt: skip


def feed_forward_bytes(plan: Plan, s: Sizes, u: int) -> int:
    """Gate, up and their product (in place before gating was an operation of its own) beside hidden-size tensors.

    Without a gate it is up alone. Where gate and up are one product and no norm follows, one hidden-size tensor less is
    alive. The output of every chosen expert lies where gates and ups were, if it has room there.
    """
    if plan.is_ik:
        return _ik_feed_forward(plan, s, u)
    fused = plan.build >= FUSED_GATES_BUILD
    tensors = 1 if not s.gates else 3 if fused else 2
    copies = (2 if s.gates == 1 and not s.one_copy else 3) + s.deep_inputs
    dense = tensors * s.mlp + copies * s.hidden if s.mlp else 0
    apart = not fused or s.hidden > 2 * s.expert
    routed = s.chosen_experts * (tensors * s.expert + apart * s.hidden) + copies * s.hidden if s.expert else 0
    return 4 * u * max(dense, routed)


def _ik_feed_forward(plan: Plan, s: Sizes, u: int) -> int:
    """Gate and up as one fused operation (llama-cli of 8337e4cd3 over RPC devices); 0 for builds that are not known to
    be as new."""
    if not (plan.build_is_stated and plan.build >= IK_HALF_MASK_BUILD and plan.flash):
        return 0
    dense = s.mlp + 2 * s.hidden if s.mlp else 0
    routed = s.chosen_experts * (2 * s.expert + s.hidden) + s.hidden if s.expert else 0
    return 4 * u * max(dense, routed)
