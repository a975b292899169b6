"""torch.compile's own partitioner on a real layer, and published runs with and without it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward
from vramwise.training.activations.checkpointing import kept_storages
from vramwise.training.activations.compiled import with_compiled_layers
from vramwise.training.resolved import ResolvedTrain

TOKENS = 512
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": False,
}  # fmt: skip
GIB = 2**30


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("checkpointing", "autocast"), [("none", False), ("selective", False), ("none", True)])
def test_a_compiled_layer_keeps_what_the_partitioner_keeps(checkpointing: str, autocast: bool) -> None:
    """All outputs of the partitioned forward graph but the layer's own, its inputs and weights.

    Autocast casts a norm's result for each of the products that read it; the graph has that cast once.

    Selective: of every second product and attention those that backward reads, so not the layer's last product.
    """
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
    dtype = torch.float32 if autocast else torch.bfloat16
    layer = LlamaDecoderLayer(config, 0).to(dtype)
    if checkpointing == "selective":
        layer = selectively_checkpointed(layer)
    x = torch.randn(1, TOKENS, 96, dtype=dtype, requires_grad=True)
    tables = LlamaRotaryEmbedding(config)(x, torch.arange(TOKENS)[None])
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        torch.compile(layer, backend=backend)(x, position_embeddings=tables)
    sizes = {name: t.numel() * t.element_size() for name, t in kept.items()}
    # Attention's output is there twice: as it is, and seen as rows for the product behind it.
    once = sum(size for name, size in sizes.items() if not name.startswith("detach"))
    assert len(sizes) >= (12 if checkpointing == "none" else 5)
    assert ours(checkpointing, autocast) == once


def selectively_checkpointed(layer: Any) -> Any:
    """As torchtitan's selective checkpointing of operations was until March 2026."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.ops import aten
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def contexts() -> Any:
        products: Counter[bool] = Counter()

        def policy(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
            products[context.is_recompute] += operation == aten.mm.default
            is_every_second = operation == aten.mm.default and products[context.is_recompute] % 2
            kept = is_every_second or operation == aten._scaled_dot_product_flash_attention_for_cpu.default
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return checkpoint_wrapper(layer, context_fn=contexts, preserve_rng_state=False)


def ours(checkpointing: str, autocast: bool) -> int:
    """Bytes that the third layer keeps, without its input; no rotary tables, which the first one kept."""
    execution = Execution(
        param_dtype="fp32" if autocast else "bf16", autocast="bf16" if autocast else None, device="cpu"
    )
    forward = with_compiled_layers(record_forward(describe(CONFIG), execution, batch=1, sequence=TOKENS))
    last = forward.runs[3]  # after the embedding
    train = ResolvedTrain(
        framework="torchtitan", compile=True, checkpointing=checkpointing, recompute=("op",), sequence_length=TOKENS
    )
    kept = kept_storages(last, train) or [storage for storage, _ in last.saved]
    given = {tensor.storage for tensor in last.incoming}
    return sum(int(evaluate(s.nbytes, {"sequence": TOKENS})) for s in kept if s not in given and s.op not in TABLES)


TABLES = {"cos", "sin"}


@pytest.mark.parametrize(
    ("version", "compiled"),
    [("2024-09", False), ("November 2024", True), ("2024-12", False), ("March 2025", False), ("April 2025", True),
     ("torchtitan 0.0.2", False), ("torchtitan 0.1.0", True), ("torchtitan 0.3", True)],
)  # fmt: skip
def test_torchtitan_compiles_the_loss_by_month(version: str, compiled: bool) -> None:
    """A compiled loss keeps the logits and makes a gradient of their size; else they become fp32 several times."""
    train = {"framework": "torchtitan", "framework_version": version, "compile": True, "loss": "standard",
             "precision": "bf16-mixed", "sequence_length": 4096, "checkpointing": "full"}  # fmt: skip
    found = estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": 8, "train": train})
    head = next(phase for phase in found.phases if phase.name == "backward: head").components
    logits = head.find("logits and loss")
    assert logits is not None
    a_logit = logits.bytes / (4096 * 128_256)
    assert a_logit == pytest.approx(4, abs=0.1) if compiled else a_logit >= 8
    said = "the loss as one kernel" if compiled else "the loss is not"
    assert any(said in note for note in found.notes)


def test_what_is_compiled_can_be_said() -> None:
    def peak(*parts: str) -> int:
        train = {"framework": "torchtitan", "compile": True, "compiled": list(parts), "loss": "standard",
                 "checkpointing": "none", "sequence_length": 8192, "fsdp": "full-shard"}  # fmt: skip
        found = estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": 8, "train": train})
        return int(found.quantities["peak_allocated"].expected)

    assert peak() == peak("layers", "loss") == peak("model", "loss")
    assert peak("layers", "loss") < peak("layers")
    assert peak("layers", "loss") < peak("loss")


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


@pytest.mark.parametrize(("checkpointing", "measured_gib"), [("full", 28.72), ("selective", 53.83), ("none", 90.28)])
def test_the_allocator_is_played_through_compiled_layers(checkpointing: str, measured_gib: float) -> None:
    """torchtitan's comparison of March 2024: Llama 2 7B on 8 H100, 8 x 2,048 tokens, FSDP 2; the ratio said 25.6 GiB
    with full checkpointing."""
    train = {"framework": "torchtitan", "framework_version": "2024-03-28", "precision": "bf16-mixed", "compile": True,
             "compute_dtype": "bf16", "optimizer_impl": "foreach", "loss": "standard", "fsdp": "full-shard",
             "attention": "sdpa", "checkpointing": checkpointing, "micro_batch_size": 8,
             "sequence_length": 2048}  # fmt: skip
    found = estimate({"model": "meta-llama/Llama-2-7b-hf", "task": "train", "num_gpus": 8, "train": train})
    assert found.quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.06)


def test_a_compiled_model_of_transformers_works_its_loss_out_inside() -> None:
    """Two 16-bit copies of the logits instead of fp32 ones, unless it says that layers alone are compiled."""
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 32000,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512,
    }  # fmt: skip

    def logits(**train: Any) -> int:
        table = {"framework": "pytorch", "precision": "bf16", "sequence_length": 512, "compile": True,
                 "keeps_outputs": False, **train}  # fmt: skip
        found = estimate({"model": config, "task": "train", "train": table})
        phase = next(phase for phase in found.phases if phase.name == "backward: head")
        return next(part.bytes for part in phase.components.children if part.name == "logits and loss")

    assert logits() == pytest.approx(512 * 32000 * (2 + 2), rel=0.01)
    assert logits() == logits(compiled=["model", "loss"])
    assert logits(compiled=["layers"]) > 2 * logits()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_capped_logits_are_kept_as_the_product_made_them() -> None:
    """Of output layer, cap and loss in one graph the partitioner keeps the logits before the cap, once."""
    torch = pytest.importorskip("torch")
    from functorch.compile import nop
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    kept: list[Any] = []

    def forward_compiler(graph: Any, _: object) -> Any:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        kept.extend(node.meta["val"] for node in output.args[0][1:] if node.op != "placeholder")
        return graph

    backend = aot_autograd(
        fw_compiler=forward_compiler,
        bw_compiler=nop,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    rows, width, vocabulary = 64, 16, 1024

    def loss(x: Any, head: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy((30 * torch.tanh(x @ head / 30)).float(), labels)

    x, head = (
        torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True) for shape in ((rows, width), (width, vocabulary))
    )
    torch._dynamo.reset()
    torch.compile(loss, backend=backend)(x, head, torch.randint(0, vocabulary, (rows,)))
    assert sum(t.numel() * t.element_size() for t in kept if t.numel() == rows * vocabulary) == 2 * rows * vocabulary


@pytest.mark.parametrize("cap", [None, 30.0])
def test_a_cap_on_logits_takes_nothing_in_one_graph(cap: float | None) -> None:
    vocabulary, tokens = 128000, 256
    model = {
        "model_type": "gemma2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": vocabulary,
        "final_logit_softcapping": cap,
    }  # fmt: skip
    table = {"framework": "pytorch", "precision": "bf16", "compile": True, "keeps_outputs": False,
             "sequence_length": tokens, "micro_batch_size": 1}  # fmt: skip
    found = estimate({"model": model, "task": "train", "train": table})
    (end,) = (phase for phase in found.phases if phase.name == "forward end")
    kept = sum(part.bytes for part in end.components.children if part.name in ("activations", "logits and loss"))
    assert kept / (tokens * vocabulary) == pytest.approx(2, abs=0.1)
