"""MPNet: the conformance kit, and equality with the reference library on random weights."""

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import transformers
from msgspec.structs import replace

import zoo
from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.tokenizers import SourceFiles
from zoo.weights import match_tensors
from zoo_mpnet import MPNet
from zoo_mpnet.config import SIZES, MPNetConfig

MPNET = MPNet()
SMALL = MPNetConfig(**{**SMALL_SIZES, "max_positions": 202})


class TestMPNet(ReferenceTests, FamilyTests):
    family = MPNET
    golden = Path(__file__).parents[1] / "golden" / "mpnet"
    # Distances in every bucket.
    row_lengths, packed_lengths = (120, 60, 1), (120, 48)
    base = replace(SIZES["base"], vocab_size=1000)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"activation": "relu"},
        {"layer_norm_eps": 0.1},
        {"num_heads": 3, "num_layers": 1},
        {"labels": ("one",), "problem": "regression"},
    )
    default = MPNetConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("relative_attention_num_buckets", 64): "relative_attention_num_buckets",
        ("pad_token_id", 0): "pad_token_id",
        ("is_decoder", True): "is_decoder",
        ("hidden_act", "prelu"): "hidden_act",
        ("max_position_embeddings", 2): "max_positions 2 leaves no position",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 109_486_464,
        ("base", "masked-lm"): 109_518_527,
    }
    variants = ({"num_heads": 3},)
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}


def test_positions_do_not_count_padding() -> None:
    parity.assert_positions_skip_padding(MPNET, SMALL)


def test_published_file_is_matched() -> None:
    """all-mpnet-base-v2 has a pooler and a buffer of positions."""
    file = parity.published(MPNET, SMALL, "none")
    named = {f"mpnet.{name}": info for name, info in file.items()}
    named["mpnet.embeddings.position_ids"] = TensorInfo("I64", (1, 202))
    mapping = match_tensors(MPNET.weights(SMALL, "none"), named)
    mapping.raise_if_incomplete("test")
    assert len(mapping.drops) == 1


# config.json of all-mpnet-base-v2
PUBLISHED: dict[str, Any] = {
    "architectures": ["MPNetForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514,
    "model_type": "mpnet",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "relative_attention_num_buckets": 32,
    "vocab_size": 30527,
}


def test_a_published_configuration_is_read() -> None:
    translated = MPNET.from_hub(PUBLISHED)
    assert translated.config == replace(SIZES["base"], labels=translated.config.labels)
    assert translated.unknown == ()
    assert MPNET.onnx(SIZES["base"], "none").limits == {"tokens": 512}


def test_a_sentence_encoder_gives_the_vectors_of_sentence_transformers(tmp_path: Path) -> None:
    """The layout of all-mpnet-base-v2: mean pooling and unit length; texts of different lengths."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    vocabulary = {word: number for number, word in enumerate([*WORDS, *"abcdefg", "<mask>"])}
    hub = tmp_path / "hub"
    config = transformers.MPNetConfig(**{**PUBLISHED, "hidden_size": 48, "vocab_size": 17})
    config.num_hidden_layers, config.num_attention_heads, config.intermediate_size = 2, 4, 80
    transformers.MPNetModel(config).save_pretrained(hub)
    transformers.MPNetTokenizer(vocab=vocabulary).save_pretrained(hub)
    modules = [Transformer(str(hub)), Pooling(48, "mean"), Normalize()]
    encoder = SentenceTransformer(modules=modules, device="cpu")
    encoder.save(str(tmp_path / "sentences"))
    convert(CheckpointDir(tmp_path / "sentences", "sentences"), tmp_path / "ours")
    texts = ["a", "b c d", "a b c d e f g " * 20]
    expected = encoder.encode(texts)
    ours = zoo.load(tmp_path / "ours").embed(texts)
    assert np.abs(np.asarray(ours) - expected).max() <= 1e-5


WORDS = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NAMED = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "[UNK]"}


@pytest.mark.parametrize("named", [{}, NAMED, {"cls": "[CLS]", "sep": "[SEP]"}])
def test_texts_are_framed_as_by_the_reference(tmp_path: Path, named: dict[str, str]) -> None:
    """One text, a pair and a mask, with and without a file that names special tokens."""
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, "a", "b", "<mask>"]))
    config = {f"{role}_token": token for role, token in named.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = MPNET.tokenizer(SourceFiles(tmp_path))
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    for text in (("a b",), ("a", "b b"), ("a <mask> x",)):
        assert ours.encode(*text).ids == theirs(*text)["input_ids"]
