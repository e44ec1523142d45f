"""The registry compared with the publishers' pages."""

from pathlib import Path

import msgspec
import pytest

from tests.registry.making import HEADERS, WEIGHTS
from tests.registry.published import WIDTHS, Published, published, span
from zoo.conversion.inspect import model_type_of
from zoo.hub import registry
from zoo.hub.source import CheckpointDir
from zoo.plugins import get_family

FACTS = published()
# keys of fine-tuning, which do not affect the backbone, and the pooler, which the weights determine
UNSAID = ("labels", "problem", "pooler")


def having(field: str) -> dict[str, Published]:
    """Return the entries that have a fact."""
    return {name: fact for name, fact in FACTS.items() if getattr(fact, field)}


def test_facts_refer_to_the_registry() -> None:
    assert FACTS.keys() <= registry.builtin().keys()


def test_an_unchecked_entry_has_no_facts_to_compare() -> None:
    unchecked = {name for name, row in registry.builtin().items() if row.unchecked}
    assert unchecked & FACTS.keys() == set()
    assert {"mxbai-embed-large-v1", "splade-pp-en-v1", "bge-reranker-large"} <= unchecked


def test_licence_matches_the_page() -> None:
    for name, fact in having("licence").items():
        expected = "not stated" if fact.licence == "none" else fact.licence
        assert registry.builtin()[name].licence == expected, name


def test_the_licence_was_read_on_the_page() -> None:
    for name, fact in having("licence").items():
        assert registry.builtin()[name].licence_source in fact.pages, name


def test_licences_that_no_page_shows_are_of_unchecked_entries() -> None:
    unread = {name for name, row in registry.builtin().items() if row.licence_source is None}
    unchecked = {name for name, row in registry.builtin().items() if row.unchecked}
    # the first is not on the Hub; the copy of the page of the second shows no tags
    assert unread - unchecked == {"elmo-original", "twitter-roberta-base-sentiment-latest"}


def test_encoders_and_rerankers_that_people_ask_for() -> None:
    asked = [
        *(f"e5-{size}-v2" for size in ("small", "base", "large")),
        *(f"bge-{size}-en-v1.5" for size in ("small", "base", "large")),
        *(f"gte-{size}" for size in ("small", "base", "large")),
        *(f"snowflake-arctic-embed-{size}" for size in ("xs", "s", "m", "l")),
        *("mxbai-embed-large-v1", "ms-marco-minilm-l6-v2", "ms-marco-minilm-l12-v2"),
        *("bge-reranker-base", "bge-reranker-large", "nli-roberta-base", "nli-distilroberta-base"),
        *("splade-cocondenser-ensembledistil", "splade-pp-en-v1", "colbertv2.0"),
    ]
    rows = registry.builtin()
    assert [name for name in asked if name not in rows or rows[name].repo is None] == []
    assert [name for name in asked if not (rows[name].licence and rows[name].revision)] == []


def test_files_match_the_page() -> None:
    for name, fact in having("files").items():
        last = max(fact.files)
        wanted = {f for f in registry.builtin()[name].files if f <= last or not fact.cut}
        assert wanted <= fact.files.keys(), name


def test_size_of_weights_matches_parameters() -> None:
    for name, fact in having("files").items():
        row = registry.builtin()[name]
        size = next((fact.files[file] for file in WEIGHTS if file in fact.files), None)
        if size is None or row.parameters is None:
            continue  # sharded, or in another format
        least, most = span(size)
        count = row.parameters + fact.more
        assert count * WIDTHS[fact.dtype] <= most, name
        assert least <= count * WIDTHS[fact.dtype] + HEADERS, name
        assert (fact.more > 0) == (fact.why is not None), name


def test_parameters_match_the_page() -> None:
    for name, fact in having("parameters").items():
        count = registry.builtin()[name].parameters
        assert fact.parameters is not None and count is not None, name
        least, most = span(fact.parameters)
        assert least <= count + fact.more <= most, name


@pytest.mark.parametrize("name", having("config"))
def test_configuration_matches_the_entry(name: str, tmp_path: Path) -> None:
    fact, row = FACTS[name], registry.builtin()[name]
    family = get_family(row.family)
    source = CheckpointDir(tmp_path, name, row=row)
    stated_values = with_model_type(fact, source)
    translation = family.from_hub(stated_values)
    assert translation.unknown == ()
    stated = msgspec.to_builtins(registry.entry_config(name, row))
    values = msgspec.to_builtins(translation.config)
    # None in an entry stands for the default, which a page may state
    compared = {k for k, v in stated.items() if not (v is None or k in UNSAID or "dropout" in k)}
    assert {k: values[k] for k in compared} == {k: stated[k] for k in compared}
    assert family.matches_config(stated_values)


def with_model_type(fact: Published, source: CheckpointDir) -> dict[str, object]:
    """Return a configuration with an inferred model type, if it has none."""
    assert fact.config is not None
    return {"model_type": model_type_of(fact.config, source), **fact.config}
