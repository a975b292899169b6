"""torchtune's recipes."""

from __future__ import annotations

from vramwise.frameworks.defaults import Default
from vramwise.frameworks.framework import (
    Casts,
    Command,
    Framework,
    Loss,
    Quantizing,
    RotaryCache,
    Sharding,
    always,
)
from vramwise.models.lengths import stated_positions, text_config
from vramwise.models.model import Model
from vramwise.models.type_facts import fact_value
from vramwise.scenario import TrainSettings


def _rotary_cache(train: TrainSettings, model: Model) -> RotaryCache | None:
    """A model's layers share one; builders of adapted attention make one each, but for Llama's since 3.1.

    torchtune 0.6.1 models/*/_component_builders.py: `rope` within lora_*_self_attention, but beside the layers in
    lora_llama3_1 and lora_llama3_2, whose models are told by their positions: not every config states their scaling.
    """
    kind = model.config.model_type
    columns, most = (fact_value("torchtune", fact, kind) for fact in ("rotary_cache", "rotary_cache_in_each_up_to"))
    if columns is None:
        return None
    is_longer = most is not None and (stated_positions(text_config(model)) or 0) > int(most)
    return RotaryCache(int(columns), train.method in ("lora", "qlora") and not is_longer)


DEFAULTS = (
    Default("copies>1 zero_stage=0", "fsdp", "full-shard",
            "torchtune 0.6.1 recipes/*_distributed.py: training.shard_model, FSDP 2"),
    Default("", "precision", "bf16", "torchtune 0.6.1 recipes/configs: dtype: bf16 in all"),
    Default("", "lora_dtype", "weights",
            "torchtune 0.6.1 recipes/lora_finetune_single_device.py: adapters are made under the recipe's dtype"),
    Default("method=full gpus=1 type=llama vocabulary>=128000", "optimizer", "paged-adamw-8bit",
            "torchtune 0.6.1 recipes/configs/llama3*/*_full_single_device.yaml: PagedAdamW8bit"),
    Default("method=full gpus=1 type=llama|mistral|phi3|qwen2 parameters>=1e9", "optimizer", "paged-adamw",
            "torchtune 0.6.1 recipes/configs/{code_llama2,llama2,mistral,phi3,phi4}/*_full_low_memory.yaml and "
            "qwen2*/*_full_single_device.yaml: PagedAdamW"),
    Default("", "optimizer_impl", "fused", "torchtune 0.6.1 recipes/configs: AdamW with fused: True"),
    Default("method=full gpus=1 open:optimizer gradient_accumulation_steps=1 parameters>=1e9",
            "gradient_release", "true",
            "torchtune 0.6.1 recipes/configs: optimizer_in_bwd: True in 14 of 17 *_full_single_device and "
            "*_full_low_memory, not in Qwen's of 0.5B"),
    Default("method=lora gpus>1 type=llama|qwen2|phi3 parameters<6e10", "checkpointing", "none",
            "torchtune 0.6.1 recipes/configs/{llama2,llama3,llama3_1,llama3_2,qwen2_5,phi3,phi4}/*_lora.yaml up to "
            "32B: enable_activation_checkpointing: False"),
    Default("type=llama parameters<2e9", "checkpointing", "none",
            "torchtune 0.6.1 recipes/configs/llama3_2/1B_*.yaml"),
    Default("type=qwen2 parameters<1e9", "checkpointing", "none",
            "torchtune 0.6.1 recipes/configs/qwen2_5/0.5B_*.yaml"),
    Default("", "checkpointing", "full", "torchtune 0.6.1 recipes/configs: enable_activation_checkpointing: True"),
    Default("method=full gpus=1 open:optimizer type=llama|mistral|phi3 vocabulary<128000 checkpointing=full",
            "offload_activations", "cpu",
            "torchtune 0.6.1 recipes/configs/*_full_low_memory.yaml: enable_activation_offloading: True"),
    Default("", "loss", "chunked", "torchtune 0.6.1 recipes/configs: CEWithChunkedOutputLoss"),
    Default("", "clip_grad_norm", "false", "torchtune 0.6.1 recipes/configs: clip_grad_norm: null"),
    Default("modules=q_proj|v_proj|o_proj|gate_proj|up_proj|down_proj",
            "lora_targets", "q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
            "torchtune 0.6.1 recipes/configs: lora_attn_modules q_proj, v_proj, output_proj and apply_lora_to_mlp in "
            "104 of 107"),
)  # fmt: skip

RECORD = Framework(
    name="torchtune",
    title="torchtune",
    package="torchtune",
    newest="0.6.1",
    commands=(Command("torchtune", "tune", ("run",), example="tune run"),),
    defaults=DEFAULTS,
    batches="padded",
    kernels=("torchtune",),
    checkpointing_note="it is on in torchtune's recipes",
    casts=Casts(autocast="never"),  # recipes compute in the weights' dtype
    loss=Loss(compiled_chunks=True),  # 0.6.1 training/_compile.py compile_loss
    quantizing=Quantizing(keeps_originals=False),  # adapters of its own (modules/peft)
    peft=None,
    rotary_cache=_rotary_cache,
    # 0.6.1 recipes/configs: custom_sharded_layers; recipes/full_finetune_distributed.py _loss_step: logits, then loss
    # training/_distributed.py shard_model: `reshard_after_forward` for the root too
    # training/_activation_offloading.py get_act_offloading_ctx_manager: around forward, the output layer left out
    sharding=Sharding(outer_units=always, loss_after_root=True, frees_root=True, offloads_norms=True),
)
