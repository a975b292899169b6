"""Types whose code is not in transformers: the same tensors as an architecture that is, and saved bytes like its."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from how_many import a_family
from hypothesis import given
from remote_code_pairs import PAIRS, deepseek_vl
from transformers_models import model_config, parameter_table, real_model

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.autograd.tape import Tape
from vramwise.models.builder import BlockBuilder
from vramwise.models.execution import Execution
from vramwise.models.lowering import Lowering
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.mixers import LocalizedFiltering
from vramwise.models.step import record_forward
from vramwise.sources import resolve

_QKV = re.compile(r"[qkv]_proj\.|query_key_value\.|W_pack\.|c_attn\.|wqkv\.")


def tensors(shapes: dict[str, tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """How many parameters there are of each shape, those of q, k and v of one layer joined into one."""
    joined: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        key = _QKV.sub("qkv.", name)
        rows = joined[key][0] if key in joined else 0
        joined[key] = (rows + shape[0], *shape[1:])
    return Counter(joined.values())


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_tensors_are_those_of_an_equal_architecture(name: str) -> None:
    @a_family(12)
    @given(PAIRS[name]())
    def same(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        config, equal = pair
        described = describe(config)
        completed = {**model_config(equal).to_dict(), "model_type": equal["model_type"]}
        shapes, ties = parameter_table(real_model(completed, describe(completed).head))
        own = {parameter.name: parameter.shape for parameter in described.parameters}
        assert tensors(own) == tensors({name: shape for name, shape in shapes.items() if name not in ties})
        assert [c.elements_per_token for c in described.caches] == [
            c.elements_per_token for c in describe(completed).caches
        ]

    same()


TEXT = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.oracle
def test_two_towers_are_those_of_an_equal_architecture() -> None:
    """DeepSeek-VL 7B's own code has two norms more, which nothing reads."""
    config, equal = deepseek_vl(TEXT, high={"model_name": "sam_b_downsample", "image_size": 1024})
    shapes, _ = parameter_table(real_model(equal, "causal-lm"))
    own = {parameter.name: parameter.shape for parameter in describe(config).parameters}
    assert tensors(own) - tensors(shapes) == Counter({(1024,): 4})
    assert not tensors(shapes) - tensors(own)


def test_janus_makes_images_with_parts_of_its_own() -> None:
    """Janus-Pro 1B's sizes: tokenizer, embeddings, aligner and head are those of transformers' class's defaults."""
    config, _ = deepseek_vl(TEXT)
    parts = {
        "gen_vision_config": {"params": {"n_embed": 8, "image_token_size": 16_384}},
        "gen_aligner_config": {"params": {"n_embed": 2048, "depth": 2}},
        "gen_head_config": {"params": {"image_token_embed": 2048}},
    }
    added = describe({**config, **parts}).num_parameters - describe(config).num_parameters
    shapes, _ = parameter_table(real_model({"model_type": "janus"}, "causal-lm"))
    making = [shape for name, shape in shapes.items() if name.startswith(("model.vqmodel", "model.generation_"))]
    assert added == sum(torch.Size(shape).numel() for shape in making)


def saved_bytes(config: dict[str, Any], attention: Any) -> int:
    execution = Execution(attention=attention)
    forward = record_forward(describe(config), execution, batch=2, sequence=64)
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=2, sequence=64))
    return total


LLAMA = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 100, "tie_word_embeddings": False,
}  # fmt: skip
OF_LLAMA_S_SHAPE = {
    "baichuan": {"architectures": ["BaiChuanForCausalLM"]}, "deepseek": {}, "internlm": {"bias": False},
    "internlm2": {"bias": False}, "minicpm": {},
}  # fmt: skip
FUSED = frozenset({"baichuan", "internlm2"})


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flash"])
@pytest.mark.parametrize("model_type", sorted(OF_LLAMA_S_SHAPE))
def test_saved_bytes_are_llama_s(model_type: str, attention: str) -> None:
    """Where the value is a view of the product of all three, it keeps twice its size more alive."""
    llama = saved_bytes({"model_type": "llama", **LLAMA}, attention)
    own = saved_bytes({"model_type": model_type, **LLAMA, **OF_LLAMA_S_SHAPE[model_type]}, attention)
    kept_along = 2 * (2 * 64) * 2 * 64 * 2 if model_type in FUSED and attention != "eager" else 0
    assert own == llama + kept_along


def test_alibi_of_baichuan_13b_keeps_no_rotary_products() -> None:
    wide = {"model_type": "baichuan", **LLAMA}
    turned = {**wide, "architectures": ["BaiChuanForCausalLM"]}
    kinds = {type(op) for block in describe(wide).blocks for op in block.ops}
    assert Rotary not in kinds
    assert Rotary in {type(op) for block in describe(turned).blocks for op in block.ops}


def test_deepseek_has_dense_layers_first_and_shared_experts() -> None:
    """Closed form: a dense layer is Llama's; a sparse one has a router, routed and shared experts in place of it."""
    config = {
        "model_type": "deepseek", **LLAMA, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2,
        "moe_intermediate_size": 24, "first_k_dense_replace": 1,
    }  # fmt: skip
    dense = describe({"model_type": "llama", **LLAMA}).num_parameters
    sparse = 8 * 64 + 3 * 64 * 24 * (8 + 2)
    model = describe(config)
    assert model.num_parameters == dense - 3 * 64 * 160 + sparse
    assert model.num_active_parameters == model.num_parameters - 3 * 64 * 24 * 6


def test_chatglm_6b_as_a_fine_tuning_log_counts_it() -> None:
    """CSHaitao/LexiLaw, README: with the last five layers trainable, PEFT printed 1006899200 of 6173286400."""
    model = describe(resolve("THUDM/chatglm-6b").config)
    layers = [sum(parameter.numel for parameter in block.parameters) for block in model.layers()]
    assert (sum(layers[-5:]), model.num_parameters) == (1_006_899_200, 6_173_286_400)
    assert model.num_parameters * 2 / 2**30 == pytest.approx(11.5, abs=0.01)


def test_nemotron_nas_leaves_halves_out_or_makes_them_one_matrix() -> None:
    whole = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 3.0}}
    config = {**LLAMA, "model_type": "nemotron-nas", "block_configs": [whole, whole]}

    def change(second: dict[str, Any]) -> int:
        return (
            describe({**config, "block_configs": [whole, {**whole, **second}]}).num_parameters
            - describe(config).num_parameters
        )

    attention, inner = 64 * (64 + 2 * 32 + 64), 3 * 64 * 256
    assert change({"attention": {"no_op": True}}) == -attention - 64
    assert change({"attention": {"replace_with_linear": True}}) == -attention + 64 * 64
    assert change({"ffn": {"no_op": True}}) == -inner - 64
    assert change({"ffn": {"replace_with_linear": True}}) == -inner + 64 * 64
    assert change({"ffn": {"ffn_mult": 6.1}}) == inner  # 260 rounded up to 512
    none = describe({**config, "block_configs": [whole, {"attention": {"no_op": True}, "ffn": {"no_op": True}}]})
    assert (none.num_layers, len(none.caches)) == (2, 1)
    one = {**config, "num_hidden_layers": 1, "block_configs": [whole]}
    assert saved_bytes({**config, "block_configs": none.config.values["block_configs"]}, "sdpa") == saved_bytes(
        one, "sdpa"
    )


def test_yuan_adds_two_convolutions_and_a_norm_to_llama() -> None:
    filtering = 2 * (2 * 64 * 32) + 32 + 64 + 64
    yuan = describe({**LLAMA, "model_type": "yuan"})
    assert yuan.num_parameters - describe({**LLAMA, "model_type": "llama"}).num_parameters == 2 * filtering
    assert {cache.kind for cache in yuan.caches} == {"recurrent", "full"}
    shared = describe({**LLAMA, "model_type": "yuan", "use_shareqk": True})
    assert yuan.num_parameters - shared.num_parameters == 2 * (filtering + 64 * 64 - 4 * 64)
    # The paper (arXiv 2311.15786) calls the model 2.1B.
    assert describe(resolve("IEITYuan/Yuan2-2B").config).num_parameters == 2_088_724_480


def test_yuan_s_convolutions_keep_what_torch_keeps() -> None:
    """The input and the first one's result, one row longer than the sequence."""
    batch, sequence, width = 2, 6, 8
    first = torch.nn.Conv2d(width, width // 2, (2, 1), padding=(1, 0))
    second = torch.nn.Conv2d(width // 2, width, (2, 1), padding=(1, 0))
    parameters = {p.untyped_storage()._cdata for p in (*first.parameters(), *second.parameters())}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.zeros(batch, sequence, width, requires_grad=True) * 2
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        h = x.transpose(0, 1).view(sequence, 1, batch, width).permute(2, 3, 0, 1)
        second(first(h)[:, :, :sequence])[:, :, :sequence].permute(2, 3, 0, 1).contiguous()
    b = BlockBuilder("")
    weights = [
        b.parameter("", name, shape)
        for name, shape in (("1", (4, 8, 2, 1)), ("2", (4,)), ("3", (8, 4, 2, 1)), ("4", (8,)))
    ]
    b.unary(LocalizedFiltering(), b.input("hidden", width), "", weights)
    tape = Tape(device="cpu", autocast=None)
    run = Lowering(tape, Execution(param_dtype="fp32"), batch, sequence, frozenset())
    run.streams["hidden"] = tape.new((batch, sequence, width), "fp32", requires_grad=True)
    run.run(b.build())
    own = sum(evaluate(storage.nbytes, {}) for storage in tape.saved if storage.kind == "activation")
    assert own == sum(nbytes for storage, nbytes in kept.items() if storage not in parameters)


def test_other_names_of_a_type() -> None:
    """A copy of DeepSeek V4 under a name of its own, and MiniCPM 3, whose config names only its class."""
    copy, original = (
        describe(resolve(name).config)
        for name in ("sgl-project/DeepSeek-V4-Flash-FP8", "deepseek-ai/DeepSeek-V4-Flash")
    )
    assert copy.all_parameters == original.all_parameters
    assert copy.caches == original.caches
    assert describe(resolve("openbmb/MiniCPM3-4B").config).num_parameters == 4_073_875_968


def test_a_prefix_of_chatglm_is_refused() -> None:
    with pytest.raises(SourceError, match="pre_seq_len"):
        describe({"model_type": "chatglm", "pre_seq_len": 128})


def named(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {parameter.name: parameter.shape for parameter in describe(config).parameters}


def test_step_3_5_is_step_3_7_without_its_images() -> None:
    """The keys of both configuration classes; layers of further tokens are behind those that are counted."""
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    sizes = {
        "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8,
        "moe_intermediate_size": 6, "share_expert_dim": 10, "sliding_window": 4, "vocab_size": 40,
    }  # fmt: skip
    given = {
        "model_type": "step3p5", **sizes, "num_attention_groups": 2, "moe_num_experts": 4, "moe_top_k": 2,
        "moe_layers_enum": "1,2,3", "attention_other_setting": {"num_attention_heads": 6},
        "layer_types": [*kinds, "full_attention"],
    }  # fmt: skip
    text = {
        "model_type": "step3p5", **sizes, "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "mlp_layer_types": ["dense", "sparse", "sparse"], "num_sliding_attention_heads": 6, "layer_types": kinds,
    }  # fmt: skip
    shapes, _ = parameter_table(real_model({"model_type": "step3p7", "text_config": text}, "causal-lm"))
    inside = "model.language_model."
    equal = {
        name.replace(inside, "model."): shape for name, shape in shapes.items() if name.startswith((inside, "lm_head"))
    }
    assert named(given) == equal
    with pytest.raises(SourceError, match="moe_layers_enum: expected the numbers of layers"):
        describe({**given, "moe_layers_enum": "a,b"})


def test_step_3_has_one_key_for_all_heads_and_narrow_queries() -> None:
    """Closed form; stepfun-ai/step3 has 316 B parameters in its language model, 38 B of which a token reads."""
    config = {
        "model_type": "step3_text", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 8,
        "share_q_dim": 12, "moe_layers_enum": [], "intermediate_size": 20, "vocab_size": 50,
    }  # fmt: skip
    attention = 32 * 12 + 12 + 12 * 32 + 2 * 32 * 8 + 32 * 32
    model = describe(config)
    assert model.num_parameters == 2 * 50 * 32 + attention + 3 * 32 * 20 + 3 * 32
    assert [cache.elements_per_token for cache in model.caches] == [16]
    whole = describe({"model_type": "step3_text"})
    assert (round(whole.num_parameters / 1e9), round(whole.num_active_parameters / 1e9)) == (316, 39)
    with pytest.raises(SourceError, match="one key-value head"):
        describe({**config, "num_attention_groups": 2})


def test_linear_layers_of_ling_keep_a_state_that_does_not_grow() -> None:
    """Closed form of inclusionAI/Ring-V2.5: all but every third layer, and those that fill no whole group."""
    config = {
        "model_type": "bailing_moe_linear", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "num_experts": 8, "n_group": 2, "topk_group": 1, "layer_group_size": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 6, "intermediate_size": 20, "vocab_size": 50,
    }  # fmt: skip
    model = describe(config)
    assert [cache.kind for cache in model.caches] == ["recurrent", "recurrent", "full", "full"]
    assert model.caches[0].elements_per_sequence == 4 * 8 * 8
    dense = describe({**config, "model_type": "bailing_moe_v2"})
    linear, grouped = (3 + 2) * 32 * 32 + 2 * 8 + 32, (4 + 4 + 4) * 8 * 32 + 2 * 8
    assert model.num_parameters - dense.num_parameters == 2 * (linear - grouped)
    latent = {"kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    assert [cache.kind for cache in describe({**config, **latent}).caches] == [*["recurrent"] * 2, *["latent"] * 2]
    with_biases = {**config, **latent, "q_lora_rank": 12}
    added = describe({**with_biases, "use_qkv_bias": True}).num_parameters - describe(with_biases).num_parameters
    assert added == 2 * 3 * 32 + 2 * (12 + 16 + 4 + 32)


OCR = {
    "model_type": "deepseek_vl_v2", "language_config": {
        "first_k_dense_replace": 1, "hidden_size": 1280, "intermediate_size": 6848, "max_position_embeddings": 8192,
        "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 10,
        "num_experts_per_tok": 6, "num_hidden_layers": 12, "num_key_value_heads": 10, "use_mla": False,
        "vocab_size": 129_280,
    },
}  # fmt: skip
LING_LITE = {
    "model_type": "bailing_moe", "vocab_size": 126_464, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4, "num_experts": 64,
    "num_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "use_bias": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "published", "not_parameters"),
    [
        pytest.param({"model_type": "exaone"}, 7_818_448_896, 0, id="LGAI-EXAONE/EXAONE-Deep-7.8B"),
        pytest.param({"model_type": "sarvam_moe"}, 32_152_650_368, 18 * 128, id="sarvamai/sarvam-30b"),
        pytest.param(
            {**OCR, "architectures": ["DeepseekOCRForCausalLM"]}, 3_336_106_240, 0, id="deepseek-ai/DeepSeek-OCR"
        ),
        pytest.param(
            {**OCR, "architectures": ["DeepseekOCR2ForCausalLM"]}, 3_389_119_360, 0, id="deepseek-ai/DeepSeek-OCR-2"
        ),
        pytest.param(LING_LITE, 16_801_974_272, 0, id="inclusionAI/Ling-lite"),
    ],
)
def test_totals_are_those_of_published_files(config: dict[str, Any], published: int, not_parameters: int) -> None:
    """Counts of tetrabit/llmfit@82b3e1c411a6:data/hf_models.json; numbers that correct routers are buffers here."""
    assert describe(config).num_parameters + not_parameters == published


def test_phi4mm_with_its_adapters_has_the_published_count() -> None:
    """Headers of microsoft/Phi-4-multimodal-instruct: adapters of rank 256 and 320 on four layers of every block."""
    text = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24,
            "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True}  # fmt: skip
    adapters = {"vision_lora": {"r": 256}, "speech_lora": {"r": 320}}
    model = describe({"model_type": "phi4mm", **text, **adapters})
    queries, keys, wide = 3072, 2 * 8 * 128, 8192
    sides = (queries + queries + keys) + (queries + queries) + (queries + 2 * wide) + (wide + queries)
    assert model.num_parameters + 32 * (256 + 320) * sides == 5_574_460_224
    assert model.not_counted == "the checkpoint's own adapters (vision_lora, speech_lora; 830,472,192 parameters)"
    said = estimate({"model": "phi-4-multimodal-instruct", "task": "generate"}).notes
    assert f"not counted: {model.not_counted}" in said
