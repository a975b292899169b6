"""The train table with every setting decided that an estimate needs: those are never None any more."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

from vramwise.records import record
from vramwise.scenario import TrainSettings


def _decided(key: str) -> Any:
    """The field of the train table, without None among its types."""
    of_table = TrainSettings.__dataclass_fields__[key]
    return field(default=of_table.default, metadata=of_table.metadata)


@record(kw_only=True, repr=False, slots=False)
class ResolvedTrain(TrainSettings):
    """Settings as `recipe.settings.resolved` decides them, of the scenario, its framework, the model and the card."""

    param_dtype: str = _decided("param_dtype")
    grad_dtype: str = _decided("grad_dtype")
    optimizer_state_dtype: str = _decided("optimizer_state_dtype")
    compute_dtype: str = _decided("compute_dtype")
    sequence_length: int = _decided("sequence_length")
    expert_tensor_parallel_size: int = _decided("expert_tensor_parallel_size")
    padding_free: bool = _decided("padding_free")
    document_mask: bool = _decided("document_mask")
    kbit_preparation: bool = _decided("kbit_preparation")
    model_type: str = ""
    """The type of the model that the settings are resolved for."""
    logits_below: int = 0
    """A micro-batch of fewer tokens has its logits made: `loss` is `fused`, not `fused-linear`; 0: none has."""

    @classmethod
    def of(cls, train: TrainSettings, **decided: object) -> Self:
        """The settings with these keys decided, which count as given."""
        return cls(**{**vars(train), **decided, "explicit": train.explicit.union(decided)})

    def at_tokens(self, tokens: int) -> Self:
        """The same settings where a micro-batch has so many tokens."""
        if not self.logits_below:
            return self
        loss = "fused" if tokens < self.logits_below else "fused-linear"
        return self if loss == self.loss else self.replace(loss=loss)

    @property
    def compiles_layers(self) -> bool:
        """Whether decoder layers are compiled, each for itself or with the model around them."""
        return self.compile and self.compiled != ("loss",)

    @property
    def loss_at_any_size(self) -> str:
        """The loss that stands for micro-batches of every size, as a scenario states it."""
        return "fused-linear" if self.logits_below else self.loss
