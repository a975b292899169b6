"""A script of one's own: torch's loop around transformers' classes."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import LOOPED_ADAMW_BEFORE_TORCH_2, ZEROED_BEFORE_TORCH_2, Default
from vramwise.frameworks.framework import Command, Framework, always
from vramwise.frameworks.versions import NEWEST_TORCH, makes_caches, names
from vramwise.scenario import TrainSettings

DEFAULTS = (
    Default("method=lora|qlora", "precision", "bf16",
            "peft 0.21: a base in its checkpoint's 16 bits, no Trainer and so no autocast"),
    LOOPED_ADAMW_BEFORE_TORCH_2,
    ZEROED_BEFORE_TORCH_2,
)  # fmt: skip


def caches_in_training(train: TrainSettings) -> bool:
    """Whether a step's pass fills the cache that `config.use_cache` asks for, as classes of transformers do.

    transformers 4.18 modeling_gpt2.py and modeling_t5.py `presents`, 4.26 modeling_bloom.py, 4.45 to 5.17
    modeling_llama.py `DynamicCache`. Workers of reinforcement learning and NeMo hand `use_cache=False` over (verl 0.7
    workers/actor/dp_actor.py; NeMo-RL models/policy/dtensor_policy_worker.py) or set it (prime-rl trainer/model.py).
    """
    return makes_caches(train) and not any(names(train, one) for one in ("verl", "nemo", "prime-rl"))


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
        Command("llama_cookbook", "finetuning.py"),
        Command("llama_cookbook", module="llama_cookbook.finetuning"),
        Command("llama_cookbook", module="llama_recipes.finetuning"),
    ),
    defaults=DEFAULTS,
    # transformers 5.23 docs, accelerate 1.14 examples: outputs = model(**batch); loss = outputs.loss
    names_logits=always,
    caches_in_training=caches_in_training,
    classes="as they are",
    attention=attention_of_classes,
    exact=True,
    measured=True,
)
