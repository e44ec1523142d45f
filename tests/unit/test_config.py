"""Keys that follow from others, and shapes that cannot be built."""

import pytest

from zoo.config import Config, ConfigMap
from zoo.errors import VerificationError


class Shape(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says two things of one kind."""

    vocab_size: int = 7
    width: int = 6
    parts: int = 2

    def __post_init__(self) -> None:
        self.refuse({"thin parts": self.part < 1, "uneven parts": self.width % self.parts > 0})

    @property
    def part(self) -> int:
        return self.width // self.parts


MAP = ConfigMap(keys={"d": "width", "n": "parts"}, follows={"d_part": "part", "d_too": "width"})


@pytest.mark.parametrize("said", [{}, {"d_part": 4}, {"d_part": 4, "d_too": 12}])
def test_what_follows_may_be_said_and_is_carried_along(said: dict[str, int]) -> None:
    hub = {"d": 12, "n": 3, **said}
    found = MAP.to_ours(hub, Shape)
    assert found.config == Shape(width=12, parts=3)
    assert found.extra == said and found.unknown == ()
    back = MAP.to_hub(found.config, found.extra)
    assert {key: back.get(key) for key in ("d", "n", "d_part", "d_too")} == {
        "d_part": None,
        "d_too": None,
        **hub,
    }


@pytest.mark.parametrize(("key", "value", "right"), [("d_part", 6, "4"), ("d_too", None, "12")])
def test_another_value_is_refused_by_name(key: str, value: object, right: str) -> None:
    with pytest.raises(VerificationError, match=f"{key} = {value} contradicts") as refused:
        MAP.to_ours({"d": 12, "n": 3, key: value}, Shape)
    assert right in str(refused.value.remedy)


def test_a_shape_says_the_first_thing_that_is_wrong() -> None:
    with pytest.raises(ValueError, match="thin parts"):
        Shape(parts=7)
    with pytest.raises(VerificationError, match="uneven parts"):
        MAP.to_ours({"n": 4}, Shape)
