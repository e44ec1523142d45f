"""MPNet: the conformance checks, and the outputs of the reference library."""

import json
from pathlib import Path

import pytest
import transformers
from msgspec.structs import replace
from zoo_mpnet import MPNet
from zoo_mpnet.config import SIZES, MPNetConfig

from zoo.errors import VerificationError
from zoo.testing import ReferenceTests
from zoo.tokenizers import SourceFiles

ENDS = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [*ENDS, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "<mask>"]
NAMED = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "[UNK]"}


class TestMPNet(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = MPNet()
    settings = ({}, {"pooler": False, "activation": "relu"})
    # distances in every bucket
    row_lengths = (120, 60, 1)
    packed_lengths = (120, 48)

    @property
    def config(self) -> MPNetConfig:
        """``tiny`` with a small vocabulary, for speed."""
        return replace(SIZES["tiny"], vocab_size=1000)


@pytest.mark.parametrize("key", ["relative_attention_num_buckets", "pad_token_id"])
def test_other_values_of_fixed_keys_are_refused(key: str) -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=key):
        MPNet.config_map.from_hub({key: 7}, MPNetConfig)


def test_parameter_count_of_all_mpnet_base_v2() -> None:
    """The rules of ``base`` have as many parameters as the published checkpoint."""
    assert MPNet().weights(SIZES["base"], "none").parameters() == 109_486_464


@pytest.mark.parametrize("named", [{}, NAMED, {"cls": "[CLS]", "sep": "[SEP]"}])
def test_texts_are_framed_as_by_the_reference(tmp_path: Path, named: dict[str, str]) -> None:
    """One text, a pair and a mask, with and without a file that names special tokens."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    config = {f"{role}_token": token for role, token in named.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = MPNet().tokenizer(SourceFiles(tmp_path))
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    for text in (("a b",), ("a", "b b"), ("a <mask> x",)):
        assert ours.encode(*text).ids == theirs(*text)["input_ids"]


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_a_recipe(size: str) -> None:
    """Its rows are not longer than the size's positions."""
    family = MPNet()
    recipe = family.recipe(size)
    assert recipe.objective == "masked-lm"
    assert recipe.seq_len <= family.max_seq_len(SIZES[size])
