"""Merged settings."""

from zoo.training.config.overrides import deep_merge


def test_merged_settings_share_no_dictionary_with_their_sources() -> None:
    """A change to them would otherwise reach all later runs of the process."""
    base = {"data": {"paths": ["a.txt"], "reader": {"format": "text"}}, "seq_len": 64}
    merged = deep_merge(base, {"seq_len": 32, "optimizer": {"learning_rate": 0.1}})
    merged["data"]["reader"]["format"] = "table"
    del merged["data"]["paths"]
    assert base == {"data": {"paths": ["a.txt"], "reader": {"format": "text"}}, "seq_len": 64}
    assert (merged["seq_len"], merged["optimizer"]) == (32, {"learning_rate": 0.1})


def test_the_later_value_of_a_key_is_taken() -> None:
    assert deep_merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    assert deep_merge({"a": 1}, {"a": {"b": 3}}, {"a": {"c": 4}}) == {"a": {"b": 3, "c": 4}}
    assert deep_merge({"a": {"b": 3}}, {"a": None}) == {"a": None}
