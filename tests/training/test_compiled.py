"""torch.compile's own partitioner on a real layer, and published runs with and without it."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward
from vramwise.training.activations.compiled import with_compiled_layers

TOKENS = 512
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": False,
}  # fmt: skip
GIB = 2**30


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_layer_keeps_what_the_partitioner_keeps() -> None:
    """All outputs of the partitioned forward graph but the layer's own, its inputs and weights."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from functorch.compile import nop
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    kept: dict[str, Any] = {}

    def forward_compiler(graph: Any, _: object) -> Any:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        kept.update({node.name: node.meta["val"] for node in output.args[0][1:] if node.op != "placeholder"})
        return graph

    backend = aot_autograd(
        fw_compiler=forward_compiler, bw_compiler=nop, partition_fn=min_cut_rematerialization_partition
    )
    config = LlamaConfig(**{k: v for k, v in CONFIG.items() if k != "model_type"}, attn_implementation="sdpa")
    layer = LlamaDecoderLayer(config, 0).to(torch.bfloat16)
    x = torch.randn(1, TOKENS, 96, dtype=torch.bfloat16, requires_grad=True)
    tables = LlamaRotaryEmbedding(config)(x, torch.arange(TOKENS)[None])
    torch._dynamo.reset()
    torch.compile(layer, backend=backend)(x, position_embeddings=tables)
    sizes = {name: t.numel() * t.element_size() for name, t in kept.items()}
    # Attention's output is there twice: as it is, and seen as rows for the product behind it.
    once = sum(size for name, size in sizes.items() if not name.startswith("detach"))
    assert len(sizes) >= 12
    assert ours() == once


def ours() -> int:
    """Bytes that the third layer keeps, without its input; no rotary tables, which the first one kept."""
    execution = Execution(param_dtype="bf16", device="cpu")
    forward = with_compiled_layers(record_forward(describe(CONFIG), execution, batch=1, sequence=TOKENS))
    last = forward.runs[3]  # after the embedding
    incoming = {tensor.storage for tensor in last.incoming}
    return sum(int(evaluate(s.nbytes, {"sequence": TOKENS})) for s, _ in last.saved if s not in incoming)


@pytest.mark.parametrize(
    ("settings", "measured_gib"),
    [({}, 60.0), ({"compile": True}, 51.0), ({"compile": True, "loss": "chunked"}, 42.9),
     ({"compile": True, "loss": "chunked", "checkpointing": "full"}, 24.9)],
)  # fmt: skip
def test_published_ladder_of_torchtune(settings: dict[str, Any], measured_gib: float) -> None:
    """README, Optimization flags: Llama-3.2-3B, packed, 2 x 4,096 tokens, bf16, fused AdamW, A100."""
    train = {"framework": "torchtune", "precision": "bf16", "attention": "flash", "checkpointing": "none",
             "optimizer": "adamw", "loss": "standard", "micro_batch_size": 2, "sequence_length": 4096,
             **settings}  # fmt: skip
    found = estimate({"model": "meta-llama/Llama-3.2-3B-Instruct", "task": "train", "train": train})
    assert found.quantities["peak_allocated"].expected == pytest.approx(measured_gib * GIB, rel=0.025)


@pytest.mark.parametrize(("quantization", "measured_gib"), [(None, 8.5), ("nf4-dq", 4.6)])
def test_the_end_of_the_ladder(quantization: str | None, measured_gib: float) -> None:
    """The same with LoRA of rank 64 and activations offloaded, on 16-bit and on quantized weights."""
    train = {"framework": "torchtune", "precision": "bf16", "attention": "flash", "compile": True, "lora_rank": 64,
             "method": "qlora" if quantization else "lora", "lora_dtype": "bf16", "offload_activations": "cpu",
             "lora_targets": ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
             "micro_batch_size": 2, "sequence_length": 4096}  # fmt: skip
    if quantization:
        train["quantization"] = quantization
    found = estimate({"model": "meta-llama/Llama-3.2-3B-Instruct", "task": "train", "train": train})
    assert found.quantities["peak_allocated"].expected == pytest.approx(measured_gib * GIB, rel=0.07)
