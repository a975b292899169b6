"""A training scenario with everything decided, and the moments of its ranks at any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.models.autograd.size import RoundedAxes
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.scenario import Scenario
from vramwise.training.activations.sizes import RunBytes, StepShape, step_shape
from vramwise.training.layout.parallel import Placement, check_layout, placements
from vramwise.training.model_states.states import ModelStates, model_states
from vramwise.training.recipe.attention import check_padding, rows_of
from vramwise.training.recipe.framework_defaults import with_own_copies
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.images import check_described, check_images, with_whole_towers, without_speech
from vramwise.training.recipe.lengths import step_axes
from vramwise.training.recipe.settings import (
    resolved,
    structural,
)
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.gradients import on_stage
from vramwise.training.step.moments import Moment, step_moments

if TYPE_CHECKING:
    from vramwise.hardware import Gpu


@record
class Job:
    """A scenario with everything decided: what is needed to evaluate it at other sizes."""

    scenario: Scenario
    model: Model
    train: ResolvedTrain
    structure: ResolvedTrain
    gpu: Gpu | None
    ranks: tuple[Placement, ...]

    def states(self, rank: Placement) -> ModelStates:
        return model_states(self.model, self.structure, rank)

    def moments(self, rank: Placement) -> list[Moment]:
        """The moments of one rank at the scenario's sizes."""
        batch, sequence = self.train.micro_batch_size, self.local_sequence
        return moments_at(self.model, self.structure, rank, batch, sequence, self.accumulates)

    @property
    def accumulates(self) -> bool:
        """Whether a new gradient is added to one that is there, or goes at once."""
        return gradient_life(self.train).is_added

    @property
    def ranks_of_a_node(self) -> int:
        """GPUs of one node that this job uses."""
        return max(1, min(self.scenario.num_gpus, self.scenario.gpus_per_node))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sequence that one rank computes."""
        return -(-self.train.sequence_length // self.train.context_parallel_size)

    @property
    def axes(self) -> dict[str, int]:
        """Rows that the model gets for a micro-batch, and tokens of a row on one rank."""
        batch, sequence = rows_of(self.train, self.train.micro_batch_size, self.local_sequence)
        return {"batch": batch, "sequence": sequence}

    @property
    def step_axes(self) -> RoundedAxes:
        """The axes of a micro-batch on one rank."""
        return step_axes(self.model, self.train, **self.axes)

    def accumulates_on(self, rank: Placement) -> bool:
        """The same on a rank, whose stage of a pipeline adds up the gradients of all micro-batches."""
        return self.accumulates or rank.stages > 1

    def shape(self, rank: Placement) -> StepShape:
        """The rank's micro-batch in polynomials."""
        return step_shape(self.model, self.structure, **self.axes, accumulating=self.accumulates_on(rank))

    def runs(self, rank: Placement) -> list[RunBytes]:
        """The blocks of the rank's stage at the scenario's sizes."""
        return on_stage(self.shape(rank).at(self.step_axes), rank)


def job_of(scenario: Scenario, model: Model, gpu: Gpu | None) -> Job:
    """The scenario with open settings decided. Raises ScenarioError for settings that contradict one another."""
    if scenario.train.framework_version:
        from vramwise.frameworks.named_versions import check_versions

        check_versions(scenario.train)
    check_described(model)
    if scenario.train.head in ("sequence-classification", "none"):
        from vramwise.training.recipe.heads import with_head

        model = with_head(model, scenario.train.head)
    if framework_of(scenario.train).own_layers:
        from vramwise.training.recipe.heads import untied

        model = untied(model)
    if has_fact("transformers", "tied_against_the_config", model.config.model_type):
        from vramwise.training.recipe.heads import with_own_output

        model = with_own_output(model, library_version(scenario.train))
    train = resolved(scenario, model, gpu)
    check_layout(scenario, train, model)
    check_images(train, model)
    check_padding(train)
    if train.trainable:
        from vramwise.training.recipe.adapters import check_trainable

        check_trainable(model, train.trainable)
    model = with_own_copies(without_speech(train, with_whole_towers(train, model)), train)
    return Job(scenario, model, train, structural(train), gpu, placements(scenario, train, model))


def moments_at(
    model: Model, structure: ResolvedTrain, rank: Placement, batch: int, sequence: int, accumulates: bool
) -> list[Moment]:
    """The moments of one rank at a micro-batch and at tokens of a sequence on that rank."""
    rows, tokens = rows_of(structure, batch, sequence)
    shape = step_shape(model, structure, rows, tokens, accumulating=accumulates or rank.stages > 1)
    axes = step_axes(model, structure, rows, tokens, samples=batch)
    return step_moments(shape, model, model_states(model, structure, rank), structure, rank, axes)
