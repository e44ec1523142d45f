"""mBART: equality with the reference library, its tokenizers, and generation of both BARTs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

import zoo
from tests.families import parity
from tests.families.making import MBART, SMALL_MBART
from tests.inference.generation.conftest import prompts, sharp
from tests.tokenizers.trained import pieces
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.hub.source import CheckpointDir
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.tokenizers import SourceFiles
from zoo_bart.config import SIZES
from zoo_bart.tokenizer import CC25, MORE

HEADS = list(MBART.heads())


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
def test_padded_texts_equal_the_reference(head: str) -> None:
    """A source that is read as its target begins with its last token, the language."""
    inputs = random_inputs(MBART.onnx(SMALL_MBART, head), SMALL_MBART, (64, 17, 1))
    if "decoder_input_ids" not in inputs:  # the reference takes padding from the ids
        inputs["input_ids"][inputs["attention_mask"] == 0] = SMALL_MBART.pad_token_id
    model = parity.random_model(MBART, parity.suited(SMALL_MBART, head), head)
    parity.assert_equal(MBART, SMALL_MBART, head, model, inputs)


@pytest.mark.parametrize("changes", [{"tie_embeddings": False}, {"scale_embedding": False}])
def test_settings_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(MBART, replace(SMALL_MBART, **changes), "seq2seq-lm")


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
def test_hub_round_trip(head: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(MBART, SMALL_MBART, head, tmp_path)


def test_keys_of_the_reference_are_known() -> None:
    translated = MBART.from_hub(transformers.MBartConfig().to_dict())
    assert translated.unknown == ()
    large = replace(SIZES["large"], activation_dropout=0.0, attention_dropout=0.0)
    assert translated.config == replace(large, model_type="mbart", labels=("LABEL_0", "LABEL_1"))


def test_a_configuration_of_the_first_release_is_read_and_written_back() -> None:
    """Its implementation was shared by relatives, and named what differs between them."""
    hub = {
        "model_type": "mbart",
        "vocab_size": 250027,
        "scale_embedding": True,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_final_layer_norm": True,
        "static_position_embeddings": False,
        "extra_pos_embeddings": 2,
    }
    translated = MBART.from_hub(hub)
    assert translated.unknown == ()
    back = MBART.to_hub(translated.config, translated.extra)
    assert {key: back[key] for key in hub} == hub
    for key in ("normalize_before", "add_final_layer_norm"):
        with pytest.raises(VerificationError, match=key):
            MBART.from_hub({**hub, key: False})


def test_parameters_are_those_of_the_published_file() -> None:
    """2.44 GB in float32 on the page of facebook/mbart-large-50-many-to-many-mmt."""
    config = replace(SIZES["large"], model_type="mbart", vocab_size=250054)
    assert round(MBART.weights(config, "none").parameters() * 4 / 1e9, 2) == 2.44


# Tokenizers


@pytest.mark.parametrize(("name", "language"), [("MBart", "de_DE"), ("MBart50", "sl_SI")])
def test_ids_equal_the_reference(name: str, language: str, tmp_path: Path) -> None:
    """The language is behind the text in the first release, and before it in the second."""
    (tmp_path / "sentencepiece.bpe.model").write_bytes(pieces())
    keys = {"tokenizer_class": f"{name}Tokenizer", "src_lang": language}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(keys))
    ours = MBART.tokenizer(SourceFiles(tmp_path))
    languages = [*CC25, *(MORE if name == "MBart50" else ())]
    reference: Any = getattr(transformers, f"{name}Tokenizer").from_pretrained(tmp_path)
    texts = ["A film, and what a film.", "Crème brûlée 2,000 señores", "x <mask> z"]
    for text in texts:
        assert ours.encode(text).ids == reference(text)["input_ids"], text
    last = ours.token_to_id("<mask>")
    assert last == ours.get_vocab_size() - 1
    assert [ours.token_to_id(code) for code in languages] == list(
        range(last - len(languages), last)
    )
    spelled = ours.encode(f"x {language}y", add_special_tokens=False).tokens
    assert spelled == ["▁", "x", language, "▁y"]
    assert ours.decode(ours.encode("A film").ids) == "A film"


def test_a_language_that_mbart_lacks_is_refused(tmp_path: Path) -> None:
    """As in a file of the second release that names the class of the first."""
    (tmp_path / "sentencepiece.bpe.model").write_bytes(pieces())
    keys = {"tokenizer_class": "MBartTokenizer", "src_lang": "sl_SI"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(keys))
    with pytest.raises(VerificationError, match="src_lang = 'sl_SI' is not a language of"):
        MBART.tokenizer(SourceFiles(tmp_path))


# Generation


@pytest.mark.by_default("bart")
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True}],
    ids=["greedy", "beam"],
)
@pytest.mark.parametrize("kind", ["bart", "mbart"])
def test_generated_texts_equal_the_references(kind: str, options: dict[str, Any]) -> None:
    """100 texts, with the tokens that published models force at both ends."""
    config = replace(SMALL_MBART, model_type=kind)
    model: Any = MBART.model(config, "seq2seq-lm").eval()
    sharp(model, seed=0)
    with torch.no_grad():
        for layer in model.decoder.layers:  # else texts hardly depend on their sources
            layer.cross.out.weight.mul_(3)
    reference: Any = reference_model(MBART, config, "seq2seq-lm", model.state_dict())
    inputs = pad(prompts(100, longest=30), side="right", pad_id=config.pad_token_id, device="cpu")
    settings = {
        "max_new_tokens": 16,
        "no_repeat_ngram_size": 3,
        "forced_bos_token_id": 77,
        "forced_eos_token_id": config.eos_token_id,
        **options,
    }
    start = config.decoder_start_token_id
    ends = {"eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id}
    expected = reference.generate(
        **inputs,
        generation_config=transformers.GenerationConfig(
            **settings, **ends, decoder_start_token_id=start, do_sample=False
        ),
    )[:, 1:].tolist()
    starts = torch.full((100, 1), start)
    ours = generate(
        model,
        {**inputs, "decoder_input_ids": starts},
        GenerationConfig(**settings),
        eos_token_ids=[config.eos_token_id],
    )
    cut = [
        row[: row.index(config.eos_token_id) + 1] if config.eos_token_id in row else row
        for row in expected
    ]
    assert ours == cut
    assert len(set(map(tuple, ours))) > 40, "the model says too few different things"


def test_a_text_is_translated_as_by_the_reference(tmp_path: Path) -> None:
    """From ``src_lang`` of the tokenizer to ``forced_bos_token_id`` of the settings."""
    hub = tmp_path / "hub"
    size = 4 + 697 + len(CC25) + len(MORE) + 1
    parity.save_reference(MBART, replace(SMALL_MBART, vocab_size=size), "seq2seq-lm", hub)
    (hub / "sentencepiece.bpe.model").write_bytes(pieces())
    keys = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE"}
    (hub / "tokenizer_config.json").write_text(json.dumps(keys))
    tokenizer = transformers.MBart50Tokenizer.from_pretrained(hub)
    target: int = tokenizer.convert_tokens_to_ids("fr_XX")
    settings = {"forced_bos_token_id": target, "max_new_tokens": 9, "decoder_start_token_id": 2}
    (hub / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": 2}))
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    (ours,) = zoo.load(tmp_path / "ours").run("seq2seq", ["Ein kurzer Text."])
    model: Any = transformers.MBartForConditionalGeneration.from_pretrained(hub)
    written = model.generate(**tokenizer("Ein kurzer Text.", return_tensors="pt"), num_beams=1)
    assert written[0, :2].tolist() == [2, target]
    assert ours["generated"] == tokenizer.decode(written[0], skip_special_tokens=True)
