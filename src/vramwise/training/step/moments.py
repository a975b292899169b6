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

from vramwise.models.autograd.size import Axes, evaluate, with_rounded_axes
from vramwise.models.liveness import Peak
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.activations.loss import makes_logits
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.exchange.communication import buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates, rounded, width
from vramwise.training.recipe.masks import rows_of
from vramwise.training.recipe.settings import (
    HUGGING_FACE,
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
        found = [Moment("load", {name: self.static[name] for name in ("weights", "adapters", *self.others)})]
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
        held = self.held(done) | self.root.parts | {"logits and loss": self.logits_in_loop}
        if self.unsynced and self.train.fsdp_version == 1 and self.train.framework == "litgpt":
            held |= {"gradients": 0, "unsharded gradients": self.unsynced + self.root.unsharded}  # of an earlier one
        return [Moment("gradient reduction", held)]

    def _later_micro_batch(self) -> Moment:
        """A shorter one, whose activations are not counted: a layer's gradient beside the sum that it is added to."""
        held = {"unsharded gradients": self.exchanged.unsharded_gradients}
        return Moment(
            "later micro-batch", self.held(self.all_gradients) | held | {"new gradients": self.exchanged.prefetched}
        )

    def _first_step(self, found: list[Moment]) -> list[Moment]:
        """The largest moment before there are optimizer states: torch's optimizers make them in their first step."""
        if not self.static["optimizer states"] or self.train.zero_stage or self.train.framework == "megatron":
            return []
        largest = max(found, key=lambda moment: moment.total)
        return [Moment("first step", {**largest.parts, "optimizer states": 0}, largest.operation, largest.layer)]

    def _forward(self) -> Moment:
        """The largest live set before the loss, with the logits of the last step where litgpt's loop names them."""
        peak = largest_in_forward(self.runs, self.activations_below, self.casts_below)
        parts = self.held() | {
            "activations": self.masks + self.waiting + peak.activations,
            "weight casts": peak.weight_casts,
            "logits and loss": 0 if longest_comes_first(self.train) else self.logits_in_loop,
            "forward temporaries": peak.temporaries,
        }
        return Moment("forward", parts, peak.operation)

    def _loss(self) -> Moment:
        """Logits and their copies, while forward's frames still hold the outputs."""
        loss = next(run for run in self.runs if run.shape.name == "loss")
        peak = loss.forward_peak
        parts = self.held() | {
            "gathered weights": self.exchanged.at_loss,
            "activations": self.saved.activations,
            "weight casts": self.saved.weight_casts + sum(run.forward_casts for run in self.runs),
            "logits and loss": peak.total + int(evaluate(self.shape.logits_in_loss, self.axes)),
            "outputs held": sum(run.outputs_held for run in self.runs),
        }
        return Moment("loss", parts, peak.operation)

    def _forward_return(self) -> Moment:
        """The outputs on their way back: autocast's weight casts end, then accelerate copies outputs to fp32."""
        copy = 0
        if self.train.framework in HUGGING_FACE and autocasts(self.train):
            copy = int(evaluate(self.shape.outputs_upcast, self.axes))
        casts = sum(run.forward_casts for run in self.runs)
        logits = self.saved.logits_loss + int(evaluate(self.shape.logits_in_outputs, self.axes))
        if self.logits_in_loop:  # litgpt: while the head makes them, those of the last step beside them
            before = 0 if longest_comes_first(self.train) else self.logits_in_loop
            logits = before + max(run.forward_peak.temporaries for run in self.runs if run.shape.is_head)
        parts = self.held() | {
            "gathered weights": self.exchanged.at_loss,
            "activations": self.saved.activations,
            "weight casts": self.saved.weight_casts + (casts if casts > copy else 0),
            "logits and loss": logits + (0 if casts > copy else copy) + SCALAR_BYTES,
            "outputs held": sum(run.outputs_held for run in self.runs),
            "inputs of the last step": self.lingering,
        }
        return Moment("forward return", parts)

    def _forward_end(self) -> Moment:
        parts = self.held() | {
            "gathered weights": self.exchanged.at_loss,
            "activations": self.saved.activations,
            "weight casts": self.saved.weight_casts,
            "logits and loss": self.saved.logits_loss + SCALAR_BYTES,
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
        parts = self.held() | {
            "activations": self.waiting
            + self.masks
            + self.activations_below[index]
            + own_kept
            + (0 if in_loss else peak.saved),
            "weight casts": self.casts_below[index],
            "logits and loss": self.logits_in_loop
            + (peak.saved if in_loss else 0)
            + (peak.temporaries if logits else 0)
            + SCALAR_BYTES,
            "backward temporaries": 0 if logits else peak.temporaries,
            "inputs that FSDP keeps": self.hooked_above[-1] - self.hooked_above[index + 1],
            "reduce-scatter": 0 if logits else self.exchanged.reduce_scatter,
            "gradient buckets": self.exchanged.buckets + (0 if logits else self.exchanged.backward_buckets),
        }
        parts["gradients"] = self.kept_in_backward + self.finished_above(index) + peak.weight_gradients
        if name == "backward: head":
            parts["gathered weights"] = self.exchanged.at_head
        if self.grows:
            above = self.numel_below[-1] - self.numel_below[min(index + 1, len(self.numel_below) - 1)]
            parts["unsharded gradients"] = self.exchanged.unsharded_gradients * above // self.numel_below[-1]
        elif not logits and (run.shape.layer is not None or index < self.lowest_layer):
            parts["unsharded gradients"] += self.head_waits()
        if index < self.lowest_layer and self.root.scattered:  # behind the embedding no layer is left to gather
            parts["gathered weights"] = self.exchanged.between_layers
        if index == self.lowest_layer:  # nothing is left to gather ahead
            parts["gathered weights"] = self.exchanged.gathered - self.exchanged.prefetched
        layer = None
        if run.shape.layer is not None:  # equal layers share one shape, so the number is counted
            layer = self.placement.first_layer + sum(r.shape.layer is not None for r in self.runs[:index])
        if self.exchanged.by_call is not None:
            outside = HEAD if run.shape.is_head else BELOW
            place, calls = outside if layer is None else layer, self.exchanged.by_call
            parts["gathered weights"] = calls.backward.get(place, calls.after_forward)  # a head may have no weights
        return Moment(name, parts, peak.operation, layer)

    def _in_one_piece(self, index: int) -> Moment:
        """A layer's backward is over: FSDP 1 joins its gradients before it reduces and frees what was gathered."""
        joined = self._inside(index, Peak("split backward", "", 0, 0, 0), "backward: layers")
        run = self.runs[index]
        parts = dict(joined.parts)
        parts["activations"] -= run.activations + run.weight_casts if run.shape.checkpointed else 0
        parts["gradients"] += self.exchanged.one_piece
        parts["reduce-scatter"] = self.exchanged.one_piece
        return Moment(joined.name, parts, joined.operation, joined.layer)

    def _backward_end(self) -> Moment:
        parts = self.held_after_backward(self.all_gradients)
        if self.train.fsdp != "none":
            parts["gathered weights"] = self.exchanged.at_loss
        if self.exchanged.by_call is not None:
            parts["gathered weights"] = self.exchanged.by_call.after_backward
        if self.train.zero_stage:
            parts |= self._last_reduction()
        return Moment("backward end", parts)

    def _last_reduction(self) -> dict[str, int]:
        """The last bucket of a backward pass; stage 1 begins to reduce then, with a partition for what it keeps."""
        exchanged = self.exchanged
        is_new = self.train.zero_stage == 1 and not reduces_in_backward(self.train) and self.all_gradients > 0
        return {
            "gradients": self.kept_in_backward if self.train.zero_stage == 2 else self.all_gradients,
            "gradient buckets": exchanged.buckets + exchanged.backward_buckets,
            "reduce-scatter": exchanged.reduce_scatter,
            "gradients as one": self.own_partition if is_new else 0,
        }

    def _clipping(self) -> Moment:
        """Norms of all gradients, one fp32 or 16-bit scalar each, and the same stacked (torch 2.13 clip_grad.py)."""
        count = self.states.num_trained_tensors
        stacked = rounded(count * width(self.train.grad_dtype or "fp32"))
        norms = (count + 1) * SCALAR_BYTES + stacked
        own = self.own_partition or self.all_gradients
        return Moment(
            "clipping",
            self.held_after_backward(own if self.all_gradients else 0)
            | {"gradient norms": norms, "gathered weights": 0},
        )

    def _as_one(self) -> list[Moment]:
        """ZeRO joins its partition of the gradients and casts it to fp32 before the 16-bit ones go."""
        flat, wide = self.states.flat_gradients, self.states.fp32_gradients
        if not wide or not self.train.zero_stage or offloaded(self.train).gradients:
            return []
        own = self.all_gradients if self.train.zero_stage == 3 else flat
        parts = self.held(own) | {"gradients as one": flat, "gathered weights": 0, "unsharded gradients": 0}
        if wide != flat:
            parts["fp32 gradients"] = wide
        return [Moment("gradients as one", parts)]

    def _step(self) -> Moment:
        transient = 0 if offloaded(self.train).optimizer else self.states.step_transient
        wide = 0 if offloaded(self.train).gradients else self.states.fp32_gradients
        kept = 0 if wide and self.train.zero_stage in (1, 2) else self.all_gradients
        parts = self.held_after_backward(kept) | {"optimizer temporaries": transient, "gathered weights": 0}
        parts["unsharded gradients"] = 0
        parts["fp32 gradients"] = wide
        return Moment("optimizer step", parts)

    def _in_backward(self) -> Moment:
        """The step of a block's largest weight: blocks below are whole, of the gradients there is this one."""
        most = Moment("optimizer in backward", self.held())
        for i, run in enumerate(self.runs):
            first = self.placement.first_layer + sum(r.shape.layer is not None for r in self.runs[:i])
            key = first if run.shape.layer is not None else "head" if run.shape.is_head else "embedding"
            gradient, transient = self.states.released.get(key, (0, 0))
            parts = self.held() | {
                "activations": self.waiting + self.masks + self.activations_below[i],
                "weight casts": self.casts_below[i],
                "gradients": gradient,
                "optimizer temporaries": transient,
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
        parts = self.held(0 if self.train.set_to_none else self.all_gradients)
        parts |= {"inputs": found.inputs, "weight casts": found.casts, "forward temporaries": found.temporaries}
        return Moment("evaluation", parts | {"reduce-scatter": 0}, found.operation)
