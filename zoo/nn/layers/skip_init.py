"""Building modules without initializing parameters that are replaced afterwards."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from zoo.overrides import override

# in-place functions that set no values
NOT_INIT = ("requires_grad_", "detach_", "share_memory_")
# functions of values whose results are no tensors
READS = ("item", "tolist", "numpy", "__array__")


class SkipInit(TorchFunctionMode):
    """Function mode that skips in-place functions on parameters, and so their initialization."""

    # In-place functions of torch have names that end in one underscore.

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a function, or the parameter that it would have initialized."""
        target = initialized_parameter(func, args, kwargs)
        return func(*args, **kwargs) if target is None else target


def initialized_parameter(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> nn.Parameter | None:
    """Return the parameter that a call of a function initializes, or ``None``."""
    target = args[0] if args else kwargs.get("tensor")
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__") and name not in NOT_INIT
    return target if in_place and isinstance(target, nn.Parameter) else None


@contextlib.contextmanager
def init_empty_weights() -> Iterator[None]:
    """Build modules on the device ``meta``: shapes without memory."""
    # Without this mode, the device would run each initialization by torch's decompositions in
    # Python, which takes longer than drawing the numbers, and imports the compiler
    with torch.device("meta"), SkipInit():
        yield


class SelectiveInit(SkipInit):
    """Function mode that skips the initialization of some parameters, and records every one."""

    # Parameters are numbered by their first initialization, an order that is the same whenever the
    # same module is built.

    def __init__(self, skipped: Collection[int] | None = None) -> None:
        super().__init__()
        self.parameters: list[nn.Parameter] = []
        self.read: set[int] = set()
        self._skipped = skipped
        self._numbers = dict[int, int]()

    @override
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = initialized_parameter(func, args, kwargs)
        if target is not None:
            number = self._numbers.setdefault(id(target), len(self.parameters))
            if number == len(self.parameters):
                self.parameters.append(target)  # which keeps its id from being used again
            if self._skipped is None or number in self._skipped:
                return self._record_reads(func, args, kwargs, result=target)
        return self._record_reads(func, args, kwargs, result=func(*args, **kwargs))

    def _record_reads(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        name = getattr(func, "__name__", "")
        if not (
            name.startswith("new_") or name.endswith("_like")
        ):  # which only read shape and dtype
            computed = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, nn.Parameter) and (
                    name in READS or any(tensor is not leaf for tensor in computed)
                ):
                    self.read.add(id(leaf))
        return result

    def skippable(self, needed: Iterable[Tensor]) -> frozenset[int]:
        """Return the numbers of the parameters without those that are needed or were read."""
        initialized = {id(tensor) for tensor in needed} | self.read
        return frozenset(number for key, number in self._numbers.items() if key not in initialized)


@dataclass(frozen=True)
class PartlyInitialized:
    """A module some of whose parameters have no values yet."""

    module: nn.Module
    # the parameters without values, each with its version
    skipped: Sequence[tuple[nn.Parameter, int]] = ()

    def require_values(self) -> None:
        """Check that all skipped parameters were written to."""
        if any(parameter._version == version for parameter, version in self.skipped):
            raise RuntimeError("parameters were neither initialized nor loaded")


def build_without_init(
    build: Callable[[], nn.Module], replaced: Callable[[nn.Module], Iterable[Tensor]]
) -> PartlyInitialized:
    """Build a module without initializing the parameters that are replaced afterwards."""
    # The others draw their random numbers in the order in which they are initialized.
    with torch.random.fork_rng(devices=[]), SelectiveInit() as first:
        module = build()
    if not (other := {id(tensor) for tensor in replaced(module)}):
        return PartlyInitialized(build())
    skipped = first.skippable(p for p in module.parameters() if id(p) not in other)
    used = first
    if len(skipped) < len(first.parameters):
        with SelectiveInit(skipped) as used:
            module = build()
    shapes = [[parameter.shape for parameter in mode.parameters] for mode in (first, used)]
    if shapes[0] != shapes[1]:  # the numbers are of other parameters
        return PartlyInitialized(build())
    empty = {id(used.parameters[number]) for number in skipped}
    return PartlyInitialized(
        module, [(p, p._version) for p in module.parameters() if id(p) in empty]
    )
