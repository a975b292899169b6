"""The reproduced tables against accelerate's own functions and the figures that were published."""

from __future__ import annotations

import pytest

from vramwise.interop.huggingface_buffers import loads_with
from vramwise.interop.huggingface_calculator import calculator
from vramwise.models import describe

SMALL = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DENSE = {**SMALL, "intermediate_size": 128, "max_position_embeddings": 256}
GROUPED = {**DENSE, "num_key_value_heads": 2}
HEADS_16 = {**GROUPED, "head_dim": 16}
GPT = {"vocab_size": 1000, "n_embd": 64, "n_layer": 2, "n_head": 4}
LATENT = {
    **DENSE, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 2, "topk_group": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 16,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip
CONFIGS = {
    "bert": DENSE,
    "roberta": DENSE,
    "distilbert": {"vocab_size": 1000, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
    "biogpt": DENSE,
    "bloom": {"vocab_size": 1000, "hidden_size": 64, "n_layer": 2, "n_head": 4},
    "deepseek_v3": LATENT,
    "falcon": SMALL,
    "gemma": HEADS_16,
    "gemma2": HEADS_16,
    "gemma3_text": HEADS_16,
    "gpt2": GPT,
    "gpt_neox": DENSE,
    "gpt_oss": {**HEADS_16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gptj": {**GPT, "rotary_dim": 8},
    "llama": DENSE,
    "mistral": GROUPED,
    "mixtral": {**GROUPED, "num_local_experts": 4},
    "opt": {**SMALL, "ffn_dim": 128, "word_embed_proj_dim": 32},
    "phi": DENSE,
    "phi3": {**GROUPED, "pad_token_id": 0},
    "qwen2": GROUPED,
    "qwen3": HEADS_16,
}
LLAMA_2_7B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", CONFIGS)
def test_sizes_are_those_of_accelerate(model_type, tied):
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    values = {**CONFIGS[model_type], "tie_word_embeddings": tied}
    with accelerate.init_empty_weights():
        real = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(model_type, **values), dtype=torch.float32
        )
    total, (largest, _) = accelerate.utils.calculate_maximum_sizes(real)
    fp32 = calculator(describe({"model_type": model_type, **values}), "5").rows[0]
    assert (fp32.total_bytes, fp32.largest_layer_bytes) == (total, largest)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_stages_are_those_of_accelerate(dtype):
    pytest.importorskip("torch")
    estimate = pytest.importorskip("accelerate.commands.estimate")
    tables = calculator(describe({"model_type": "llama", **DENSE}))
    theirs = estimate.estimate_training_usage(int(tables.rows[0].total_bytes), dtype)
    ours = next(stages for name, stages in tables.stages.items() if dtype in name)
    assert (ours.model, ours.gradient_calculation, ours.backward_pass, ours.optimizer_step) == (
        theirs["model"], theirs["gradients"], theirs["optimizer"], theirs["step"],
    )  # fmt: skip


def test_bert_is_counted_as_accelerates_own_test_has_it():
    """accelerate tests/test_cli.py: bert-base-cased, largest layer and total size."""
    bert = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
            "intermediate_size": 3072, "vocab_size": 28996}  # fmt: skip
    fp32 = calculator(describe(bert)).rows[0]
    assert (fp32.largest_layer_bytes, fp32.total_bytes) == (90_669_056, 433_249_280)


def test_old_releases_held_rotary_tables_in_every_layer():
    llama = describe(LLAMA_2_7B)
    old, new = calculator(llama, "4.37"), calculator(llama, "5")
    assert old.buffer_bytes == 32 * (2 * 4096 * 128 + 64) * 4
    assert new.buffer_bytes == 2 * 64 * 4
    assert old.rows[0].largest_layer_bytes - new.rows[0].largest_layer_bytes == old.buffer_bytes / 32


def test_old_releases_held_a_triangle_in_every_layer_of_gpt2():
    model = describe({"model_type": "gpt2", **GPT, "n_positions": 128})
    assert calculator(model, "4.37").buffer_bytes == 2 * (128 * 128 + 4)
    assert calculator(model, "5").buffer_bytes == 0


@pytest.mark.parametrize(
    ("values", "loads"),
    [
        ({}, True),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, True),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, False),
        ({"model_type": "qwen3", "head_dim": 128}, False),
    ],
)
def test_a_model_that_an_old_release_cannot_load_is_counted_with_todays(values, loads):
    model = describe({**LLAMA_2_7B, **values})
    assert loads_with(model, "4.37") is loads
    assert calculator(model).transformers == ("4.37" if loads else "5")


def test_a_bare_bert_stays_as_it_is():
    bare = describe({"model_type": "bert", **DENSE, "architectures": ["BertModel"]})
    tables = calculator(bare)
    assert tables.base_parameters == tables.true_parameters == bare.num_parameters
