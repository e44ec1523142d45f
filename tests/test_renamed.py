"""Plugins written for version 0.2 define and call methods by their old names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from zoo.families.config import ConfigMap, TranslatedConfig
from zoo.plugins import get_family
from zoo.weights.ops import SAME, Op, Shape

BERT: Any = type(get_family("bert"))


def test_a_method_by_its_old_name_is_called_by_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="Old: the method from_hf is now called from_hub"):

        class Old(BERT):  # type: ignore[misc]
            def from_hf(self, hub: Mapping[str, Any], location: str = "x") -> TranslatedConfig:
                translated = super().from_hf({**hub, "vocab_size": 7}, location)
                assert isinstance(translated, TranslatedConfig)
                return translated

    with pytest.warns(DeprecationWarning, match="from_hf is now called from_hub"):
        config: Any = Old().from_hub({"model_type": "bert"}).config
    assert config.vocab_size == 7

    class Derived(Old):
        def from_hub(self, hub: Mapping[str, Any], location: str = "x") -> Any:
            return super().from_hub({**hub, "hidden_size": 24}, location)

    with pytest.warns(DeprecationWarning, match="from_hf is now called from_hub"):
        config = Derived().from_hf({"model_type": "bert"}).config
    assert (config.vocab_size, config.hidden_size) == (7, 24)


def test_an_operation_with_old_names_is_complete() -> None:
    with pytest.warns(DeprecationWarning, match="the method to_hf is now called to_hub"):

        class Twice(Op):
            def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
                return (shape,)

            def chunks(self, arrays: Any) -> Any:
                return arrays

            def to_hf(self, array: Any) -> tuple[Any, ...]:
                return (array * 2,)

    twice: Any = Twice()  # type: ignore[abstract]
    np.testing.assert_array_equal(twice.to_hub(np.arange(3))[0], [0, 2, 4])


def test_old_names_can_be_called() -> None:
    for owner, old, new in ((SAME, "to_hf", "to_hub"), (ConfigMap({}), "to_ours", "from_hub")):
        assert getattr(type(owner), old) is not getattr(type(owner), new)
        assert getattr(type(owner), old).__wrapped__ is getattr(type(owner), new)
