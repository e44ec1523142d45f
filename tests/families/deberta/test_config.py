"""DeBERTa's configuration, sizes and tokenizers."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from msgspec.structs import replace

from tests.families.deberta.versions import DEBERTA, FIRST, THIRD
from tests.families.parity import count
from tests.tokenizers.directories import write
from tests.tokenizers.trained import BRACKETS, bracketed, byte_level
from zoo.errors import UsageError, VerificationError
from zoo.tokenizers import SourceFiles
from zoo_deberta.config import SIZES, DebertaConfig


@pytest.mark.by_default("v3-xsmall")
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("base", 138_601_728),
        ("large", 405_163_008),
        ("v3-xsmall", 70_682_112),
        ("v3-small", 141_304_320),
        ("v3-base", 183_831_552),
        ("v3-large", 434_012_160),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, expected: int) -> None:
    assert count(DEBERTA, SIZES[size], "none") == expected


@pytest.mark.parametrize("kind", ["DebertaConfig", "DebertaV2Config"])
def test_keys_of_the_reference_are_known(kind: str) -> None:
    reference = getattr(transformers, kind)()
    hub = json.loads(json.dumps(reference.to_dict()))
    translated = DEBERTA.from_hub(hub)
    assert translated.unknown == () and isinstance(translated.config, DebertaConfig)
    assert DEBERTA.model_type(translated.config) == reference.model_type
    back = DEBERTA.to_hub(translated.config, translated.extra)
    anew = {"architectures", "dtype", "problem_type"}
    assert {key: back[key] for key in hub.keys() - anew} == {k: hub[k] for k in hub.keys() - anew}


def test_defaults_are_those_of_the_version() -> None:
    first = DEBERTA.from_hub({"model_type": "deberta"}).config
    assert isinstance(first, DebertaConfig)
    assert (first.vocab_size, first.hidden_size, first.num_layers) == (50265, 768, 12)
    second = DEBERTA.from_hub({"model_type": "deberta-v2"}).config
    assert replace(DebertaConfig(), legacy_names=False) == second


def test_keys_of_published_files_are_known() -> None:
    hub = {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 1536,
        "initializer_range": 0.02,
        "intermediate_size": 6144,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "max_relative_positions": -1,
        "position_biased_input": False,
        "num_attention_heads": 24,
        "attention_head_size": 64,
        "num_hidden_layers": 24,
        "type_vocab_size": 0,
        "vocab_size": 128100,
        "padding_idx": 0,
        "pooler_hidden_size": 1536,
        "pooling": {"dropout": 0, "hidden_act": "gelu"},
    }
    translated = DEBERTA.from_hub(hub)
    assert translated.config == SIZES["v2-xlarge"] and translated.unknown == ()
    assert hub.items() <= DEBERTA.to_hub(translated.config, translated.extra).items()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("talking_head", True),
        ("z_steps", 2),
        ("pooling", {"dropout": 0, "hidden_act": "tanh"}),
        ("tie_word_embeddings", False),
        ("pooler_hidden_size", 64),
        ("attention_head_size", 32),
        ("embedding_size", 128),
        ("pos_att_type", "c2p|p2p"),
        ("pos_att_type", ["c2p", "c2p"]),
        ("norm_rel_ebd", "batch_norm"),
        ("conv_kernel_size", 4),
        ("hidden_act", "prelu"),
        ("is_decoder", True),
        ("quantization_config", {"bits": 8}),
    ],
)
def test_unimplemented_settings_are_refused_by_name(key: str, value: object) -> None:
    ours = {"pos_att_type": "position_terms", "norm_rel_ebd": "norm_rel_ebd"}.get(key, key)
    with pytest.raises(VerificationError, match=ours):
        DEBERTA.from_hub({"model_type": "deberta-v2", "relative_attention": True, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("share_att_key", True), ("position_buckets", 256), ("conv_kernel_size", 3)],
)
def test_first_version_refuses_later_settings(key: str, value: object) -> None:
    with pytest.raises(VerificationError, match=key):
        DEBERTA.from_hub({"model_type": "deberta", key: value})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"position_buckets": 2}, "position_buckets 2 do not divide 40"),
        ({"position_buckets": 80}, "position_buckets 80 do not divide 40"),
        ({"conv_groups": 5}, "conv_groups 5 do not divide hidden_size 48"),
        ({"relative_attention": False}, "norm_rel_ebd 'layer_norm' without relative_attention"),
        ({"key_bias": False}, "version 1"),
        ({"type_vocab_size": -1}, "type_vocab_size is -1"),
        ({"pooler_dropout": 1.0}, "pooler_dropout is 1.0"),
    ],
)
def test_invalid_configuration_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(THIRD, **changes)


def test_the_hub_has_no_choice_among_texts_in_the_first_version() -> None:
    assert DEBERTA.architecture(FIRST, "masked-lm") == "DebertaForMaskedLM"
    assert DEBERTA.architecture(THIRD, "multiple-choice") == "DebertaV2ForMultipleChoice"
    with pytest.raises(UsageError, match="multiple-choice"):
        DEBERTA.architecture(FIRST, "multiple-choice")


def test_the_first_version_has_a_byte_level_tokenizer(tmp_path: Path) -> None:
    vocabulary, merges = byte_level(BRACKETS)
    write(tmp_path, {"vocab.json": vocabulary, "merges.txt": merges})
    ours = DEBERTA.tokenizer(SourceFiles(tmp_path))
    reference = transformers.DebertaTokenizer.from_pretrained(tmp_path)
    for text in ("Some words, and others.", " a line\n£5", ""):
        assert ours.encode(text).ids == reference(text)["input_ids"]
    # the reference doubles the separator, unlike in pretraining
    assert ours.encode("one", "two").tokens.count("[SEP]") == 2


def test_later_versions_have_a_sentencepiece_tokenizer(tmp_path: Path) -> None:
    ours = DEBERTA.tokenizer(SourceFiles(write(tmp_path, {"spm.model": bracketed()})))
    reference = transformers.DebertaV2Tokenizer.from_pretrained(tmp_path)
    for texts in (("Some words, and a [MASK].",), ("One text", "and another one")):
        encoding, theirs = ours.encode(*texts), reference(*texts)
        assert encoding.ids == theirs["input_ids"]
        assert encoding.type_ids == theirs["token_type_ids"]
