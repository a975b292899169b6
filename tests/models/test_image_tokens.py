"""Tokens per image equal those that transformers' processors count, for their published settings."""

from __future__ import annotations

import json
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from processor_code import functions
from transformers.image_processing_utils import select_best_resolution
from transformers.models.gemma3n.processing_gemma3n import Gemma3nProcessor
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.llama4.processing_llama4 import Llama4Processor
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.errors import UsageError, VramwiseError
from vramwise.models import Config, describe
from vramwise.models.images import ImageTokens, image_tokens, types_with_rule
from vramwise.sources import resolve
from vramwise.sources.catalog import catalog

sides = st.integers(20, 3000)
sizes = st.tuples(sides, sides)
many = settings(max_examples=60, deadline=None, derandomize=True)


def own(values: dict[str, Any], width: int, height: int) -> ImageTokens:
    found = image_tokens(Config(values), width, height)
    assert found is not None
    return found


def counted(processor: Any, name: str, width: int, height: int, **attributes: Any) -> int:
    """`_get_num_multimodal_tokens` of a processor with these attributes."""
    self = SimpleNamespace(_merge_kwargs=lambda **_: {"images_kwargs": {}}, **attributes)
    for method in ("_get_number_of_features", "_get_unpadded_features"):
        if hasattr(processor, method):
            setattr(self, method, getattr(processor, method).__get__(self))
    data = getattr(processor, name)(self, image_sizes=[(height, width)])
    return int(data.num_image_tokens[0])


@many
@given(sizes, st.sampled_from([("qwen2_vl", 14, 3136, 12_845_056), ("qwen3_vl", 16, 65_536, 16_777_216)]))
def test_qwen(size: tuple[int, int], family: tuple[str, int, int, int]) -> None:
    (width, height), (kind, patch, least, most) = size, family
    code = functions("qwen2_vl/image_processing_qwen2_vl.py", "smart_resize", "get_number_of_image_patches")
    self = SimpleNamespace(size={"shortest_edge": least, "longest_edge": most}, patch_size=patch, merge_size=2)
    patches = code["get_number_of_image_patches"](self, height, width)
    found = own({"model_type": kind, "vision_config": {"patch_size": patch}}, width, height)
    assert (found.patches, found.tokens) == (patches, patches // 4)


@many
@given(sizes, st.sampled_from([("ernie4_5_vl_moe", 56 * 56, 28 * 28 * 6177), ("minimax_m3_vl", 4 * 28 * 28, 451_584)]))
def test_merged_as_qwen(size: tuple[int, int], family: tuple[str, int, int]) -> None:
    (width, height), (kind, least, most) = size, family
    code = functions(f"{kind}/image_processing_{kind}.py", "smart_resize", "get_number_of_image_patches")
    self = SimpleNamespace(size={"shortest_edge": least, "longest_edge": most}, patch_size=14, merge_size=2)
    patches = code["get_number_of_image_patches"](self, height, width)
    found = own({"model_type": kind}, width, height)
    assert (found.patches, found.tokens) == (patches, patches // 4)


def test_more_tokens_than_patches_are_refused() -> None:
    """The class's own default: 14 × 14 patches for 256 tokens."""
    config = {"model_type": "gemma3", "text_config": {}, "vision_config": {"image_size": 224, "patch_size": 16}}
    with pytest.raises(VramwiseError, match=r"mm_tokens_per_image \(256\) is more than the 196 patches"):
        estimate({"model": config, "task": "train", "train": {"images_per_sequence": 1}})


def test_gemma3n() -> None:
    """Squares whose fifth halving leaves 24 places on a side, pooled to what the processor puts into the prompt."""
    published = signature(Gemma3nProcessor.__init__).parameters["image_seq_length"].default
    assert (own({"model_type": "gemma3n"}, 640, 480).tokens, own({"model_type": "gemma3n"}, 9, 9).patches) == (
        published, 24 * 24,
    )  # fmt: skip


@many
@given(sizes)
def test_glm4v(size: tuple[int, int]) -> None:
    width, height = size
    code = functions("glm4v/image_processing_glm4v.py", "smart_resize", "get_number_of_image_patches")
    edges = {"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 15000}
    self = SimpleNamespace(size=edges, patch_size=14, merge_size=2, temporal_patch_size=2)
    patches = code["get_number_of_image_patches"](self, height, width)
    assert {own({"model_type": kind}, width, height).patches for kind in ("glm4v", "glm46v", "glm4v_moe")} == {patches}


@many
@given(sizes, st.sampled_from([(336, 14), (384, 14)]))
def test_llava_next(size: tuple[int, int], tower: tuple[int, int]) -> None:
    (width, height), (side, patch) = size, tower
    points = [[side, 2 * side], [2 * side, side], [2 * side, 2 * side], [3 * side, side], [side, 3 * side]]
    image_processor = SimpleNamespace(size={"shortest_edge": side}, image_grid_pinpoints=points)
    real = counted(
        LlavaNextProcessor, "_get_num_multimodal_tokens", width, height, image_processor=image_processor,
        patch_size=patch, num_additional_image_tokens=1, vision_feature_select_strategy="default",
    )  # fmt: skip
    vision = {"image_size": side, "patch_size": patch}
    found = own({"model_type": "llava_next", "image_grid_pinpoints": points, "vision_config": vision}, width, height)
    assert found.tokens == real
    best = select_best_resolution((height, width), points)
    assert found.patches == (1 + best[0] * best[1] // side**2) * (side // patch) ** 2


@many
@given(sizes, st.integers(1, 9))
def test_llava_onevision(size: tuple[int, int], most: int) -> None:
    width, height = size
    points = [[384 * i, 384 * j] for i in range(1, 7) for j in range(1, 7)]
    image_processor = SimpleNamespace(size={"height": 384, "width": 384}, image_grid_pinpoints=points)
    real = counted(
        LlavaOnevisionProcessor, "_get_num_multimodal_tokens", width, height, image_processor=image_processor,
        num_image_tokens=729, vision_feature_select_strategy="full", vision_aspect_ratio=f"anyres_max_{most}",
    )  # fmt: skip
    values = {"model_type": "llava_onevision", "vision_aspect_ratio": f"anyres_max_{most}", "vision_config": {}}
    assert own(values, width, height).tokens == real
    several = image_tokens(Config(values), width, height, 2)
    assert several is not None
    assert (several.tokens, several.tiles) == (730, 1)


@many
@given(sizes)
def test_internvl(size: tuple[int, int]) -> None:
    width, height = size
    code = functions(
        "got_ocr2/image_processing_got_ocr2.py", "get_all_supported_aspect_ratios", "get_optimal_tiled_canvas",
        "get_number_of_image_patches",
    )  # fmt: skip
    self = SimpleNamespace(min_patches=1, max_patches=12, size={"height": 448, "width": 448}, crop_to_patches=True)
    image_processor = SimpleNamespace(
        get_number_of_image_patches=lambda h, w, _: code["get_number_of_image_patches"](self, h, w)
    )
    real = counted(
        InternVLProcessor, "_get_num_multimodal_tokens", width, height, image_processor=image_processor,
        image_seq_length=256,
    )  # fmt: skip
    vision = {"image_size": [448, 448], "patch_size": [14, 14]}
    assert own({"model_type": "internvl", "vision_config": vision}, width, height).tokens == real


@many
@given(sizes, st.sampled_from([(364, 14, 2), (512, 16, 4)]))
def test_idefics3(size: tuple[int, int], tower: tuple[int, int, int]) -> None:
    (width, height), (side, patch, scale) = size, tower
    code = functions(
        "idefics3/image_processing_idefics3.py", "_resize_output_size_rescale_to_max_len",
        "_resize_output_size_scale_below_upper_bound", "get_number_of_image_patches", MAX_IMAGE_SIZE=4096,
    )  # fmt: skip
    self = SimpleNamespace(
        do_image_splitting=True, max_image_size={"longest_edge": side}, size={"longest_edge": 4 * side}
    )
    image_processor = SimpleNamespace(
        get_number_of_image_patches=lambda h, w, _: code["get_number_of_image_patches"](self, h, w)
    )
    real = counted(
        Idefics3Processor, "_get_num_multimodal_tokens", width, height, image_processor=image_processor,
        image_seq_len=(side // patch) ** 2 // scale**2, tokenizer=lambda *_, **__: {"input_ids": [0]},
    )  # fmt: skip
    vision = {"image_size": side, "patch_size": patch}
    assert own({"model_type": "idefics3", "scale_factor": scale, "vision_config": vision}, width, height).tokens == real


@many
@given(sizes, st.sampled_from([("pixtral", 1024, 16, 1), ("mistral3", 1540, 14, 2)]))
def test_pixtral(size: tuple[int, int], family: tuple[str, int, int, int]) -> None:
    (width, height), (_, longest, patch, merge) = size, family
    code = functions(
        "pixtral/image_processing_pixtral.py", "_num_image_tokens", "get_resize_output_image_size",
        get_image_size=lambda *_: (height, width),
    )  # fmt: skip
    unit = patch * merge
    high, wide = code["get_resize_output_image_size"](None, (longest, longest), (unit, unit))
    values = {
        "model_type": "mistral3", "spatial_merge_size": merge,
        "vision_config": {"image_size": longest, "patch_size": patch},
    }  # fmt: skip
    assert own(values, width, height).tokens == (wide // unit + 1) * (high // unit)
    if merge == 1:  # Pixtral 12B's class is LLaVA's
        tower = {"model_type": "pixtral", "image_size": longest, "patch_size": patch}
        of_llava = {"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": tower}
        assert own(of_llava, width, height).tokens == own(values, width, height).tokens


@many
@given(sizes)
def test_llama4(size: tuple[int, int]) -> None:
    width, height = size
    import torch

    code = functions(
        "llama4/image_processing_llama4.py", "get_factors", "find_supported_resolutions", "get_best_fit"
    )  # fmt: skip
    choices = torch.tensor(code["find_supported_resolutions"](16, SimpleNamespace(height=336, width=336)))
    best = code["get_best_fit"]((height, width), choices)
    text = Llama4Processor._prompt_split_image(
        SimpleNamespace(), (int(best[0]) // 336, int(best[1]) // 336), 144
    )  # fmt: skip
    vision = {"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5}
    found = own({"model_type": "llama4", "vision_config": vision}, width, height)
    assert found.tokens == text.count("<|")
    # Llama4VisionModel.num_patches: (336 // 14)² and a class token, of every tile
    assert found.patches == (24 * 24 + 1) * found.tiles


@many
@given(sizes, st.sampled_from(["gemma4", "gemma4_unified"]))
def test_gemma4(size: tuple[int, int], kind: str) -> None:
    (width, height), image_processor = size, SimpleNamespace(patch_size=16, max_soft_tokens=280, pooling_kernel_size=3)
    real = counted(
        Gemma4Processor, "_get_num_multimodal_tokens", width, height, image_processor=image_processor
    )  # fmt: skip
    found = own({"model_type": kind, "vision_config": {}}, width, height)
    assert (found.tokens, found.patches) == (real, 280 * 9 if kind == "gemma4" else 280)


@many
@given(st.tuples(st.integers(50, 30_000), st.integers(50, 30_000)))
def test_phi4(size: tuple[int, int]) -> None:
    width, height = size
    assume(max(size) <= 200 * min(size))
    code = functions(
        "phi4_multimodal/image_processing_phi4_multimodal.py", "dynamic_preprocess", "find_closest_aspect_ratio",
        tvF=SimpleNamespace(resize=lambda image, size: image, pad=lambda image, *_, **__: image),
    )  # fmt: skip
    self = SimpleNamespace(find_closest_aspect_ratio=lambda *given: code["find_closest_aspect_ratio"](None, *given))
    image = SimpleNamespace(shape=(3, height, width), device="cpu")
    try:
        _, mask = code["dynamic_preprocess"](self, image, 448, 14, 32, max_num=36)
    except ValueError:
        with pytest.raises(UsageError):
            own({"model_type": "phi4_multimodal"}, width, height)
        return
    kept = mask[::2, ::2]
    found = own({"model_type": "phi4_multimodal"}, width, height)
    assert found.tokens == 256 + 1 + int(kept.sum()) + int(kept[:, 0].sum()) + 16
    assert found.patches == mask.numel() + 1024
    assert found.rows * found.columns * found.tiles == found.patches  # padded or not, tiles are of one grid
    assert bool(found.padded_to) == bool((mask == 0).any())


@pytest.mark.parametrize(
    ("name", "tokens", "patches"),
    [
        ("llava-hf/llava-1.5-7b-hf", 576, 576),  # LLaVA 1.5: 24 × 24
        ("google/gemma-3-4b-it", 256, 4096),  # Gemma 3 report: 256 tokens of an 896 × 896 image
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 1, 4 * 1601),  # Mllama: 4 tiles of 40 × 40 + 1
    ],
)
def test_fixed_sizes(name: str, tokens: int, patches: int) -> None:
    for width, height in ((100, 100), (1920, 1080)):
        found = image_tokens(describe(resolve(name).config).config, width, height)
        assert found is not None
        assert (found.tokens, found.patches) == (tokens, patches)


def test_every_catalog_model_of_a_type_with_a_rule_has_an_answer() -> None:
    asked = [one for one in catalog() if one.model_type in types_with_rule()]
    assert len(asked) > 20
    for one in asked:
        found = image_tokens(describe(resolve(one.id).config).config, 1000, 700)
        assert found is not None
        marks = found.rows if "one at the end of each line" in found.rule else 0
        assert 0 < found.tokens <= found.patches + marks
        assert found.rule


@pytest.mark.parametrize("size", [(0, 5), (-1, 5), (10**9, 10**9), (1, 5000)])
def test_impossible_sizes_are_one_line(size: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="an image of"):
        image_tokens(Config({"model_type": "qwen2_vl"}), *size)


def test_the_overview_says_what_an_image_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "qwen2.5-vl-7b", "--image", "1920x1080"]) == 0
    assert "an image of 1,920 × 1,080 pixels takes 2,691 tokens" in " ".join(capsys.readouterr().out.split())
    assert main(["estimate", "qwen2.5-vl-7b", "--image", "1920x1080", "--json"]) == 0
    image = json.loads(capsys.readouterr().out)["image"]
    assert (image["tokens"], image["patches"]) == (2691, 4 * 2691)
    assert image["activation_bytes"] > 2 * image["patches"] * 1280
    for arguments in (["gpt2", "--image", "10x10"], ["qwen2.5-vl-7b", "--image", "10"]):
        assert main(["estimate", *arguments]) == 2
        assert capsys.readouterr().err.startswith("vramwise: ")


@pytest.mark.parametrize("task", ["train", "generate"])
def test_a_batch_of_text_says_that_images_are_not_counted(task: str) -> None:
    said = "a batch of text: what an image takes in its part of the model and in the prompt is not counted"
    assert said in estimate({"model": "qwen2.5-vl-7b", "task": task}).notes
    assert not any("batch of text" in note for note in estimate({"model": "gpt2", "task": task}).notes)


@many
@given(sizes)
def test_lfm2_vl(size: tuple[int, int]) -> None:
    (width, height), code = size, functions(
        "lfm2_vl/image_processing_lfm2_vl.py", "round_by_factor", "find_closest_aspect_ratio", "smart_resize",
        "_is_image_too_large", "_target_ratios",
    )  # fmt: skip
    sides = {"encoder_patch_size": 16, "downsample_factor": 2, "max_image_tokens": 256}
    wide, high = code["smart_resize"](None, height, width, min_image_tokens=64, **sides)
    columns = rows = 1
    if code["_is_image_too_large"](None, height, width, max_pixels_tolerance=2.0, **sides):
        ratios = code["_target_ratios"](None, 2, 10)
        columns, rows = code["find_closest_aspect_ratio"](width / height, ratios, width, height, 512)
    whole, several = (wide // 32) * (high // 32), columns * rows > 1
    found = own({"model_type": "lfm2_vl", "vision_config": {"patch_size": 16}}, width, height)
    assert found.tokens == whole + 2 + several * (columns * rows * 257 + 1)
    assert (found.tiles, found.padded_to) == (columns * rows + several, 1024)


@many
@given(st.tuples(st.integers(20, 9000), st.integers(20, 9000)))
def test_kimi_k25(size: tuple[int, int]) -> None:
    width, height = size
    assume(max(size) <= 200 * min(size))
    code = functions("kimi_k25/image_processing_kimi_k25.py", "navit_resize")
    sides = {"patch_size": 14, "merge_kernel_size": 2, "max_patches": 16_384, "max_size_per_side": 512}
    _, (high, wide) = code["navit_resize"](height, width, **sides)
    found = own({"model_type": "kimi_k25"}, width, height)
    assert (found.rows, found.columns, found.tokens) == (high // 14, wide // 14, high * wide // 28**2)


@many
@given(st.tuples(st.integers(10, 5000), st.integers(10, 5000)))
def test_step3p7(size: tuple[int, int]) -> None:
    width, height = size
    assume(max(size) <= 200 * min(size))
    code = functions("step3p7/image_processing_step3p7.py", "_is_extreme_aspect", "_plan_patches")
    self = SimpleNamespace(_is_extreme_aspect=code["_is_extreme_aspect"], max_image_size=3024)
    *_, columns, rows, _ = code["_plan_patches"](self, width, height, 728, 504)
    found = own({"model_type": "step3p7", "vision_config": {}}, width, height)
    assert found.tokens == 171 + columns * rows * 83 + max(0, rows - 1)
    assert found.tiles == 1 + columns * rows


@pytest.mark.parametrize(("size", "padded"), [((980, 980), 0), ((500, 497), 0), ((500, 400), 4900), ((30, 2000), 4900)])
def test_aria(size: tuple[int, int], padded: int) -> None:
    found = own({"model_type": "aria", "vision_config": {"patch_size": 14, "image_size": 980}}, *size)
    assert (found.tokens, found.rows, found.padded_to) == (256, 70, padded)


@many
@given(st.tuples(st.integers(2, 5000), st.integers(2, 5000)))
def test_idefics2(size: tuple[int, int]) -> None:
    width, height = size
    assume(max(size) <= 200 * min(size))
    resize = functions("idefics2/image_processing_idefics2.py", "get_resize_output_image_size", SizeDict=Any)
    split = functions("idefics2/image_processing_idefics2.py", "split_images")["split_images"]
    sides = SimpleNamespace(shortest_edge=378, longest_edge=980)
    (parts,) = split(None, np.zeros((1, 1, height, width), dtype=np.bool_))
    sizes = [resize["get_resize_output_image_size"](part, sides) for part in parts]
    high, wide = (max(lengths) for lengths in zip(*sizes, strict=True))
    found = own({"model_type": "idefics2", "vision_config": {"patch_size": 14}}, width, height)
    grids = {(h // 14, w // 14) for h, w in sizes}
    assert (found.pixels, found.rows, found.columns) == ((high, wide), high // 14, wide // 14)
    assert (found.tiles, found.tokens, bool(found.padded_to)) == (5, 326, len(grids) > 1)
