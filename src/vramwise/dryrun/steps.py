"""The moments of a training loop that somebody else wrote: marked from hooks of torch, and ended in time."""

from __future__ import annotations

import weakref
from typing import Any, Final

from vramwise.dryrun.session import Session
from vramwise.measure.libraries import library
from vramwise.measure.optimizing import state_tensors
from vramwise.measure.recorder import local

STEPS: Final = 2
MOST_STEPS: Final = 16
"""Steps of one optimizer after which those that have not come so far are waited for no more."""


class EnoughSteps(BaseException):
    """The steps that were wanted are over; nothing of the script's own catches it."""


class Steps:
    """Marks the moments of a loop, and ends it once every optimizer has made its steps.

    A step of the loop is over when all optimizers that it made have stepped once more: a GAN's two take turns, and a
    critic may step five times before the generator does.
    """

    def __init__(self, session: Session) -> None:
        self.watcher = session.watcher
        self.step = 1
        self.stepped = 0
        self.inside = 0
        self.model: Any = None
        self.parameters = 0
        self.trainable = 0
        self.waited_in_vain = 0
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.watcher.mark("0|load")

    def replacements(self) -> list[tuple[object, str, object]]:
        """Attributes to replace: backward's beginning and end are moments, and optimizers say that they are there."""
        torch = library("torch")
        backward, make = torch.autograd.backward, torch.optim.Optimizer.__init__

        def marked(*args: object, **kwargs: object) -> Any:
            self.watcher.mark(f"{self.step}|backward: layers")
            backward(*args, **kwargs)
            self.watcher.mark(f"{self.step}|backward end")

        def made(optimizer: object, *args: object, **kwargs: object) -> None:
            make(optimizer, *args, **kwargs)
            self._counts.setdefault(optimizer, 0)

        return [(torch.autograd, "backward", marked), (torch.optim.Optimizer, "__init__", made)]

    def before_forward(self, module: object, _: object) -> None:
        """The outermost module begins: a forward pass, the first time also the end of loading."""
        if len(self.watcher.modules) > 1 or self.watcher.hidden:
            return
        if module not in self._models:
            self.loaded(module, marks=self.watcher.moment == "0|load")
        label = f"{self.step}|forward"
        if self.watcher.moment != label:
            self.watcher.mark(label)

    def before_step(self, optimizer: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Gradients are there, or a closure makes them inside (Lightning); then the step begins after it."""
        gradients = [local(p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.watcher.name("gradients", gradients)
        self.inside += 1
        if self.inside == 1:
            self.watcher.mark(f"{self.step}|optimizer step")
        named = dict(kwargs or {})
        if callable(named.get("closure")):
            named["closure"] = self._ending(optimizer, named["closure"])
        return tuple(self._ending(optimizer, one) if _is_closure(one) else one for one in args), named

    def _ending(self, optimizer: Any, closure: Any) -> object:
        def ended(*args: Any, **kwargs: Any) -> Any:
            found = closure(*args, **kwargs)
            every = (p for group in optimizer.param_groups for p in group["params"])
            self.watcher.name("gradients", [local(p.grad) for p in every if p.grad is not None])
            self.watcher.mark(f"{self.step}|optimizer step")
            return found

        return ended

    def after_step(self, optimizer: object, *_: object) -> None:
        self.watcher.name("optimizer states", map(local, state_tensors(optimizer)))
        self.inside -= 1
        self._counts[optimizer] = count = self._counts.get(optimizer, 0) + 1
        if self.inside:  # an optimizer that steps another one, as ZeroRedundancyOptimizer does
            return
        self.stepped += 1
        self.watcher.mark(f"{self.step}|between steps")
        behind = [one for one, made in self._counts.items() if made < self.step]
        if behind and count < MOST_STEPS:
            return
        if self.step == STEPS or count >= MOST_STEPS:
            self.waited_in_vain = len(behind)
            raise EnoughSteps
        self.step += 1

    def loaded(self, model: object, *, marks: bool = True) -> None:
        """A model stands on the card, and has not run yet; `marks`: nothing else has either."""
        self._models.add(model)
        self._name(model)
        if marks:
            self.watcher.mark("0|loaded")

    def remarks(self) -> list[str]:
        """What is said of how far the script came."""
        if not self.stepped:
            return ["no optimizer stepped: these are the forward passes that the script ran before it ended"]
        if self.waited_in_vain:
            others = "one optimizer" if self.waited_in_vain == 1 else f"{self.waited_in_vain} optimizers"
            return [f"{others} did not step while another made {MOST_STEPS} steps: what it would take is not counted"]
        return []

    def _name(self, model: Any) -> None:
        """Name what the model holds; what is counted is the parameters of all models, each once."""
        self.model = self.model or model
        every = {id(p): p for one in self._models for p in one.parameters()}
        self.parameters = sum(p.numel() for p in every.values())
        self.trainable = sum(p.numel() for p in every.values() if p.requires_grad)
        self.watcher.name("weights", map(local, model.parameters()))
        self.watcher.name("buffers", map(local, model.buffers()))
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            self.watcher.place(local(tensor), name)


def _is_closure(one: object) -> bool:
    """Whether an argument of `step` is what works out the loss, and not the optimizer itself."""
    return callable(one) and not hasattr(one, "param_groups")
