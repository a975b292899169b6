"""A script of one's own: torch's loop around transformers' classes."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import LOOPED_ADAMW_BEFORE_TORCH_2, ZEROED_BEFORE_TORCH_2, Default
from vramwise.frameworks.framework import Command, Framework
from vramwise.frameworks.versions import NEWEST_TORCH

DEFAULTS = (
    Default("method=lora|qlora", "precision", "bf16",
            "peft 0.21: a base in its checkpoint's 16 bits, no Trainer and so no autocast"),
    LOOPED_ADAMW_BEFORE_TORCH_2,
    ZEROED_BEFORE_TORCH_2,
)  # fmt: skip

RECORD = Framework(
    name="pytorch",
    title="plain PyTorch",
    package="torch",
    newest=NEWEST_TORCH,
    commands=(  # programs for reinforcement learning whose workers are loops of torch around transformers' classes
        Command("verl", module="verl.trainer.", example="python3 -m verl.trainer.main_ppo"),
        Command("verl", module="recipe."),
        Command("nemo_rl", "run_grpo.py"),
        Command("nemo_rl", "run_grpo_math.py"),
        Command("nemo_rl", "run_vlm_grpo.py"),
        Command("nemo_rl", "run_ppo.py"),
        Command("nemo_rl", "run_distillation.py"),
        Command("prime_rl", "rl", ("@", "--trainer"), example="uv run rl @ FILE.toml"),
        Command("prime_rl", "sft", ("@",)),
        Command("prime_rl", "trainer", ("@",)),
        Command("prime_rl", "inference", ("@",)),
        Command("prime_rl", "orchestrator", ("@",)),
        Command("prime_rl", module="prime_rl.trainer."),
    ),
    defaults=DEFAULTS,
    # transformers 5.23 docs, accelerate 1.14 examples: outputs = model(**batch); loss = outputs.loss
    names_logits=True,
    classes="as they are",
    attention=attention_of_classes,
    exact=True,
    measured=True,
)
