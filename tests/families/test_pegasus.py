"""PEGASUS: the conformance kit, its objective, and equality with the reference library."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
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
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo.tokenizers import SourceFiles
from zoo_pegasus import FIRST, Pegasus
from zoo_pegasus.config import SIZES, PegasusConfig
from zoo_pegasus.objective import similarities

FAMILY = Pegasus()
SMALL = PegasusConfig(
    **SEQ2SEQ_SHAPE,
    activation="relu",
    scale_embedding=True,
)
TEXTS = ["A film, and what a film.", "The cat sat on the mat. A dog ran to the house."]


class TestPegasus(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "pegasus"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": False},
        {"scale_embedding": False, "activation": "gelu"},
        {"num_layers": 1, "decoder_layers": 3, "hidden_size": 60},
        {"decoder_start_token_id": 7, "pad_token_id": 5, "eos_token_id": 9},
    ],
    ids=str,
)
def test_small_models_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), "seq2seq-lm")


@pytest.mark.by_default("seq2seq-lm-float16")
@pytest.mark.parametrize(
    ("head", "dtype"), [("none", "float32"), ("seq2seq-lm", "float32"), ("seq2seq-lm", "float16")]
)
def test_hub_round_trip(
    head: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.init, "normal_", trainable_only)
    parity.assert_there_and_back(FAMILY, SMALL, head, tmp_path, dtype)


def trainable_only(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """Draw a parameter, unless it is a table of positions, which is not trained."""
    return tensor.data.normal_(*args, **options) if tensor.requires_grad else tensor


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.PegasusConfig().to_dict())
    assert translated.unknown == ()
    assert translated.config == PegasusConfig()


def test_a_published_configuration_is_read() -> None:
    """The settings of google/pegasus-large, with the names of the code that converted it."""
    hub = {
        "d_model": 1024,
        "encoder_layers": 16,
        "decoder_layers": 16,
        "vocab_size": 96103,
        "activation_function": "relu",
        "scale_embedding": True,
        "normalize_before": True,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 1,
    }
    assert Pegasus.config_map.from_hub(hub, PegasusConfig).config == SIZES["large"]
    with pytest.raises(VerificationError, match="static_position_embeddings"):
        Pegasus.config_map.from_hub({"static_position_embeddings": False}, PegasusConfig)


def test_parameters_are_those_of_the_paper() -> None:
    """568 million, section 6."""
    assert FAMILY.weights(SIZES["large"], "none").parameters() // 10**6 == 568


# Tokenizer


def test_first_tokens() -> None:
    """Pieces of SentencePiece follow 105 tokens: its third is ``<unk>``."""
    assert len(FIRST) == 105
    assert FIRST[-1] == "<unk_102>"


# Objective


def test_similarities_by_hand() -> None:
    """A repeated token counts as often as it occurs in both."""
    assert similarities([[1, 2, 2], [2, 3], [4]]) == pytest.approx([2 / 6, 2 / 6, 0])
    assert np.argmax(similarities([[5], [1, 2, 3], [1, 2, 4]])) == 1


# Summaries


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pegasus") / "hub"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(pieces(pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PegasusTokenizer"}')
    size = FAMILY.tokenizer(SourceFiles(folder)).get_vocab_size()
    model: Any = FAMILY.model(replace(SMALL, vocab_size=size), "seq2seq-lm")
    sharp(model, seed=0)
    config = replace(SMALL, vocab_size=size)
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(folder)
    settings = {
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "forced_eos_token_id": 1,
        "length_penalty": 0.6,
        "max_length": 20,
        "no_repeat_ngram_size": 2,
        "num_beams": 8,
        "pad_token_id": 0,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def ours(hub: Path) -> Path:
    convert(CheckpointDir(hub, "hub"), hub.parent / "ours")
    return hub.parent / "ours"


@pytest.mark.long
@pytest.mark.parametrize("beams", [1, 8])
def test_summaries_are_those_of_the_reference(hub: Path, ours: Path, beams: int) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    model: Any = transformers.PegasusForConditionalGeneration.from_pretrained(hub).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    written = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], num_beams=beams
    )
    results = zoo.load(ours).seq2seq(TEXTS, num_beams=beams)
    expected = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [result["generated"] for result in results] == expected
    assert len(set(expected)) > 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["onnx", "ctranslate2"])
def test_exports_write_as_torch(name: str, ours: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(ours)
    report = export_model(find_target(name), checkpoint, tmp_path / name, ExportSettings())
    assert report.validated
    beams = 8 if name == "onnx" else 1  # with excluded tokens, CTranslate2 searches otherwise
    expected = zoo.load(ours).seq2seq(TEXTS, num_beams=beams)
    results = zoo.load(tmp_path / name).seq2seq(TEXTS, num_beams=beams)
    assert [r["generated"] for r in results] == [r["generated"] for r in expected]


def test_another_offset_of_the_pieces_is_refused(hub: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    shutil.copytree(hub, folder)
    (folder / "tokenizer.json").unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**settings, "offset": 0}), "utf-8")
    with pytest.raises(VerificationError, match="offset = 0 is not implemented"):
        convert(CheckpointDir(folder, "hub"), tmp_path / "ours")
