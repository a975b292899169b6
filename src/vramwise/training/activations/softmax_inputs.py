"""Softmax as torch ran it before 1.11."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.tensor import Node
from vramwise.models.step import Forward
from vramwise.training.activations.rewriting import rewritten


def with_softmax_inputs(forward: Forward) -> Forward:
    """Softmax before torch 1.11, whose backward asks the input for its dtype and so keeps it beside the result.

    transformers 4.20 pytorch_utils.py softmax_backward_data tells both signatures apart.
    """
    return rewritten(
        forward, lambda run: tuple(_keeping_input(node) if node.op in _SOFTMAXES else node for node in run.nodes)
    )


_SOFTMAXES = frozenset({"_softmax", "_log_softmax"})


def _keeping_input(node: Node) -> Node:
    x = node.inputs[0]
    return replace(node, saved=(*node.saved, (x.storage, "self"))) if x.requires_grad else node
