"""ByT5, a T5 on bytes, and UMT5: tokenizer, conversion and generated texts."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from msgspec.structs import replace

import zoo
from tests.families import parity
from tests.families.test_t5 import FAMILY, LATER, SMALL
from tests.inference.generation.conftest import sharp
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.hub.source import CheckpointDir
from zoo_t5.config import SIZES, T5Config

TEXTS = [
    "A film.",
    "Crème brûlée \u4e2d\u6587 \U0001f600",
    " two  spaces\n",
    "a <extra_id_7> b",
    "",
]
BYTES = replace(SMALL, **LATER, vocab_size=384)


def write(config: T5Config, folder: Path) -> None:
    """Write a model of the reference library, with the tokenizer of bytes."""
    model: Any = FAMILY.model(config, "seq2seq-lm")
    sharp(model, seed=0)
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(folder)
    keys = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125, "model_max_length": 1024}
    (folder / "tokenizer_config.json").write_text(json.dumps(keys))
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})
    )
    settings = {
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "max_new_tokens": 12,
        "no_repeat_ngram_size": 2,
        "pad_token_id": 0,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module", params=["t5", "umt5"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "hub"
    scaled = {"output_table": False, "scale_outputs": True}  # as version 5 writes every UMT5
    changes = scaled if request.param == "umt5" else {}
    write(replace(BYTES, series=request.param, **changes), folder)
    convert(CheckpointDir(folder, "hub"), folder.parent / "ours")
    return folder


def test_ids_are_those_of_the_reference(hub: Path, tmp_path: Path) -> None:
    tokenizer = load_text_tokenizer(load_checkpoint(hub.parent / "ours"))
    reference: Any = transformers.ByT5Tokenizer.from_pretrained(hub)
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS, max_tokens=None), strict=True):
        expected = reference(text)["input_ids"]
        assert encoded.ids == expected, text
        decoded = reference.decode(expected, skip_special_tokens=True)
        assert tokenizer.decode(encoded.ids) == decoded
    pair = tokenizer.encode([("a", "b")], max_tokens=None)[0].ids
    assert pair == reference("a", "b")["input_ids"]
    broken = [0xE4 + 3, 0xB8 + 3, 0x41 + 3]  # the first bytes of a character
    assert tokenizer.decode(broken) == reference.decode(broken) == "A"
    convert(CheckpointDir(hub.parent / "ours", "ours"), tmp_path / "back", to="hub")
    generic: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert generic(TEXTS[1])["input_ids"] == reference(TEXTS[1])["input_ids"]


@pytest.mark.by_default("umt5-1")
@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_those_of_the_reference(hub: Path, beams: int) -> None:
    tokenizer: Any = transformers.ByT5Tokenizer.from_pretrained(hub)
    model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(hub).eval()
    inputs = tokenizer(TEXTS[:3], padding=True, return_tensors="pt")
    written = model.generate(**inputs, num_beams=beams)
    results = zoo.load(hub.parent / "ours").seq2seq(TEXTS[:3], num_beams=beams)
    expected = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [result["generated"] for result in results] == expected


@pytest.mark.long
def test_a_graph_writes_as_torch(hub: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(hub.parent / "ours")
    report = export_model(find_target("onnx"), checkpoint, tmp_path / "graph", ExportSettings())
    assert report.validated
    expected = zoo.load(hub.parent / "ours").seq2seq(TEXTS[:2], num_beams=3)
    results = zoo.load(tmp_path / "graph").seq2seq(TEXTS[:2], num_beams=3)
    assert [r["generated"] for r in results] == [r["generated"] for r in expected]


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize("head", ["none", "encoder", "seq2seq-lm"])
def test_umt5_is_converted_there_and_back(head: str, tmp_path: Path) -> None:
    config = replace(SMALL, feed_forward="gated-gelu", series="umt5")
    parity.assert_there_and_back(FAMILY, config, head, tmp_path)


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.UMT5Config().to_dict())
    assert translated.unknown == ()
    expected = replace(
        SIZES["umt5-small"],
        vocab_size=250112,
        num_decoder_layers=8,
        output_table=False,
        scale_outputs=True,
    )
    assert translated.config == expected


def test_parameters_are_those_of_the_papers() -> None:
    """300 and 582 million of ByT5 (arXiv:2105.13626, table 1)."""
    counts = []
    for name in ("byt5-small", "byt5-base"):
        counts.append(FAMILY.weights(SIZES[name], "seq2seq-lm").parameters())
    assert [round(count / 1e6) for count in counts] == [300, 582]
