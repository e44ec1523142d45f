"""Models of several modules, converted both ways, against sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints import Make
from tests.closeness import assert_same, assert_within
from tests.finetuning.making import finetune, settings, write_table
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.making import TOKENS, back, modules_of, save
from tests.tasks.sentence_embedding.making import source as source
from zoo.api import load
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.conversion.convert import convert
from zoo.errors import SourceError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.sentence_models.torch_modules import SentenceModules, load_modules

TEXTS = ["a b c", "j i", "d e f g h i j a b", "c"]
PROMPTS = {"query": "a b ", "document": "c d e "}


@pytest.mark.by_default("two dense")
@pytest.mark.parametrize(
    "name", ["two dense", "several modes", "residual, norm", "dense tokens", "normalized first"]
)
def test_both_directions(hub_checkpoint: Make, tmp_path: Path, name: str) -> None:
    """Embeddings here, and those of the library from what comes back, are the library's."""
    from sentence_transformers import SentenceTransformer

    theirs = save(
        hub_checkpoint("BertModel"),
        tmp_path / "hub",
        modules_of(name),
        prompts=PROMPTS,
        default_prompt_name="document",
        similarity_fn_name="dot",
        truncate_dim=5,
    )
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    ours = load(str(checkpoint.path), backend="cpu")
    cases: list[dict[str, Any]] = [{}, {"prompt_name": "query"}, {"prompt": "f g "}]
    for options in cases:
        expected = theirs.encode(TEXTS, **options)
        assert expected.shape == (4, 5)
        assert_same(ours.embed(TEXTS, **options), expected)
    again = SentenceTransformer(str(back(checkpoint.path, tmp_path / "back")), device="cpu")
    assert_within(again.encode(TEXTS), theirs.encode(TEXTS))
    exact = load(str(checkpoint.path), backend="cpu", dtype="float64").embed(TEXTS)
    assert_same(exact, theirs.double().encode(TEXTS), "float64")
    assert (again.prompts, again.default_prompt_name) == (theirs.prompts, "document")
    assert (again.similarity_fn_name, again.truncate_dim) == ("dot", 5)
    check_digests(checkpoint.path)
    for folder, tensors in checkpoint.module_weights().items():
        account = checkpoint.manifest.account["modules"]
        assert account[folder] == sorted(tensors)


@pytest.mark.by_default("XLMRobertaModel")
@pytest.mark.parametrize(
    "architecture",
    [
        *("RobertaModel", "XLMRobertaModel", "DistilBertModel"),
        *("AlbertModel", "ElectraModel", "DebertaV2Model"),
    ],
)
def test_families(hub_checkpoint: Make, tmp_path: Path, architecture: str) -> None:
    from sentence_transformers import SentenceTransformer
    from transformers import BertTokenizer

    source = hub_checkpoint(architecture)
    BertTokenizer.from_pretrained(str(source)).save_pretrained(source)
    theirs = save(source, tmp_path / "hub", modules_of("two dense"))
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    expected = theirs.encode(TEXTS)
    ours = load(str(checkpoint.path), backend="cpu").embed(TEXTS)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-6)
    again = SentenceTransformer(str(back(checkpoint.path, tmp_path / "back")), device="cpu")
    assert np.abs(again.encode(TEXTS) - expected).max() <= 1e-6


@pytest.mark.parametrize("name", ["two dense", "several modes", "residual, norm", "dense tokens"])
def test_gradients_are_the_library_s(hub_checkpoint: Make, tmp_path: Path, name: str) -> None:
    listed = modules_of(name)
    theirs = save(hub_checkpoint("BertModel"), tmp_path / "hub", listed)
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    assert checkpoint.model.pooling is not None
    modules = SentenceModules(checkpoint.model.pooling)
    assert load_modules(modules, checkpoint.module_weights()) == []
    modules.double().eval()
    theirs.double()
    torch.manual_seed(0)
    hidden = torch.randn(3, 7, 32, dtype=torch.float64)
    mask = torch.ones(3, 7, dtype=torch.int64)
    mask[0, 5:] = 0
    inputs = [hidden.clone().requires_grad_() for _ in range(2)]
    ours = modules(inputs[0], mask)["sentence_embedding"]
    features: dict[str, Any] = {TOKENS: inputs[1], "attention_mask": mask}
    for module in list(theirs)[1:]:
        features = module(features)
    torch.testing.assert_close(ours, features["sentence_embedding"], rtol=1e-10, atol=1e-10)
    ours.square().sum().backward()
    features["sentence_embedding"].square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-9, atol=1e-9)
    known = [p.grad for p in modules.parameters()]
    expected = [p.grad for module in list(theirs)[1:] for p in module.parameters()]
    for gradient, other in zip(known, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


def changed(file: Path, **keys: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def test_a_dense_of_the_wrong_width_is_refused(source: Path, tmp_path: Path) -> None:
    changed(source / "2_Dense/config.json", in_features=33)
    with pytest.raises(VerificationError, match=r"in_features of Dense is 33, .* width of 32"):
        converted(source, tmp_path / "model")
    changed(source / "2_Dense/config.json", in_features=32, out_features=16, bias=False)
    with pytest.raises(VerificationError, match=r"2_Dense/.* an unknown tensor 'linear.bias'"):
        converted(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_missing_weights_of_a_module_are_a_missing_source(source: Path, tmp_path: Path) -> None:
    (source / "3_Dense/model.safetensors").unlink()
    with pytest.raises(SourceError, match=r"3_Dense holds no weights"):
        converted(source, tmp_path / "model")


def test_changed_weights_of_a_module_are_refused(source: Path, tmp_path: Path) -> None:
    checkpoint = converted(source, tmp_path / "model")
    file = checkpoint.path / "2_Dense/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(VerificationError, match=r"2_Dense/model.safetensors"):
        load(str(checkpoint.path), backend="cpu").embed(TEXTS)


@pytest.mark.long
def test_a_dtype_casts_the_modules(source: Path, tmp_path: Path) -> None:
    convert(CheckpointDir(source, str(source)), tmp_path / "model", dtype="bfloat16")
    checkpoint = load_checkpoint(tmp_path / "model")
    exact = converted(source, tmp_path / "exact").module_weights()["2_Dense"]["linear.weight"]
    rounded = torch.from_numpy(exact.copy()).bfloat16().float().numpy()
    stored = checkpoint.module_weights()["2_Dense"]["linear.weight"]
    np.testing.assert_array_equal(stored, rounded)
    assert (stored != exact).any()


def test_fine_tuning_trains_the_modules(source: Path, tmp_path: Path) -> None:
    """What comes back has the weights of the run; without steps, those that it began with."""
    from sentence_transformers import SentenceTransformer

    checkpoint = converted(source, tmp_path / "model")
    rows = [{"text": a, "pair": b} for a, b in zip("abcdefgh", "hgfedcba", strict=True)]
    data = write_table(tmp_path / "train.jsonl", rows)
    tree = settings(checkpoint.path, data, task="sentence-embedding", data={"pair": "pair"})
    trained = load(
        finetune(tmp_path / "run", {**tree, "max_steps": 2, "batch_size": 4, "micro_batch_size": 4})
        / "model",
        backend="cpu",
    )
    before = checkpoint.module_weights()
    after = trained.checkpoint.module_weights()
    assert [(k, *v) for k, v in before.items()] == [(k, *v) for k, v in after.items()]
    same = [k for k in before for n in before[k] if (before[k][n] == after[k][n]).all()]
    assert same == []
    short = [text for text in TEXTS if len(text) < 9]
    assert trained.embed(short).shape == (3, 8)
    again = SentenceTransformer(str(back(trained.checkpoint.path, tmp_path / "back")))
    assert_same(trained.embed(short), again.encode(short))


def test_an_old_file_of_weights(source: Path, tmp_path: Path) -> None:
    """Of releases before safetensors; it is a pickle, which is read on request only."""
    from safetensors.torch import load_file

    expected = converted(source, tmp_path / "exact").module_weights()
    file = source / "2_Dense/model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    directory = CheckpointDir(source, str(source))
    convert(directory, tmp_path / "model", allow_pickle=True)
    found = load_checkpoint(tmp_path / "model").module_weights()
    np.testing.assert_array_equal(
        found["2_Dense"]["linear.bias"], expected["2_Dense"]["linear.bias"]
    )
