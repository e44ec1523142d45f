"""MPNet: the conformance kit, and the reference library's results."""

import json
from pathlib import Path

import pytest
import transformers
from msgspec.structs import replace
from zoo_mpnet import MPNet
from zoo_mpnet.config import SIZES, MPNetConfig

from zoo.errors import VerificationError
from zoo.testing.conformance import FamilyTests
from zoo.testing.draws import draw_inputs, draw_weights
from zoo.testing.oracle import compare_with_reference
from zoo.tokenization import SourceFiles

ENDS = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [*ENDS, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "<mask>"]
NAMED = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "[UNK]"}


class TestMPNet(FamilyTests):
    """Every check of the kit, and the reference's formula."""

    family = MPNet()

    @property
    def config(self) -> MPNetConfig:
        """Tiny, with a small vocabulary, which makes the checks quick."""
        return replace(SIZES["tiny"], vocab_size=1000)

    @pytest.mark.parametrize("pooler", [True, False])
    def test_outputs_equal_the_reference(self, head: str, pooler: bool) -> None:
        """To 1e-9 in float64, at distances in every bucket."""
        config = replace(self.config, pooler=pooler, activation="relu")
        model = self.family.model(config, head).double()
        draw_weights(model)
        inputs = draw_inputs(self.family.onnx(config, head), config, (120, 60, 1))
        found = compare_with_reference(self.family, config, head, model, inputs=inputs)
        assert max(difference.absolute for difference in found.outputs.values()) <= 1e-9
        assert found.first_diverging is None


def test_every_key_of_the_reference_is_known() -> None:
    """And the defaults are the same."""
    hub = transformers.MPNetConfig().to_dict()
    found = MPNet.config_map.to_ours(hub, MPNetConfig)
    assert found.config == MPNetConfig() and not found.unknown


@pytest.mark.parametrize("key", ["relative_attention_num_buckets", "pad_token_id"])
def test_what_the_formula_fixes_is_refused(key: str) -> None:
    """By the name of the key."""
    with pytest.raises(VerificationError, match=key):
        MPNet.config_map.to_ours({key: 7}, MPNetConfig)


def test_the_parameter_count_is_the_registrys() -> None:
    """Of all-mpnet-base-v2."""
    assert MPNet().weights(SIZES["base"], "none").parameters() == 109_486_464


def test_texts_are_framed_as_by_the_reference(tmp_path: Path) -> None:
    """From a vocabulary alone: one text, a pair, a masked one."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    config = {f"{role}_token": token for role, token in NAMED.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = MPNet().tokenizer(SourceFiles(tmp_path))
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    for text in (("a b",), ("a", "b b"), ("a <mask> x",)):
        assert ours.encode(*text).ids == theirs(*text)["input_ids"]


def test_a_tokenizer_without_mpnets_tokens_is_refused(tmp_path: Path) -> None:
    """The usual ones of WordPiece would give wrong ids without a word."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    with pytest.raises(VerificationError, match=r"\[CLS\] is the cls token"):
        MPNet().tokenizer(SourceFiles(tmp_path))
