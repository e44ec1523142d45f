import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from zoo.inference.processing.numbers import short_floats, sigmoid, softmax

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays.arrays(np.float32, st.integers(0, 50), elements=FLOATS))
def test_float32_survives_json_to_the_bit(
    values: "np.ndarray[tuple[int], np.dtype[np.float32]]",
) -> None:
    back = msgspec.json.decode(msgspec.json.encode(short_floats(values)))
    np.testing.assert_array_equal(np.array(back, np.float64).astype(np.float32), values)


def test_float32_is_written_with_nine_digits() -> None:
    values = np.random.default_rng(0).normal(size=(4, 250)).astype(np.float32)
    written = [repr(x).lstrip("-0.").replace(".", "") for row in short_floats(values) for x in row]
    assert max(map(len, written)) <= 9
    assert short_floats(np.array([0.1, -0.5, 1e-20], np.float32)) == [
        0.100000001,
        -0.5,
        float(np.float32(1e-20)),
    ]


def test_float64_keeps_its_digits() -> None:
    assert short_floats(np.array([0.1 + 0.2])) == [0.1 + 0.2]


def test_softmax_and_sigmoid_do_not_overflow() -> None:
    assert softmax(np.array([[1e4, 1e4], [-1e4, 0]], np.float32)).tolist() == [
        [0.5, 0.5],
        [0.0, 1.0],
    ]
    np.testing.assert_allclose(
        sigmoid(np.array([-1e4, 0.0, 1e4], np.float32)), [0, 0.5, 1], atol=1e-300
    )
    odds = np.array([0.3, -2.0], np.float32)
    np.testing.assert_allclose(
        sigmoid(odds), 1 / (1 + np.exp(-odds.astype(np.float64))), rtol=1e-12
    )
