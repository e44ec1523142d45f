"""Derived configuration keys, and validation of shapes."""

from dataclasses import replace
from typing import Any

import pytest
import transformers

from zoo.errors import VerificationError
from zoo.families.config import Config, ConfigMap, same_names


class Shape(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration whose keys can conflict."""

    vocab_size: int = 7
    width: int = 6
    parts: int = 2
    scale: float | None = None
    reach: int = -1
    inner_dropout: float = 0.0
    end_token_id: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse({"thin parts": self.part < 1, "uneven parts": self.width % self.parts > 0})

    @property
    def part(self) -> int:
        return self.width // self.parts


KEYS = {"d": "width", "n": "parts", "s": "scale", "r": "reach", "p": "inner_dropout"}
MAP = ConfigMap(keys=KEYS, follows={"d_part": "part", "d_too": "width"})


@pytest.mark.parametrize("keys", [{}, {"d_part": 4}, {"d_part": 4, "d_too": 12}])
def test_following_keys_are_accepted_and_kept(keys: dict[str, int]) -> None:
    hub = {"d": 12, "n": 3, **keys}
    translated = MAP.from_hub(hub, Shape)
    assert translated.config == Shape(width=12, parts=3)
    assert translated.extra == keys and translated.unknown == ()
    back = MAP.to_hub(translated.config, translated.extra)
    assert {key: back.get(key) for key in ("d", "n", "d_part", "d_too")} == {
        "d_part": None,
        "d_too": None,
        **hub,
    }


@pytest.mark.parametrize(("key", "value", "right"), [("d_part", 6, "4"), ("d_too", None, "12")])
def test_another_value_is_refused_by_name(key: str, value: object, right: str) -> None:
    with pytest.raises(VerificationError, match=f"{key} = {value} contradicts") as refused:
        MAP.from_hub({"d": 12, "n": 3, key: value}, Shape)
    assert right in str(refused.value.hint)


def test_first_error_of_a_configuration_is_reported() -> None:
    with pytest.raises(ValueError, match="thin parts"):
        Shape(parts=7)
    with pytest.raises(VerificationError, match="uneven parts"):
        MAP.from_hub({"n": 4}, Shape)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("d", 0, "d = 0 is not positive"),
        ("n", -2, "n = -2 is not positive"),
        ("s", 0, "s = 0 is not positive"),
        ("s", float("nan"), "s = nan is not positive"),
        ("r", -2, "r = -2 is less than -1"),
        ("p", -0.1, r"p = -0.1 is not in \[0, 1\)"),
        ("p", 1, r"p = 1 is not in \[0, 1\)"),
        ("p", float("nan"), r"p = nan is not in \[0, 1\)"),
    ],
)
def test_number_out_of_range_is_refused_by_key_and_field(
    key: str, value: Any, message: str
) -> None:
    with pytest.raises(VerificationError, match=f"^in/config.json: {message}$") as refused:
        MAP.from_hub({key: value}, Shape, "in/config.json")
    assert refused.value.exit_code == 3 and "\n" not in str(refused.value)
    wrong = message.partition(" is ")[2]
    with pytest.raises(ValueError, match=f"^{KEYS[key]} is {value}, which is {wrong}$"):
        Shape(**{KEYS[key]: value})


def test_default_that_means_none_is_in_range() -> None:
    assert MAP.from_hub({"r": -1, "p": 0, "s": None}, Shape).config == Shape()
    assert MAP.from_hub({"r": 0, "s": 1e-9}, Shape).config == Shape(reach=0, scale=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"end_token_id": 7}, "end_token_id 7 is outside the vocabulary of 7"),
        ({"end_token_id": -1}, "end_token_id -1 is outside the vocabulary of 7"),
        ({"labels": ()}, "labels"),
    ],
)
def test_configuration_without_vocabulary_or_labels_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**changes)


class Stack(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration with the usual fields of a stack of layers."""

    vocab_size: int = 7
    hidden_size: int = 6
    num_layers: int = 2


def test_common_keys_are_aliases_of_a_familys_keys() -> None:
    table = ConfigMap(
        keys={**same_names("vocab_size"), "width": "hidden_size", "depth": "num_layers"}
    )
    translated = table.from_hub({"hidden_size": 8, "num_hidden_layers": 3, "vocab_size": 9}, Stack)
    assert translated.config == Stack(vocab_size=9, hidden_size=8, num_layers=3)
    assert translated.unknown == ()
    assert {"vocab_size": 9, "width": 8, "depth": 3}.items() <= table.to_hub(
        translated.config
    ).items()
    with pytest.raises(VerificationError, match="hidden_size = 8 contradicts width = 6"):
        table.from_hub({"hidden_size": 8, "width": 6}, Stack)


def test_common_key_with_another_meaning_in_a_family() -> None:
    table = ConfigMap(keys={"width": "hidden_size"}, ignored={"hidden_size": "no longer read"})
    translated = table.from_hub({"hidden_size": 8, "num_hidden_layers": 3}, Stack)
    assert translated.config == Stack() and translated.unknown == ("num_hidden_layers",)


STRETCHED = {"rope_scaling.type": ("linear", "default", None)}


@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_nested_key_of_a_group_without_fields(spelling: str) -> None:
    table = ConfigMap(
        keys={"d": "width"},
        fixed=STRETCHED,
        aliases={"rope_scaling.rope_type": "rope_scaling.type"},
    )
    with pytest.raises(VerificationError, match=r"rope_scaling\.type = 'yarn' is not implemented"):
        table.from_hub({"rope_scaling": {spelling: "yarn"}}, Shape)
    translated = table.from_hub({"d": 4, "rope_scaling": {spelling: "linear", "factor": 2}}, Shape)
    assert translated.config == Shape(width=4) and translated.unknown == ("rope_scaling.factor",)
    assert table.to_hub(translated.config, translated.extra)["rope_scaling"] == {
        "type": "linear",
        "factor": 2,
        **({"rope_type": "linear"} if spelling == "rope_type" else {}),
    }


@pytest.mark.parametrize("key", ["is_decoder", "is_encoder_decoder"])
def test_key_of_another_architecture_is_refused_unless_the_family_names_it(key: str) -> None:
    for value in (False, None):
        translated = MAP.from_hub({"d": 4, key: value}, Shape)
        assert translated.unknown == () and translated.extra == {key: value}
    with pytest.raises(VerificationError, match=f"{key} = True is not implemented"):
        MAP.from_hub({"d": 4, key: True}, Shape)
    for table in ({"ignored": {key: "a reason"}}, {"fixed": {key: (True,)}}):
        named = replace(MAP, **table)
        assert named.from_hub({"d": 4, key: True}, Shape).unknown == ()


def test_settings_of_generation_change_no_outputs() -> None:
    config = transformers.GenerationConfig(max_length=7, num_beams=2, temperature=0.5)
    names = {
        *("max_length", "do_sample", "num_beams", "temperature", "top_k", "length_penalty"),
        *("num_return_sequences", "no_repeat_ngram_size", "bad_words_ids"),
    }
    assert names <= config.to_dict().keys()
    hub: dict[str, Any] = {"d": 4, **dict.fromkeys(names, 3), "unk_token_id": 3, "mask_token_id": 4}
    hub["transformers.js_config"] = {"dtype": "q8"}
    translated = MAP.from_hub(hub, Shape)
    assert translated.unknown == ()
    assert MAP.to_hub(translated.config, translated.extra).items() >= hub.items()


ROTATION = ConfigMap(
    keys={"theta": "width", "n": "parts"},
    aliases={"rotation.global.theta": "theta", "heads": "n"},
    unsaid=("n",),
)


def test_spellings_of_a_file_come_back_with_the_value_of_the_field() -> None:
    hub = {"heads": 3, "rotation": {"global": {"theta": 12, "kind": "default"}}}
    translated = ROTATION.from_hub(hub, Shape)
    assert translated.config == Shape(width=12, parts=3)
    assert translated.unknown == ("rotation.global.kind",)
    back = ROTATION.to_hub(translated.config, translated.extra)
    assert back.items() >= {**hub, "theta": 12, "n": 3}.items()
    changed = ROTATION.to_hub(Shape(width=8), translated.extra)
    assert changed["rotation"] == {"global": {"theta": 8, "kind": "default"}}
    assert (changed["heads"], changed["theta"]) == (2, 8) and "n" not in changed


def test_new_model_has_the_spellings_that_are_to_be_written() -> None:
    assert not {"rotation", "heads"} & ROTATION.to_hub(Shape()).keys()
    both = replace(ROTATION, both=("rotation.global.theta",))
    new = both.to_hub(Shape())
    assert (new["theta"], new["rotation"]) == (6, {"global": {"theta": 6}}) and "heads" not in new
    assert both.from_hub(new, Shape).config == Shape()
    assert "rotation" not in both.to_hub(Shape(), {})  # a file that did not have it


@pytest.mark.parametrize("table", ["ignored", "follows"])
def test_nested_keys_in_every_table(table: str) -> None:
    known = ConfigMap(keys={"d": "width"}, **{table: {"group.key": "width"}})  # type: ignore[arg-type]
    translated = known.from_hub({"d": 4, "group": {"key": 4}}, Shape)
    assert translated.unknown == () and translated.extra == {"group.key": 4}


@pytest.mark.parametrize("empty", [None, {}])
def test_empty_group_is_kept(empty: object) -> None:
    table = ConfigMap(keys={"d": "width"}, fixed=STRETCHED)
    translated = table.from_hub({"d": 4, "rope_scaling": empty}, Shape)
    assert table.to_hub(translated.config, translated.extra)["rope_scaling"] == empty
    nested = ConfigMap(keys={"rope_scaling.width": "width"})
    translated = nested.from_hub({"rope_scaling": empty}, Shape)
    assert nested.to_hub(translated.config, translated.extra)["rope_scaling"] == {"width": 6}
    assert translated.extra == {"rope_scaling": empty}


def test_key_with_a_dot_is_no_nested_key() -> None:
    table = ConfigMap(keys={"d": "width"}, fixed=STRETCHED)
    with pytest.raises(VerificationError, match="has a dot in its name"):
        table.from_hub({"rope_scaling.type": "yarn"}, Shape)
    assert table.from_hub({"another.key": 1}, Shape).extra == {"another.key": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 2**31}, "vocab_size is 2147483648, which is over 2,147,483,647"),
        ({"num_layers": 10**9}, "num_layers is 1000000000, which is over 10,000"),
        ({"num_layers": 10**400}, "which is over 10,000"),
        ({"hidden_size": 10**10}, "hidden_size is 10000000000"),
    ],
)
def test_absurd_numbers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stack(**changes)


def test_excessive_number_of_labels_is_refused() -> None:
    with pytest.raises(VerificationError, match="num_labels is 10,000,000,000"):
        MAP.from_hub({"num_labels": 10**10}, Shape)


def test_an_infinite_number_is_refused() -> None:
    with pytest.raises(VerificationError, match="s = inf is not finite"):
        MAP.from_hub({"s": float("inf")}, Shape)
