"""Symbolic execution of the pickle of a state dict, without running code.

A pickle is a program for a small stack machine, and some of its instructions call Python functions.
Implemented here because ``pickle`` and ``torch.load`` would run it, and
``torch.load(weights_only=True)`` needs torch and allocates tensors before they can be checked. Here
the instructions operate on plain values: nothing is imported, a global is only its name, and the
few calls in a file of tensors are recognized and checked. Any other instruction, name or call ends
the scan; allowed is what ``torch.save`` needs for a state dict with protocol 2. The result
describes the tensors, and their data are read from the file directly.

A checkpoint of a training run also has other objects. A tolerant scan passes over them: an unknown
name is ``Opaque``, as is what it is called with, and only such a value may have any state.
"""

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

from zoo.io.limits import MAX_PICKLE_STEPS
from zoo_converters.pickle_values import (
    CALLS,
    DTYPES,
    STORAGES,
    Name,
    Opaque,
    Ordered,
    Refused,
    Storage,
    put,
    refuse,
)

MAX_COUNT = 1 << 63
MAX_KEY = 256  # characters of the key of a storage; torch writes a number
DAMAGE = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)


def scan(
    stream: BinaryIO, max_steps: int = MAX_PICKLE_STEPS, *, tolerant: bool = False
) -> tuple[Any, dict[str, Storage]]:
    """Execute a pickle symbolically; return its value, and key -> storage that it refers to."""
    # The stream must be bounded, since a pickle contains lengths to read
    machine = _Machine(max_steps, tolerant)
    steps = {**_STEPS, **_TOLERANT_STEPS} if tolerant else _STEPS
    try:
        for instruction, argument, _ in pickletools.genops(stream):
            step = steps.get(instruction.name)
            if step is None:
                raise Refused(f"its pickle uses the instruction {instruction.name}")
            machine.spend(1)
            machine.begin(instruction.proto)
            step(machine, argument)
        (result,) = machine.stack
    except DAMAGE as error:
        raise Refused("its pickle is damaged") from error
    if machine.marks:
        raise Refused("its pickle is damaged")
    if machine.protocol > 2:
        raise Refused(f"its pickle is of protocol {machine.protocol}, where torch reads 2")
    return result, machine.storages


class _Machine:
    """State of the machine: stack, stacks below marks, and memo.

    An instruction of few bytes can recall a value of a million items. A call, which iterates over
    them, therefore counts as that many instructions.
    """

    def __init__(self, max_steps: int, tolerant: bool) -> None:
        self.max_steps = self.steps_left = max_steps
        self.tolerant = tolerant
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        self.protocol = 2

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise Refused(f"its pickle has more than {self.max_steps} instructions")

    def begin(self, protocol: int) -> None:
        self.protocol = max(self.protocol, protocol)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def take(self, count: int) -> list[Any]:
        return [self.stack.pop() for _ in range(count)][::-1]

    def remember(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def recall(self, key: int) -> None:
        self.push(self.memo[key])

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            return
        if type(target) is not list:
            refuse("it appends to", target)
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Opaque):
            return
        if not isinstance(target, dict):
            refuse("it sets entries of", target)
        for key, value in zip(items[::2], items[1::2], strict=True):
            put(target, key, value)

    def name(self, path: str) -> None:
        known = path in CALLS or path in STORAGES or path in DTYPES
        if not known and not self.tolerant:
            raise Refused(f"its pickle names {path!r:.100}, which a file of tensors does not need")
        self.push(Name(path) if known else Opaque(path))

    def call(self, _: Any) -> None:
        function, arguments = self.take(2)
        if isinstance(function, Opaque):
            self.push(function)
            return
        if not isinstance(function, Name) or function.path not in CALLS:
            refuse("it calls", function)
        if type(arguments) is not tuple:
            refuse("it calls a function with", arguments)
        self.spend(sum(len(item) for item in arguments if isinstance(item, list | tuple)))
        self.push(CALLS[function.path](*arguments))

    def build(self, _: Any) -> None:
        (state,) = self.take(1)
        target = self.stack[-1]
        if isinstance(target, Opaque):
            return
        if not isinstance(target, Ordered):
            refuse("it sets attributes of", target)
        if not isinstance(state, dict) or len(state) != 1 or "_metadata" not in state:
            raise Refused("its pickle sets attributes that a state dict does not have")

    def storage(self, _: Any) -> None:
        """Push a storage from ("storage", class, key, device, number of elements[, no view])."""
        match self.stack.pop():
            case ("storage", Name(path), str(key), str(), count, *view) if (
                path in STORAGES and type(count) is int and view in ([], [None])
            ):
                if len(key) > MAX_KEY:  # comparing long equal keys is slow
                    raise Refused(f"its pickle has the key {key!r:.40} for a storage")
                if not 0 <= count < MAX_COUNT:
                    raise Refused(f"its pickle claims an impossible size for storage {key!r:.40}")
                storage = Storage(key, STORAGES[path], count)
            case ("storage", Name(path), *_) if path not in STORAGES:
                refuse("it refers to storage that cannot be read:", Name(path))
            case (str(kind), *_) if kind != "storage":
                raise Refused(f"its pickle refers to a {kind!r:.40}, where only storage may be")
            case _:
                raise Refused("its pickle refers to something that is not storage")
        if self.storages.setdefault(key, storage) != storage:
            raise Refused(f"its pickle describes the storage {key!r:.40} in two ways")
        self.push(storage)


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _Machine.begin,
    "STOP": lambda m, _: None,
    "MARK": _Machine.mark,
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "BININT": _Machine.push,
    "BININT1": _Machine.push,
    "BININT2": _Machine.push,
    "LONG1": _Machine.push,
    "BINFLOAT": _Machine.push,
    "BINUNICODE": _Machine.push,
    "SHORT_BINSTRING": lambda m, text: m.push(text.encode("latin-1").decode()),  # Python 2
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "TUPLE": lambda m, _: m.push(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.push(tuple(m.take(1))),
    "TUPLE2": lambda m, _: m.push(tuple(m.take(2))),
    "TUPLE3": lambda m, _: m.push(tuple(m.take(3))),
    "APPEND": lambda m, _: m.extend(m.take(1)),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "SETITEM": lambda m, _: m.update(m.take(2)),
    "SETITEMS": lambda m, _: m.update(m.since_mark()),
    "BINPUT": _Machine.remember,
    "LONG_BINPUT": _Machine.remember,
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "GLOBAL": lambda m, text: m.name(text.replace(" ", ".", 1)),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.storage,
    # Protocol 4, which torch does not read: executed to report what a malicious file calls.
    "FRAME": lambda m, _: None,
    "SHORT_BINUNICODE": _Machine.push,
    "MEMOIZE": lambda m, _: m.remember(len(m.memo)),
    "STACK_GLOBAL": lambda m, _: m.name(".".join(m.take(2))),
}
_TOLERANT_STEPS: dict[str, Callable[[_Machine, Any], None]] = {"NEWOBJ": _Machine.call}
