"""What TensorRT-LLM's runtime holds beside an engine: rows of logits and of tokens for every sequence of a step.

Read: cpp/tensorrt_llm/batch_manager/runtimeBuffers.cpp (logits), transformerBuffers.cpp (cacheIndirection),
decoderBuffers.cpp (a sequence's tokens and log-probabilities), runtime/decoderState.cpp (embeddingBias; ids, parentIds,
logProbs, logProbsTiled; cacheIndirection in and out), runtime/decodingLayerWorkspace.cpp (runtime logits and the work
space of the sampler that takes most), layers/penaltyLayer.cpp, kernels/samplingTopKKernels.h (logits, and 1,024
candidates of eight blocks), kernels/samplingTopPKernels.cu. Top-p sorts all of them before 0.9 (release notes: AIR
top-p by default since). All are 4 bytes wide. Nine rows of the length are counted in these files, open since 0.18; what
came before printed 24 (memory.md: 256 sequences of 2,048 tokens, 44 + 180 MiB; examples of 0.12 with 4,096 sequences of
4,098 tokens, 1.14 + 4.35 GiB).
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.common.constants import constant
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.units import GIB

AIR_TOP_P_VERSION, OPEN_VERSION, PYTORCH_VERSION = (0, 9), (0, 18), (1,)
WIDTH_BYTES = 4
KEPT_LOGITS = 4  # those the engine writes, the decoder's copy, the bias and the penalties' counts
SORTED_LOGITS = 5  # sorted values and ids, ids before, and the alternates of the sort
TOP_K_BLOCKS, MOST_CANDIDATES = 8, 1_024
TOP_K_BYTES = 2 * TOP_K_BLOCKS * MOST_CANDIDATES * WIDTH_BYTES  # their numbers and their values
TOKEN_ROWS, CLOSED_TOKEN_ROWS = 9, 24
MOST = 1.25
_SOURCE = "TensorRT-LLM cpp/tensorrt_llm/batch_manager/runtimeBuffers.cpp, runtime/decoderState.cpp, layers"


def buffers(model: Model, r: ResolvedServe) -> Node:
    """Those of an engine; of the PyTorch backend, which samples with torch, what little remains beside the pool."""
    if r.version >= PYTORCH_VERSION:
        value = constant("tensorrt-llm", "runtime_buffers", r.version)
        low, expected, high = (round(x * GIB) for x in (value.low, value.expected, value.high))
        return Node("runtime and decoder buffers", expected, value.kind, low, high, source=value.source)
    logits = WIDTH_BYTES * model.logit_width
    work = SORTED_LOGITS * logits if r.version < AIR_TOP_P_VERSION else logits + TOP_K_BYTES
    rows = TOKEN_ROWS if r.version >= OPEN_VERSION else CLOSED_TOKEN_ROWS
    sequence = KEPT_LOGITS * logits + work + rows * WIDTH_BYTES * r.max_model_len
    size = r.max_num_seqs * sequence
    return Node(
        "runtime and decoder buffers", size, "assumed", size - r.max_num_seqs * work, round(MOST * size),
        formula="sequences × (rows of the vocabulary + rows of the length) × 4",
        inputs={"max_num_seqs": r.max_num_seqs, "max_model_len": r.max_model_len}, source=_SOURCE,
    )  # fmt: skip
