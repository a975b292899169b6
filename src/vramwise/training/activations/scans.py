"""Mamba's recurrence as one kernel, where the plain operations keep every chunk's states.

`mamba_split_conv1d_scan_combined` (mamba-ssm 2.2 ops/triton/ssd_combined.py) keeps what the input projection made and
its own output, and makes everything between again in backward. Megatron-LM's Mamba layers call it
(core/ssm/mamba_mixer.py, `use_mem_eff_path`). Not counted: chunk states while a layer's backward runs.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Node, Storage, Tensor


def fuse_scans(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Everything from a Mamba mixer's input projection to its output projection as one operation."""
    parent = next((node.module.rpartition(".")[0] for node in nodes if node.module.endswith(".conv1d")), None)
    if parent is None:
        return nodes
    ins = [i for i, node in enumerate(nodes) if node.module == f"{parent}.in_proj"]
    outs = [i for i, node in enumerate(nodes) if node.module == f"{parent}.out_proj"]
    if not ins or not outs or ins[-1] + 1 >= outs[0]:
        return nodes
    start, end = ins[-1] + 1, outs[0]
    inside = nodes[start:end]
    return (*nodes[:start], *_one_scan(inside, nodes[ins[-1]].outputs[0], nodes[end:], parent), *nodes[end:])


def _one_scan(inside: tuple[Node, ...], projected: Tensor, later: tuple[Node, ...], parent: str) -> list[Node]:
    made = {id(output) for node in inside for output in node.outputs}
    read_later = {id(t) for node in later for t in node.inputs}
    outputs = [output for node in inside for output in node.outputs if id(output) in read_later]
    if not outputs:
        return list(inside)
    result = outputs[-1]
    sources = {id(t): t for node in inside for t in node.inputs if id(t) not in made}
    own = Storage(result.nbytes, "activation", "scan", parent)
    saves = ((projected.storage, "projected input"), (own, "output")) if result.requires_grad else ()
    scanned = Tensor(result.shape, result.strides, result.dtype, own)
    return [Node("mamba_scan", parent, tuple(sources.values()), (*outputs, scanned), saves)]
