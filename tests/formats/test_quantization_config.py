"""What a checkpoint's quantization_config says module by module, as its readers read it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from vramwise.errors import SourceError, UnsupportedModelError
from vramwise.formats.module_rules import compiled
from vramwise.formats.quantization_config import module_rules

LAYER = "model.layers.12"
Q, GATE, DOWN = f"{LAYER}.self_attn.q_proj", f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.down_proj"


def formats(table: dict[str, Any], *modules: str) -> list[str]:
    """Name and bits of the format that each module takes, "16 bit" for none."""
    rules = module_rules(table, "test")
    said = []
    for module in modules:
        rule = rules.rule_of(module)
        found = rules.default if rule is None else rule.format
        said.append("16 bit" if found is None else f"{found.name}:{found.bits}:{found.group_size}")
    return said


def group(bits: int, kind: str = "int", size: int | None = None, targets: list[str] | None = None, **more: Any) -> Any:
    weights = {"num_bits": bits, "type": kind, "group_size": size, **more}
    return {"weights": weights, "targets": ["Linear"] if targets is None else targets}


def compressed(ignore: list[str], **groups: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ignore, "config_groups": groups,
    }  # fmt: skip


def test_compressed_tensors_ignores_names_and_expressions() -> None:
    table = compressed(["lm_head", r"re:.*mlp\.(gate|up)_proj$", f"{LAYER}.self_attn.o_proj"], all=group(4, size=128))
    modules = Q, GATE, DOWN, "lm_head", f"{LAYER}.self_attn.o_proj", "model.layers.1.self_attn.o_proj"
    assert formats(table, *modules) == ["w4a16:4:128", "16 bit", "w4a16:4:128", "16 bit", "16 bit", "w4a16:4:128"]


def test_a_name_among_targets_goes_before_a_class() -> None:
    table = compressed([], a=group(4, size=128), b=group(8, size=-1, targets=[r"re:.*down_proj"]))
    assert formats(table, Q, DOWN) == ["w4a16:4:128", "w4a16:8:-1"]


def test_groups_that_name_layers_alone_leave_the_rest() -> None:
    """vLLM's scheme of a layer that no target fits is none: it stays as it is."""
    table = compressed([], a=group(8, "float", targets=[r"re:.*self_attn.*"], strategy="channel"))
    assert formats(table, Q, DOWN) == ["fp8-dynamic:8:0", "16 bit"]


def test_zero_points_are_packed_by_columns() -> None:
    rule = module_rules(compressed([], a=group(4, size=128, symmetric=False)), "").main
    assert dict(rule.tensors_for((256, 512))) == {
        "weight_packed": 256 * 512 // 2, "weight_scale": 2 * 256 * 4, "weight_shape": 16,
        "weight_zero_point": 256 * 4 // 2,
    }  # fmt: skip


def test_gptq_dynamic_rules_count_in_their_order() -> None:
    """vLLM 0.33.0 gptq_utils.py get_dynamic_override: `-:` leaves out, the first that fits decides."""
    dynamic = {r"-:.*\.12\.mlp\.gate": {}, r"+:.*\.mlp\..*": {"bits": 8}, r".*q_proj": {"group_size": 32}}
    table = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    modules = GATE, DOWN, Q, f"{LAYER}.self_attn.o_proj"
    assert formats(table, *modules) == ["16 bit", "gptq-int8:8:128", "gptq-int4:4:32", "gptq-int4:4:128"]


def test_gptq_of_some_modules_of_a_block() -> None:
    inside = [["self_attn.k_proj", "self_attn.q_proj"], ["mlp.down_proj"]]
    table = {"quant_method": "gptq", "bits": 3, "group_size": 128, "modules_in_block_to_quantize": inside}
    assert formats(table, Q, GATE, DOWN) == ["gptq-int4:3:128", "16 bit", "gptq-int4:3:128"]


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_head_is_quantized_where_the_table_says_so(method: str) -> None:
    for said in (False, True):
        rule = module_rules({"quant_method": method, "bits": 4, "group_size": 128, "lm_head": said}, "").main
        assert rule.quantizes("head", (64, 64), True) is said
        assert not rule.quantizes("vision", (64, 64), True)


def test_awq_leaves_what_it_names_at_whole_pieces() -> None:
    table = {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["visual", "layers.1"]}
    modules = "model.visual.blocks.0.attn.qkv", "model.layers.1.mlp.up_proj", Q
    assert formats(table, *modules) == ["16 bit", "16 bit", "awq-int4:4:64"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"model\.layers\.0\.", "model.layers.0.", "model.layers.0", ".*lm_head.*", "^lm_head$", "model.layers.(0|1).",
        "mlp.gate$", ".gate", r".*mlp\.gate$", r"model.layers.\d+.mlp.gate", "q_proj|gate", "model.layers.*.mlp.gate",
        "lm_head", "model.layers.1.mlp",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["awq", "bitsandbytes"])
def test_lists_without_marks_are_read_as_transformers_reads_them(method: str, pattern: str) -> None:
    from transformers.quantizers.quantizers_utils import should_convert_module

    modules = [
        "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj",
        "model.layers.10.mlp.experts.3.down_proj", "lm_head",
    ]  # fmt: skip
    table = {"quant_method": method, "lm_head": True, "load_in_4bit": True, "group_size": 128}
    table["llm_int8_skip_modules" if method == "bitsandbytes" else "modules_to_not_convert"] = [pattern]
    stays = [module for module, found in zip(modules, formats(table, *modules), strict=True) if found == "16 bit"]
    assert stays == [module for module in modules if not should_convert_module(module, [pattern])]


def test_bitsandbytes_list_replaces_the_default() -> None:
    """transformers 5.23 base.py get_modules_to_not_convert: a list leaves the head out only where it names it."""
    table: dict[str, Any] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    assert not module_rules(table, "").main.quantizes("head", (64, 64), True)
    named = module_rules({**table, "llm_int8_skip_modules": ["layers.12.mlp"]}, "").main
    assert named.quantizes("head", (64, 64), True)
    skipping = {**table, "llm_int8_skip_modules": ["lm_head", "layers.12.mlp"]}
    assert formats(skipping, Q, GATE, "lm_head") == ["nf4:4:64", "16 bit", "16 bit"]


def test_modelopt_patterns_and_condensed_numbers() -> None:
    table = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "exclude_modules": ["lm_head", "model.layers.[3-12].self_attn*"],
    }
    modules = Q, DOWN, "model.layers.13.self_attn.q_proj", "lm_head", "model.layers.1.self_attn.q_proj"
    assert formats(table, *modules) == ["16 bit", "nvfp4:4:16", "nvfp4:4:16", "16 bit", "nvfp4:4:16"]


@pytest.mark.parametrize("listed", [True, False])
def test_modelopt_mixes_formats_by_layer(listed: bool) -> None:
    how = {Q: {"quant_algo": "FP8"}, DOWN: {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    rows = [{"modules": [name], **one} for name, one in how.items()]
    table = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": rows if listed else how}
    assert formats(table, Q, DOWN, GATE, "lm_head") == ["fp8:8:0", "nvfp4:4:16", "16 bit", "16 bit"]


def test_fp8_reads_its_own_lists() -> None:
    """vLLM 0.33.0 fp8.py: `ignored_layers`, else `modules_to_not_convert`; never `ignore`."""
    table = {"quant_method": "fp8", "weight_block_size": [128, 128], "ignore": ["mlp"]}
    assert formats(table, Q, GATE) == ["fp8:8:0", "fp8:8:0"]
    assert formats({**table, "ignored_layers": [Q]}, Q, GATE) == ["16 bit", "fp8:8:0"]
    assert formats({**table, "modules_to_not_convert": ["layers.12.mlp"]}, Q, GATE) == ["fp8:8:0", "16 bit"]


def test_hqq_layers_of_their_own() -> None:
    def params(bits: int, size: int) -> dict[str, Any]:
        return {"weight_quant_params": {"nbits": bits, "group_size": size}}

    whole = {"quant_method": "hqq", "quant_config": params(4, 64), "skip_modules": ["lm_head"]}
    assert formats(whole, Q, "lm_head") == ["hqq-int4:4:64", "16 bit"]
    parts = {"quant_method": "hqq", "quant_config": {"self_attn.q_proj": params(8, 128)}}
    assert formats(parts, Q, DOWN) == ["hqq-int8:8:128", "16 bit"]


def test_quanto_by_its_kind_of_weights() -> None:
    table = {"quant_method": "quanto", "weights": "int4", "modules_to_not_convert": ["q_proj"]}
    assert formats(table, Q, DOWN) == ["16 bit", "quanto-int4:4:128"]
    assert formats({"quant_method": "quanto", "weights": "int8"}, Q, "lm_head") == ["quanto-int8:8:0", "16 bit"]
    assert formats({"quant_method": "quanto", "weights": "float8"}, Q) == ["quanto-float8:8:0"]
    with pytest.raises(UnsupportedModelError):
        module_rules({"quant_method": "quanto", "weights": "int3"}, "test")


@pytest.mark.parametrize("table", [{"quant_method": "eetq"}, {"quant_method": "quanto", "weights": "int8"}])
def test_eight_bits_with_a_16_bit_scale_an_output(table: dict[str, Any]) -> None:
    found = module_rules(table, "test").default
    assert found is not None
    assert found.bytes_for((4096, 1024)) == 4096 * 1024 + 2 * 4096


def test_torchao_by_module() -> None:
    int4 = {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}
    inner = {"_default": {"_type": "Int8WeightOnlyConfig", "_data": {}}, Q: int4, DOWN: None}
    table = {
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": "FqnToConfig", "_data": {"fqn_to_config": inner}}},
    }
    assert formats(table, Q, DOWN, GATE) == ["torchao-int4:4:64", "16 bit", "torchao-int8:8:0"]


@pytest.mark.parametrize("method", ["vptq", "no-such-method", ""])
def test_other_methods_are_said_not_to_be_described(method: str) -> None:
    with pytest.raises(UnsupportedModelError, match="is not described yet"):
        module_rules({"quant_method": method, "bits": 4}, "test")


@pytest.mark.parametrize(
    "pattern", ["re:(", "re:(a+)+$", "re:((a*)b*)*c", "re:" + ".*a" * 20, "re:" + "a" * 600, "re:(?<=a*)"]
)
def test_an_expression_that_could_take_for_ever_is_one_line(pattern: str) -> None:
    start = time.process_time()
    with pytest.raises(SourceError) as caught:
        compiled(pattern)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.process_time() - start < 1


BROKEN: list[dict[str, Any]] = [
    {"config_groups": []}, {"config_groups": {"a": 1}}, {"config_groups": {"a": {"weights": {"num_bits": "4"}}}},
    {"ignore": {"a": 1}}, {"ignore": [None, 7]}, {"quantized_layers": [1, {"modules": 3}]}, {"targets": 1},
    {"weight_block_size": ["a", []]}, {"quant_type": [1]}, {"dynamic": {"a": 1}}, {"quant_config": {"a": {"b": 1}}},
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_tables_of_other_shapes_are_read_or_refused(broken: dict[str, Any]) -> None:
    for method in (
        "compressed-tensors",
        "modelopt",
        "fp8",
        "gptq",
        "awq",
        "hqq",
        "torchao",
        "quanto",
        "bitsandbytes",
        "mxfp4",
    ):
        with contextlib.suppress(UnsupportedModelError, SourceError):
            assert module_rules({"quant_method": method, "quant_algo": "FP8", **broken}, "test").main.bits
