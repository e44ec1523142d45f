"""Values of the options that export targets declare."""

from typing import Any

import pytest

from zoo.api.exporting import configured_target
from zoo.cli.target_options import target_options
from zoo.errors import UsageError
from zoo.exporting.targets.onnx import Onnx
from zoo.exporting.targets.onnx.options import OnnxOptions


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("opset", "null"),
        ("opset", "18.0"),
        ("opset", 18.5),
        ("block_size", "64"),
        ("block_size", 48),
        ("optimize", "yes"),
        ("optimize", "1"),
        ("dim", 0),
    ],
)
def test_a_value_of_another_type_is_refused(option: str, value: Any) -> None:
    flag = f"--{option.replace('_', '-')}"
    with pytest.raises(UsageError, match=f"^{flag}: "):
        configured_target("onnx", {option: value})


def test_a_choice_of_numbers_is_a_number() -> None:
    (option,) = [one for one in target_options(Onnx) if one.name == "block_size"]
    assert option.type.convert("64", option, None) == 64
    assert configured_target("onnx", {"block_size": 64}).options == OnnxOptions(block_size=64)
