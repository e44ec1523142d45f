"""The registries of ``examples/plugins`` compared with the publishers' pages."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.registry.making import HEADERS, WEIGHTS
from tests.registry.published import WIDTHS, published, span
from zoo.families.base import Family
from zoo.hub.registry import read_registry
from zoo.plugins import get_family

ROOT = Path(__file__).parents[2] / "examples" / "plugins"
ROWS = {
    name: (path, row)
    for path in sorted(ROOT.glob("*/*/registry.yaml"))
    for name, row in read_registry(path).items()
}
FACTS = published(Path(__file__).with_name("examples"))


@pytest.fixture
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    """The family of an entry: that of its project, or a built-in one."""
    path, row = ROWS[request.param]
    monkeypatch.syspath_prepend(path.parents[1])
    module: Any = importlib.import_module(path.parent.name)
    families: Sequence[Family] = getattr(module, "zoo_families", tuple)()
    return next((f for f in families if f.name == row.family), None) or get_family(row.family)


def test_every_entry_has_facts() -> None:
    assert FACTS.keys() == ROWS.keys()


@pytest.mark.parametrize("name", FACTS)
def test_licence_and_size_match_the_page(name: str) -> None:
    fact, (_, row) = FACTS[name], ROWS[name]
    assert row.licence == fact.licence and row.parameters is not None
    size = next((fact.files[file] for file in WEIGHTS if file in fact.files), None)
    if size is None:
        return  # sharded
    least, most = span(size)
    count = (row.parameters + fact.more) * WIDTHS[fact.dtype]
    assert count <= most and least <= count + HEADERS


@pytest.mark.parametrize(("family", "name"), [(name, name) for name in FACTS], indirect=["family"])
def test_parameters_and_configuration_are_those_of_the_size(family: Family, name: str) -> None:
    fact, (_, row) = FACTS[name], ROWS[name]
    config = replace(family.sizes()[str(row.size)], **row.config)
    assert family.weights(config, str(row.head)).parameters() == row.parameters
    if fact.config is not None:
        translation = family.from_hub(fact.config)
        assert translation.config == config and not translation.unknown
