"""`torch.compile` without a compiler: AOTAutograd's own graphs, its partitioner, and kernels as Inductor fuses them.

What is kept for backward is what torch's min-cut partitioner keeps (torch/_functorch/partitioners.py) of the joint
graph, with Inductor's decompositions. The two graphs then run node by node on fake tensors. Pointwise operations whose
every reader is pointwise or a reduction make no tensor of their own, as in one kernel (torch/_inductor/scheduler.py).
Not followed: graph breaks (a region is one graph or none), kernels that write into a buffer of their input, templates'
workspaces, CUDA graphs of mode="reduce-overhead".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vramwise.dryrun.tracer import Watcher
from vramwise.errors import VramwiseError, clipped
from vramwise.measure.libraries import library

_EAGER: Final = ("eager", "aot_eager")
_AS_POINTWISE: Final = frozenset({
    "embedding", "index", "gather", "full", "iota", "arange", "scalar_tensor", "convert_element_type", "clone",
    "constant_pad_nd", "rand", "rand_like", "bernoulli", "_to_copy",
})  # fmt: skip
_REDUCTIONS: Final = frozenset({
    "sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "prod", "var_mean", "var", "max", "min",
})  # fmt: skip


class NotCompiledError(VramwiseError):
    """A region whose graph could not be made; the message says why and what to do."""


class _GraphsMade(BaseException):
    """The graphs are there, and nothing is to run yet."""


class Compiling:
    """What stands for `torch.compile` while a script runs; `regions`: graphs that were made."""

    def __init__(self, watcher: Watcher, begins: Callable[[Any, Any], None]) -> None:
        """`begins` is told of a module whose forward pass starts: compiled in place, it calls no hook outside."""
        self.watcher, self.begins = watcher, begins
        self.regions = 0

    def replacements(self) -> list[tuple[object, str, object]]:
        """`torch.compile` and `Module.compile`."""
        torch = library("torch")
        spread = torch.nn.parallel.DistributedDataParallel

        def compiled(
            model: Any = None, *, backend: object = "inductor", disable: bool = False, **options: object
        ) -> Any:
            if model is None:
                return lambda given: compiled(given, backend=backend, disable=disable, **options)
            if disable or backend in _EAGER:
                return model
            if isinstance(model, spread):  # torch/_dynamo/backends/distributed.py: buckets cut its graphs
                compiled_in_place(model.module)
                return model
            if isinstance(model, torch.nn.Module):
                return _compiled_module(self._traced(model.__call__, [model]), model)
            return self._traced(model, None)

        def compiled_in_place(module: Any, *_: object, **options: object) -> None:
            if not options.get("disable") and options.get("backend", "inductor") not in _EAGER:
                module._compiled_call_impl = self._traced(module._call_impl, [module])

        return [(torch, "compile", compiled), (torch.nn.Module, "compile", compiled_in_place)]

    def remarks(self) -> list[str]:
        """What is said of compiled regions."""
        if not self.regions:
            return []
        return [
            "torch.compile: AOTAutograd's graphs and its min-cut partitioner, pointwise operations fused; what "
            "Inductor writes in place, and what templates and CUDA graphs take, is not seen"
        ]

    def _traced(self, function: Callable[..., Any], modules: list[Any] | None) -> Callable[..., Any]:
        graphs: dict[object, Callable[..., object]] = {}

        def called(*args: object, **kwargs: object) -> Any:
            if self.watcher.hidden:  # a region inside another
                return function(*args, **kwargs)
            whole = _whole(function, _modules_of(function, args, kwargs) if modules is None else modules)
            given = dict(whole.named_parameters()), dict(whole.named_buffers()), args, kwargs
            key = _key(whole, given)
            if key not in graphs:
                graphs[key] = self._graphs(whole, given)
                self.regions += 1
            if not self.watcher.modules:
                for module in modules or ():
                    self.begins(module, None)
            return graphs[key](*given)

        called.__wrapped__ = function  # type: ignore[attr-defined]
        return called

    def _graphs(self, whole: Any, given: tuple[Any, ...]) -> Callable[..., object]:
        """The region's forward and backward graph for inputs of these shapes. Raises NotCompiledError.

        AOTAutograd makes them at a first call: nothing of that takes memory, so that it ends before anything runs.
        """
        torch, aot = library("torch"), library("torch._functorch.aot_autograd")
        cut = library("torch._functorch.partitioners").min_cut_rematerialization_partition
        decompositions = library("torch._inductor.decomposition").select_decomp_table()
        without_modes = library("torch.utils._python_dispatch")._disable_current_modes

        def region(parameters: Any, buffers: Any, args: Any, kwargs: Any) -> object:
            return torch.func.functional_call(whole, {**parameters, **buffers}, args, kwargs)

        made: Callable[..., Any] = aot.aot_function(
            region, self._runs, self._runs, cut, decompositions, num_params_buffers=len(given[0]) + len(given[1])
        )
        try:
            with without_modes(), self.watcher.unseen():
                made(*given)
        except _GraphsMade:
            return made
        except Exception as problem:
            said = clipped(" ".join(str(problem).split()), 160) or type(problem).__name__
            raise NotCompiledError(
                f"torch.compile: this region is not one graph that AOTAutograd can make of fake tensors ({said}); "
                "leave torch.compile out for the dry run"
            ) from problem
        return made

    def _runs(self, graph: Any, _: object) -> Callable[..., object]:
        """A graph that runs node by node, and gives up what nothing reads any more."""
        watcher, fused = self.watcher, _fused(graph.graph)

        class Kernels(library("torch.fx").Interpreter):  # type: ignore[misc]
            def run_node(self, node: object) -> object:
                if node not in fused:
                    return super().run_node(node)
                with watcher.unseen():
                    return super().run_node(node)

        def run(inputs: list[Any]) -> Any:
            if watcher.hidden:
                raise _GraphsMade
            return Kernels(graph).boxed_run(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def _fused(graph: Any) -> set[object]:
    """Nodes that make no tensor of their own: pointwise, and read by pointwise operations and reductions alone."""
    found: set[object] = set()
    for node in reversed(graph.nodes):
        if not (_is_pointwise(node) or _is_view(node)):  # a view of a tensor that is there is there anyway
            continue
        if node.users and all(user in found or _takes_in(user) for user in node.users):
            found.add(node)
    return found


def _takes_in(node: Any) -> bool:
    """Whether a kernel of this operation works out its inputs as it reads them."""
    return _is_pointwise(node) or (node.op == "call_function" and _name(node) in _REDUCTIONS)


def _is_pointwise(node: Any) -> bool:
    if node.op != "call_function":
        return False
    if _name(node) in _AS_POINTWISE or _writes_one_into_a_constant(node):
        return True
    return library("torch").Tag.pointwise in getattr(node.target, "tags", ())


def _writes_one_into_a_constant(node: Any) -> bool:
    """Cross-entropy's backward: a number at one place of each row of zeros, which Inductor makes pointwise (torch 2.13
    _inductor/fx_passes/joint_graph.py, `scatter_upon_const_tensor`)."""
    if node.target is not library("torch").ops.aten.scatter.value or _name(node.args[0]) != "full":
        return False
    dim, places = node.args[1], node.args[2].meta.get("val")
    return places is not None and places.size(dim) == 1


def _is_view(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    return any(one.alias_info is not None and not one.alias_info.is_write for one in schema.arguments)


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name.rpartition("::")[2])


def _whole(function: Callable[..., Any], modules: list[Any]) -> Any:
    """A module of all that a region computes with."""
    nn = library("torch").nn

    class Region(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(modules)

        def forward(self, *args: object, **kwargs: object) -> Any:
            return function(*args, **kwargs)

    return Region()


def _modules_of(function: Any, args: Any, kwargs: Any) -> list[object]:
    """Modules that a function names: its own object, its arguments, what it closes over and its globals."""
    code, module = getattr(function, "__code__", None), library("torch").nn.Module
    named = [getattr(function, "__self__", None), *args, *kwargs.values()]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            named.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    space = getattr(function, "__globals__", {})
    named += [space.get(name) for name in (code.co_names if code is not None else ())]
    return list({id(one): one for one in named if isinstance(one, module)}.values())


def _key(whole: Any, given: tuple[Any, ...]) -> Any:
    """What a graph was made for: shapes, types and whether gradients are wanted."""
    torch = library("torch")
    leaves = library("torch.utils._pytree").tree_leaves(given)
    seen = tuple(
        (tuple(one.shape), one.dtype, one.requires_grad) if isinstance(one, torch.Tensor) else repr(one)[:100]
        for one in leaves
    )
    cast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return seen, torch.is_grad_enabled(), cast, tuple(one.training for one in whole.modules())


def _compiled_module(called: Callable[..., Any], model: Any) -> Any:
    """What torch.compile gives for a module: it has all that the module has, and `_orig_mod`."""
    nn = library("torch").nn

    class OptimizedModule(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = model
            self.training = model.training

        def forward(self, *args: object, **kwargs: object) -> Any:
            return called(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            own = super().__getattr__("_orig_mod")
            return own if name == "_orig_mod" else getattr(own, name)

    return OptimizedModule()
