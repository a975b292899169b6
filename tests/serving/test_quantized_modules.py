"""Which weights of a quantized checkpoint stay in 16 bit: against the modules that the real readers make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.models import describe
from vramwise.serving.common.storage import own_method, storage_of
from vramwise.serving.common.weights import Layout, stage_weights
from vramwise.sources import resolve

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    **LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "head_dim": 64, "mlp_only_layers": [0], "decoder_sparse_step": 1,
}  # fmt: skip


def kept(config: dict[str, Any]) -> list[str]:
    """Linear weights that stay in 16 bit."""
    model = describe(config, "test")
    storage = storage_of(model, "auto", None, None)
    linear = [p for p in model.parameters if p.is_linear or (p.part == "experts" and len(p.shape) == 3)]
    return [p.name.removesuffix(".weight") for p in linear if not storage.quantizes(p)]


@pytest.mark.parametrize("skipped", [["lm_head"], ["lm_head", "model.layers.1.mlp", "o_proj"], ["model.layers.0"]])
@pytest.mark.parametrize("base", [LLAMA, MOE], ids=["llama", "qwen3_moe"])
def test_fp8_weights_are_those_of_transformers(base: dict[str, Any], skipped: list[str]) -> None:
    """Parameters that transformers makes for an fp8 checkpoint, on the meta device: names and bytes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    how = transformers.FineGrainedFP8Config(modules_to_not_convert=[*skipped, "lm_head"])
    with torch.device("meta"):
        real = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**base), dtype=torch.bfloat16
        )
    real = replace_with_fp8_linear(real, how.modules_to_not_convert, how, pre_quantized=True)
    sizes = {name: p.numel() * p.element_size() for name, p in real.named_parameters()}
    table = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": [*skipped, "lm_head"]}
    model = describe({**base, "quantization_config": table}, "test")
    storage = storage_of(model, "auto", None, None)
    assert stage_weights(model, storage, Layout())[0].tensor_bytes == sum(sizes.values())
    narrow = {name.removesuffix(".weight") for name, p in real.named_parameters() if p.element_size() == 1}
    assert not narrow & set(kept({**base, "quantization_config": table}))


@pytest.mark.parametrize("kind", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig"])
def test_torchao_weights_are_those_of_torchao(kind: str) -> None:
    torch = pytest.importorskip("torch")
    quantization = pytest.importorskip("torchao.quantization")
    from torchao.core.config import config_to_dict

    how = getattr(quantization, kind)()
    linear = torch.nn.Sequential(torch.nn.Linear(256, 512, bias=False, dtype=torch.bfloat16))
    quantization.quantize_(linear, how)
    parts = [getattr(linear[0].weight, name) for name in linear[0].weight.__tensor_flatten__()[0]]
    table = {"quant_method": "torchao", "quant_type": {"default": config_to_dict(how)}}
    rule = storage_of(describe({**LLAMA, "quantization_config": table}, "test"), "auto", None, None).quantization
    assert rule is not None
    assert rule.bytes_for((512, 256)) == sum(part.numel() * part.element_size() for part in parts if part is not None)


def test_names_of_a_checkpoint_from_an_earlier_release() -> None:
    """`language_model.model.layers` and experts one by one, as files have them and transformers 5 does not."""
    vision = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    text = {**LLAMA, "model_type": "gemma3_text", "head_dim": 64}
    ignored = ["re:language_model\\.model\\.layers\\.1\\..*", "re:vision_tower.*", "re:multi_modal.*", "lm_head"]
    group = {"weights": {"num_bits": 4, "type": "int", "group_size": 128}, "targets": ["Linear"]}
    table = {"quant_method": "compressed-tensors", "ignore": ignored, "config_groups": {"a": group}}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": vision, "mm_tokens_per_image": 4}
    text_kept = [name for name in kept({**config, "quantization_config": table}) if "language_model" in name]
    assert text_kept
    assert all(".layers.1." in name for name in text_kept)
    one = {**table, "ignore": ["lm_head", *(f"model.layers.1.mlp.experts.{i}.down_proj" for i in range(4))]}
    assert kept({**MOE, "quantization_config": one}) == ["model.layers.1.mlp.experts.down_proj", "lm_head"]


def test_a_table_beside_the_config(tmp_path: Path) -> None:
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    plain = estimate({"model": str(tmp_path), "task": "load"}).quantities["weights"].expected
    how = {"producer": {}, "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(how))
    resolve_again(tmp_path)
    model = describe(resolve(str(tmp_path)).config, "test")
    storage = storage_of(model, "auto", None, None)
    assert own_method(model, storage) == "modelopt"
    assert estimate({"model": str(tmp_path), "task": "load"}).quantities["weights"].expected < plain
    (tmp_path / "hf_quant_config.json").write_text("{no")
    resolve_again(tmp_path)
    with pytest.raises(SourceError, match=r"hf_quant_config\.json: is no JSON"):
        resolve(str(tmp_path))


def resolve_again(folder: Path) -> None:
    """A config.json that was written a moment later, so that it is read again."""
    import os

    path = folder / "config.json"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
