"""Changes of a configuration that reach branches which its defaults do not reach."""

from typing import Literal

from msgspec.structs import replace

from zoo.conformance.variations import describe_changes, field_changes, other_values
from zoo_bert import Bert
from zoo_gpt import Gpt


def test_switches_words_sizes_and_tokens_are_changed() -> None:
    config = Bert().sizes()["tiny"]
    changes = field_changes(Bert(), config)
    assert {"layer_norm_eps": 0.1} in changes and {"num_layers": 1} in changes
    assert {"activation": "relu"} in changes and {"type_vocab_size": 1} in changes
    assert {"pad_token_id": 5} in changes and {"labels": ("one",)} in changes
    names = {name for change in changes for name in change}
    assert names.isdisjoint({"dropout", "attention_dropout", "initializer_range", "vocab_size"})
    assert [change for change in changes if len(change) != 1] == []


def test_changes_that_the_family_refuses_are_left_out() -> None:
    """A width of 6 splits into two heads, and its half does not."""
    config = replace(Gpt().sizes()["tiny"], hidden_size=6, num_heads=2)
    changes = field_changes(Gpt(), config)
    assert {"tie_embeddings": not config.tie_embeddings} in changes
    assert {"num_heads": 1} in changes
    assert {"hidden_size": 3} not in changes


def test_values_by_the_type_of_a_field() -> None:
    norm_type = Literal["pre", "post"]
    assert list(other_values("norm", norm_type, "pre")) == ["post"]
    assert list(other_values("window", int | None, 128)) == [None, 64]
    assert list(other_values("theta", float, 10000.0)) == [5000.0]
    assert list(other_values("causal", bool, False)) == [True]
    assert describe_changes({"norm": "post", "window": 64}) == "norm 'post', window 64"
