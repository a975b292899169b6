"""The start-up profile run: the largest of its phases, not their sum (v1/worker/gpu_model_runner.py profile_run)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.constants import Constant, constant
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.common.widest_layer import widest_layer
from vramwise.serving.vllm.profile import runs_v2_runner
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.vllm.towers import has_encoder, sees_nothing

if TYPE_CHECKING:
    from vramwise.serving.common.encoder import VideoRule

UNPACK_ABOVE_TOKENS = 256
MARLIN_CAPABILITY = 8.0
MASKS_VERSION = (0, 17)  # nothing is sorted any more, with FlashInfer or without
# Qwen3-VL's largest video (25,165,824 values = 12,288 tokens of 2 × 32 × 32) counts 12.5 tokens for each of its own,
# more than an image; its outputs are padded to that (0.11.2 models/qwen3_vl.py get_max_video_tokens,
# v1/worker/gpu_model_runner.py; the logs say "a budget of 153600 tokens")
LONG_VIDEO_TOKENS, LONG_VIDEO_FACTOR = 12288, 12.5
VIDEO_ALONE_VERSION = (0, 11)  # no image beside the largest video

_RUN = "vLLM v1/worker/gpu_model_runner.py profile_run"


def activation_peak(model: Model, r: Resolved, *, samples: bool = True) -> Node:
    """Bytes above the weights at the fullest moment of the profile run, of a pipeline stage that `samples` or not.

    In V1 the encoder's outputs stay alive while the text model and the sampler run (`encoder_cache["tmp"]`).
    """
    forward = forward_pass(model, r)
    later = _fullest(_sampler(model, r), forward) if samples else forward
    if not has_encoder(model):
        return later
    encoder, kept = _encoder(model, r)
    if kept.bytes and r.profile.generation == "V1":
        later = Node.group(later.name, (later, kept))
    return _fullest(later, encoder)


def _fullest(*phases: Node) -> Node:
    """The phase that is expected to take most; each end of the interval is that of the phase that reaches farthest."""
    most = max(phases, key=lambda phase: phase.bytes)
    return replace(most, low=max(phase.low for phase in phases), high=max(phase.high for phase in phases))


def _sampler(model: Model, r: Resolved) -> Node:
    """Sampling over max_num_seqs rows of the whole vocabulary, on every rank alike, beside the hidden states."""
    rows = min(r.max_num_seqs, r.batched_tokens)
    name = "sampler_v2_bytes_per_logit" if on_v2_runner(model, r) else "sampler_bytes_per_logit"
    if r.settings.flashinfer_sampler and r.profile.generation == "V1" and r.version < MASKS_VERSION:
        name = "sampler_flashinfer_bytes_per_logit"
    per_logit = constant("vllm", name, r.version)
    per_row = constant("vllm", "sampler_hidden_bytes_per_row", r.version)
    hidden = model.hidden_size * (r.storage.bytes_per_element * r.batched_tokens + round(per_row.expected) * rows)
    logits = rows * model.logit_width
    return Node(
        "profile run: sampler",
        round(per_logit.expected * logits) + hidden,
        per_logit.kind,
        round(per_logit.low * logits) + hidden,
        round(per_logit.high * logits) + hidden,
        formula="bytes per logit × rows × vocabulary + hidden states",
        inputs={"rows": rows, "vocabulary": model.logit_width, "bytes_per_logit": per_logit.expected},
        source=f"{_RUN}; {per_logit.source}",
    )


def on_v2_runner(model: Model, r: Resolved) -> bool:
    """Whether the second model runner samples."""
    return r.profile.generation == "V1" and runs_v2_runner(r.version, model, r.storage.quantization is not None)


def sampler_state(model: Model, r: Resolved) -> Node | None:
    """What the second model runner's sampler keeps from its start on: counts of tokens for penalties."""
    if not on_v2_runner(model, r):
        return None
    per_logit = constant("vllm", "sampler_v2_state_bytes_per_logit", r.version)
    return Node(
        "sampler state", round(per_logit.expected * r.max_num_seqs * model.logit_width), "exact",
        formula="max_num_seqs × vocabulary × (4 + 1/8)",
        inputs={"max_num_seqs": r.max_num_seqs, "vocabulary": model.logit_width}, source=per_logit.source,
    )  # fmt: skip


def forward_pass(model: Model, r: Resolved) -> Node:
    """One pass of max_num_batched_tokens through the widest layer."""
    copies = constant("vllm", "layer_hidden_copies", r.version)
    ranks = r.settings.tensor_parallel_size
    extra = constant("vllm", "all_reduce_hidden_copies", r.version) if ranks > 1 else Constant(0, 0, 0, "exact", "")
    width = widest_layer(model, ranks, engine_layout(r.settings).cut.expert_parallel_size)
    size = r.storage.bytes_per_element
    tokens = r.batched_tokens

    def bytes_with(hidden_bytes: float) -> int:
        return tokens * (width * size + round(hidden_bytes * model.hidden_size * size / 2))

    unpacked = _unpacked(model, r)
    return Node(
        "profile run: forward",
        bytes_with(copies.expected + extra.expected) + unpacked,
        "calibrated",
        bytes_with(copies.low + extra.low),
        bytes_with(copies.high + extra.high) + unpacked,
        formula="tokens × (widest layer + hidden-size copies) × dtype + unpacked weight",
        inputs={"tokens": tokens, "widest_layer_elements": width, "unpacked_weight_bytes": unpacked},
        source=f"{_RUN}; {copies.source}",
    )


def _unpacked(model: Model, r: Resolved) -> int:
    """AWQ's own kernels unpack a layer for more than 256 tokens (quantization/awq.py); Marlin's, from compute
    capability 8.0 on, do not. bitsandbytes always does."""
    rule = r.storage.quantization
    if rule is None or r.batched_tokens <= UNPACK_ABOVE_TOKENS:
        return 0
    own_awq = rule.layout == "awq" and r.capability is not None and r.capability < MARLIN_CAPABILITY
    if not own_awq and not rule.layout.startswith("bnb-4bit"):
        return 0
    stages = stage_weights(model, r.storage, engine_layout(r.settings))
    return max(stage.largest_linear_elements for stage in stages) * r.storage.bytes_per_element


def _encoder(model: Model, r: Resolved) -> tuple[Node, Node]:
    """The vision tower over as many of its largest items as the encoder's budget of tokens takes, and its outputs."""
    from vramwise.serving.common.encoder import encoder_work

    work = encoder_work(
        model, r.batched_tokens, r.storage.bytes_per_element, r.settings.tensor_parallel_size, r.max_num_seqs,
        _video_rule(model, r),
    )  # fmt: skip
    size, kept = (0, 0) if sees_nothing(model, r.settings) else (work.bytes, work.kept_bytes)
    running = Node(
        "profile run: encoder",
        size,
        "assumed",
        size // 3,
        2 * size,
        formula="patches × largest live set of the tower's layers × dtype + encoder cache",
        inputs={"patches": work.patches, "elements_per_patch": work.elements_per_patch},
        source=_RUN,
    )
    cache = Node(
        "encoder cache", kept, "derived", kept // 3, kept, formula="tokens of the items × hidden size × levels × dtype",
        inputs={"hidden_size": model.hidden_size}, source=_RUN,
    )  # fmt: skip
    return running, cache


def _video_rule(model: Model, r: Resolved) -> VideoRule | None:
    """The largest video that the version profiles, where it counts more tokens than an image does."""
    from vramwise.serving.common.encoder import VideoRule

    limits = r.settings.limit_mm_per_prompt or {}
    if limits.get("video") == 0:
        return None
    if has_fact("vllm", "video_fills_the_request", model.config.model_type, r.version):
        return VideoRule(_frames_tokens(r), 1, padded=False) if r.profile.generation == "V1" else None
    counted = has_fact("vllm", "video_counts_more", model.config.model_type, r.version)
    return VideoRule(LONG_VIDEO_TOKENS, LONG_VIDEO_FACTOR, padded=True) if counted else None


def _frames_tokens(r: Resolved) -> int:
    """Qwen2-VL's and 2.5-VL's largest video: as many of the largest images as max_model_len takes, two frames in each,
    at most 14 frames; before 0.11 16 frames, and an image beside them (models/qwen2_vl.py
    get_num_frames_with_most_features of 0.8.5, 0.11.2, 0.19 and 0.33; the logs of 0.8 and 0.23 say budgets of 98,304
    and of 114,688 tokens for 128,000).
    """
    from vramwise.serving.common.encoder import LARGEST_DYNAMIC_TOKENS

    alone = r.version >= VIDEO_ALONE_VERSION or (r.settings.limit_mm_per_prompt or {}).get("image") == 0
    room = r.max_model_len - (0 if alone else LARGEST_DYNAMIC_TOKENS)
    most = 7 if r.version >= VIDEO_ALONE_VERSION else 8
    return LARGEST_DYNAMIC_TOKENS * max(1, min(most, room // LARGEST_DYNAMIC_TOKENS))
