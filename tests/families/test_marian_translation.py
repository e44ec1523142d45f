"""Marian's two tokenizers and its translations, next to the reference library."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

import zoo
from tests.families.test_marian import FAMILY, SMALL
from tests.finetuning.making import finetune, settings, training_losses, write_table
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
from zoo.hub.source import CheckpointDir
from zoo.tokenizers import SourceFiles

LANGUAGES = (">>fra<<", ">>deu<<")
SOURCES = (
    "A film, and what a film.",
    ">>deu<< The cat sat on the mat.",
    "Crème brûlée, señores",
    "x 中文 ☃ z",
    "",
)


@cache
def target_pieces() -> bytes:
    """Pieces of words that end where those of the sources begin."""
    return pieces(character_coverage=0.99, max_sentencepiece_length=3)


@cache
def vocabulary() -> dict[str, int]:
    """The pieces of both models in the order of the alphabet, as Marian's vocabularies have them.

    Two languages follow, and the padding token is the last.
    """
    import sentencepiece

    tokens = set[str]()
    for model in (pieces(), target_pieces()):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        tokens.update(processor.id_to_piece(n) for n in range(3, processor.get_piece_size()))
    ordered = ["</s>", "<unk>", *sorted(tokens), *LANGUAGES, "<pad>"]
    return {token: number for number, token in enumerate(ordered)}


def write_tokenizer(folder: Path, **changes: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.spm").write_bytes(pieces())
    (folder / "target.spm").write_bytes(target_pieces())
    (folder / "vocab.json").write_text(json.dumps(vocabulary()), "utf-8")
    config = {"source_lang": "en", "target_lang": "fr", "model_max_length": 64, **changes}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny translation model with the settings of published ones."""
    folder = tmp_path_factory.mktemp("marian") / "hub"
    size = len(vocabulary())
    ends = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    config = replace(SMALL, vocab_size=size, dropout=0.0, **ends)
    model: Any = FAMILY.model(config, "seq2seq-lm")
    sharp(model, seed=0)
    with torch.no_grad():
        for layer in model.decoder.layers:  # else texts hardly depend on their sources
            layer.cross.out.weight.mul_(3)
        model.logits_bias.normal_()
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(folder)
    generation = {
        **ends,
        "bad_words_ids": [[size - 1]],
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 20,
        "no_repeat_ngram_size": 2,
        "num_beams": 4,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation))
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def ours(hub: Path) -> Path:
    convert(CheckpointDir(hub, "hub"), hub.parent / "ours")
    return hub.parent / "ours"


def test_sources_and_targets_have_the_ids_of_the_reference(ours: Path, hub: Path) -> None:
    reference: Any = transformers.MarianTokenizer.from_pretrained(hub)
    tokenizer = load_text_tokenizer(load_checkpoint(ours))
    sources = tokenizer.encode(SOURCES, max_tokens=None)
    targets = tokenizer.targets.encode(SOURCES, max_tokens=None)
    different = 0
    for text, source, target in zip(SOURCES, sources, targets, strict=True):
        assert source.ids == reference(text)["input_ids"], text
        assert target.ids == reference(text_target=text)["input_ids"], text
        different += source.ids != target.ids
        for ids in (source.ids, target.ids):
            expected = reference.decode(ids, skip_special_tokens=True)
            for code in LANGUAGES:  # which the reference does not count as special
                expected = expected.replace(code, "")
            assert tokenizer.decode(ids) == expected.strip(), text
    assert different >= 3


def test_the_tokenizer_of_targets_survives_the_way_to_the_hub(ours: Path, tmp_path: Path) -> None:
    """And the library of the reference reads the sources alike there."""
    convert(CheckpointDir(ours, "ours"), tmp_path / "back", to="hub")
    convert(CheckpointDir(tmp_path / "back", "back"), tmp_path / "again")
    first, second = (load_text_tokenizer(load_checkpoint(p)) for p in (ours, tmp_path / "again"))
    assert first.makes_same_ids(second)
    assert first.targets.makes_same_ids(second.targets)
    assert not first.targets.makes_same_ids(first)
    generic: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    (encoded,) = first.encode(SOURCES[:1], max_tokens=None)
    assert generic(SOURCES[0])["input_ids"] == encoded.ids


def test_a_second_vocabulary_is_the_targets(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, separate_vocabs=True)
    tokens = list(vocabulary())
    reordered = [*tokens[:2], *reversed(tokens[2:-1]), tokens[-1]]
    ids = {token: number for number, token in enumerate(reordered)}
    (tmp_path / "target_vocab.json").write_text(json.dumps(ids), "utf-8")
    reference: Any = transformers.MarianTokenizer.from_pretrained(tmp_path)
    targets = FAMILY.target_tokenizer(SourceFiles(tmp_path))
    assert targets is not None
    for text in SOURCES[:1]:
        assert targets.encode(text).ids == reference(text_target=text)["input_ids"]
    with pytest.raises(VerificationError, match="decoder_vocab_size = 50 contradicts"):
        FAMILY.from_hub({"model_type": "marian", "vocab_size": 58101, "decoder_vocab_size": 50})


def test_a_vocabulary_with_gaps_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "<pad>": 3}))
    with pytest.raises(VerificationError, match=r"vocab\.json: no token has the id 2"):
        FAMILY.tokenizer(SourceFiles(tmp_path))


@pytest.mark.by_default("4")
@pytest.mark.parametrize("beams", [1, 4])
def test_translations_are_those_of_the_reference(hub: Path, ours: Path, beams: int) -> None:
    """With the settings of the model, which ban the padding token."""
    texts = list(SOURCES[:4])
    tokenizer = transformers.MarianTokenizer.from_pretrained(hub)
    model: Any = transformers.MarianMTModel.from_pretrained(hub).eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    written = model.generate(**inputs, num_beams=beams)
    results = zoo.load(ours).seq2seq(texts, num_beams=beams)
    expected = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [result["generated"] for result in results] == [
        text.replace(LANGUAGES[0], "").replace(LANGUAGES[1], "").strip() for text in expected
    ]
    assert len(set(expected)) == len(expected)


@pytest.mark.long
def test_targets_are_trained_as_the_reference_tokenizes_them(
    hub: Path, ours: Path, tmp_path: Path
) -> None:
    """The loss of the first step is that of the reference."""
    pairs = [("The cat sat.", "Crème brûlée, naïve"), (">>fra<< A film", "the mat and the film")]
    rows = [{"in": source, "out": target} for source, target in pairs]
    table = write_table(tmp_path / "t.jsonl", rows)
    tree = settings(
        ours,
        table,
        task="seq2seq",
        data={"text": "in", "label": "out", "eval": [str(table)]},
        task_args={"generate": False},
        batch_size=2,
        micro_batch_size=2,
        max_steps=1,
        eval_steps=1,
        save_steps=1,
    )
    run = finetune(tmp_path / "run", tree)
    tokenizer = transformers.MarianTokenizer.from_pretrained(hub)
    model: Any = transformers.MarianMTModel.from_pretrained(hub).eval()
    sources, targets = ([pair[k] for pair in pairs] for k in (0, 1))
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    with torch.no_grad():
        expected = float(model(**batch).loss)
    assert training_losses(run)[0] == pytest.approx(expected, rel=1e-5)
    trained = load_text_tokenizer(load_checkpoint(tmp_path / "run" / "model"))
    assert trained.targets.makes_same_ids(load_text_tokenizer(load_checkpoint(ours)).targets)


@pytest.mark.long
@pytest.mark.parametrize("name", ["onnx", "ctranslate2"])
def test_exports_translate_as_torch(name: str, ours: Path, tmp_path: Path) -> None:
    pytest.importorskip(name if name != "onnx" else "onnxruntime")
    checkpoint = load_checkpoint(ours)
    report = export_model(find_target(name), checkpoint, tmp_path / name, ExportSettings())
    assert report.validated
    texts = list(SOURCES[:2])
    beams = 4 if name == "onnx" else 1  # with excluded tokens, CTranslate2 searches otherwise
    expected = zoo.load(ours).seq2seq(texts, num_beams=beams)
    results = zoo.load(tmp_path / name).seq2seq(texts, num_beams=beams)
    assert [r["generated"] for r in results] == [r["generated"] for r in expected]
