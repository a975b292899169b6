"""What stays in memory for operations that one kernel does: CUDA's and ROCm's, told to the allocator.

A kernel that does several nodes reads what the first of them read when it writes the result of the last, so that the
sources must not be let go, nor written over in place, before. Since September 2026 a backend says so to the scheduler
(pull request 27301, ggml-backend.cpp add_alloc_dep): a node without an operation behind the last one reads them once
more.

Sources, as llama-cpp-python 0.3.36 ships them (0c1e57098): ggml/src/ggml-cuda/ggml-cuda.cu
ggml_backend_cuda_graph_optimize, ggml_cuda_match_moe_weighted_reduction, ggml_cuda_topk_moe_fusion (pull
request 25952).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vramwise.serving.llama_cpp.ggml.tensors import Tensor, reading

MOST_SUMMED_EXPERTS = 15


def cuda_order(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The nodes of a split, with others that read what CUDA's kernels still need: the outputs of experts up to their
    weighted sum, and what a router chooses by."""
    return keeping(nodes, _kept(nodes))


def keeping(nodes: Sequence[Tensor], kept: Iterable[tuple[Sequence[Tensor], Tensor]]) -> list[Tensor]:
    """The nodes, and behind those up to which something is kept one that reads it."""
    until: dict[int, list[Tensor]] = {}
    for tensors, last in kept:
        until.setdefault(id(last), []).append(reading(*tensors))
    return [one for node in nodes for one in (node, *until.get(id(node), ()))]


def _kept(nodes: Sequence[Tensor]) -> Iterator[tuple[Sequence[Tensor], Tensor]]:
    """Tensors, and the node up to which they are kept."""
    index = 0
    while index < len(nodes):
        summed = _weighted_sum(nodes, index)
        if summed:
            weighted = nodes[index]
            yield weighted.sources[:2], nodes[index + summed - 1]
            index += summed
            continue
        chosen = _choice(nodes, index)
        if chosen and index + chosen < len(nodes):
            run = nodes[index : index + chosen]
            read = [tensor for node in run for tensor in (node, *node.sources)]
            yield list({id(tensor): tensor for tensor in read}.values()), nodes[index + chosen]
        index += chosen or 1


def _weighted_sum(nodes: Sequence[Tensor], start: int) -> int:
    """How many nodes weigh the outputs of experts and add them up, one by one; 0 if none do here."""
    first = nodes[start]
    many = first.ne[1]
    if first.op != "MUL" or not 2 <= many <= MOST_SUMMED_EXPERTS or len(first.sources) < 2:
        return 0
    outputs, weights = first.sources[:2]
    if outputs.ne != first.ne or weights.ne != (1, *first.ne[1:]):
        return 0
    run = nodes[start + 1 : start + 2 * many]
    views = [node for node in run if node.op == "VIEW" and node.sources[0] is first]
    sums = [node for node in run if node.op == "ADD"]
    if len(run) < 2 * many - 1 or len(views) != many or len(sums) != many - 1:
        return 0
    before = views[0]
    for total, part in zip(sums, views[1:], strict=True):
        if total.sources[0] is not before or total.sources[1] is not part:
            return 0
        before = total
    return 2 * many


_CHOICE = ("ARGSORT", "VIEW", "GET_ROWS")
_NORMALIZED = ("RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE")


def _choice(nodes: Sequence[Tensor], start: int) -> int:
    """How many nodes make scores of logits, choose experts by them and give their weights; 0 if none do here."""
    if nodes[start].op not in ("SOFT_MAX", "UNARY"):
        return 0

    def follow(place: int, *ops: str) -> int:
        found = tuple(node.op for node in nodes[place : place + len(ops)])
        return place + len(ops) if found == ops else 0

    end = follow(start + 1, "RESHAPE", "ADD", *_CHOICE) or follow(start + 1, "RESHAPE", *_CHOICE)
    if not end or not _is_instantiated(nodes[end - len(_CHOICE)].ne[0]):
        return 0
    end = follow(end, *_NORMALIZED) or end
    end = follow(end, "SCALE") or end
    return end - start


def _is_instantiated(experts: int) -> bool:
    """topk-moe.cu ggml_cuda_should_use_topk_moe."""
    return experts in (288, 576) or (experts <= 512 and experts & (experts - 1) == 0)
