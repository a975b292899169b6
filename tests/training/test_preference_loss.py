"""Bytes a logit of preference losses, beside what torch's profiler counts where the same operations run on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError

ROWS, TOKENS, VOCABULARY = 4, 64, 4096
MODEL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 512,
}  # fmt: skip
WAYS = {"of all": "trl 0.8.6", "row by row": "trl 0.24.0", "of copies": "trl 1.5.0", "of views": "trl 1.6.0"}


def bytes_a_logit(rows: int = 2, **train: Any) -> tuple[float, float]:
    """At the loss and in its backward pass."""
    table = {
        "framework": "transformers", "precision": "bf16-mixed", "loss": "preference", "extra_models": ["reference"],
        "sequence_length": 512, "micro_batch_size": rows, **train,
    }  # fmt: skip
    found = estimate({"model": MODEL, "task": "train", "train": table})
    sizes = [
        next(part.bytes for part in phase.components.children if part.name == "logits and loss")
        for name in ("loss", "backward: head")
        for phase in found.phases
        if phase.name == name
    ]
    loss, backward = (size / (rows * 512 * 32000) for size in sizes)
    return loss, backward


def log_probabilities(torch: Any, logits: Any, labels: Any, way: str) -> Any:
    if way == "of all":
        return torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    picked = torch.gather(logits, -1, labels.unsqueeze(-1)).squeeze(-1)
    return picked - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])


def measured(way: str) -> tuple[float, float]:
    """The largest live set of a loss over made-up logits, and of its backward pass, in bytes a logit."""
    import torch
    from torch.profiler import profile

    hidden = torch.randn(ROWS, TOKENS, 16, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCABULARY, 16, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
    answers = torch.ones(ROWS // 2, TOKENS - 1, dtype=torch.bool)

    def asked(cut: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        logits = (hidden @ head.t()).float()
        read = cut(logits[:, :-1])
        return logits, read, log_probabilities(torch, read, labels[:, 1:], way).sum(1)

    def in_one_frame(cut: Callable[[Any], Any]) -> Any:
        _logits, read, policy = asked(cut)
        with torch.no_grad():
            _logits_of_reference, _read, reference = asked(cut)
        read.detach()[: ROWS // 2][answers].mean(-1).sum()
        return (policy - reference).sum()

    def one_by_one() -> Any:
        _, read, policy = asked(lambda x: x)
        if way == "row by row":
            read.detach()[: ROWS // 2][answers].mean()
            del _, read
        with torch.no_grad():
            reference = asked(lambda x: x)[2]
        return (policy - reference).sum()

    def loss() -> Any:
        if way == "of copies":
            return in_one_frame(lambda x: x.contiguous())
        return in_one_frame(lambda x: x) if way == "of views" else one_by_one()

    def run(action: Callable[[], Any], before: int) -> tuple[Any, int, int]:
        with profile(profile_memory=True) as recorded:
            result = action()
        events = recorded.profiler.kineto_results.events()
        live = most = before
        for _, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
            live += size
            most = max(most, live)
        return result, most, live

    made, forward, kept = run(loss, 0)
    _, backward, _ = run(lambda: made.backward(), kept)
    logits = ROWS * TOKENS * VOCABULARY
    return forward / logits, backward / logits


@pytest.mark.parametrize("way", WAYS)
def test_as_much_as_the_operations_take(way: str) -> None:
    pytest.importorskip("torch")
    forward, backward = measured(way)
    found, found_backward = bytes_a_logit(framework_version=WAYS[way])
    assert found == pytest.approx(forward, rel=0.03)
    assert found_backward == pytest.approx(backward, rel=0.03)


def test_by_version() -> None:
    """Copies of both logits until 1.5; tiles of the output layer since 1.15, and where nobody names a version."""
    copies, views = (bytes_a_logit(framework_version=version)[0] for version in ("trl 1.5.0", "trl 1.14.0"))
    assert copies == pytest.approx(18, rel=0.01)
    assert views == pytest.approx(10, rel=0.01)
    assert bytes_a_logit(rows=64, framework_version="trl 1.15.0")[0] < 1
    assert bytes_a_logit(rows=64)[0] < 1
    with_nll = bytes_a_logit(framework_version="trl 0.9.6")[0]
    assert with_nll == pytest.approx(22, rel=0.01)  # the cross entropy of the chosen answers is a half in fp32


def test_without_a_reference_no_second_logits() -> None:
    with_one = bytes_a_logit(framework_version="trl 1.6.0")[0]
    assert bytes_a_logit(framework_version="trl 1.6.0", extra_models=[])[0] < with_one - 3


def test_llama_factory_makes_fp32_logits_itself() -> None:
    version = "llamafactory 0.9.1"
    of_16_bits = bytes_a_logit(framework="llamafactory", framework_version=version, precision="bf16")[0]
    assert of_16_bits == pytest.approx(20, rel=0.01)


def test_a_framework_without_such_a_trainer_says_so() -> None:
    with pytest.raises(ScenarioError, match="described for transformers, llamafactory"):
        bytes_a_logit(framework="litgpt")


@pytest.mark.parametrize("train", [{"head": "sequence-classification"}, {"tensor_parallel_size": 2}])
def test_what_has_no_whole_logits_is_refused(train: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"train\.loss"):
        bytes_a_logit(framework_version="trl 1.5.0", **train)
