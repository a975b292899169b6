"""Watches every operation on fake CUDA tensors: which storages begin, which end, and who asked for them.

A storage lives from the operation that makes it to its last reference, Python's locals and autograd's saved tensors
included; a weak reference to it says when. One thing is put back that any observer changes: the engine adds gradients
in place (torch/csrc/autograd/input_buffer.cpp `InputBuffer::accumulate`) unless somebody watches, when it makes a third
tensor. A sum in backward that no line of Python asked for therefore hands its block on.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vramwise.dryrun.attention import redirected
from vramwise.dryrun.events import EMPTY, FREE, MARK, NOTE, Frame, Life, Log
from vramwise.measure.libraries import library

if TYPE_CHECKING:
    from vramwise.dryrun.full_card import FullCard

_DEEPEST: Final = 24
_PRODUCTS: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_mm", "convolution"})
_PASSES_ON: Final = ("_python_dispatch.py", "_stats.py", "_compile.py", "/_dynamo/eval_frame.py")
"""Files of torch that stand between the engine and a mode: what calls a mode is kept from being compiled."""
_OWN_HOLDERS: Final = 2
"""Who refers to a storage that only its tensor holds, while it is looked at."""
WORKSPACE: Final = "library workspace"


class TooMuchError(BaseException):
    """Far more was asked for than a card has; nothing of the script's own catches it."""


class _Ref(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)
    key: int


class Watcher:
    """The state of a watch: the log, what is alive, modules, and where backward's operations come from.

    `workspace_bytes`: what cuBLAS takes at the first product of forward, and again of backward, which runs in a thread
    of its own with a handle of its own (aten/src/ATen/cuda/CublasHandlePool.cpp). `most_bytes`: more than this ends the
    run by TooMuchError.
    """

    def __init__(self, capability: tuple[int, int], workspace_bytes: int = 0, *, stacks: bool = True) -> None:
        torch = library("torch")
        self.log = Log()
        self.moment = ""
        self.alive: dict[int, Life] = {}
        self.on_backward: Callable[[int], None] | None = None
        self.stream_of: Callable[[], int] = lambda: 0
        self.workspace_bytes = workspace_bytes
        self.most_bytes: int | None = None
        self.card: FullCard | None = None
        self._held = 0
        self.hidden = 0
        self.stacks = stacks
        self.attention = redirected(capability)
        self.modules: list[str] = []
        self.head = ""
        self.moved_as = ""
        """What copies of weights are called, which come from the host or are in another dtype."""
        self._refs: dict[int, _Ref] = {}
        self._worked: set[bool] = set()
        self._made_at: dict[int, tuple[str, tuple[Frame, ...]]] = {}
        self._frames: dict[tuple[Any, int], Frame | None] = {}
        self._sequence = torch._C._autograd._get_sequence_nr
        self._node = torch._C._current_autograd_node
        self._in_backward = torch._C._current_graph_task_id
        self._use_count = torch._C._storage_Use_Count
        self._grad_enabled = torch.is_grad_enabled
        self._fake = library("torch._subclasses.fake_tensor").FakeTensor
        self._tensor = torch.Tensor
        self._ones: set[int] = set()

    def mark(self, label: str) -> None:
        self.moment = label
        if "|backward" in label:  # what forward made and is alive now, backward needs
            for life in list(self.alive.values()):
                life.lasted = True
        self.log.say(MARK, label)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Nothing that is made inside is a tensor of its own."""
        self.hidden += 1
        try:
            yield
        finally:
            self.hidden -= 1

    def note(self, label: str) -> None:
        self.log.say(NOTE, label)

    def empty_cache(self) -> None:
        self.log.say(EMPTY)

    def name(self, name: str, tensors: Any) -> None:
        """Say what tensors are known as."""
        for tensor in tensors:
            if isinstance(tensor, self._fake):
                life = self.alive.get(tensor.untyped_storage()._cdata)
                if life is not None:
                    life.name = name

    def place(self, tensor: object, module: str) -> None:
        """Say whose tensor it is."""
        life = self.alive.get(tensor.untyped_storage()._cdata) if isinstance(tensor, self._fake) else None
        if life is not None:
            life.module = life.module or module

    def seen(self, func: Any, args: Any, kwargs: object, out: Any) -> None:
        """An operation has run."""
        if self.hidden:
            return
        backward = self._in_backward() != -1
        operation = func._schema.name.partition("::")[2]
        if operation in _PRODUCTS and self.workspace_bytes and backward not in self._worked:
            self._worked.add(backward)
            self.log.take(self._life(self.workspace_bytes, operation, backward, WORKSPACE))
        if backward and self.on_backward is not None:
            node = self._node()
            if node is not None:
                self.on_backward(node._sequence_nr())
        if operation == "add" and backward and self._is_engines_sum(args, kwargs, out):
            return
        if isinstance(out, self._tensor):
            self._register(out, operation, args, backward)
        elif isinstance(out, list | tuple):
            sources = args[0] if args and isinstance(args[0], list | tuple) and len(args[0]) == len(out) else None
            for place, item in enumerate(out):
                if isinstance(item, self._tensor):
                    self._register(item, operation, args if sources is None else (sources[place],), backward)
                elif isinstance(item, list | tuple):
                    for one in item:
                        if isinstance(one, self._tensor):
                            self._register(one, operation, args, backward)
        if operation == "_softmax_backward_data":  # on CUDA it first makes grad * output (native/cuda/SoftMax.cu)
            self._passing(args[0], operation, backward)

    def _passing(self, like: object, operation: str, backward: bool) -> None:
        """What an operation takes beside its results, as large as one of its inputs, and gives back when it ends."""
        if not isinstance(like, self._fake) or like.fake_device.type != "cuda":
            return
        life = self._life(like.numel() * like.element_size(), operation, backward, "")
        self.log.take(life)
        self.log.say(FREE, life.number)

    def _register(self, tensor: object, operation: str, args: Any, backward: bool) -> None:
        if not isinstance(tensor, self._fake) or tensor.fake_device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        life = self.alive.get(key)
        size = storage.nbytes()
        if life is not None:
            if life.size == size:
                return
            self._free(key)
        if size:
            life = self._life(size, operation, backward, self._category(operation, args))
            if not life.inside:
                life.like = self._number(args[0]) if args else None
            self._begin(storage, key, life)

    def _number(self, tensor: object) -> int | None:
        """The number of the life that a tensor lies in."""
        life = self.alive.get(tensor.untyped_storage()._cdata) if isinstance(tensor, self._fake) else None
        return None if life is None else life.number

    def _begin(self, storage: object, key: int, life: Life) -> None:
        self.log.take(life)
        if self.card is not None and self._held + life.size > self.card.least:
            refused = self.card.refusal()
            if refused is not None:
                self.log.events.pop()
                self.card.forget_the_try()
                try:
                    raise refused
                finally:
                    del refused  # with this frame in its traceback it would keep the try's tensors
        self._held += life.size
        if self.most_bytes is not None and self._held > self.most_bytes:
            raise TooMuchError(self._held)
        self._hold(storage, key, life)

    def _hold(self, storage: object, key: int, life: Life) -> None:
        self.alive[key] = life
        reference = _Ref(storage, self._gone)
        reference.key = key
        self._refs[key] = reference

    def _gone(self, reference: _Ref) -> None:
        if self._refs.get(reference.key) is reference:
            self._free(reference.key)

    def _free(self, key: int) -> None:
        del self._refs[key]
        life = self.alive.pop(key)
        self._held -= life.size
        self._ones.discard(key)
        self.log.say(FREE, life.number)

    def of_ones(self, tensor: Any) -> bool:
        """Whether a tensor was made of ones, and nothing has been written to it since."""
        return tensor.untyped_storage()._cdata in self._ones

    def written(self, func: Any, args: Any, out: Any) -> None:
        """Note what is made of ones, and what no longer is."""
        if func._schema.name == "aten::ones":
            self._ones |= {out.untyped_storage()._cdata} & self.alive.keys()
        elif self._ones and func._schema.is_mutable and args and isinstance(args[0], self._fake):
            self._ones.discard(args[0].untyped_storage()._cdata)

    def resized(self, storage: Any, size: int) -> None:
        """A storage was given another size (FSDP frees so)."""
        key = storage._cdata
        if key in self.alive:
            self._free(key)
        if size:
            self._begin(storage, key, self._life(size, "resize_", self._in_backward() != -1, ""))

    def _is_engines_sum(self, args: Any, kwargs: Any, out: Any) -> bool:
        """Whether the engine added gradients; the block of the first is then that of the sum."""
        if kwargs or self._grad_enabled() or len(args) != 2 or not isinstance(out, self._fake):
            return False
        first, second = args
        if not (isinstance(first, self._fake) and isinstance(second, self._tensor)) or first.shape != second.shape:
            return False
        if not _nobody_called():
            return False
        storage = first.untyped_storage()
        if self._use_count(storage._cdata) > _OWN_HOLDERS or first.dtype != out.dtype:
            return False
        key = storage._cdata
        life = self.alive.get(key)
        made = out.untyped_storage()
        if life is None or made.nbytes() != life.size or made._cdata in self.alive:
            return False
        del self._refs[key], self.alive[key]
        self._hold(made, made._cdata, life)
        return True

    def _category(self, operation: str, args: Any) -> str:
        """A 16-bit copy of a weight, which autocast keeps; weights that move."""
        if operation != "_to_copy":
            return ""
        if self.moved_as and self._moves(args[0]):
            return self.moved_as
        if args and isinstance(args[0], self._fake):
            source = self.alive.get(args[0].untyped_storage()._cdata)
            if source is not None and source.name in ("weights", "adapters") and self.moment.endswith("forward"):
                return "weight casts"
        return ""

    def _moves(self, source: Any) -> bool:
        """Whether a copy is of a tensor on the host, or of a weight."""
        if source.device.type == "cpu":
            return True
        life = self.alive.get(source.untyped_storage()._cdata)
        return life is not None and life.name == self.moved_as

    def _life(self, size: int, operation: str, backward: bool, name: str) -> Life:
        module, stack = self._asked(backward)
        if not name and self.head and module == self.head and operation in _PRODUCTS and not backward:
            name = "logits and loss"
        number, stream = len(self.log.lives), self.stream_of()
        return Life(number, size, operation, self.moment, module, stack, name, backward, stream, inside=bool(module))

    def _asked(self, backward: bool) -> tuple[str, tuple[Frame, ...]]:
        """The module and the lines that asked; backward's are those of the forward operation."""
        stack = self._lines() if self.stacks else ()
        if backward and not self.modules:
            node = self._node()
            found = None if node is None else self._made_at.get(node._sequence_nr())
            return found if found is not None else ("", stack)
        asked = self.modules[-1] if self.modules else "", stack
        if not backward:
            self._made_at[self._sequence() - 1] = asked
        return asked

    def _lines(self) -> tuple[Frame, ...]:
        frame = sys._getframe(1)
        found: list[Frame] = []
        known = self._frames
        while frame is not None and len(found) < _DEEPEST:
            key = frame.f_code, frame.f_lineno
            if key not in known:
                known[key] = _frame_of(frame)
            line = known[key]
            if line is not None:
                found.append(line)
            frame = frame.f_back  # type: ignore[assignment]
        return tuple(found)


def _frame_of(frame: Any) -> Frame | None:
    """A line of somebody's code, or None for torch's own and for this package's."""
    name = frame.f_code.co_filename
    inside = ("/torch/", "/vramwise/dryrun/", "<frozen", "<string>", "/importlib/", "/contextlib.py")
    if any(part in name for part in inside):
        return None
    return name, frame.f_lineno, frame.f_code.co_name


def _nobody_called() -> bool:
    """Whether the engine itself asked, and no line of Python (a custom backward, say) stands between."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        if "/vramwise/dryrun/" not in name and not name.endswith(_PASSES_ON):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return True
