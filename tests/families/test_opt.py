"""OPT and XGLM: the conformance kit, and equality with the reference library."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

import zoo
from tests.families import parity
from tests.families.further_version import FurtherVersionTests
from tests.inference.generation.conftest import sharp
from tests.tokenizers.trained import byte_level, pieces
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
from zoo_opt import Opt
from zoo_opt.config import SIZES, OptConfig

FAMILY = Opt()
SMALL = OptConfig(
    vocab_size=101,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    intermediate_size=80,
    max_positions=64,
)
XGLM: dict[str, Any] = {"model_type": "xglm", "activation": "gelu", "scale_embedding": True}
TEXTS = ["A film, and what a film.", "The cat sat on the mat"]


class TestOpt(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "opt"


class TestXglm(FurtherVersionTests):
    family = FAMILY
    test_label_leaks = None  # objectives and masks are of every version

    @property
    def config(self) -> OptConfig:
        return replace(SIZES["tiny"], **XGLM)


@pytest.mark.parametrize("head", FAMILY.heads())
def test_small_models_equal_the_reference(head: str) -> None:
    parity.assert_equal(FAMILY, SMALL, head)


@pytest.mark.parametrize("head", ["none", "causal-lm"])
def test_xglm_equals_the_reference(head: str) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **XGLM), head)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_embeddings": False},
        {"activation": "gelu", "num_heads": 3},
        {"max_positions": 9, "pad_token_id": 5},
        {**XGLM, "tie_embeddings": False},
        {**XGLM, "activation": "relu", "scale_embedding": False, "pad_token_id": 0},
        {**XGLM, "max_positions": 9},
    ],
    ids=str,
)
def test_settings_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), "causal-lm")


@pytest.mark.parametrize(
    ("head", "changes", "dtype"),
    [
        pytest.param("none", {}, "float32", marks=pytest.mark.long),
        ("causal-lm", {}, "float16"),
        ("sequence-classification", {}, "float32"),
        pytest.param("question-answering", {}, "float32", marks=pytest.mark.long),
        pytest.param("none", XGLM, "float32", marks=pytest.mark.long),
        ("causal-lm", {**XGLM, "tie_embeddings": False}, "bfloat16"),
    ],
    ids=str,
)
def test_hub_round_trip(head: str, changes: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, replace(SMALL, **changes), head, tmp_path, dtype)


@pytest.mark.parametrize(("kind", "size"), [("OPT", "125m"), ("XGLM", "xglm-564m")])
def test_keys_of_the_reference_are_known(kind: str, size: str) -> None:
    hub = getattr(transformers, f"{kind}Config")().to_dict()
    translated = FAMILY.from_hub(hub)
    assert translated.unknown == ()
    assert translated.config == SIZES[size]


@pytest.mark.parametrize(
    ("hub", "named"),
    [
        ({"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512 contradicts"),
        ({"do_layer_norm_before": False}, "do_layer_norm_before"),
        ({"_remove_final_layer_norm": True}, "_remove_final_layer_norm"),
        ({"model_type": "xglm", "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "xglm", "activation_dropout": 0.1}, "activation_dropout"),
    ],
    ids=str,
)
def test_unimplemented_settings_are_refused_by_name(hub: dict[str, Any], named: str) -> None:
    with pytest.raises(VerificationError, match=named):
        FAMILY.from_hub({"model_type": "opt", **hub})


def test_parameters_are_the_published_ones() -> None:
    """125 million; 564 million."""
    counts = []
    for size in ("125m", "xglm-564m"):
        counts.append(FAMILY.weights(SIZES[size], "causal-lm").parameters() // 10**6)
    assert counts == [125, 564]


def test_ids_of_xglm_equal_the_reference(tmp_path: Path) -> None:
    """The class of the reference reads ``tokenizer.json``, which ours writes."""
    (tmp_path / "sentencepiece.bpe.model").write_bytes(pieces())
    config = {"tokenizer_class": "XGLMTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    built = FAMILY.tokenizer(SourceFiles(tmp_path))
    assert built.token_to_id("<madeupword6>") == built.get_vocab_size() - 1
    built.save(str(tmp_path / "tokenizer.json"))
    reference: Any = transformers.XGLMTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert built.encode(text).ids == reference(text)["input_ids"], text
        assert built.encode(text, text).ids == reference(text, text)["input_ids"]


@pytest.fixture(scope="module", params=["opt", "xglm"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "hub"
    folder.mkdir()
    vocabulary, merges = byte_level()
    (folder / "vocab.json").write_text(vocabulary)
    (folder / "merges.txt").write_text(merges)
    keys = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    special = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**keys, **special}))
    changes = XGLM if request.param == "xglm" else {}
    config = replace(SMALL, vocab_size=len(json.loads(vocabulary)), **changes)
    model: Any = FAMILY.model(config, "causal-lm")
    sharp(model, seed=0)
    reference: Any = reference_model(FAMILY, config, "causal-lm", model.state_dict())
    reference.save_pretrained(folder)
    settings = {"eos_token_id": 2, "pad_token_id": 1, "max_new_tokens": 9}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    convert(CheckpointDir(folder, "hub"), folder.parent / "ours")
    return folder


@pytest.mark.by_default("opt-3")
@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_those_of_the_reference(hub: Path, beams: int) -> None:
    """A batch, in which the reference pads on the left."""
    tokenizer: Any = transformers.GPT2Tokenizer.from_pretrained(hub, padding_side="left")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(hub).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert inputs["input_ids"][0, 0] == 2
    with torch.no_grad():
        written = model.generate(**inputs, num_beams=beams, do_sample=False)
    tokens = inputs["input_ids"].shape[1]
    expected = tokenizer.batch_decode(written[:, tokens:], skip_special_tokens=True)
    results = zoo.load(hub.parent / "ours").generate(TEXTS, num_beams=beams)
    assert [result["generated"] for result in results] == expected


@pytest.mark.long
@pytest.mark.parametrize("name", ["onnx", "ctranslate2"])
def test_exports_write_as_torch(name: str, hub: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(hub.parent / "ours")
    report = export_model(find_target(name), checkpoint, tmp_path / name, ExportSettings())
    assert report.validated
    expected = zoo.load(hub.parent / "ours").generate(TEXTS)
    results = zoo.load(tmp_path / name).generate(TEXTS)
    assert [r["generated"] for r in results] == [r["generated"] for r in expected]
