"""Reading of untrusted YAML files within limits."""

import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from zoo.errors import VerificationError
from zoo.io.files import decode_text, read_regular
from zoo.io.limits import (
    MAX_INTEGER_DIGITS,
    MAX_YAML_BYTES,
    MAX_YAML_DEPTH,
    MAX_YAML_VALUES,
)
from zoo.io.sizes import check_size
from zoo.io.untrusted import parsing

_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_NUMBERS = {
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*|[1-9][0-9]{0,2}(_[0-9]{3})+)$"),
    "float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"
        r"|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"  # which are refused
    ),
}
_NUMBER = re.compile(r"[-+]?(0[xob][0-9a-fA-F_]+|[0-9.][0-9_.:]*([eE][-+]?[0-9]+)?)")


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    return parse_yaml(decode_text(read_regular(path, "YAML file", MAX_YAML_BYTES), path), path)


def parse_yaml(text: str, name: "str | Path") -> Any:
    """Parse YAML text.

    Accepts one document of YAML 1.1 in UTF-8 with plain values. Numbers are decimal, such as 12,
    10_000 and 5e-4; 0x10, 010, 1:30 and dates, which YAML 1.1 also reads as values, are text.
    Refuses, with an error that names the file:

    * more bytes, values or levels of nesting than ``zoo.io.limits`` accepts, aliases expanded;
    * tags and directives;
    * numbers that are not finite, or are written with more than ``MAX_INTEGER_DIGITS``
      characters;
    * duplicate keys: the parser would use the last.

    All this is checked on the parser's events, before any value is constructed: the C library
    composes nested values by recursion, and deep nesting would crash the process.
    """
    import yaml

    check_size(name, "length of the YAML text", len(text), MAX_YAML_BYTES)
    if _DIRECTIVE.search(text):
        raise VerificationError(f"{name}: YAML directives (%) are not accepted")
    _check_events(_events(text, name), name)
    with parsing(name, "YAML"):
        return yaml.load(text, _loader())


def _events(text: str, name: "str | Path") -> Iterator[Any]:
    import yaml

    with parsing(name, "YAML"):
        yield from yaml.parse(text, _loader())


def _check_events(events: Iterator[Any], name: "str | Path") -> None:
    """Check a document's nesting, number of values, tags and numbers."""
    sizes: dict[str, int] = {}  # The number of values below each anchor, aliases expanded.
    # The anchor of each open container, and the number of values before it.
    containers: list[tuple[str | None, int]] = []
    values = 0
    for event in events:
        event_name = type(event).__name__
        if event_name in ("SequenceEndEvent", "MappingEndEvent"):
            anchor, previous_values = containers.pop()
            if anchor is not None:
                sizes[anchor] = values - previous_values
        elif event_name in ("SequenceStartEvent", "MappingStartEvent"):
            containers.append((event.anchor, values))
            values += 1
        elif event_name == "AliasEvent":
            if event.anchor not in sizes:
                raise VerificationError(f"{name}: *{event.anchor} is not defined before it is used")
            values += sizes[event.anchor]
        elif event_name == "ScalarEvent":
            values += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
            if event.implicit[0] and _NUMBER.fullmatch(event.value):
                check_size(name, "length of a number", len(event.value), MAX_INTEGER_DIGITS)
        check_size(name, "nesting of YAML", len(containers), MAX_YAML_DEPTH)
        check_size(name, "number of YAML values", values, MAX_YAML_VALUES)
        if getattr(event, "tag", None) is not None:
            raise VerificationError(f"{name}: YAML tags ({event.tag[:40]}) are not accepted")


def dump_yaml(value: Any, *, width: int = 80) -> str:
    """Return a value as YAML that ``parse_yaml`` reads back, in the order of its keys."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts that ``_loader`` would read as numbers."""

    _add_numbers(Dumper)
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=width)
    parse_yaml(text, "settings")
    return text


def _add_numbers(yaml_class: Any) -> None:
    """Let a class of PyYAML resolve ``_NUMBERS``."""
    for name, pattern in _NUMBERS.items():
        yaml_class.add_implicit_resolver(
            f"tag:yaml.org,2002:{name}", pattern, list("-+.0123456789")
        )


@cache
def _loader() -> Any:
    """Return the loader class, with the C parser if it is installed."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = set()
            for key_node, _ in node.value:
                key = key_node.value
                if isinstance(key, str) and (key_node.tag, key) in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice")
                keys.add((key_node.tag, key if isinstance(key, str) else id(key_node)))
            value: dict[Any, Any] = super().construct_mapping(node, deep)
            return value

        def construct_finite(self, node: Any) -> float:
            value: float = self.construct_yaml_float(node)
            if not math.isfinite(value):
                raise yaml.constructor.ConstructorError(
                    None, None, f"{node.value} is not a finite number"
                )
            return value

    replaced_tags = (":timestamp", ":int", ":float")
    all_resolvers = {}
    for character, resolvers in Loader.yaml_implicit_resolvers.items():
        all_resolvers[character] = [
            (tag, pattern) for tag, pattern in resolvers if not tag.endswith(replaced_tags)
        ]
    Loader.yaml_implicit_resolvers = all_resolvers
    _add_numbers(Loader)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_finite)
    return Loader
