"""Padded, packed and windowed batches in training: what attention is handed, and what it keeps of that."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate

MISTRAL = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 8192, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
LAYERS, HEADS, GROUPS, HEAD_DIM = 8, 16, 4, 64


def kept(config: dict[str, Any] = MISTRAL, **train: Any) -> int:
    """Bytes of activations at the end of forward: pure bf16, 4 samples of 1,024 tokens, every layer kept."""
    settings = {
        "framework": "transformers", "precision": "bf16", "attention": "sdpa", "micro_batch_size": 4,
        "sequence_length": 1024, "checkpointing": "none", **train,
    }  # fmt: skip
    result = estimate({"model": config, "task": "train", "train": settings})
    end = next(phase for phase in result.phases if phase.name == "forward end")
    return next(node.bytes for node in end.components.children if node.name == "activations")


def test_flash_attention_takes_a_window_without_a_mask() -> None:
    """A window that the sequence outgrows is an argument of the kernel; SDPA needs a mask and whole heads."""
    windowed = MISTRAL | {"sliding_window": 512}
    assert kept(windowed, attention="flash") == kept(attention="flash")
    assert kept(windowed) > kept()


@pytest.mark.parametrize(("model_type", "version", "repeats"), [
    ("mistral", "4.47.1", True), ("mistral", "4.48.0", False), ("llama", "4.47.1", False),
])  # fmt: skip
def test_flash_attention_gets_whole_heads_in_older_classes(model_type: str, version: str, repeats: bool) -> None:
    """`repeat_kv` before the kernel in MistralFlashAttention2 until transformers 4.47; Llama has none."""
    config = MISTRAL | {"model_type": model_type}
    older = kept(config, attention="flash", framework_version=f"transformers {version}")
    copies = LAYERS * 2 * (HEADS - GROUPS) * HEAD_DIM * 4 * 1024 * 2 if repeats else 0
    assert older - kept(config, attention="flash", framework_version="transformers 4.50.0") == copies


MASK = 4 * 1024 * 1024 * 2
COPIES = LAYERS * 2 * (HEADS - GROUPS) * HEAD_DIM * 4 * 1024 * 2
RESULT = 4 * 1024 * HEADS * HEAD_DIM * 2
"""What a layer's flash kernel gives out: copied once more from 4.48 to 4.55, but where it takes a mask."""


def test_sdpa_keeps_a_mask_of_floats_a_layer_and_copied_heads() -> None:
    """transformers 5: booleans that every layer's kernel turns into floats of its own."""
    assert kept(padding=0.3) - kept() == LAYERS * MASK + COPIES


def test_older_versions_share_one_mask_of_floats() -> None:
    older = kept(padding=0.3, framework_version="transformers 4.52.4")
    assert older - kept(framework_version="transformers 4.52.4") == MASK - LAYERS * RESULT
    assert older - kept() == MASK + COPIES
    assert kept(padding=0.3, framework_version="transformers 4.53.0") - older == (LAYERS - 1) * MASK


def test_one_mask_for_each_kind_of_layer() -> None:
    """Half of the layers slide: two masks of floats, of which the window's is there in any case."""
    windows = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": LAYERS // 2}
    config = MISTRAL | {"model_type": "qwen2"} | windows
    version = "transformers 4.52.4"
    assert kept(config, padding=0.3, framework_version=version) - kept(config, framework_version=version) == (
        MASK - LAYERS // 2 * RESULT
    )


def test_checkpointed_layers_keep_the_mask_as_their_argument() -> None:
    """Booleans for the batch; floats come again with the one layer that is computed."""
    full = {"checkpointing": "full"}
    assert kept(padding=0.3, **full) - kept(**full) == MASK // 2
    version = "transformers 4.52.4"
    assert kept(padding=0.3, framework_version=version, **full) - kept(framework_version=version, **full) == MASK
    assert kept(padding=0.3, attention="eager", **full) == kept(attention="eager", **full)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_flash_attention_leaves_padding_out(share: float) -> None:
    """Of q, k, v and the result only tokens that count, and the result once more with rows of zeros for `o_proj`.

    Beside them the places of the tokens (int64) and a logarithm for each head and token (fp32).
    """
    whole, few = 4 * 1024, round(4 * 1024 * (1 - share))
    row = (2 * HEADS + 2 * GROUPS) * HEAD_DIM * 2 + HEADS * 4
    expected = few * (row + 8) + whole * HEADS * HEAD_DIM * 2 - whole * row
    # The kernel of rows without padding keeps one tensor of 8 bytes less.
    assert kept(attention="flash", padding=share) - kept(attention="flash") == pytest.approx(
        LAYERS * expected, abs=LAYERS * 512
    )


@pytest.mark.parametrize("framework", ["unsloth", "litgpt", "megatron", "torchtune"])
def test_others_pass_no_mask_for_padding(framework: str) -> None:
    assert kept(framework=framework, padding=0.3) == kept(framework=framework)


def test_samples_in_one_row_square_the_mask() -> None:
    """transformers sees by the positions that samples begin anew: (4 · 1,024)² booleans, floats in every layer."""
    joined = kept(padding_free=True) - kept()
    assert joined == pytest.approx(LAYERS * (4 * 1024) ** 2 * 2 + COPIES, rel=0.005)
    assert kept(padding_free=True, attention="flash") == pytest.approx(kept(attention="flash"), rel=0.005)
    # Before 4.53 nobody looks at positions.
    older = {"framework_version": "transformers 4.52.4"}
    assert kept(padding_free=True, **older) == pytest.approx(kept(**older), rel=0.005)


@pytest.mark.parametrize(("trl", "joined", "masked"), [
    ("0.18.2", False, False), ("0.19.1", True, False), ("0.22.2", True, False), ("0.23.1", True, True),
])  # fmt: skip
def test_packing_joins_rows_in_newer_versions_of_trl(trl: str, joined: bool, masked: bool) -> None:
    version = f"transformers 4.57.0, trl {trl}"
    result = estimate({
        "model": MISTRAL, "task": "train", "train": {"framework_version": version, "packing": True},
    })  # fmt: skip
    assert (result.scenario["train"]["padding_free"], result.scenario["train"]["document_mask"]) == (joined, masked)


def test_a_mask_that_the_batch_brings_is_an_input() -> None:
    """LLaMA-Factory's neat_packing: floats for all layers, which the kernel takes as they are."""
    settings = {"framework": "llamafactory", "packing": True}
    assert kept(document_mask=True, **settings) - kept(**settings) == COPIES
    config = {"model": MISTRAL, "task": "train", "train": {
        "framework": "llamafactory", "precision": "bf16", "micro_batch_size": 4, "sequence_length": 1024,
        "packing": True, "document_mask": True,
    }}  # fmt: skip
    inputs = next(node.bytes for node in estimate(config).phases[1].components.children if node.name == "inputs")
    assert inputs == MASK + 2 * 8 * 4 * 1024


def test_one_row_and_padding_contradict_each_other() -> None:
    with pytest.raises(ScenarioError, match="have no padding"):
        kept(padding_free=True, padding=0.3)


def test_evaluation_flattens_its_own_batch() -> None:
    """Twice the samples in one row: a mask of four times as many entries."""
    two, four = (peak_of_evaluation(eval_batch_size=n) for n in (2, 4))
    assert four - two > (4096**2 - 2048**2) * 1


def peak_of_evaluation(**train: Any) -> int:
    settings = {"precision": "bf16", "micro_batch_size": 4, "sequence_length": 1024, "padding_free": True, **train}
    phases = estimate({"model": MISTRAL, "task": "train", "train": settings}).phases
    return next(phase.bytes for phase in phases if phase.name == "evaluation")


def test_the_answer_says_what_attention_gets() -> None:
    train = {"micro_batch_size": 4, "sequence_length": 1024, "padding_free": True}
    notes = estimate({"model": MISTRAL, "task": "train", "train": train}).notes
    assert any("a mask of 1 × 4,096 × 4,096 entries; SDPA's flash kernel takes none" in note for note in notes)


def test_gemma_2_runs_with_flash_attention() -> None:
    """flash-attn caps scores itself; SDPA cannot, so that eager attention runs where none is asked for."""
    config = MISTRAL | {"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512}
    scores = LAYERS * HEADS * 4 * 1024**2 * 2
    with pytest.raises(ScenarioError, match="transformers has no SDPA for gemma2: it runs flash or eager"):
        kept(config, attention="sdpa")
    assert kept(config, attention="eager") > kept(config, attention="flash") + 3 * scores
