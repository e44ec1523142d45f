"""M2M100 and NLLB: the conformance kit, and equality with the reference library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

import zoo
from tests.families import parity
from tests.families.making import SEQ2SEQ_SHAPE
from tests.inference.generation.conftest import sharp
from tests.tokenizers.trained import pieces
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.families.random_inputs import random_inputs
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.positions import fairseq_positions
from zoo.testing.conformance import FamilyTests
from zoo.tokenizers import SourceFiles
from zoo.weights import match_tensors
from zoo_m2m100 import M2M100
from zoo_m2m100.config import SIZES, M2M100Config
from zoo_m2m100.languages import M2M100 as CODES
from zoo_m2m100.languages import NLLB, WMT21

FAMILY = M2M100()
HEADS = list(FAMILY.heads())
SMALL = M2M100Config(**SEQ2SEQ_SHAPE)
TEXTS = ["A film, and what a film.", "Crème brûlée 2,500 señores", "x 中文 z"]


class TestM2M100(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "m2m100"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": False},
        {"scale_embedding": False, "activation": "gelu"},
        {"num_layers": 1, "decoder_layers": 3, "hidden_size": 60},
        {"decoder_start_token_id": 7, "pad_token_id": 5, "eos_token_id": 9},
        {"max_positions": 10, "num_heads": 1, "decoder_attention_heads": 12},
    ],
    ids=str,
)
def test_small_models_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), "seq2seq-lm")


@pytest.mark.long
def test_padded_texts_up_to_the_longest_equal_the_reference() -> None:
    config = replace(SMALL, max_positions=1024, num_layers=1, decoder_layers=1)
    inputs = random_inputs(FAMILY.onnx(config, "none"), config, (1024, 700, 1))
    targets = inputs["decoder_input_ids"]  # the reference gives padding no position
    targets[targets == config.pad_token_id] = 7
    model = parity.random_model(FAMILY, config, "none")
    parity.assert_equal(FAMILY, config, "none", model, inputs)


@pytest.mark.parametrize("width", [48, 7])
def test_positions_are_those_of_the_reference(width: int) -> None:
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    expected = M2M100SinusoidalPositionalEmbedding.get_embedding(1026, width, 1)
    assert torch.equal(fairseq_positions(1026, width, 1), expected)


@pytest.mark.parametrize("head", HEADS)
def test_hub_round_trip(head: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, head, tmp_path)


def test_half_precision_round_trip(tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, "seq2seq-lm", tmp_path, "float16")


def test_tables_of_early_files_are_left_out() -> None:
    file = parity.published(FAMILY, SMALL, "seq2seq-lm")
    tables = [f"model.{stack}.embed_positions.weights" for stack in ("decoder", "encoder")]
    file |= dict.fromkeys(tables, TensorInfo("F32", (66, 48)))
    mapping = match_tensors(FAMILY.weights(SMALL, "seq2seq-lm"), file)
    mapping.raise_if_incomplete("test")
    assert sorted(mapping.drops) == tables


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.M2M100Config().to_dict())
    assert translated.unknown == ()
    assert translated.config == SIZES["418m"]


def test_unimplemented_settings_are_refused_by_name() -> None:
    with pytest.raises(VerificationError, match="is_decoder"):
        FAMILY.from_hub({"model_type": "m2m_100", "is_decoder": True})
    with pytest.raises(VerificationError, match="pad_token_id 2 is also eos_token_id"):
        FAMILY.from_hub({"model_type": "m2m_100", "pad_token_id": 2})


def test_parameters_are_those_of_the_published_files() -> None:
    """1.94 GB and 2.46 GB in float32 of facebook/m2m100_418M and nllb-200-distilled-600M."""
    sizes = [FAMILY.weights(SIZES[n], "none").parameters() * 4 for n in ("418m", "nllb-600m")]
    assert [round(size / 1e9, 2) for size in sizes] == [1.94, 2.46]


# Tokenizers


def write_m2m100(folder: Path, **settings: Any) -> None:
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(pieces())
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces())
    tokens = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]
    ids = {token: n for n, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *tokens])}
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")
    codes = WMT21 if "language_codes" in settings else CODES
    special = [f"__{code}__" for code in codes]
    config = {
        "tokenizer_class": "M2M100Tokenizer",
        "additional_special_tokens": special,
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "settings", [{}, {"src_lang": "zu"}, {"language_codes": "wmt21", "src_lang": "ha"}], ids=str
)
def test_ids_of_m2m100_equal_the_reference(settings: dict[str, Any], tmp_path: Path) -> None:
    write_m2m100(tmp_path, **settings)
    ours = FAMILY.tokenizer(SourceFiles(tmp_path))
    reference: Any = transformers.M2M100Tokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text).ids == reference(text)["input_ids"], text
        assert ours.decode(ours.encode(text).ids) == reference.decode(
            reference(text)["input_ids"], skip_special_tokens=True
        )
    codes = WMT21 if "language_codes" in settings else CODES
    for code in codes:
        assert ours.token_to_id(f"__{code}__") == reference.get_lang_id(code)


@pytest.mark.parametrize("legacy", [False, True])
def test_ids_of_nllb_equal_the_reference(legacy: bool, tmp_path: Path) -> None:
    """Its ``tokenizer.json`` has the template of another language, which the class replaces."""
    (tmp_path / "sentencepiece.bpe.model").write_bytes(pieces("bpe"))
    config: dict[str, Any] = {"tokenizer_class": "NllbTokenizer", "src_lang": "zho_Hant"}
    if legacy:
        config["legacy_behaviour"] = True
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    built = FAMILY.tokenizer(SourceFiles(tmp_path))
    last = built.get_vocab_size() - 1
    assert built.token_to_id("<mask>") == last
    assert [built.token_to_id(code) for code in NLLB] == list(range(last - 202, last))
    built.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "sentencepiece.bpe.model").unlink()
    config["src_lang"] = "fra_Latn"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = FAMILY.tokenizer(SourceFiles(tmp_path))
    reference: Any = transformers.NllbTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:2]:
        assert ours.encode(text).ids == reference(text)["input_ids"], text
    assert reference(TEXTS[0])["input_ids"] != built.encode(TEXTS[0]).ids


def test_a_language_that_the_tokenizer_lacks_is_refused(tmp_path: Path) -> None:
    write_m2m100(tmp_path, src_lang="xx")
    with pytest.raises(VerificationError, match="src_lang = 'xx' is not a language"):
        FAMILY.tokenizer(SourceFiles(tmp_path))
    write_m2m100(tmp_path, language_codes="other")
    with pytest.raises(VerificationError, match="language_codes = 'other' is not known"):
        FAMILY.tokenizer(SourceFiles(tmp_path))


# Translations


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m2m100") / "hub"
    write_m2m100(folder, src_lang="de")
    size = len(json.loads((folder / "vocab.json").read_text("utf-8"))) + 100 + 8
    config = replace(SMALL, vocab_size=size, dropout=0.0, attention_dropout=0.0)
    model: Any = FAMILY.model(config, "seq2seq-lm")
    sharp(model, seed=0)
    with torch.no_grad():
        for layer in model.decoder.layers:  # else texts hardly depend on their sources
            layer.cross.out.weight.mul_(3)
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(folder)
    settings = {
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "max_length": 20,
        "no_repeat_ngram_size": 2,
        "num_beams": 5,
        "pad_token_id": 1,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def ours(hub: Path) -> Path:
    convert(CheckpointDir(hub, "hub"), hub.parent / "ours")
    return hub.parent / "ours"


@pytest.mark.by_default("zu-1")
@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("target", ["fr", "zu"])
def test_translations_are_those_of_the_reference(
    target: str, beams: int, hub: Path, ours: Path
) -> None:
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(hub, src_lang="en")
    model: Any = transformers.M2M100ForConditionalGeneration.from_pretrained(hub).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    forced = tokenizer.get_lang_id(target)
    written = model.generate(**inputs, forced_bos_token_id=forced, num_beams=beams)
    results = zoo.load(ours).seq2seq(TEXTS, src_lang="en", tgt_lang=target, num_beams=beams)
    expected = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [result["generated"] for result in results] == expected
    assert len(set(expected)) > 1


def test_the_language_survives_the_way_to_the_hub(ours: Path, tmp_path: Path) -> None:
    convert(CheckpointDir(ours, "ours"), tmp_path / "back", to="hub")
    convert(CheckpointDir(tmp_path / "back", "back"), tmp_path / "again")
    tokenizer = load_text_tokenizer(load_checkpoint(tmp_path / "again"))
    assert tokenizer.language is not None and tokenizer.language.token == "__de__"
    assert tokenizer.makes_same_ids(load_text_tokenizer(load_checkpoint(ours)))
    assert len(tokenizer.languages) == 100


@pytest.mark.long
@pytest.mark.parametrize("name", ["onnx", "ctranslate2"])
def test_exports_translate_as_torch(name: str, ours: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(ours)
    report = export_model(find_target(name), checkpoint, tmp_path / name, ExportSettings())
    assert report.validated
    beams = 5 if name == "onnx" else 1  # with excluded tokens, CTranslate2 searches otherwise
    options: dict[str, Any] = {"num_beams": beams, "tgt_lang": "fr"}
    expected = zoo.load(ours).seq2seq(TEXTS[:2], **options)
    results = zoo.load(tmp_path / name).seq2seq(TEXTS[:2], **options)
    assert [r["generated"] for r in results] == [r["generated"] for r in expected]
