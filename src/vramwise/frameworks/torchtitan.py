"""torchtitan: pretraining under FSDP 2, tensor, pipeline and expert parallelism."""

from __future__ import annotations

from vramwise.frameworks.defaults import Default
from vramwise.frameworks.framework import Casts, Command, Framework, Loss, Quantizing, Sharding, always
from vramwise.frameworks.versions import month_named, stated
from vramwise.scenario import TrainSettings

HEAD_APART_SINCE, FROM_AUGUST_2025 = (0, 2), (2025, 8)
CHUNKS_SINCE, FROM_APRIL_2026 = (0, 3), (2026, 4)


def _since(train: TrainSettings, month: tuple[int, int], version: tuple[int, int]) -> bool:
    """Whether what runs is as new as a month and a version; of what names neither it is taken that it is."""
    return (stated(train, "torchtitan") or version) >= version and (month_named(train) or month) >= month


def _has_outer_units(train: TrainSettings) -> bool:
    """Since pull request 1094 of July 2025; before it both were in the root unit (parallelize.py, apply_fsdp)."""
    return _since(train, FROM_AUGUST_2025, HEAD_APART_SINCE)


def _chunks_with_head(train: TrainSettings) -> bool:
    """Since pull request 2937 (27 April 2026) ChunkedCELoss, in 0.3 ChunkedLossWrapper, takes `lm_head` along."""
    return _since(train, FROM_APRIL_2026, CHUNKS_SINCE)


def _selects_all_products(train: TrainSettings) -> bool:
    """Since pull request 2357 (23 March 2026) all of torch's compute_intensive_ops, activation_checkpoint.py.

    Before it `_save_list` has aten.mm alone (models/llama3/infra/parallelize.py). Neither has `_grouped_mm`.
    """
    return _since(train, FROM_APRIL_2026, CHUNKS_SINCE)


def _selects_exchanges(train: TrainSettings) -> bool:
    """Since commit c4e229115 (6 September 2025): `_c10d_functional.all_to_all_single` is in the list."""
    return _since(train, (2025, 9), HEAD_APART_SINCE)


def _selects_routers(train: TrainSettings) -> bool:
    """Until pull request 1380 (16 July 2025): per_op_sac_force_recompute_mm_shapes_by_fqns, `moe.router.gate`."""
    return not _since(train, FROM_AUGUST_2025, HEAD_APART_SINCE)


LET_GO_BEFORE_BACKWARD = (2024, 6)
"""Commit e29b6b4d4 (#391, 12 June 2024), train.py: `del pred`; before, it was named until the next one was there."""


def _names_logits(train: TrainSettings) -> bool:
    month = month_named(train)
    return month is not None and month < LET_GO_BEFORE_BACKWARD


COMPILED_WITH_THE_MODEL = (2024, 11)
"""Commit e10cb9494 of 22 October 2024 compiles the loss with the model, e8977b007 of 17 December no more."""
COMPILED_AGAIN = (2025, 4)
"""Pull request 1033 of 2 April 2025; since 1608 (August 2025) `compile.components` is model and loss by default."""


def _compiles_loss(train: TrainSettings) -> bool:
    """Every release since 0.1 (June 2025) does, and the repository where the two months say so."""
    month, version = month_named(train), stated(train, "torchtitan")
    if month is None:
        return version is None or version >= (0, 1)
    return month == COMPILED_WITH_THE_MODEL or month >= COMPILED_AGAIN


DEFAULTS = (
    Default("copies>1 zero_stage=0", "fsdp", "full-shard",
            "torchtitan 0.3 config/configs.py: data_parallel_shard_degree -1, all ranks that are left"),
    Default("fsdp pipeline_parallel_size>=2", "reshard_after_forward", "false",
            "torchtitan 0.3 distributed/fsdp.py: fsdp_reshard_after_forward default, not under pipelines"),
    Default("month<2025-02", "optimizer_impl", "foreach",
            "torchtitan components/optimizer.py before pull request 881: fused False, foreach its opposite"),
    Default("", "optimizer_impl", "fused",
            "torchtitan since pull request 881 (February 2025): optimizer.implementation fused"),
    Default("type=qwen3 parameters>=1.4e10", "checkpointing", "full",
            "torchtitan 0.3 models/qwen3/config_registry.py: FullAC for 14B and 32B (train_configs/qwen3_32b.toml "
            "before)"),
    Default("type=qwen3_moe|gpt_oss", "checkpointing", "full",
            "torchtitan 0.3 models/qwen3 and models/gpt_oss config_registry.py: FullAC"),
    Default("type=qwen3_5|qwen3_5_moe parameters>=3e9", "checkpointing", "full",
            "torchtitan 0.3 models/qwen3_5/config_registry.py: FullAC from 4B"),
    Default("type=llama parameters>=5e10", "checkpointing", "full",
            "torchtitan 0.3 models/llama3/config_registry.py: FullAC for 70B and 405B (train_configs/llama3_70b.toml "
            "before)"),
    Default("", "checkpointing", "selective",
            "torchtitan 0.3 trainer.py: SelectiveAC unless told otherwise, as in the configurations of 8B models and "
            "DeepSeek V3"),
    Default("month>=2026-04 torchtitan>=0.3", "loss", "chunked",
            "torchtitan pull request 2937 (27 April 2026): ChunkedCELoss in the configurations; 0.3 "
            "ChunkedLossWrapper"),
    Default("month>=2026-08 torchtitan>=0.3", "set_to_none", "false",
            "torchtitan pull request 3559 (13 August 2026), 0.3 trainer.py: zero_grad(set_to_none="
            "disable_cuda_graphs), which is off; where no graph is captured (ROCm) too"),
    Default("tensor_parallel_size>=2", "loss", "vocab-parallel",
            "torchtitan before pull request 2937: loss parallel unless disabled"),
)  # fmt: skip

RECORD = Framework(
    name="torchtitan",
    title="torchtitan",
    package="torchtitan",
    newest="0.3",
    commands=(
        Command("torchtitan", module="torchtitan.train", example="torchrun -m torchtitan.train"),
        Command("torchtitan", "run_train.sh"),
    ),
    defaults=DEFAULTS,
    kernels=("torchtitan",),
    names_logits=_names_logits,
    casts=Casts(autocast="never"),  # FSDP's mixed precision casts whole units
    loss=Loss(chunks_with_head=_chunks_with_head, compiled=_compiles_loss, fused_is_compiled=True),
    quantizing=Quantizing(keeps_originals=False),
    peft=None,
    selects_all_products=_selects_all_products,
    selects_routers=_selects_routers,
    selects_exchanges=_selects_exchanges,
    sharding=Sharding(
        outer_units=_has_outer_units,
        last_unit_stays=always,  # parallelize.py: reshard_after_forward, but for the last
        loss_after_root=True,
        sequence_with_tensors=True,
        cuts=("tensor", "pipeline", "context", "expert"),
    ),
)
