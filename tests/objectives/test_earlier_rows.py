"""Runs that earlier versions began read the rows that those versions gave them."""

import json
from typing import Any

import pytest

from tests.objectives.earlier_rows import OBJECTIVES, RECORD, digest_rows, documents
from zoo.data.order import EpochOrder


def earlier_order(rows: int) -> Any:
    return EpochOrder("arrays", rows, 3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rows_of_earlier_versions(name: str) -> None:
    """Token ids, masks and order are equal to those that the code of an earlier commit recorded."""
    split = documents()
    split.order = "arrays"
    expected = json.loads(RECORD.read_text())[name]
    assert digest_rows(OBJECTIVES[name](), split, earlier_order) == expected


@pytest.mark.parametrize("name", OBJECTIVES)
def test_new_runs_have_another_order(name: str) -> None:
    expected = json.loads(RECORD.read_text())[name]["digests"]
    rows = digest_rows(OBJECTIVES[name](), documents(), lambda rows: EpochOrder("keyed", rows, 3))
    assert rows["digests"][0] != expected[0]
