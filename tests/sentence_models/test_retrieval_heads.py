"""The three results of a model in FlagEmbedding's layout, against its formulas in float64.

FlagEmbedding cannot be installed next to the tested versions. The reference below has the formulas
of ``M3Embedding`` and of section 3.2 of Chen et al. 2024 (arXiv:2402.03216), in torch.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.checkpoints import Make
from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.closeness import assert_same
from tests.sentence_models.making import Heads, multi_output_source
from tests.warm import zoo
from zoo.api import load
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.sentence_models.torch_modules import SentenceModules, load_modules

TEXTS = ["a b c a", "j i", "d e f g h i j a b", "c"]
QUERIES = ["a b", "j c"]
WEIGHTS = {"dense": 0.4, "sparse": 0.2, "multi-vector": 0.4}
SPECIAL = (0, 1, 2, 3)  # [PAD], [UNK], [CLS] and [SEP] of the tests' vocabulary


def converted(source: Path, target: Path, **options: Any) -> Checkpoint:
    convert(CheckpointDir(source, str(source)), target, allow_pickle=True, **options)
    return load_checkpoint(target)


class Reference:
    """The outputs of ``M3Embedding`` for one text, in float64."""

    def __init__(self, source: Path, text: str, heads: Heads) -> None:
        import transformers

        model = transformers.AutoModel.from_pretrained(source, dtype=torch.float64)
        tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt"))
        encoded = tokenizer(text, return_tensors="pt")
        hidden = model(**encoded).last_hidden_state[0]
        ids = encoded["input_ids"][0]
        self.dense = F.normalize(hidden[0], dim=-1).detach().numpy()
        weight, bias = (heads["sparse_linear.pt"][name].double() for name in ("weight", "bias"))
        token_weights = torch.relu(hidden @ weight.T + bias)[:, 0].tolist()
        self.sparse: dict[int, float] = {}
        for number, token_weight in zip(ids.tolist(), token_weights, strict=True):
            if number not in SPECIAL and token_weight > self.sparse.get(number, 0):
                self.sparse[number] = token_weight
        weight, bias = (heads["colbert_linear.pt"][name].double() for name in ("weight", "bias"))
        vectors = hidden[1:] @ weight.T + bias
        self.multi_vector = F.normalize(vectors, dim=-1).detach().numpy()

    def scores(self, text: "Reference") -> dict[str, float]:
        shared = self.sparse.keys() & text.sparse.keys()
        similarities = self.multi_vector @ text.multi_vector.T
        return {
            "dense": float(self.dense @ text.dense),
            "sparse": sum(self.sparse[number] * text.sparse[number] for number in shared),
            "multi-vector": float(similarities.max(1).sum() / len(self.multi_vector)),
        }


@pytest.mark.by_default("32")
@pytest.mark.parametrize(
    ("width", "changes"),
    [
        (32, {}),
        (8, {"num_hidden_layers": 1, "hidden_size": 24}),
        (48, {"max_position_embeddings": 24}),
    ],
)
def test_the_three_results(
    hub_checkpoint: Make, tmp_path: Path, width: int, changes: dict[str, Any]
) -> None:
    source, heads = multi_output_source(hub_checkpoint, width, **changes)
    checkpoint = converted(source, tmp_path / "model")
    model = load(str(checkpoint.path), backend="cpu", dtype="float64")
    references = [Reference(source, text, heads) for text in TEXTS]

    dense = np.stack([reference.dense for reference in references])
    assert_same(model.embed(TEXTS), dense, "float64")
    assert_same(model.embed(TEXTS, representation="dense"), dense, "float64")
    sparse = model.embed(TEXTS, representation="sparse")
    assert sparse.shape == (4, checkpoint.config.vocab_size)
    for row, reference in zip(sparse, references, strict=True):
        expected = np.zeros_like(row)
        for number, weight in reference.sparse.items():
            expected[number] = weight
        assert_same(row, expected, "float64")
    vectors = model.encode_document(TEXTS, representation="multi-vector")
    for row, reference in zip(vectors, references, strict=True):
        assert row.shape == (len(reference.multi_vector), width)
        assert_same(row, reference.multi_vector, "float64")


def test_scores_of_one_and_of_several(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, heads = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    model = load(str(checkpoint.path), backend="cpu", dtype="float64")
    texts = [Reference(source, text, heads) for text in TEXTS]
    queries = [Reference(source, query, heads) for query in QUERIES]
    selections: list[Any] = [None, "dense", "sparse", "multi-vector", WEIGHTS]
    for selection in selections:
        found = model.search(QUERIES, TEXTS, top_k=4, representation=selection)
        for query, reference, row in zip(QUERIES, queries, found, strict=True):
            scores = []
            for text in texts:
                each = reference.scores(text)
                if isinstance(selection, dict):
                    weighted = sum(weight * each[name] for name, weight in selection.items())
                    scores.append(weighted / sum(selection.values()))
                else:
                    scores.append(each[selection or "dense"])
            order = sorted(range(4), key=lambda number: -scores[number])
            results = row["results"]
            np.testing.assert_allclose(
                [result["score"] for result in results], [scores[i] for i in order], atol=1e-9
            )
            reranked = model.rerank(query, TEXTS, representation=selection)
            np.testing.assert_allclose(
                [result["score"] for result in reranked], [scores[i] for i in order], atol=1e-9
            )
    pairs = model.similarity([("a b", "a b c a")], representation="sparse")
    expected = Reference(source, "a b", heads).scores(texts[0])["sparse"]
    assert pairs[0] == pytest.approx(expected, abs=1e-9)


def test_there_and_back(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, heads = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    check_digests(checkpoint.path)
    assert set(checkpoint.manifest.account["modules"]) == {"sparse/1_Dense", "multi-vector/1_Dense"}
    assert "colbert_linear.pt" not in checkpoint.manifest.account.get("unread_files", {})
    back = tmp_path / "back"
    convert(CheckpointDir(checkpoint.path, "model"), back, to="hub")
    for file, tensors in heads.items():
        written = torch.load(back / file, weights_only=True)
        assert written.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert written[name].dtype == tensor.dtype
            assert torch.equal(written[name], tensor)
    again = converted(back, tmp_path / "again")
    for name in ("model.safetensors", "sparse/1_Dense/model.safetensors"):
        assert (again.path / name).read_bytes() == (checkpoint.path / name).read_bytes()


def test_gradients(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Gradients of both heads are those of the formulas in torch."""
    source, heads = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    torch.manual_seed(0)
    ids = torch.tensor([[2, 5, 6, 5, 3], [2, 7, 3, 0, 0]])
    mask = (ids != 0).long()
    inputs = [torch.randn(2, 5, 32, dtype=torch.float64).requires_grad_() for _ in range(2)]
    inputs[1].data.copy_(inputs[0].data)

    part = checkpoint.with_representation("sparse")
    assert part.model.pooling is not None
    modules = SentenceModules(part.model.pooling).double()
    assert load_modules(modules, part.module_weights()) == []
    skipped = torch.tensor(SPECIAL)
    ours = modules(inputs[0], mask, ids=ids, skipped=skipped)["sentence_embedding"]
    linear = torch.nn.Linear(32, 1).double()
    linear.load_state_dict(heads["sparse_linear.pt"])
    weights = torch.relu(linear(inputs[1]))
    # The released code scatters to (texts, tokens, vocabulary) and takes the maximum over tokens.
    scattered = torch.zeros(2, 5, checkpoint.config.vocab_size, dtype=torch.float64)
    expected = scattered.scatter(-1, ids[..., None], weights).amax(1).clone()
    expected[:, list(SPECIAL)] *= 0
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    torch.autograd.backward([ours.square().sum(), expected.square().sum()])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-9, atol=1e-9)
    own_gradient = next(modules.parameters()).grad
    torch.testing.assert_close(own_gradient, linear.weight.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_export_keeps_the_representations(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, _ = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    export = tmp_path / "graph"
    result = zoo("export", checkpoint.path, "--onnx", "-o", export)
    assert result.returncode == 0, result.stderr
    model = load(str(checkpoint.path), backend="cpu")
    graph = load(str(export))
    for name in ("dense", "sparse"):
        expected = model.embed(TEXTS, representation=name)
        np.testing.assert_allclose(graph.embed(TEXTS, representation=name), expected, atol=1e-5)


@pytest.mark.long
def test_the_command(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, heads = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    result = zoo("run", "embed", checkpoint.path, "a b c a", "--representation", "sparse")
    assert result.returncode == 0, result.stderr
    reference = Reference(source, "a b c a", heads)
    weights = json.loads(result.stdout)["embedding"]
    vocabulary = (source / "vocab.txt").read_text().split()
    expected = {vocabulary[number]: weight for number, weight in reference.sparse.items()}
    assert weights == pytest.approx(expected, abs=1e-5)
    several = [f"--representation={name}={weight}" for name, weight in WEIGHTS.items()]
    result = zoo("run", "rerank", checkpoint.path, "--query", "a b", *several, *TEXTS)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 4
    for value in ("sparse=0", "sparse=x"):
        result = zoo(
            "run", "rerank", checkpoint.path, "--query", "a", "--representation", value, "b"
        )
        assert result.returncode == 2
        assert "has no positive weight" in result.stderr


def test_bad_input(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, heads = multi_output_source(hub_checkpoint, 8)
    checkpoint = converted(source, tmp_path / "model")
    model = load(str(checkpoint.path), backend="cpu")
    with pytest.raises(UsageError, match=r"no representation 'sparce': it has dense, sparse"):
        model.embed(["a"], representation="sparce")
    with pytest.raises(UsageError, match="weight of the representation sparse is -1"):
        model.rerank("a", ["b"], representation={"sparse": -1})
    torch.save({"weight": torch.zeros(1, 31), "bias": torch.zeros(1)}, source / "sparse_linear.pt")
    with pytest.raises(VerificationError, match="in_features of Dense is 31"):
        converted(source, tmp_path / "other")
    torch.save({"weight": torch.zeros(2, 32), "bias": torch.zeros(2)}, source / "sparse_linear.pt")
    with pytest.raises(VerificationError, match="LexicalPooling"):
        converted(source, tmp_path / "other")
    torch.save({**heads["sparse_linear.pt"], "x": torch.zeros(1)}, source / "sparse_linear.pt")
    with pytest.raises(VerificationError, match=r"sparse_linear.pt has an unknown tensor 'x'"):
        converted(source, tmp_path / "other")


def test_without_pickles_the_heads_are_named_as_unread(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source, _ = multi_output_source(hub_checkpoint, 8)
    report = convert(CheckpointDir(source, str(source)), tmp_path / "model")
    assert "--allow-pickle" in report.unread_files["sparse_linear.pt"]
    assert load_checkpoint(tmp_path / "model").model.pooling is None


def test_another_vocabulary_has_weights_for_its_tokens(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source, _ = multi_output_source(hub_checkpoint, 8)
    pooling = converted(source, tmp_path / "model").model.pooling
    assert pooling is not None
    sparse = pooling.with_vocabulary(50).representation("sparse")
    assert sparse.dimension(32) == 50
