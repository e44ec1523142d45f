"""Numbers in the header of a runtime's file."""

import math
from typing import Any

import pytest

from zoo.errors import VerificationError
from zoo.families.runtimes import RuntimeHeader


def header(value: Any) -> RuntimeHeader:
    return RuntimeHeader("bert", "", {"bert.eps": value}, {}, "model.gguf")


@pytest.mark.parametrize(
    "value", [math.inf, math.nan, 1e300, -1e300, True, "1", None], ids=lambda value: repr(value)
)
def test_what_is_no_number_in_float32_is_refused(value: Any) -> None:
    with pytest.raises(VerificationError, match=r"bert\.eps"):
        header(value).number("eps")


def test_a_number_is_the_shortest_that_float32_rounds_to_it() -> None:
    assert header(9.999999747378752e-06).number("eps") == 1e-5
    assert header(2).number("eps") == 2.0
