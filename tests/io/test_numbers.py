"""Numbers in text: what ``int`` and ``float`` of Python read beyond decimals is refused."""

import json
import random

import numpy as np
import pytest

from zoo.errors import UsageError
from zoo.io.numbers import (
    fits_float32,
    format_percent,
    int_from_environment,
    parse_float,
    parse_int,
)

FOREIGN = ["1_000", "\uff11\uff12", "\u0663", " 1", "1 ", "1\n", "", "+", "0x10", "1,5", "1'000"]


@pytest.mark.parametrize("text", [*FOREIGN, "nan", "inf", "-Infinity", "1e999", ".", "e5", "1e"])
def test_what_is_no_decimal_number(text: str) -> None:
    assert (parse_float(text), parse_int(text)) == (None, None)


def test_numbers_of_json_are_read() -> None:
    rng = random.Random(0)
    numbers = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300) for _ in range(500)]
    texts = [json.dumps(number) for number in [*numbers, 0, -7, 10**99]]
    assert [parse_float(text) for text in texts] == [float(json.loads(text)) for text in texts]
    assert [parse_float(text) for text in ("1.", ".5", "+2", "007", "1E3")] == [1, 0.5, 2, 7, 1000]
    assert [parse_int(text) for text in ("12", "-3", "+4", "1.0")] == [12, -3, 4, None]
    assert parse_int("9" * 5000) is None, "which takes quadratic time"


def test_a_small_share_is_not_zero() -> None:
    shares = (0, 0.000012, 0.00094, 0.001, 0.0123, 1, 12.5)
    percents = ["0.0%", "0.0012%", "0.094%", "0.1%", "1.2%", "100.0%", "1250.0%"]
    assert [format_percent(share) for share in shares] == percents


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_limit_is_that_of_float32() -> None:
    greatest = float(np.finfo(np.float32).max)
    step = greatest * 2.0**-25  # half of the distance to the next number
    for number in (greatest, greatest + step * 0.99, greatest + step * 1.01, -1e39, 1e200, 1e-300):
        assert fits_float32(number) == bool(np.isfinite(np.float32(number))), number
    assert not fits_float32(float("nan")) and not fits_float32(float("inf"))


def test_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert (int_from_environment("RANK", 0), int_from_environment("RANK_", 7)) == (3, 7)
    monkeypatch.setenv("RANK", "1_0")
    with pytest.raises(UsageError, match="RANK is '1_0', which is not an integer"):
        int_from_environment("RANK", 0)
