"""Tests of equality with the reference library, shared by all families of encoders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import transformers
from msgspec.structs import replace

from tests.families import parity
from zoo.errors import VerificationError
from zoo.families.base import Family

Changes = Mapping[str, Any]  # configuration field -> value
SMALL_SIZES: Changes = {  # different ones, so that exchanged dimensions fail
    "vocab_size": 101,
    "hidden_size": 48,
    "num_layers": 3,
    "num_heads": 4,
    "intermediate_size": 80,
    "max_positions": 40,
    "labels": ("one", "two", "three"),
}


class ReferenceTests:
    """Mixin before ``FamilyTests`` for families whose heads the reference library implements.

    Attributes:
        family: the family under test.
        base: full-size configuration, compared at all sequence lengths.
        others: further sizes, compared with fewer layers and tokens.
        small: small configuration whose dimensions are all different.
        settings: changes of ``small`` to compare.
        default: configuration equal to the reference's defaults.
        refused: Hub key and unsupported value -> text in the message.
        counts: size and head -> published number of parameters.
        variants: changes of ``small`` for conversion in both directions, with the head ``half``.
        carried: Hub keys without a field, which conversion in both directions keeps.
        half: head for conversion of variants, and of half precision, in both directions.
    """

    family: ClassVar[Family]
    base: ClassVar[Any]
    others: ClassVar[Sequence[str]]
    small: ClassVar[Any]
    settings: ClassVar[Sequence[Changes]]
    default: ClassVar[Any]
    refused: ClassVar[Mapping[tuple[str, Any], str]]
    counts: ClassVar[Mapping[tuple[str, str], int]]
    variants: ClassVar[Sequence[Changes]] = ({},)
    carried: ClassVar[Changes]
    half: ClassVar[str] = "masked-lm"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize tests over the class attributes that their arguments name."""
        super().pytest_generate_tests(metafunc)  # type: ignore[misc]
        values: Mapping[str, Sequence[Any]] = {
            "other": self.others,
            "changes": self.settings,
            "refusal": list(self.refused.items()),
            "counted": list(self.counts.items()),
            "variant": self.variants,
        }
        for name in values:
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values[name], ids=str)

    @pytest.mark.long
    def test_base_equals_the_reference(self, head: str) -> None:
        parity.assert_equal_at_all_lengths(self.family, self.base, head)

    @pytest.mark.long
    def test_other_sizes_equal_the_reference(self, other: str, head: str) -> None:
        config = replace(self.family.sizes()[other], num_layers=2, vocab_size=200)
        parity.assert_equal(self.family, config, head)

    def test_settings_equal_the_reference(self, changes: Changes, head: str) -> None:
        parity.assert_equal(self.family, replace(self.small, **changes), head)

    def test_parameter_counts_are_the_published_ones(
        self, counted: tuple[tuple[str, str], int]
    ) -> None:
        (size, head), count = counted
        assert parity.count(self.family, self.family.sizes()[size], head) == count

    def test_keys_of_the_reference_are_known(self) -> None:
        kind = getattr(transformers, self.family.architecture(self.default, "none"))
        translated = self.family.from_hub(kind.config_class().to_dict())
        assert translated.config == self.default and translated.unknown == ()

    def test_unimplemented_settings_are_refused_by_name(
        self, refusal: tuple[tuple[str, Any], str]
    ) -> None:
        (key, value), named = refusal
        model_type = self.family.model_type(self.default)
        with pytest.raises(VerificationError, match=named):
            self.family.from_hub({"model_type": model_type, key: value})

    def test_hub_round_trip(self, head: str, tmp_path: Path) -> None:
        parity.assert_there_and_back(self.family, self.small, head, tmp_path, **self.carried)

    def test_hub_round_trip_of_variants(self, variant: Changes, tmp_path: Path) -> None:
        config = replace(self.small, **variant)
        parity.assert_there_and_back(self.family, config, self.half, tmp_path)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    @pytest.mark.parametrize("tie", [True, False])
    def test_half_precision_round_trip(self, tie: bool, dtype: str, tmp_path: Path) -> None:
        config = replace(self.small, tie_embeddings=tie)
        parity.assert_there_and_back(self.family, config, self.half, tmp_path, dtype)
