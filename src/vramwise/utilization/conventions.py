"""FLOPs per token by the formulas that papers and frameworks use, and the model sizes that enter them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.records import record


@record
class Sizes:
    """What the formulas need of a model. `num_parameters` is N, of a mixture the active ones.

    `embedding_parameters` are those that only look up (input and position embeddings; none when the input embedding is
    also the output head), `attention_width` is heads times head size (PaLM: 12,288, not its hidden size).
    """

    num_parameters: int
    embedding_parameters: int
    num_hidden_layers: int
    hidden_size: int
    attention_width: int
    vocab_size: int
    position_parameters: int = 0


@record
class Convention:
    """One formula: FLOPs per token of a training step. `counts_recomputation` makes it a formula for HFU, not MFU."""

    name: str
    formula: str
    parameters: str
    attention: str
    used_by: str
    source: str
    per_token: Callable[[Sizes, int], float]
    counts_recomputation: bool = False


def _attention(sizes: Sizes, sequence: int) -> float:
    """12 L H Q s: scores and their products with values, forward and backward, every pair of tokens."""
    return 12.0 * sizes.num_hidden_layers * sizes.attention_width * sequence


def _without_embedding(sizes: Sizes) -> int:
    return sizes.num_parameters - sizes.embedding_parameters


def _megatron(sizes: Sizes, sequence: int, factor: int, attention: float, logits: float) -> float:
    h, layers = sizes.hidden_size, sizes.num_hidden_layers
    return factor * layers * h**2 * (1 + sequence / (attention * h) + sizes.vocab_size / (logits * h * layers))


_PALM = "PaLM, arXiv 2204.02311, appendix B"
_KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, appendix A"
CONVENTIONS: tuple[Convention, ...] = (
    Convention("6n", "6 N", "all", "none", "rules of thumb (Kaplan et al.)", "arXiv 2001.08361, section 2.1",
               lambda m, s: 6.0 * m.num_parameters),
    Convention("palm", "6 N + 12 L H Q s", "all", "every pair", "PaLM, llm-foundry, lit-gpt", _PALM,
               lambda m, s: 6.0 * m.num_parameters + _attention(m, s)),
    Convention("nanogpt", "6 (N − positions) + 12 L H Q s", "without position embeddings", "every pair", "nanoGPT",
               "karpathy/nanoGPT model.py estimate_mfu",
               lambda m, s: 6.0 * (m.num_parameters - m.position_parameters) + _attention(m, s)),
    Convention("titan", "6 (N − embedding) + 12 L H Q s", "without input embedding", "every pair",
               "torchtitan, NeMo, TinyLlama", "pytorch/torchtitan utils.py get_num_flop_per_token",
               lambda m, s: 6.0 * _without_embedding(m) + _attention(m, s)),
    Convention("sft", "6 (N − embedding)", "without input embedding", "none (short documents)", "NeMo fine-tuning",
               "NeMo 24.12 performance summary", lambda m, s: 6.0 * _without_embedding(m)),
    Convention("lora", "4 (N − embedding)", "without input embedding", "none; no gradient of frozen weights",
               "NeMo LoRA", "NeMo 24.12 performance summary", lambda m, s: 4.0 * _without_embedding(m)),
    Convention("megatron", "72 L h² (1 + s/6h + V/12hL)", "from h and L", "every pair", "Megatron-LM, Korthikanti",
               _KORTHIKANTI, lambda m, s: _megatron(m, s, 72, 6, 12)),
    Convention("megatron-hardware", "96 L h² (1 + s/6h + V/16hL)", "from h and L", "every pair, recomputed",
               "Megatron SC21, GPT-NeoX, BLOOM", "Narayanan et al., arXiv 2104.04473, appendix",
               lambda m, s: _megatron(m, s, 96, 6, 16), counts_recomputation=True),
    Convention("korthikanti-hardware", "72 L h² (1 + s/3h + V/12hL)", "from h and L", "every pair, doubled",
               "Korthikanti's HFU with selective recomputation", _KORTHIKANTI,
               lambda m, s: _megatron(m, s, 72, 3, 12), counts_recomputation=True),
)  # fmt: skip


def convention(name: str) -> Convention:
    """The convention of that name."""
    return next(each for each in CONVENTIONS if each.name == name)


def inference_flops_per_token(sizes: Sizes, sequence: int) -> float:
    """2 (N − embedding) + 4 L H Q T for a token that attends to T = `sequence` tokens."""
    return 2.0 * _without_embedding(sizes) + 4.0 * sizes.num_hidden_layers * sizes.attention_width * sequence
