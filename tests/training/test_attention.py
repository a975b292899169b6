"""The attention of the header is the one that is counted; what a class does not have is refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from described_types import small_model

from by_turns import has_turn
from vramwise import estimate
from vramwise.errors import ScenarioError, UnsupportedModelError
from vramwise.frameworks.attention import kinds_within, types_without
from vramwise.frameworks.versions import described
from vramwise.models import describe, supported_types
from vramwise.models.autograd import evaluate, terms_of, with_rounded_axes
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, record_forward
from vramwise.scenario import Scenario
from vramwise.training.answer import Job, job_of
from vramwise.training.recipe.settings import execution

ATTENTIONS = ("sdpa", "flash", "eager", "flex")
DESCRIBED = described("transformers")
KERNELS = ("_scaled_dot_product", "flash")
CALLS_SDPA_ITSELF = {"inkling2", "inkling2_text"}
"""Whose layers read bytes through torch's kernel, whatever attention is chosen."""
SDPA_DISPATCHES_TO_MATH = {"falcon", "inkling_text"}
"""Biases with a gradient, or heads that no kernel takes: SDPA keeps scores, too."""
BIASED_BY_POSITION = {"doge", "inkling_text", "mt5", "musicgen", "musicgen_melody", "t5", "umt5"}
"""A bias for each pair of positions, which flex attention takes; or a text encoder with one."""


def job(model: Model, **train: Any) -> Job:
    return job_of(Scenario.from_dict({"model": "x", "task": "train", "train": train}), model, None)


def text_layers(model: Model, **train: Any) -> tuple[str, list[BlockRun]]:
    """The attention that the settings are said to run, and the recorded layers of text."""
    made = job(model, precision="bf16", **train)
    forward = record_forward(made.model, execution(made.structure, made.model), batch=2, sequence=8192)
    layers = {id(run): run for run in forward.runs if run.layer is not None and run.modality == "text"}
    return made.train.attention, list(layers.values())


def runs_a_kernel(run: BlockRun) -> bool:
    return any(node.op.startswith(KERNELS) for node in run.nodes)


def keeps_scores(run: BlockRun) -> bool:
    """Whether something kept grows with the square of the sequence, not with that of its chunks alone."""
    short, long = (with_rounded_axes(batch=1, sequence=2**n, samples=1) for n in (20, 21))
    squares = (s.nbytes for s, _ in run.saved if any(axes.count("sequence") > 1 for axes in terms_of(s.nbytes)))
    return any(evaluate(size, long) > 3 * evaluate(size, short) for size in squares)


def refused(model: Model, **asked: Any) -> bool:
    """Whether the class does not have the attention; the tables say so, but for Falcon with ALiBi."""
    if "attention" not in asked:
        return False
    if model.config.model_type == "falcon" and asked["attention"] == "flash":
        return model.config.flag("alibi")
    name = asked["attention"]
    return name != "eager" and not types_without(name, DESCRIBED).isdisjoint(kinds_within(model.config.values))


@pytest.mark.parametrize("model_type", supported_types())
def test_the_attention_that_is_said_is_counted(model_type: str) -> None:
    model = small_model(model_type)
    others = [{"attention": name} for turn, name in enumerate(ATTENTIONS) if has_turn(model_type, 2, turn)]
    for asked in ({}, *others):
        if refused(model, **asked):
            with pytest.raises(ScenarioError, match=r"train\.attention: transformers has no"):
                job(model, **asked)
            continue
        try:
            said, layers = text_layers(model, **asked)
        except UnsupportedModelError:
            return
        if said == "eager":
            assert model_type in CALLS_SDPA_ITSELF or not any(runs_a_kernel(run) for run in layers)
        elif said != "auto" and model_type not in SDPA_DISPATCHES_TO_MATH:
            assert all(runs_a_kernel(run) or not keeps_scores(run) for run in layers), (asked, said)
        if said in ("flash", "flex") and model_type not in BIASED_BY_POSITION:
            assert not any(keeps_scores(run) for run in layers)


@pytest.mark.parametrize("model_type", ["gemma3", "gemma4", "gemma4_unified", "molmo2", "paligemma"])
def test_classes_with_towers_lose_flash_attention_in_transformers_5_24(model_type: str) -> None:
    """It drops the mask that lets image tokens see one another; the text alone keeps it."""
    model = small_model(model_type)
    asked = {"attention": "flash", "framework": "transformers"}
    job(model, framework_version="transformers 5.23", **asked)
    with pytest.raises(ScenarioError, match=rf"has no flash attention for {model_type}: it runs (sdpa or )?eager"):
        job(model, framework_version="transformers 5.24", **asked)
    job(small_model("gemma3_text"), framework_version="transformers 5.24", **asked)


@pytest.mark.oracle
def test_classes_have_the_kernels_that_the_tables_say() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.auto import modeling_auto as auto

    mappings = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    )  # fmt: skip
    sdpa, flash, flex, known = set(), set(), set(), set()
    for model_type in supported_types():
        name = next((mapping[model_type] for mapping in mappings if model_type in mapping), None)
        if name is None:
            continue
        known.add(model_type)
        made = getattr(transformers, name if isinstance(name, str) else name[0])
        sdpa |= set() if made._supports_sdpa else {model_type}
        flash |= set() if made._supports_flash_attn else {model_type}
        flex |= set() if made._supports_flex_attn else {model_type}
    version = tuple(int(piece) for piece in transformers.__version__.split(".")[:2])
    assert sdpa == types_without("sdpa", version) & known
    assert flash == types_without("flash", version) & known
    assert flex == types_without("flex", version) & known


_SMALL = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
_SIGLIP = {"model_type": "siglip_vision_model", **_SMALL}
_T5 = {"model_type": "t5", "num_layers": 1, "d_model": 32, "d_ff": 32, "num_heads": 2, "d_kv": 16}
MADE_OF_OTHERS: list[dict[str, Any]] = [
    {"model_type": "paligemma", "vision_config": _SIGLIP, "text_config": {"model_type": "gemma2", **_SMALL}},
    {"model_type": "paligemma", "vision_config": _SIGLIP, "text_config": {"model_type": "gemma", **_SMALL}},
    {"model_type": "llava", "text_config": {"model_type": "gemma2", **_SMALL}},
    {"model_type": "lfm2_vl", "vision_config": {"model_type": "siglip2_vision_model", **_SMALL},
     "text_config": {"model_type": "lfm2", **_SMALL, "layer_types": ["full_attention"]}},
    {"model_type": "deepseek_vl_hybrid", "vision_config": _SIGLIP, "text_config": {"model_type": "llama", **_SMALL},
     "high_res_vision_config": {"model_type": "sam_vision_model", **_SMALL, "global_attn_indexes": [0]}},
    {"model_type": "musicgen", "text_encoder": _T5, "audio_encoder": {"model_type": "encodec"},
     "decoder": {"model_type": "musicgen_decoder", **_SMALL, "ffn_dim": 32}},
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("config", MADE_OF_OTHERS, ids=lambda config: "-".join(kinds_within(config)))
def test_a_model_made_of_others_has_what_all_of_them_have(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers hands what was asked for to every model inside; flash-attn itself need not be installed."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    modeling = transformers.modeling_utils
    monkeypatch.setattr(transformers.PreTrainedModel, "_flash_attn_import_error", staticmethod(lambda **_: None))
    monkeypatch.setattr(modeling, "lazy_import_flash_attention", lambda *_, **__: None)
    monkeypatch.setattr(modeling, "is_kernels_available", lambda *_, **__: False)
    for asked, name in (("flash_attention_2", "flash"), ("sdpa", "sdpa"), ("flex_attention", "flex")):
        lacking = not types_without(name, DESCRIBED).isdisjoint(kinds_within(config))
        values = {key: dict(value) if isinstance(value, dict) else value for key, value in config.items()}
        made = transformers.CONFIG_MAPPING[values.pop("model_type")](**values)
        mapping = transformers.AutoModelForImageTextToText
        kind = transformers.MusicgenForConditionalGeneration if "decoder" in config else mapping
        with torch.device("meta"), pytest.raises(ValueError, match="does not support") if lacking else nullcontext():
            make = kind._from_config if "decoder" in config else kind.from_config
            make(made, attn_implementation=asked)


def test_paligemma_2_has_no_sdpa_to_ask_for() -> None:
    settings: dict[str, Any] = {"method": "lora", "sequence_length": 512}
    with pytest.raises(ScenarioError, match="no SDPA for gemma2, a part of paligemma: it runs flash or eager"):
        estimate("google/paligemma2-3b-pt-448", task="train", train={**settings, "attention": "sdpa"})
    found = estimate("google/paligemma2-3b-pt-448", task="train", train=settings)
    assert found.scenario["train"]["attention"] == "auto"  # the tower runs SDPA, the text eager attention
    assert estimate(found.scenario).quantities == found.quantities
    estimate("google/paligemma-3b-mix-224", task="train", train={**settings, "attention": "sdpa"})


@pytest.mark.parametrize(
    ("version", "unasked", "asked"),
    [
        ("4.44", "sdpa", "sdpa"),
        ("4.45", "eager", "sdpa"),  # modeling_gemma2.py _check_and_enable_sdpa
        ("4.47", "eager", "sdpa"),
        ("4.48", "sdpa", "sdpa"),
        ("5.20", "sdpa", "sdpa"),
        ("5.21", "eager", None),
    ],
)
def test_gemma_2_has_sdpa_in_some_versions(version: str, unasked: str, asked: str | None) -> None:
    model, settings = small_model("gemma2"), {"framework": "transformers", "framework_version": version}
    assert text_layers(model, **settings)[0] == unasked
    if asked is None:
        with pytest.raises(ScenarioError, match="no SDPA for gemma2"):
            job(model, attention="sdpa", **settings)
        return
    said, layers = text_layers(model, attention="sdpa", **settings)
    assert said == asked
    assert all(runs_a_kernel(run) for run in layers)


@pytest.mark.parametrize(("version", "masks"), [("4.52", {"mask"}), ("4.53", set[str]())])
def test_full_layers_of_gemma_2_are_handed_a_mask_before_transformers_4_53(version: str, masks: set[str]) -> None:
    """Whatever the batch holds (modeling_gemma2.py `_update_causal_mask`): it turns SDPA's flash kernel off."""
    _, layers = text_layers(small_model("gemma2"), framework="transformers", framework_version=version)
    kept = [{s.op for s, _ in run.saved} & {"mask", "where"} for run in layers]
    assert masks in kept
    assert {"where"} in kept  # a layer with a window makes its own


@pytest.mark.parametrize(
    ("model_type", "before", "since"),
    [
        ("codegen", "5.23", "5.24"),
        ("gptj", "5.23", "5.24"),
        ("t5", "5.14", "5.15"),
        ("roberta", "4.44", "4.45"),
        ("gpt2", "4.41", "4.42"),
        ("llama", "4.35", "4.36"),
    ],
)
def test_classes_run_eagerly_until_they_had_sdpa(model_type: str, before: str, since: str) -> None:
    for version, said in ((before, "eager"), (since, "sdpa")):
        settings = {"framework": "transformers", "framework_version": version}
        assert job(small_model(model_type), **settings).train.attention == said


@pytest.mark.parametrize("version", ["4.40", "4.47", "5.14", "5.20", "5.23"])
def test_the_attention_of_an_answer_may_be_asked_for(version: str) -> None:
    """What an answer says is taken as it stands, and decides the same."""
    for turn, model_type in enumerate(supported_types()):
        if not has_turn(f"{model_type} {version}", 4, turn):
            continue
        model, settings = small_model(model_type), {"framework": "transformers", "framework_version": version}
        try:
            said = job(model, **settings).train.attention
        except UnsupportedModelError:
            continue
        assert job(model, attention=said, **settings).train.attention == said, model_type


def needs(**train: Any) -> float:
    return estimate({"model": "gpt-oss-20b", "task": "train", "train": train}).quantities["total_needed"].expected


def test_gpt_oss_under_unsloth_fits_where_it_is_published_to() -> None:
    """unsloth: "gpt-oss-20b fine-tuning fits in 14GB" at 1,024 tokens; memory is linear in the sequence."""
    settings = {"framework": "unsloth", "method": "qlora"}
    assert needs(**settings, sequence_length=1024) < 14 * 2**30
    short, long = needs(**settings, sequence_length=65536), needs(**settings, sequence_length=131072)
    assert long < 2 * short


def test_flash_kernels_with_sinks_keep_no_scores() -> None:
    scores = needs(method="lora", checkpointing="full", sequence_length=16384, attention="eager")
    assert needs(method="lora", checkpointing="full", sequence_length=16384, attention="flash") < scores / 1.5


MPT = {
    "model_type": "mpt", "d_model": 256, "n_heads": 4, "n_layers": 2, "vocab_size": 512, "max_seq_len": 8192,
}  # fmt: skip


@pytest.mark.parametrize(("chosen", "said"), [("flash", "flash"), ("torch", "eager")])
def test_llm_foundrys_blocks_run_what_their_config_says(chosen: str, said: str) -> None:
    model = describe({**MPT, "attn_config": {"attn_impl": chosen, "alibi": True}})
    found, layers = text_layers(model, framework="llm-foundry")
    assert found == said
    assert any(keeps_scores(run) for run in layers) == (said == "eager")


def test_falcons_with_alibi_have_no_flash_attention() -> None:
    config = {
        "model_type": "falcon",
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 512,
    }
    assert job(describe({**config, "alibi": False}), attention="flash").train.attention == "flash"
    with pytest.raises(ScenarioError, match="no flash attention for falcon with ALiBi: it runs sdpa or eager"):
        job(describe({**config, "alibi": True}), attention="flash")


def test_axolotls_flex_attention_is_that_of_classes_without_flash_attention() -> None:
    found, layers = text_layers(small_model("llama4_text"), framework="axolotl", attention="flash")
    assert found == "flex"
    assert not any(keeps_scores(run) for run in layers)


def test_sinks_turn_transformer_engines_flash_attention_off() -> None:
    assert job(small_model("gpt_oss"), framework="megatron", attention="flash").train.attention == "eager"


def test_transformers_refuses_flash_attention_for_mpt() -> None:
    with pytest.raises(ScenarioError, match="transformers has no flash attention for mpt: it runs eager"):
        job(describe(MPT), attention="flash")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "attention", "expected"),
    [
        (8, 8, 64, "sdpa", 4 * 8 * (64 + 1)),
        (8, 2, 64, "sdpa", 4 * 8 * (64 + 1) + 2 * 8 * 2 * 64),
        (8, 2, 64, "flash", 4 * 8 * (64 + 1) + 2 * 8 * 2 * 64),
        (8, 2, 80, "flash", 4 * 8 * (96 + 1) + 2 * 8 * 2 * 80),
        (2, 1, 224, "flash", 4 * 2 * (256 + 1) + 2 * 2 * 2 * 224),
    ],
)
def test_backward_of_a_flash_kernel_takes_gradients_in_fp32_and_those_of_every_head(
    heads: int, kv_heads: int, head_dim: int, attention: str, expected: int
) -> None:
    """flash-attn 2.8 csrc/flash_attn/flash_api.cpp mha_bwd: softmax_d, dq_accum, dk_expanded and dv_expanded."""
    config = {
        "model_type": "llama", "hidden_size": heads * head_dim, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": 64,
    }  # fmt: skip
    _, (layer,) = text_layers(describe(config), attention=attention)
    (node,) = [node for node in layer.nodes if node.op == "_scaled_dot_product_flash_attention"]
    assert node.backward_workspace_bytes is not None
    sizes = with_rounded_axes(batch=2, sequence=128, samples=2)
    assert evaluate(node.backward_workspace_bytes, sizes) == 2 * 128 * expected
    assert sum(evaluate(piece, sizes) for piece in node.backward_pieces) == 2 * 128 * expected
