"""Old names that version 0.2 had: methods of plugins, and arguments of the Python API."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import zoo
from zoo.errors import ZooError
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


@pytest.mark.parametrize(
    ("call", "old", "new"),
    [
        (lambda **given: zoo.load("no such model", **given), "adapters", "adapter"),
        (lambda **given: zoo.evaluate("no such model", task="perplexity", **given), "data", "eval"),
        (lambda **given: zoo.distill("no such model", "tiny", **given), "data", "train"),
    ],
    ids=["load", "evaluate", "distill"],
)
def test_arguments_by_their_old_names(call: Callable[..., Any], old: str, new: str) -> None:
    message = f"{old} is now called {new}, its only name in the next release"
    with pytest.warns(FutureWarning, match=message) as caught, pytest.raises(ZooError) as refused:
        call(**{old: ["no such file"]})
    assert [w.filename for w in caught] == [__file__]
    with pytest.raises(ZooError) as expected:
        call(**{new: ["no such file"]})
    assert refused.value.what == expected.value.what
    with pytest.raises(TypeError, match=f"got {new} twice"), pytest.warns(FutureWarning):
        call(**{new: [], old: []})
