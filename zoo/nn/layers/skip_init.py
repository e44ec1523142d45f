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

# Functions with the name of an in-place function that set no values.
NO_INIT_FUNCTIONS = ("requires_grad_", "detach_", "share_memory_")
# Functions that read values, and whose results are not tensors.
READING_FUNCTIONS = ("item", "tolist", "numpy", "__array__")


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
        if target is not None:
            return target
        return func(*args, **kwargs)


def initialized_parameter(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> nn.Parameter | None:
    """Return the parameter that a call of a function initializes, or ``None``."""
    target = args[0] if args else kwargs.get("tensor")
    name = getattr(func, "__name__", "")
    is_in_place = name.endswith("_") and not name.endswith("__")
    if not is_in_place or name in NO_INIT_FUNCTIONS or not isinstance(target, nn.Parameter):
        return None
    return target


@contextlib.contextmanager
def init_empty_weights() -> Iterator[None]:
    """Build modules on the device ``meta``: shapes without memory."""
    # The device would run each initialization by torch's decompositions in Python, which takes
    # longer than drawing the numbers, and imports the compiler. The mode skips them.
    with torch.device("meta"), SkipInit():
        yield


class SelectiveInit(SkipInit):
    """Function mode that skips the initialization of some parameters, and records every one."""

    # Parameters are numbered by their first initialization, an order that is the same whenever the
    # same module is built.

    def __init__(self, skipped: Collection[int] | None = None) -> None:
        super().__init__()
        self.parameters: list[nn.Parameter] = []
        self._read_ids: set[int] = set()
        self._skipped = skipped
        self._numbers: dict[int, int] = {}

    @override
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = initialized_parameter(func, args, kwargs)
        if target is not None:
            number = self._numbers.setdefault(id(target), len(self.parameters))
            if number == len(self.parameters):
                # The reference also keeps the parameter's id from being used again.
                self.parameters.append(target)
            if self._skipped is None or number in self._skipped:
                return self._record_reads(func, args, kwargs, result=target)
        return self._record_reads(func, args, kwargs, result=func(*args, **kwargs))

    def _record_reads(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Record the parameters whose values a function read, and return its result."""
        name = getattr(func, "__name__", "")
        if name.startswith("new_") or name.endswith("_like"):
            return result  # These functions only read shape and dtype.
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for leaf in tree_leaves((args, kwargs)):
            if not isinstance(leaf, nn.Parameter):
                continue
            has_new_result = any(tensor is not leaf for tensor in results)
            if name in READING_FUNCTIONS or has_new_result:
                self._read_ids.add(id(leaf))
        return result

    def skippable(self, required: Iterable[Tensor]) -> frozenset[int]:
        """Return the numbers of the parameters that are neither required nor were read."""
        required_ids = {id(tensor) for tensor in required} | self._read_ids
        numbers = []
        for parameter_id, number in self._numbers.items():
            if parameter_id not in required_ids:
                numbers.append(number)
        return frozenset(numbers)


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
    # All other parameters draw their random numbers in the order in which they are initialized.
    with torch.random.fork_rng(devices=[]), SelectiveInit() as first_mode:
        module = build()
    replaced_ids = {id(tensor) for tensor in replaced(module)}
    if not replaced_ids:
        return PartlyInitialized(build())
    required = [parameter for parameter in module.parameters() if id(parameter) not in replaced_ids]
    skipped = first_mode.skippable(required)
    mode = first_mode
    if len(skipped) < len(first_mode.parameters):
        with SelectiveInit(skipped) as mode:
            module = build()
    first_shapes = [parameter.shape for parameter in first_mode.parameters]
    shapes = [parameter.shape for parameter in mode.parameters]
    if shapes != first_shapes:  # The numbers belong to different parameters.
        return PartlyInitialized(build())
    empty_ids = {id(mode.parameters[number]) for number in skipped}
    empty_parameters = []
    for parameter in module.parameters():
        if id(parameter) in empty_ids:
            empty_parameters.append((parameter, parameter._version))
    return PartlyInitialized(module, empty_parameters)
