"""The moments of a training step on one rank, each as named parts in bytes.

A step's peak is the maximum over moments that hold different things:

| moment            | alive besides weights, master copy and optimizer states (and gradients, when accumulated)    |
|-------------------|-----------------------------------------------------------------------------------------------|
| load              | nothing: weights only                                                                         |
| forward           | what the blocks so far saved, and one block's live set                                        |
| loss              | everything that forward saved, logits in each of their dtypes                                 |
| forward return    | the same after the loss, and accelerate's fp32 copy of the outputs                            |
| forward end       | everything saved                                                                              |
| backward: head    | everything saved below the head, gradients of the logits                                      |
| backward: layers  | saved tensors of the layers below, gradients of those above, one layer's live set             |
| gradient reduction| FSDP: all gradients, those of the root unit whole, and the input of their reduce-scatter       |
| backward end      | all gradients                                                                                 |
| clipping          | all gradients, the norm of each                                                               |
| optimizer step    | all gradients, the optimizer's temporaries                                                    |
| later micro-batch | litgpt under FSDP: gradients whole, of one layer twice; its activations are not counted        |
| evaluation        | no gradients; one block's live set without autograd, or logits and loss                       |
| first step        | the largest of forward and backward while the optimizer has no states yet                     |

ZeRO has all of its partition of the gradients in backward, and `gradients as one` before the step: the partition in one
piece, and in fp32. A weight that is stepped in backward has `optimizer in backward` instead: one gradient at a time.
"""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Axes, evaluate, with_rounded_axes
from vramwise.models.liveness import Peak
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.activations.loss import makes_logits
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.components import Component
from vramwise.training.exchange.communication import buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates, rounded, width
from vramwise.training.recipe.masks import rows_of
from vramwise.training.recipe.settings import (
    autocasts,
    gradients_stay,
    longest_comes_first,
    reduces_in_backward,
    releases_gradients,
)
from vramwise.training.step.evaluation import evaluation_pass
from vramwise.training.step.extra_models import TRAINED, critic_pass, extra_model_bytes, role_of
from vramwise.training.step.forward_pass import largest_in_forward
from vramwise.training.step.micro_batches import (
    gradient_ratio,
    on_stage,
)
from vramwise.training.step.moment import Moment, with_critics
from vramwise.training.step.state import SCALAR_BYTES, StepState
from vramwise.training.zero3.module_calls import BELOW, HEAD

__all__ = ["Moment", "step_moments"]

_LOADED = (Component.WEIGHTS, Component.ADAPTERS)


def step_moments(
    shape: StepShape, model: Model, states: ModelStates, train: TrainSettings, placement: Placement, axes: Axes
) -> list[Moment]:
    """Every moment of a steady step (the optimizer's states exist), in order."""
    runs = on_stage(shape.at(axes), placement)
    exchanged = buffers(model, train, placement)
    ratio = gradient_ratio(model, train, placement)
    others = extra_model_bytes(model, train, placement)
    found = _Step(shape, model, states, train, placement, axes, runs, exchanged, ratio, others).moments()
    if not any(role_of(name) in TRAINED for name in train.extra_models):
        return found
    accumulating = gradients_stay(train) or releases_gradients(train) or placement.stages > 1
    return with_critics(found, critic_pass(model, train, axes, accumulating=accumulating), train)


class _Step(StepState):
    """The moments themselves."""

    def moments(self) -> list[Moment]:
        found = [Moment("load", {name: self.stays[name] for name in (*_LOADED, *self.others)})]
        found.append(self._forward())
        if any(run.shape.name == "loss" for run in self.runs):
            found += [self._loss(), self._forward_return()]
        found.append(self._forward_end())
        head = self._backward_head()
        if head:
            found.append(head)
        found.append(self._backward_layers())
        first = self._first_step(found)
        found += [self._in_backward(), self._backward_end()] if self.releases else self._after_backward()
        found.append(self._evaluation())
        found += first
        return [Moment(m.name, {k: v for k, v in m.parts.items() if v}, m.operation, m.layer) for m in found]

    def _after_backward(self) -> list[Moment]:
        clipping = [self._clipping()] if self.train.clip_grad_norm and self.states.num_trained_tensors else []
        later = [self._later_micro_batch()] if self.grows else []
        return [*self._reduction(), self._backward_end(), *later, *clipping, *self._as_one(), self._step()]

    def _reduction(self) -> list[Moment]:
        """The last reduce-scatter: FSDP's root unit beside its input, all other gradients done."""
        if not self.root.scattered or not self.all_gradients:
            return []
        done = self.all_gradients - (0 if self.kept_gradients else self.root.share)
        whole = self.root.unsharded
        if self.unsynced and self.train.fsdp_version == 1 and framework_of(self.train).gradients.deferred_with_frozen:
            done, whole = 0, self.unsynced + whole  # of an earlier one
        parts = self.held(done, gathered=self.root.gathered, unsharded=whole) | {
            Component.REDUCE_SCATTER: self.root.scattered,
            Component.LOGITS_AND_LOSS: self.logits_in_loop,
        }
        return [Moment("gradient reduction", parts)]

    def _later_micro_batch(self) -> Moment:
        """A shorter one, whose activations are not counted: a layer's gradient beside the sum that it is added to."""
        parts = self.held(self.all_gradients, unsharded=self.exchanged.unsharded_gradients)
        return Moment("later micro-batch", parts | {Component.NEW_GRADIENTS: self.exchanged.prefetched})

    def _first_step(self, found: list[Moment]) -> list[Moment]:
        """The largest moment before there are optimizer states: torch's optimizers make them in their first step."""
        from_start = self.train.zero_stage or framework_of(self.train).states_from_start
        if not self.stays[Component.OPTIMIZER_STATES] or from_start:
            return []
        largest = max(found, key=lambda moment: moment.total)
        return [
            Moment("first step", {**largest.parts, Component.OPTIMIZER_STATES: 0}, largest.operation, largest.layer)
        ]

    def _forward(self) -> Moment:
        """The largest live set before the loss, with the logits of the last step where litgpt's loop names them."""
        peak = largest_in_forward(self.runs, self.activations_below, self.casts_below)
        parts = self.held() | {
            Component.ACTIVATIONS: self.masks + self.waiting + peak.activations,
            Component.WEIGHT_CASTS: peak.weight_casts,
            Component.LOGITS_AND_LOSS: 0 if longest_comes_first(self.train) else self.logits_in_loop,
            Component.FORWARD_TEMPORARIES: peak.temporaries,
        }
        return Moment("forward", parts, peak.operation)

    def _loss(self) -> Moment:
        """Logits and their copies, while forward's frames still hold the outputs."""
        loss = next(run for run in self.runs if run.shape.name == "loss")
        peak = loss.forward_peak
        parts = self.held(gathered=self.exchanged.at_loss) | {
            Component.ACTIVATIONS: self.saved.activations,
            Component.WEIGHT_CASTS: self.saved.weight_casts + sum(run.forward_casts for run in self.runs),
            Component.LOGITS_AND_LOSS: peak.total + int(evaluate(self.shape.logits_in_loss, self.axes)),
            Component.OUTPUTS_HELD: sum(run.outputs_held for run in self.runs),
        }
        return Moment("loss", parts, peak.operation)

    def _forward_return(self) -> Moment:
        """The outputs on their way back: autocast's weight casts end, then accelerate copies outputs to fp32."""
        copy = 0
        if framework_of(self.train).trainer and autocasts(self.train):
            copy = int(evaluate(self.shape.outputs_upcast, self.axes))
        casts = sum(run.forward_casts for run in self.runs)
        logits = self.saved.logits_loss + int(evaluate(self.shape.logits_in_outputs, self.axes))
        if self.logits_in_loop:  # litgpt: while the head makes them, those of the last step beside them
            before = 0 if longest_comes_first(self.train) else self.logits_in_loop
            logits = before + max(run.forward_peak.temporaries for run in self.runs if run.shape.is_head)
        parts = self.held(gathered=self.exchanged.at_loss) | {
            Component.ACTIVATIONS: self.saved.activations,
            Component.WEIGHT_CASTS: self.saved.weight_casts + (casts if casts > copy else 0),
            Component.LOGITS_AND_LOSS: logits + (0 if casts > copy else copy) + SCALAR_BYTES,
            Component.OUTPUTS_HELD: sum(run.outputs_held for run in self.runs),
            Component.INPUTS_OF_LAST_STEP: self.lingering,
        }
        return Moment("forward return", parts)

    def _forward_end(self) -> Moment:
        parts = self.held(gathered=self.exchanged.at_loss) | {
            Component.ACTIVATIONS: self.saved.activations,
            Component.WEIGHT_CASTS: self.saved.weight_casts,
            Component.LOGITS_AND_LOSS: self.saved.logits_loss + SCALAR_BYTES,
        }
        return Moment("forward end", parts)

    def _backward_head(self) -> Moment | None:
        inside = [self._inside(i, self.runs[i].head_peak, "backward: head") for i in self.heaviest(is_head=True)]
        return max(inside, key=lambda moment: moment.total, default=None)

    def _backward_layers(self) -> Moment:
        heaviest = self.heaviest(is_head=False)
        inside = [self._inside(i, self.runs[i].peak, "backward: layers") for i in heaviest]
        if self.exchanged.one_piece:
            inside += [self._in_one_piece(i) for i in heaviest if self.runs[i].shape.layer is not None]
        return max(inside, key=lambda moment: moment.total, default=Moment("backward: layers", self.held()))

    def _inside(self, index: int, peak: Peak, name: str) -> Moment:
        """A moment inside one block's backward: blocks below are whole, blocks above are done."""
        run = self.runs[index]
        own_kept = run.activations + run.weight_casts if run.shape.checkpointed else 0
        in_loss = run.shape.name == "loss"
        logits = peak is run.head_peak and "norm" not in peak.module
        layer = self._layer(index)
        gathered = self._gathered_inside(index, layer, is_head=name == "backward: head")
        gradients = self.kept_in_backward + self.finished_above(index) + peak.weight_gradients
        parts = self.held(gradients, gathered=gathered, unsharded=self._unsharded_inside(index, in_logits=logits)) | {
            Component.ACTIVATIONS: self.waiting
            + self.masks
            + self.activations_below[index]
            + own_kept
            + (0 if in_loss else peak.saved),
            Component.WEIGHT_CASTS: self.casts_below[index],
            Component.LOGITS_AND_LOSS: self.logits_in_loop
            + (peak.saved if in_loss else 0)
            + (peak.temporaries if logits else 0)
            + SCALAR_BYTES,
            Component.BACKWARD_TEMPORARIES: 0 if logits else peak.temporaries,
            Component.INPUTS_KEPT_BY_FSDP: self.hooked_above[-1] - self.hooked_above[index + 1],
            Component.REDUCE_SCATTER: 0 if logits else self.exchanged.reduce_scatter,
            Component.GRADIENT_BUCKETS: self.exchanged.buckets + (0 if logits else self.exchanged.backward_buckets),
        }
        return Moment(name, parts, peak.operation, layer)

    def _layer(self, index: int) -> int | None:
        """The number of a block's layer; equal layers share one shape, so it is counted."""
        if self.runs[index].shape.layer is None:
            return None
        return self.placement.first_layer + sum(run.shape.layer is not None for run in self.runs[:index])

    def _gathered_inside(self, index: int, layer: int | None, *, is_head: bool) -> int:
        """Gathered weights while a block's backward runs."""
        exchanged = self.exchanged
        if exchanged.by_call is not None:
            outside = HEAD if self.runs[index].shape.is_head else BELOW
            place = outside if layer is None else layer
            return exchanged.by_call.backward.get(place, exchanged.by_call.after_forward)  # a head may have no weights
        if index == self.lowest_layer:  # nothing is left to gather ahead
            return exchanged.gathered - exchanged.prefetched
        if index < self.lowest_layer and self.root.scattered:  # behind the embedding no layer is left to gather
            return exchanged.between_layers
        return exchanged.at_head if is_head else exchanged.gathered

    def _unsharded_inside(self, index: int, *, in_logits: bool) -> int:
        """Whole gradients while a block's backward runs."""
        if self.grows:
            above = self.numel_below[-1] - self.numel_below[min(index + 1, len(self.numel_below) - 1)]
            return self.exchanged.unsharded_gradients * above // self.numel_below[-1]
        above_layers = in_logits or (self.runs[index].shape.layer is None and index >= self.lowest_layer)
        return self.unsharded() + (0 if above_layers else self.head_waits())

    def _in_one_piece(self, index: int) -> Moment:
        """A layer's backward is over: FSDP 1 joins its gradients before it reduces and frees what was gathered."""
        joined = self._inside(index, Peak("split backward", "", 0, 0, 0), "backward: layers")
        run = self.runs[index]
        kept, piece = run.activations + run.weight_casts if run.shape.checkpointed else 0, self.exchanged.one_piece
        parts = {
            **joined.parts,
            Component.ACTIVATIONS: joined.of(Component.ACTIVATIONS) - kept,
            Component.GRADIENTS: joined.of(Component.GRADIENTS) + piece,
            Component.REDUCE_SCATTER: piece,
        }
        return Moment(joined.name, parts, joined.operation, joined.layer)

    def _backward_end(self) -> Moment:
        gathered = None
        if self.train.fsdp != "none":
            gathered = self.exchanged.at_loss
        elif self.exchanged.by_call is not None:
            gathered = self.exchanged.by_call.after_backward
        parts = self.held_after_backward(self.all_gradients, gathered=gathered)
        return Moment("backward end", parts | (self._last_reduction() if self.train.zero_stage else {}))

    def _last_reduction(self) -> dict[Component, int]:
        """The last bucket of a backward pass; stage 1 begins to reduce then, with a partition for what it keeps."""
        exchanged = self.exchanged
        is_new = self.train.zero_stage == 1 and not reduces_in_backward(self.train) and self.all_gradients > 0
        return {
            Component.GRADIENTS: self.kept_in_backward if self.train.zero_stage == 2 else self.all_gradients,
            Component.GRADIENT_BUCKETS: exchanged.buckets + exchanged.backward_buckets,
            Component.REDUCE_SCATTER: exchanged.reduce_scatter,
            Component.GRADIENTS_AS_ONE: self.own_partition if is_new else 0,
        }

    def _clipping(self) -> Moment:
        """Norms of all gradients, one fp32 or 16-bit scalar each, and the same stacked (torch 2.13 clip_grad.py)."""
        count = self.states.num_trained_tensors
        stacked = rounded(count * width(self.train.grad_dtype or "fp32"))
        norms = (count + 1) * SCALAR_BYTES + stacked
        own = self.own_partition or self.all_gradients
        parts = self.held_after_backward(own if self.all_gradients else 0, gathered=0)
        return Moment("clipping", parts | {Component.GRADIENT_NORMS: norms})

    def _as_one(self) -> list[Moment]:
        """ZeRO joins its partition of the gradients and casts it to fp32 before the 16-bit ones go."""
        flat, wide = self.states.flat_gradients, self.states.fp32_gradients
        if not wide or not self.train.zero_stage or offloaded(self.train).gradients:
            return []
        own = self.all_gradients if self.train.zero_stage == 3 else flat
        parts = self.held(own, gathered=0, unsharded=0) | {
            Component.GRADIENTS_AS_ONE: flat,
            Component.FP32_GRADIENTS: wide if wide != flat else 0,
        }
        return [Moment("gradients as one", parts)]

    def _step(self) -> Moment:
        transient = 0 if offloaded(self.train).optimizer else self.states.step_transient
        wide = 0 if offloaded(self.train).gradients else self.states.fp32_gradients
        kept = 0 if wide and self.train.zero_stage in (1, 2) else self.all_gradients
        parts = self.held_after_backward(kept, gathered=0, unsharded=0) | {
            Component.OPTIMIZER_TEMPORARIES: transient,
            Component.FP32_GRADIENTS: wide,
        }
        return Moment("optimizer step", parts)

    def _in_backward(self) -> Moment:
        """The step of a block's largest weight: blocks below are whole, of the gradients there is this one."""
        most = Moment("optimizer in backward", self.held())
        for i, run in enumerate(self.runs):
            first = self.placement.first_layer + sum(r.shape.layer is not None for r in self.runs[:i])
            key = first if run.shape.layer is not None else "head" if run.shape.is_head else "embedding"
            gradient, transient = self.states.released.get(key, (0, 0))
            parts = self.held() | {
                Component.ACTIVATIONS: self.waiting + self.masks + self.activations_below[i],
                Component.WEIGHT_CASTS: self.casts_below[i],
                Component.GRADIENTS: gradient,
                Component.OPTIMIZER_TEMPORARIES: transient,
            }
            most = max(most, Moment(most.name, parts), key=lambda moment: moment.total)
        return most

    def _evaluation(self) -> Moment:
        """A pass without autograd, after the gradients went (or beside them)."""
        tokens = self.axes["batch"] * self.axes["sequence"]
        samples = self.axes.get("samples", self.axes["batch"])
        batch, sequence = rows_of(self.train, self.train.eval_batch_size or samples, tokens // samples)
        shape, runs = self.shape, self.runs
        if (batch, sequence) != (self.axes["batch"], self.axes["sequence"]):  # one row is recorded without the axis
            shape = step_shape(self.model, self.train, int(batch), int(sequence), accumulating=False)
            runs = on_stage(shape.at(with_rounded_axes(batch=int(batch), sequence=int(sequence))), self.placement)
        found = evaluation_pass(shape, runs, int(batch), int(sequence), logits=makes_logits(self.train))
        parts = self.held(0 if self.train.set_to_none else self.all_gradients) | {
            Component.INPUTS: found.inputs,
            Component.WEIGHT_CASTS: found.casts,
            Component.FORWARD_TEMPORARIES: found.temporaries,
        }
        return Moment("evaluation", parts, found.operation)
