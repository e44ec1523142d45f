"""The one check of sizes that files declare."""

import pytest

from zoo.errors import VerificationError
from zoo.io.sizes import check_size, size_problem


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "a: number of rows is 0, and at least 1 is needed; fetch it again"),
        (-(2**62), "a: number of rows is -4,611,686,018,427,387,904, and at least 1"),
        (1001, "a: number of rows is 1,001, and at most 1,000 is accepted; do not use this file"),
        (10**30, "and at most 1,000 is accepted"),
        (600, "a: number of rows is 600, and the file has room for at most 500; fetch it again"),
        (True, "a: number of rows is True, which is not a whole number; fetch it again"),
        (4.0, "a: number of rows is 4.0, which is not a whole number"),
        ("4", "a: number of rows is '4', which is not a whole number"),
        (None, "a: number of rows is None, which is not a whole number"),
    ],
)
def test_a_size_outside_of_its_bounds_is_refused(value: object, message: str) -> None:
    with pytest.raises(VerificationError) as error:
        check_size("a", "number of rows", value, 1000, least=1, room=500)
    assert message in str(error.value)


def test_a_size_within_its_bounds_is_returned() -> None:
    assert check_size("a", "number of rows", 500, 1000, least=1, room=500) == 500
    assert check_size("a", "number of rows", 0, 1000) == 0
    assert size_problem("number of rows", 1000, 1000) is None
