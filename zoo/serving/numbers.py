"""Arrays of numbers in JSON."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

if TYPE_CHECKING:
    from numpy.typing import NDArray


def json_numbers(array: "NDArray[Any]") -> Any:
    """Return an array of numbers for an answer, in the type that msgspec copies into JSON.

    A float32 has the fewest digits that identify it, as orjson writes it from the array; msgspec
    would write the 17 digits of a double, from a Python object for each number.
    """
    contiguous = np.ascontiguousarray(array)
    return msgspec.Raw(orjson.dumps(contiguous, option=orjson.OPT_SERIALIZE_NUMPY))
