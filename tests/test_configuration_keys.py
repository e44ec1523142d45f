"""docs/configuration-files.md has every key that the installed libraries read for our families."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.configuration_keys import PAGE, families, page, sections
from zoo.families.base import Family
from zoo.families.config.keys import common_keys

# ELMo is read from another library's file, and the Hub has no class for it.
MODEL_TYPES = [
    (family, name)
    for family in families()
    if family.config_files[0] == "config.json"
    for name in family.model_types
]


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tools.configuration_keys`"
    titles = [section.title for section in sections()]
    assert len(titles) == len(set(titles)) and len(titles) >= 15


def taken(function: Callable[..., object], name: str = "kwargs") -> Iterator[str]:
    """Yield the constant keys that a function looks up in a dictionary."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        key: ast.expr | None = None
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=read), attr="pop" | "get" | "setdefault"),
                args=[first, *_],
            ) if read == name:
                key = first
            case ast.Subscript(value=ast.Name(id=read), slice=first) if read == name:
                key = first
            case ast.Compare(
                left=first, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=read)]
            ) if read == name:
                key = first
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def lacking(known: set[str], table: Mapping[str, object]) -> list[str]:
    """Return the keys that a table lacks."""
    return sorted(set(known) - set(table))


def read_by_models(config: type) -> set[str]:
    """Return the keys that the classes of a configuration's models read."""
    folder = Path(inspect.getfile(config)).parent
    text = "".join(path.read_text("utf-8") for path in folder.glob("modeling_*.py"))
    direct = re.findall(r"\bconfig\.([a-z]\w*)\b(?!\()", text)
    return {*direct, *re.findall(r'attr\((?:self\.)?config, "(\w+)"', text)}


@pytest.mark.parametrize(("family", "model_type"), MODEL_TYPES, ids=[t for _, t in MODEL_TYPES])
def test_keys_of_config_json(family: Family, model_type: str) -> None:
    import transformers
    from transformers import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind: Any = getattr(transformers, CONFIG_MAPPING_NAMES[model_type])
    known = {field.name for field in dataclasses.fields(kind)} | {*kind.attribute_map}
    known |= {*taken(PreTrainedConfig.__post_init__)} | {*taken(kind.__post_init__)}
    known |= {*PreTrainedConfig().to_dict()} | {*kind().to_dict()}
    known |= {*read_by_models(kind)}
    assert {"hidden_size", "id2label", "torch_dtype", "output_attentions"} <= known
    own = family.config_maps.get(model_type, family.config_map).file_keys()
    assert lacking(known, {**common_keys(), **own}) == []
