"""What autograd keeps equals the real modules', byte for byte, on CPU tensors and on fake CUDA tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from fake_cuda import available, saved_on_fake_cuda
from how_many import a_family, ways
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from newer_types import installed
from saved_by_autograd import saved_by_autograd
from transformers_models import model_config

from by_turns import has_turn, is_thorough
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.step import record_forward

if TYPE_CHECKING:
    from warm_python import WarmPython

# Types whose forward pass is data-dependent, needs packages that are absent, or has no text-only loss here.
NOT_RUN = {
    **dict.fromkeys(("owlv2", "owlvit", "sam", "sam2"), "training on images with prompts is not described"),
    **dict.fromkeys(("depth_anything", "segformer", "vitpose"), "training on maps of an image is not described"),
    **dict.fromkeys(("dac", "encodec", "mimi", "xcodec"), "training on sound is not described"),
    **dict.fromkeys(("bark", "speecht5"), "training on sound is not described"),
    **dict.fromkeys(("patchtst", "timesfm", "timesfm2_5"), "training on series of numbers is not described"),
    "csm": "training on codes of sound is not described",
    "evolla": "training beside a protein is not described",
    "dinov2_with_registers": "training with registers is not described",
    "dinov3_vit": "training with registers and places that turn is not described",
    "blip-2": "no loss without images, whose training is not described",
    "instructblip": "no loss without images, whose training is not described",
    "instructblipvideo": "no loss without images, whose training is not described",
    "colpali": "has no loss of its own",
    "colqwen2": "has no loss of its own",
    "shieldgemma2": "has no loss of its own",
    "voxtral_realtime": "training with scales by the delay is not described",
    "convnext": "training with convolutions by channel is not described",
    "convnextv2": "training with convolutions by channel is not described",
    "siglip2": "training on patches of images of several sizes is not described",
    "blt": "the text decides: held against the class for every number of patches in test_byte_patches.py",
    "qwen2_5_omni": "the class has no forward pass of its own; its thinker is a type of its own",
    "qwen3_omni_moe": "the class has no forward pass of its own; its thinker is a type of its own",
    "git": "no loss without images: held against the class in test_saved_with_images.py",
    "mamba": "held against the recorded rows (slow pure-PyTorch scan)",
    "mamba2": "held against the recorded rows (slow pure-PyTorch scan)",
    "musicgen": "labels have an axis more: held against the class in test_musicgen.py",
    "musicgen_melody": "labels have an axis more: held against the class in test_musicgen.py",
    "hubert": "training on sound is not described",
    "parakeet_ctc": "training on sound is not described",
    "wav2vec2": "training on sound is not described",
    "reformer": "its layers are computed backwards from their results, hashed attention by random buckets",
    "switch_transformers": "tokens go to experts by their data: test_capped_experts.py",
}
TYPES = sorted(set(STRATEGIES) - set(NOT_RUN))
EAGER_ONLY = frozenset(
    {
        "cpmant",
        "deberta",
        "deberta-v2",
        "big_bird",
        "bigbird_pegasus",
        "bloom",
        "codegen",
        "deepseek_v4",
        "falcon_mamba",
        "flint",
        "gemma2",
        "gemma4",
        "gemma4_unified",
        "got_ocr2",
        "gpt_neo",
        "gpt_neox_japanese",
        "gpt_oss",
        "gptj",
        "granite_swa",
        "granitemoe_swa",
        "hy_v4",
        "hy_v4_vl",
        "inkling2",
        "inkling2_text",
        "led",
        "longt5",
        "megatron-bert",
        "mimo_v2_flash",
        "mpnet",
        "mpt",
        "mvp",
        "openai-gpt",
        "paligemma",
        "prophetnet",
        "rembert",
        "roformer",
        "rwkv",
        "trocr",
        "vaultgemma",
        "xglm",
        "xlm",
        "xlnet",
        "xlstm",
    }
)
PRECISIONS = ("fp32", "bf16", "bf16-mixed")
# DBRX and X-MOD write bf16 rows into an fp32 tensor under autocast, which torch refuses; DeBERTa 1 fills bf16 scores
# with the least fp32; Step 3.7 casts the weights of
# the experts that are used, which here depends on the data (test_step.py uses all of them).
NO_AUTOCAST = frozenset({"dbrx", "deberta", "step3p7", "xmod"})
# Its router multiplies by a weight that only a loaded checkpoint keeps in fp32; a class made in bf16 does not run.
# xLSTM's states are in fp32 whatever its queries are in, and products refuse both.
NO_BF16 = frozenset({"inkling2", "inkling2_text", "xlstm"})
# Their classes look at values, which fake tensors do not have: image tokens' ids, languages, experts chosen,
# positions of packed sequences, whether a token attends globally.
DATA_DEPENDENT = frozenset({
    "deepseek_vl", "florence2", "gemma3", "gemma4", "gemma4_unified", "glm5_next", "kimi_k25", "led", "lfm2_vl",
    "llava", "llava_next", "llava_next_video", "llava_onevision", "modernbert", "modernbert-decoder", "paligemma",
    "phi4_multimodal", "prophetnet", "qianfan_ocr", "step3p7", "xlm", "xmod",
})  # fmt: skip
# `F.rms_norm` is one kernel on CUDA; a CPU build has none for fake tensors and composes it from others.
KERNEL_ABSENT = frozenset({"diffllama"})
FAKE_CUDA_PARTS = 2
"""Processes of their own, which several workers can run beside one another."""


def completed(config: dict[str, Any]) -> dict[str, Any]:
    return {**model_config(config).to_dict(), "model_type": config["model_type"]}


def has_experts(config: dict[str, Any]) -> bool:
    """Grouped expert products take only bf16 operands of one dtype; transformers itself refuses others on CUDA."""
    return any(True for _ in describe(config).operations(ExpertMlps))


def described_bytes(
    config: dict[str, Any], attention: Any, precision: str, batch: int, sequence: int, device: Any,
    source: int | None = None,
) -> int:  # fmt: skip
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32",
        autocast="bf16" if precision == "bf16-mixed" else None,
        attention=attention,
        device=device,
    )
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence, source=source)
    axes = {"batch": batch, "sequence": sequence} | ({} if source is None else {"source": source})
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(**axes))
    return total


def precisions_of(model_type: str) -> tuple[str, ...]:
    """The precisions in which the class itself runs."""
    refused = {"bf16-mixed": NO_AUTOCAST, "bf16": NO_BF16}
    return tuple(precision for precision in PRECISIONS if model_type not in refused.get(precision, ()))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("model_type", "precision"),
    [(model_type, precision) for model_type in TYPES for precision in ways(precisions_of(model_type), model_type)],
)
def test_small_configs_on_cpu(model_type: str, precision: str) -> None:
    attentions = ["eager"] if model_type in EAGER_ONLY else ["eager", "sdpa"]

    @a_family(3 if has_turn(model_type, 2, turn=1) else 2)
    @given(STRATEGIES[model_type](), st.sampled_from(attentions), st.integers(1, 3), st.integers(1, 9))
    def same(config: dict[str, Any], attention: str, batch: int, sequence: int) -> None:
        config = completed(config)
        head = describe(config).head
        assume(head != "none")
        real = saved_by_autograd(
            config,
            head,
            attention=attention,
            precision=precision,
            batch=batch,
            sequence=sequence,
            device="cpu",
        )
        assert described_bytes(config, attention, precision, batch, sequence, "cpu") == real

    same()


def drawn_configs(model_type: str, count: int) -> list[dict[str, Any]]:
    """The first configs that hypothesis makes from a fixed seed."""
    configs: list[dict[str, Any]] = []

    @seed(2026)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[model_type]())
    def collect(config: dict[str, Any]) -> None:
        configs.append(completed(config))

    collect()
    return configs


@pytest.mark.oracle
@pytest.mark.skipif(not available(), reason="the no-op CUDA guard is installed with x86-64 or arm64 code on Linux")
@pytest.mark.parametrize("part", range(FAKE_CUDA_PARTS))
def test_small_configs_on_fake_cuda_tensors(part: int, warm_python: WarmPython) -> None:
    """Eager attention under the CUDA rules: fused dropout, CUDA autocast lists, fp32 norm statistics."""
    jobs = [
        {
            "config": config,
            "head": describe(config).head,
            "attention": "eager",
            "precision": precision,
            "batch": 1 + index % 3,
            "sequence": 2 + index % 5,
        }
        for model_type in installed(set(TYPES) - DATA_DEPENDENT - KERNEL_ABSENT)[part::FAKE_CUDA_PARTS]
        for index, config in enumerate(drawn_configs(model_type, 3 if is_thorough() else 1))
        if not has_experts(config) and describe(config).head != "none"
        # Fake CUDA tensors give one head strides that real kernels do not.
        if config.get("linear_num_value_heads") != 1
        for precision in ways(precisions_of(model_type), model_type, turn=1)
    ]
    wrong = []
    for job, real in zip(jobs, saved_on_fake_cuda(jobs, warm_python), strict=True):
        own = described_bytes(job["config"], "eager", job["precision"], job["batch"], job["sequence"], "cuda")
        if own != real:
            wrong.append((job["config"]["model_type"], job["precision"], own, real))
    assert not wrong
