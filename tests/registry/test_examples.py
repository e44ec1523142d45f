"""The registries of ``examples/plugins`` compared with the publishers' pages."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.registry.published import WIDTHS, published, span
from tests.registry.test_published import HEADERS, WEIGHTS
from zoo.families.base import Family
from zoo.hub.registry import read_registry

ROOT = Path(__file__).parents[2] / "examples" / "plugins"
ROWS = {
    name: (path, row)
    for path in sorted(ROOT.glob("*/*/registry.yaml"))
    for name, row in read_registry(path).items()
}
FACTS = published(Path(__file__).with_name("examples"))


@pytest.fixture
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    """The family of an entry, imported from its project."""
    path, _ = ROWS[request.param]
    monkeypatch.syspath_prepend(path.parents[1])
    module: Any = importlib.import_module(path.parent.name)
    (family,) = module.zoo_families()
    return family  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FACTS)
def test_licence_and_size_match_the_page(name: str) -> None:
    fact, (_, row) = FACTS[name], ROWS[name]
    assert row.licence == fact.licence and row.parameters is not None
    size = next(fact.files[file] for file in WEIGHTS if file in fact.files)
    least, most = span(size)
    count = (row.parameters + fact.more) * WIDTHS[fact.dtype]
    assert count <= most and least <= count + HEADERS


@pytest.mark.parametrize(("family", "name"), [(name, name) for name in FACTS], indirect=["family"])
def test_parameters_and_configuration_are_those_of_the_size(family: Family, name: str) -> None:
    fact, (_, row) = FACTS[name], ROWS[name]
    config = family.sizes()[str(row.size)]
    assert family.weights(config, str(row.head)).parameters() == row.parameters
    if fact.config is not None:
        translation = family.from_hf(fact.config)
        assert translation.config == config and not translation.unknown
