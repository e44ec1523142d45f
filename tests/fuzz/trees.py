"""Mutations of structure: JSON, YAML, and headers that hold JSON.

Objects are lists of pairs, so that a key can occur twice. A leaf can be raw text, such as ``NaN``
or 100,000 brackets.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz.octets import Mutate


@dataclass(frozen=True)
class Raw:
    """Text that is written to the file verbatim."""

    text: str


class Pairs(list[tuple[str, Any]]):
    """Object in which a key may occur more than once."""


Slot = tuple[Any, int]  # a container, and the index of an entry

NUMBERS = (
    0,
    -1,
    1,
    2,
    3.5,
    1e-320,
    1e308,
    -0.0,
    10**5,
    10**9,
    10**10,
    2**31,
    2**63,
    2**64,
    -(2**63),
    # declared sizes: of gigabytes, the largest token id, and more than any integer of a machine
    10**6,
    2**24 - 2,
    2**62,
    10**30,
)
PATHS = ("../../escape", "/dev/zero")
TEXTS = (
    "",
    "a",
    "0",
    "true",
    "x" * 1_000_000,
    *PATHS,
    "\x1b]0;title\x07\x1b[31m",
    "\nerror: all is well",
    "\0",
    "\u202e\u2028\u2029\x85",
    "%s{0}{x!r}$HOME",
    "(a+)+$" + "a" * 40,
    "NaN",
    "relu",
    "bert",
    "model.safetensors",
)
RAW = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "1." + "0" * 5000,
    '"\\ud800"',
    "[" * 200 + "]" * 200,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 3000 + "0" + "}" * 3000,
    "[" + "0," * 200_000 + "0]",
    "{" + ",".join(f'"k{i}":{i}' for i in range(50_000)) + "}",
    "01",
    "'a'",
    "//",
    "\x00",
)
YAML = (
    "&a [*a]",
    "{<<: {steps: 3}}",
    '!!python/object/apply:os.system ["touch pwned"]',
    "!!binary aGVsbG8=",
    "!!timestamp 2001-01-01",
    "2001-01-01",
    "0o17",
    "0x10",
    "1_000",
    ".nan",
    ".inf",
    "~",
    "yes",
    "1:30:00",
    "!!set {a, b}",
    "!unknown x",
    "? [a, b]",
    "{? [a, b] : c}",
    "{1: 2}",
    "{null: 2}",
    "{[a]: 2}",
    "*nowhere",
    "[&a [x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b],"
    "&d [*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e],"
    "&g [*f,*f,*f,*f,*f,*f,*f,*f], [*g,*g,*g,*g,*g,*g,*g,*g]]",
    "[" * 50_000,
    "{" * 50_000,
    "- " * 20_000,
    "? " * 20_000,
)


def parse(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=Pairs)


def dump(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


def mutate_tree(value: Any, random: Random, raw: tuple[str, ...] = RAW) -> Any:
    """Change one to three entries of a tree, and return it."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        slots = [slot for slot in _slots(value) if not isinstance(_get(slot), Raw)]
        if not slots or random.random() < 0.01:
            return _odd(random, raw)
        random.choice(CHANGES)(random.choice(slots), slots, random, raw)
    return value


def json_mutation(data: bytes, random: Random) -> bytes:
    return dump(mutate_tree(parse(data), random)).encode("utf-8", "surrogatepass")


def yaml_mutation(data: bytes, random: Random) -> bytes:
    """Mutate YAML; the result has JSON's syntax, and some values of YAML only."""
    import yaml

    tree = parse(json.dumps(yaml.safe_load(data), default=str))
    return dump(mutate_tree(tree, random, (*RAW[:7], *YAML))).encode("utf-8", "surrogatepass")


def json_lines_mutation(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    at = random.choice([number for number, line in enumerate(lines) if line])
    lines[at] = json_mutation(lines[at], random)
    return b"\n".join(lines)


def header_mutation(data: bytes, random: Random) -> bytes:
    """Mutate the JSON header of a safetensors file, and update its length."""
    length = int.from_bytes(data[:8], "little")
    header = json_mutation(data[8 : 8 + length], random)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


TREES: dict[str, Mutate] = {
    ".json": json_mutation,
    ".yaml": yaml_mutation,
    ".lock": json_mutation,
    ".jsonl": json_lines_mutation,
    ".safetensors": header_mutation,
}


def _slots(value: Any) -> Iterator[Slot]:
    """Yield the entries of a tree; of large containers, a sample of the first ones."""
    if isinstance(value, list):
        for number in range(min(len(value), 300)):
            yield value, number
            yield from _slots(_get((value, number)))


def _get(slot: Slot) -> Any:
    container, number = slot
    return container[number][1] if isinstance(container, Pairs) else container[number]


def _set(slot: Slot, value: Any) -> None:
    container, number = slot
    pairs = isinstance(container, Pairs)
    container[number] = (container[number][0], value) if pairs else value


def _odd(random: Random, raw: tuple[str, ...]) -> Any:
    kind = random.randrange(6)
    if kind == 0:
        return random.choice((None, True, False, Pairs(), [], [[]], [None]))
    if kind <= 2:
        return random.choice(NUMBERS)
    return random.choice(TEXTS) if kind == 3 else Raw(random.choice(raw)) if kind == 4 else None


Change = Callable[[Slot, list[Slot], Random, tuple[str, ...]], None]


def _replace(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    _set(slot, _odd(random, raw))


def _nudge(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    """Change a value slightly, since plausible values pass early checks."""
    value = _get(slot)
    if isinstance(value, bool):
        _set(slot, not value)
    elif isinstance(value, int | float):
        _set(
            slot, random.choice((value + 1, value - 1, -value, value * 2, value * 10**9, value / 2))
        )
    elif isinstance(value, str) and value:
        at = random.randrange(len(value))
        _set(slot, value[:at] + random.choice(("", "x", "\x1b", "/", "é")) + value[at + 1 :])
    else:
        _set(slot, random.choice((0, "x", True)))


def _delete(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    container, number = slot
    end = len(container) if random.random() < 0.05 else number + 1
    del container[number:end]


def _repeat(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    """Duplicate an entry, with the same value or another."""
    container, number = slot
    container.append(container[number])
    if random.random() < 0.5:
        _set((container, len(container) - 1), _odd(random, raw))


def _rename(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    container, number = slot
    if isinstance(container, Pairs):
        name, value = container[number]
        new = random.choice((f"{name}x", name[:-1], name.upper(), *TEXTS, f"\x1b{name}"))
        container[number] = (new, value)


def _swap(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    other = random.choice(slots)
    first = json.dumps(_plain(_get(slot)))
    second = json.dumps(_plain(_get(other)))
    _set(slot, parse(second))
    if other[1] < len(other[0]):
        _set(other, parse(first))


def _wrap(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    value = _get(slot)
    _set(slot, random.choice(([value], Pairs([("a", value)]), [value, value])))


def _add(slot: Slot, slots: list[Slot], random: Random, raw: tuple[str, ...]) -> None:
    container = slot[0]
    entry = _odd(random, raw)
    container.append((random.choice(TEXTS), entry) if isinstance(container, Pairs) else entry)


def _plain(value: Any) -> Any:
    """Return a copy of plain containers, without raw text."""
    if isinstance(value, Pairs):
        return {k: _plain(v) for k, v in value}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, Raw) else value


CHANGES: tuple[Change, ...] = (
    _replace,
    _replace,
    _replace,
    _nudge,
    _nudge,
    _nudge,
    _delete,
    _repeat,
    _rename,
    _swap,
    _wrap,
    _add,
)
