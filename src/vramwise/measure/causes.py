"""What kind of memory a stack asks for, read off the names in it.

The rules are tried in order on the frames from the innermost outwards; the first that matches names the kind. They
follow the names of functions and files in torch 1.13–2.13, transformers 4.3x–5.x, peft, bitsandbytes and accelerate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vramwise.measure.snapshot import Stack

_DEEPEST: Final = 40


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of memory: its name, and what the program was doing."""

    name: str
    doing: str


KINDS: Final[dict[str, Kind]] = {
    "loss": Kind("logits and loss", "working out the loss over the vocabulary"),
    "logits": Kind("logits and loss", "making the logits"),
    "scores": Kind("attention scores", "attention with its whole score matrix"),
    "optimizer": Kind("optimizer states", "the optimizer's step"),
    "temporaries": Kind("optimizer temporaries", "the optimizer's step over all tensors at once (foreach)"),
    "gradients": Kind("gradients", "the backward pass"),
    "clipping": Kind("gradients", "clipping the gradients"),
    "cache": Kind("KV cache", "growing the KV cache"),
    "weights": Kind("weights", "loading the weights"),
    "unpacking": Kind("unpacked weights", "unpacking a quantized weight for its product"),
    "gathering": Kind("communication buffers", "gathering sharded weights or reducing gradients"),
    "recompute": Kind("activations", "recomputing a checkpointed layer"),
    "experts": Kind("activations", "a mixture's experts"),
    "mlp": Kind("activations", "an MLP"),
    "attention": Kind("activations", "attention"),
    "norm": Kind("activations", "a norm"),
    "forward": Kind("activations", "the forward pass"),
    "step": Kind("optimizer states", "the optimizer's step"),
}
UNKNOWN: Final = Kind("other", "")

_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("unpacking", r"dequantize|MatMul4Bit|matmul_4bit|Linear8bit|igemmlt"),
        ("cache", r"cache_utils\.py|kv_cache|past_key_value.* torch\.cat|DynamicCache|StaticCache"),
        ("scores", r"eager_attention|softmax\(attn|attn_weights =|attention_scores|matmul\(query|baddbmm|_attn\b"),
        (
            "loss",
            r"cross_entropy|crossentropy|log_softmax|loss_utils\.py|ForCausalLMLoss|compute_loss_func|nll_loss"
            r"|logits\.float|\.upcast|loss_fct|loss_function|selective_log_softmax",
        ),
        ("logits", r"lm_head|self\.head\(|get_logits|logits ="),
        ("temporaries", r"_multi_tensor_|_foreach_"),
        (
            "optimizer",
            r"optim[/\\](?!.*lr_scheduler)\w+\.py|_init_group|exp_avg|init_state|optimizer\.step|optimizer_step"
            r"|optim[/\\]optimizer|bnb_optim|adafactor",
        ),
        ("clipping", r"clip_grad"),
        ("gathering", r"all_gather|_fsdp|fully_sharded|reduce_scatter|unshard|partition_parameters|stage3\.py|zero/"),
        ("recompute", r"recompute_fn|unpack_hook|checkpoint\.py.*(backward|unpack)"),
        (
            "weights",
            r"from_pretrained|load_state_dict|_apply\b|modeling_utils\.py|load_checkpoint|init_weights|model_loader"
            r"|set_module_tensor_to_device|\.to\(device|\.cuda\(\)|weight_loader|load_model|reset_parameters",
        ),
        ("experts", r"moe|experts?\b"),
        ("mlp", r"mlp|feed_forward|ffn|act_fn|down_proj|up_proj|gate_proj|swiglu|silu|gelu"),
        ("attention", r"attention|attn|rotary|apply_rotary|scaled_dot_product|q_proj|k_proj|v_proj|o_proj"),
        ("norm", r"norm"),
        ("gradients", r"\bbackward\b|run_backward|autograd[/\\]"),
        ("forward", r"\bforward\b|_call_impl|modeling_\w+\.py|\bembed"),
        ("step", r"(?<![\w.])step\b"),
    )
)
_MAKES_STATES: Final = re.compile(r"^_?init_(?:group|state)|^state_init")  # torch.optim; bitsandbytes, Lion, Muon
_GENERAL_RULES: Final = {"recompute", "gradients", "forward", "norm", "step"}


def kind_of(stack: Stack, code: Sequence[str] = ()) -> Kind:
    """The kind of memory that a stack (innermost first) asks for, `code` being its lines of source.

    Frames inside torch's own files say which operation, those outside say what for: the innermost frame that one of
    the specific rules matches decides; the general ones (forward, backward) only where none did.
    """
    general: str | None = None
    for i, frame in enumerate(stack[:_DEEPEST]):
        text = f"{frame.filename} {frame.name} {code[i] if i < len(code) else ''}"
        for name, pattern in _RULES:
            if pattern.search(text):
                if name not in _GENERAL_RULES:
                    return _in_backward(name, stack)
                general = general or name
                break
    return KINDS[general] if general else UNKNOWN


def makes_states(stack: Stack) -> bool:
    """Whether a stack is inside the making of an optimizer's states, which its first step does for every weight."""
    return any(_MAKES_STATES.search(frame.name) for frame in stack[:_DEEPEST])


def _in_backward(name: str, stack: Stack) -> Kind:
    """Inside a backward pass a layer's frames mean that it is recomputed (checkpointing)."""
    if name in ("mlp", "attention", "experts") and any("recompute" in frame.name for frame in stack[:_DEEPEST]):
        return KINDS["recompute"]
    return KINDS[name]
