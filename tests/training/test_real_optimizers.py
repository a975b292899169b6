"""Optimizer states, quantized weights and adapters against the real libraries' objects, and what those gave.

The packages (bitsandbytes 0.50.2, galore-torch 1.0, apollo-torch 1.0.3, adam-mini 1.1.1, lion-pytorch 0.2.5,
torchao 0.18.0) are not needed: without one its comparison is skipped, and the recorded bytes of the same objects are
compared all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vramwise.formats.quantization import quantization
from vramwise.models import describe
from vramwise.optimizers import kept_bytes
from vramwise.scenario import Scenario
from vramwise.training.job import job_of
from vramwise.training.model_states.trained import trained_tensors

TINY = {
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
CODE_TABLE = 256 * 4  # bitsandbytes keeps one for each kind of 8-bit state, shared by all tensors

RECORDED = {
    ("lion", "fp32"): 6_165_504,
    ("adamw-8bit", "fp32"): 3_140_608 - 2 * CODE_TABLE,
    ("lion-8bit", "fp32"): 1_570_304 - CODE_TABLE,
    ("adam-mini", "fp32"): 6_183_472 + 5 * 4,  # and one number for each of five norms
    ("galore-adamw", "fp32"): 10_233_856,
    ("galore-adamw", "bf16"): 4_461_568,
    ("apollo", "fp32"): 8_923_136,
    ("apollo", "bf16"): 4_461_568,
}
"""Bytes of the state tensors of more than one value after one step on the tiny Llama."""


def ours(optimizer: str, precision: str) -> int:
    model = describe({"model_type": "llama", **TINY})
    train = {"optimizer": optimizer, "precision": precision}
    made = job_of(Scenario.from_dict({"model": "tiny", "task": "train", "train": train}), model, None)
    return sum(sum(kept_bytes(optimizer, tensor)) for tensor, _ in trained_tensors(model, made.structure))


@pytest.mark.parametrize(("optimizer", "precision"), RECORDED)
def test_states_are_as_many_bytes_as_those_of_the_real_optimizer(optimizer: str, precision: str) -> None:
    assert ours(optimizer, precision) == RECORDED[optimizer, precision]


# -- the real objects --------------------------------------------------------------------------------------


def _lion(model: Any) -> Any:
    return pytest.importorskip("lion_pytorch").Lion(model.parameters())


def _adamw_8bit(model: Any) -> Any:
    return pytest.importorskip("bitsandbytes").optim.AdamW8bit(model.parameters())


def _lion_8bit(model: Any) -> Any:
    return pytest.importorskip("bitsandbytes").optim.Lion8bit(model.parameters())


def _adam_mini(model: Any) -> Any:
    make = pytest.importorskip("adam_mini").Adam_mini
    return make(named_parameters=model.named_parameters(), dim=256, n_heads=4, n_kv_heads=2)


def _low_rank(make: Any, model: Any, **settings: Any) -> Any:
    import torch

    linear = [m.weight for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]
    chosen = {id(weight) for weight in linear}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return make([{"params": others}, {"params": linear, "rank": 128, "update_proj_gap": 200, **settings}])


def _galore(model: Any) -> Any:
    return _low_rank(pytest.importorskip("galore_torch").GaLoreAdamW, model, scale=0.25, proj_type="std")


def _apollo(model: Any) -> Any:
    settings = {"proj": "random", "scale_type": "channel", "scale": 1.0, "proj_type": "std"}
    return _low_rank(pytest.importorskip("apollo_torch").APOLLOAdamW, model, **settings)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "lion": _lion, "adamw-8bit": _adamw_8bit, "lion-8bit": _lion_8bit, "adam-mini": _adam_mini,
    "galore-adamw": _galore, "apollo": _apollo,
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("optimizer", "precision"), RECORDED)
def test_the_real_optimizers_state(optimizer: str, precision: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    real = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    made = MAKERS[optimizer](real.to(torch.bfloat16) if precision == "bf16" else real)
    tokens = torch.zeros(1, 8, dtype=torch.long)
    real(input_ids=tokens, labels=tokens).loss.backward()
    made.step()
    found: dict[int, int] = {}
    for state in made.state.values():
        _collect({key: value for key, value in state.items() if key != "step"}, found)
    tables = {"adamw-8bit": 2 * CODE_TABLE, "lion-8bit": CODE_TABLE}.get(optimizer, 0)
    alone = 5 * 4 if optimizer == "adam-mini" else 0
    assert sum(found.values()) - tables + alone == ours(optimizer, precision)


def _collect(value: Any, found: dict[int, int]) -> None:
    import torch

    if torch.is_tensor(value):
        if value.numel() > 1:
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    elif isinstance(value, dict):
        for inner in value.values():
            _collect(inner, found)
    elif hasattr(value, "__dict__"):
        _collect(vars(value), found)


TORCHAO = {
    ("AdamW8bit", "fp32"): 3_171_328, ("AdamW4bit", "fp32"): 1_648_640, ("AdamWFp8", "fp32"): 3_138_560,
    ("AdamW8bit", "bf16"): 3_166_208, ("AdamW4bit", "bf16"): 1_643_520, ("AdamWFp8", "bf16"): 3_133_440,
}  # fmt: skip
"""Bytes of the states of torchao 0.18 on the tiny Llama, code tables included."""


@pytest.mark.parametrize(("name", "precision"), TORCHAO)
def test_states_are_as_many_bytes_as_torchaos(name: str, precision: str) -> None:
    assert ours(name.lower().replace("adamw", "torchao-adamw-"), precision) == TORCHAO[name, precision]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "precision"), TORCHAO)
def test_torchaos_states(name: str, precision: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kinds = pytest.importorskip("torchao.optim")
    real = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    made = getattr(kinds, name)((real.to(torch.bfloat16) if precision == "bf16" else real).parameters())
    states = [made._new_buffer(p, signed) for p in real.parameters() for signed in (True, False)]
    assert sum(_flat_bytes(state) for state in states) == TORCHAO[name, precision]


def _flat_bytes(tensor: Any) -> int:
    if hasattr(tensor, "__tensor_flatten__"):
        return sum(_flat_bytes(getattr(tensor, inner)) for inner in tensor.__tensor_flatten__()[0])
    return int(tensor.numel() * tensor.element_size())


NF4 = {
    ((256, 640), False): 92_224, ((256, 640), True): 85_612, ((320, 100), False): 18_064, ((320, 100), True): 17_600,
    ((4096, 1024), False): 2_359_360, ((4096, 1024), True): 2_164_804,
}  # fmt: skip
"""Bytes of quantize_4bit's tensors, with and without compress_statistics (double quantization)."""


@pytest.mark.parametrize(("shape", "double"), NF4)
def test_nf4_is_laid_out_as_bitsandbytes_does(shape: tuple[int, int], double: bool) -> None:
    assert quantization("nf4-dq" if double else "nf4").bytes_for(shape) == NF4[shape, double]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("shape", "double"), NF4)
def test_nf4_of_the_real_library(shape: tuple[int, int], double: bool) -> None:
    torch, bitsandbytes = pytest.importorskip("torch"), pytest.importorskip("bitsandbytes")
    weight = torch.randn(shape, dtype=torch.bfloat16)
    packed, state = bitsandbytes.functional.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
    kept = [packed, state.absmax, state.code]
    kept += [state.state2.absmax, state.state2.code, state.offset] if double else []
    assert sum(t.numel() * t.element_size() for t in kept) == NF4[shape, double]
