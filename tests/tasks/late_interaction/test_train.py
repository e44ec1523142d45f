"""MaxSim, against the losses of MultiVectorEncoder of sentence-transformers, and its runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from tests.checkpoints import Make
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, finetune, setup_of, write_table
from tests.inference.conftest import converted
from tests.sentence_models.making import of_pylate, of_stanford
from tests.tasks.sentence_embedding.making import (
    assert_equal,
    features,
    float64,
    setup_and_batch,
    table,
    trained_module,
    tree_of,
    wide,
)
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.finetuning.runs import FineTuneRun, select_median_run
from zoo.hub.source import CheckpointDir
from zoo.training.seeds import train_seeds

TASK = "late-interaction"
TOKENS = "token_embeddings"
PROMPTS = {"query": "", "document": ""}


def tree(model: Path | str, train: Path, loss: str, **changes: Any) -> dict[str, Any]:
    return {**tree_of(model, train, loss, **changes), "task": TASK}


def library_encoder(source: Path, **settings: Any) -> Any:
    """Return a model of the library, with a projection and two words that are not compared."""
    library: Any = pytest.importorskip("sentence_transformers")
    base: Any = pytest.importorskip("sentence_transformers.base.modules")
    masks: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.modules")
    torch.manual_seed(3)
    identity = torch.nn.Identity()
    dense = base.Dense(32, 8, bias=False, activation_function=identity, module_input_name=TOKENS)
    mask = masks.MultiVectorMask(skiplist_words=["c", "nothing"])
    scaled = base.Normalize(module_input_name=TOKENS)
    modules = [base.Transformer(str(source), **settings), dense, mask, scaled]
    return library.MultiVectorEncoder(modules=modules, prompts=PROMPTS, device="cpu")


@pytest.mark.by_default("kl-div-None")
@pytest.mark.parametrize(
    ("loss", "mini"),
    [
        pytest.param("multiple-negatives", None, marks=pytest.mark.long),
        *(("multiple-negatives", 3), ("margin-mse", 3), ("kl-div", None)),
    ],
)
def test_the_loss_is_that_of_the_library(
    pretrained: Pretrained, tmp_path: Path, loss: str, mini: int | None
) -> None:
    """Of a model that is converted, with its projection and tokens that are left out."""
    losses: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    _, source = pretrained("BertModel")
    encoder = library_encoder(source)
    encoder.save(str(tmp_path / "hub"), create_model_card=False)
    model = converted(tmp_path / "hub", tmp_path / "late").path
    rows = [json.loads(line) for line in table(tmp_path / "t.jsonl").read_text().splitlines()]
    train = write_table(tmp_path / "s.jsonl", [{**r, "margin": k / 9} for k, r in enumerate(rows)])
    data: dict[str, Any] = {"negatives": ["other"]}
    data |= {} if loss == "multiple-negatives" else {"label": "margin"}
    arguments = {"mini_batch_size": mini}
    settings = {"max_steps": 1, "micro_batch_size": 8, "data": data, "task_args": arguments}
    setup, batch = setup_and_batch(finetune(tmp_path / "run", tree(model, train, loss, **settings)))
    kinds = {
        "multiple-negatives": losses.MultiVectorMultipleNegativesRankingLoss,
        "margin-mse": losses.MultiVectorMarginMSELoss,
        "kl-div": losses.MultiVectorDistillKLDivLoss,
    }
    labels = wide(batch.tensors).get("labels")
    labels = None if labels is None else labels.squeeze(-1)
    if labels is not None and loss == "kl-div":  # scores of a text and of its negative
        labels = torch.stack([labels + 5, torch.full_like(labels, 5)], 1)
    with float64():
        expected = kinds[loss](encoder.double().train())(features(batch, 3), labels)
        expected.backward()
    module = trained_module(setup)
    sums = setup.objective.compute_loss(module, wide(batch.tensors)).sums
    mean = sums[TASK] / batch.counts[TASK]
    mean.backward()
    assert_equal(mean.detach(), expected.detach())
    pairs = [("embeddings.tokens.weight", "word_embeddings.weight"), ("linear.weight",) * 2]
    for mine, theirs in pairs:
        (ours,) = [p.grad for name, p in module.named_parameters() if name.endswith(mine)]
        (known,) = [p.grad for name, p in encoder.named_parameters() if name.endswith(theirs)]
        assert ours is not None and known.abs().max() > 1e-3
        assert_equal(ours, known)


@pytest.mark.long
@pytest.mark.parametrize(
    ("loss", "mini", "expansion"),
    [
        ("multiple-negatives", None, {"strategy": "fixed", "length": 9}),
        ("multiple-negatives", 3, {"strategy": "min", "length": 9, "attend": True}),
        ("margin-mse", 3, {"strategy": "min", "length": 6, "token": "b"}),
    ],
)
def test_queries_are_expanded_as_the_library_does(
    pretrained: Pretrained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
    mini: int | None,
    expansion: dict[str, Any],
) -> None:
    """With prompts and lengths of queries and documents, from texts that it tokenizes itself."""
    losses: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    monkeypatch.setitem(PROMPTS, "query", "a b ")
    monkeypatch.setitem(PROMPTS, "document", "d ")
    _, source = pretrained("BertModel")
    encoder = library_encoder(source, query_expansion=expansion, document_length=12)
    encoder.save(str(tmp_path / "hub"), create_model_card=False)
    model = converted(tmp_path / "hub", tmp_path / "late").path
    rows = [json.loads(line) for line in table(tmp_path / "t.jsonl", 10).read_text().splitlines()]
    rows = [{**row, "margin": k / 9} for k, row in enumerate(rows)]
    data = write_table(tmp_path / "s.jsonl", rows)
    columns: dict[str, Any] = {"negatives": ["other"], "eval": [str(data)]}
    columns |= {"label": "margin"} if loss == "margin-mse" else {}
    settings = {"max_steps": 1, "data": columns, "task_args": {"mini_batch_size": mini}}
    setup = setup_of(finetune(tmp_path / "run", tree(model, data, loss, **settings)))
    held: Any = setup.eval_rows
    batch = setup.objective.collate([held.example(k, None) for k in range(len(held))])
    inputs = [
        encoder.preprocess([row[name] for row in rows], prompt=PROMPTS[task], task=task)
        for name, task in (("text", "query"), ("pair", "document"), ("other", "document"))
    ]
    margins = torch.tensor([row["margin"] for row in rows], dtype=torch.float64)
    labels = None if loss != "margin-mse" else margins
    kinds = {
        "multiple-negatives": losses.MultiVectorMultipleNegativesRankingLoss,
        "margin-mse": losses.MultiVectorMarginMSELoss,
    }
    with float64():
        expected = kinds[loss](encoder.double().train())(inputs, labels)
        expected.backward()
    module = trained_module(setup)
    mean: Any = setup.objective.compute_loss(module, wide(batch.tensors)).sums[TASK]
    mean = mean / batch.counts[TASK]
    mean.backward()
    assert_equal(mean.detach(), expected.detach())
    named = (("tokens.weight", module), ("word_embeddings.weight", encoder))
    gradients: list[Any] = [
        next(p.grad for name, p in m.named_parameters() if name.endswith(end)) for end, m in named
    ]
    ours, known = gradients
    assert known.abs().max() > 1e-3, "a gradient to compare"
    assert_equal(ours, known)


def test_a_new_model_expands_queries_and_leaves_words_out(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """It scores as the library's model of what comes back does."""
    library: Any = pytest.importorskip("sentence_transformers")
    model, _ = pretrained("BertModel")
    arguments = {
        "dimension": 8,
        "query_expansion": {"strategy": "fixed", "length": 8},
        "skiplist_words": ["c", "j"],
        "prompts": {"query": "a ", "document": "b "},
    }
    train = table(tmp_path / "t.jsonl")
    columns = {"data": {"eval": [str(train)]}, "task_args": arguments}
    run = finetune(tmp_path / "run", tree(model, train, "multiple-negatives", **columns))
    losses = [record["loss"] for record in records(run)]
    assert losses[-1] < losses[0]
    logged = [record["metrics"]["mrr"] for record in records(run, "validation")]
    for task in ("late-interaction", "sentence-embedding"):  # the same evaluation
        same = zoo.evaluate(run / "model", task=task, eval=train, pair="pair")
        assert same.metrics["mrr"] == pytest.approx(max(logged), abs=1e-6)
    trained = zoo.load(run / "model", backend="cpu")
    back = tmp_path / "hub"
    convert(CheckpointDir(run / "model", "model"), back, to="hub")
    theirs = library.MultiVectorEncoder(str(back), device="cpu")
    queries, texts = ["c d e", "a"], ["c c j", "a c b", "e"]
    vectors = theirs.encode_query(queries), theirs.encode_document(texts)
    assert [len(vector) for vector in vectors[0]] == [8, 8]
    expected = theirs.similarity(*vectors)
    for query, scores in zip(queries, expected, strict=True):
        found = {row["corpus_id"]: row["score"] for row in trained.rerank(query, texts)}
        ours = torch.tensor([found[k] for k in range(len(texts))])
        torch.testing.assert_close(ours, scores, atol=1e-5, rtol=1e-5)
    again = finetune(tmp_path / "again", tree(run / "model", train, "multiple-negatives"))
    stored = [load_checkpoint(path / "model").model.pooling for path in (run, again)]
    assert stored[0] == stored[1] is not None
    off = tree(run / "model", train, "multiple-negatives", task_args={"query_expansion": None})
    plain = load_checkpoint(finetune(tmp_path / "off", off) / "model").model.pooling
    assert plain is not None and (plain.query_expansion, plain.query_length) == (None, 8)


@pytest.mark.long
@pytest.mark.parametrize("make", [of_pylate, of_stanford])
def test_models_of_other_layouts_are_trained_further(
    hub_checkpoint: Make, tmp_path: Path, make: Any
) -> None:
    """With their prefixes, expansion and skiplist; `MultiVectorEncoder` opens the result."""
    library: Any = pytest.importorskip("sentence_transformers")
    losses: Any = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    source = make(hub_checkpoint)
    model = converted(source, tmp_path / "late").path
    data = table(tmp_path / "t.jsonl", 10)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    columns = {"data": {"eval": [str(data)]}, "max_steps": 2}
    run = finetune(tmp_path / "run", tree(model, data, "multiple-negatives", **columns))
    setup = setup_of(run)
    held: Any = setup.eval_rows
    batch = setup.objective.collate([held.example(k, None) for k in range(len(held))])
    encoder = library.MultiVectorEncoder(str(source), device="cpu").double().eval()
    inputs = [
        encoder.preprocess([row[name] for row in rows], prompt=encoder.prompts[task], task=task)
        for name, task in (("text", "query"), ("pair", "document"), ("other", "document"))
    ]
    module = trained_module(setup).eval()
    with torch.no_grad():
        with float64():
            expected = losses.MultiVectorMultipleNegativesRankingLoss(encoder)(inputs, None)
        found = setup.objective.compute_loss(module, wide(batch.tensors)).sums[TASK] / len(rows)
    assert_equal(found, expected)
    convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    layout = json.loads((tmp_path / "hub/config_sentence_transformers.json").read_text())
    assert layout["model_type"] == ("ColBERT" if make is of_pylate else "MultiVectorEncoder")
    theirs = library.MultiVectorEncoder(str(tmp_path / "hub"), device="cpu")
    ours = zoo.load(run / "model", backend="cpu")
    for name in ("encode_query", "encode_document"):
        texts = ["a b c", "j . i"]
        for one, other in zip(
            getattr(ours, name)(texts), getattr(theirs, name)(texts), strict=True
        ):
            torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other).cpu())


@pytest.mark.long
def test_evaluations_keep_expansions_beyond_max_seq_len(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    expansion = {"strategy": "min", "length": 8}
    arguments = {"dimension": 8, "query_expansion": expansion, "mini_batch_size": 3}
    settings = {"max_steps": 1, "max_seq_len": 6, "task_args": arguments}
    train = table(tmp_path / "t.jsonl")
    run = finetune(tmp_path / "run", tree(pretrained()[0], train, "multiple-negatives", **settings))
    setup, batch = setup_and_batch(run)
    with torch.no_grad():
        output = setup.objective.compute_loss(trained_module(setup), wide(batch.tensors))
    assert [output.predictions[name].shape[1] for name in ("anchor", "text")] == [8, 6]


@pytest.mark.long
def test_a_new_projection_is_learned_and_kept(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertModel")
    train = table(tmp_path / "t.jsonl")
    arguments = {"dimension": 8, "query_length": 6}
    run = finetune(tmp_path / "run", tree(model, train, "multiple-negatives", task_args=arguments))
    losses = [record["loss"] for record in records(run)]
    assert losses[-1] < losses[0]
    assert set(records(run, "validation")[-1]["metrics"]) == {"mrr", "accuracy"}
    checkpoint = load_checkpoint(run / "model")
    stored = checkpoint.model.pooling
    assert stored is not None
    assert (stored.model_type, stored.similarity_fn_name) == ("MultiVectorEncoder", "maxsim")
    assert (stored.query_length, stored.describe()) == (6, "dense 8, normalized")
    assert checkpoint.module_weights()["1_Dense"]["linear.weight"].shape == (8, 32)
    rows = setup_of(run).train_rows
    assert max(rows.starts[1:] - rows.starts[:-1]) == 6
    again = finetune(tmp_path / "again", tree(run / "model", train, "multiple-negatives"))
    assert load_checkpoint(again / "model").model.pooling == stored


@pytest.mark.long
def test_the_model_of_the_median_seed_has_its_projection(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    tree_of_run = tree(
        pretrained("BertModel")[0], table(tmp_path / "t.jsonl"), "multiple-negatives"
    )
    run = FineTuneRun({**tree_of_run, "max_steps": 1}, HERE, path := tmp_path / "runs")
    chosen = load_checkpoint(select_median_run(path, train_seeds(run, 2)))
    chosen.require_unchanged()
    middle = load_checkpoint(
        path / json.loads((path / "summary.json").read_text())["median_run"] / "model"
    )
    (ours, theirs) = (c.module_weights()["1_Dense"]["linear.weight"] for c in (chosen, middle))
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    ("loss", "arguments", "message"),
    [
        ("cosent", {}, "late-interaction has no loss cosent; it has multiple-negatives"),
        ("multiple-negatives", {"matryoshka": [8]}, "vectors of tokens are not cut"),
        ("multiple-negatives", {"dimension": 0}, "dimension is 0, not positive"),
        (
            "multiple-negatives",
            {"query_expansion": {"strategy": "fixed", "length": 129}},
            "queries are expanded to 129 tokens, and the model reads 40; lower the length",
        ),
        (
            "multiple-negatives",
            {"query_expansion": {"strategy": "min", "length": 8}, "query_length": 4},
            "query_expansion has the length 8, and query_length is 4",
        ),
        (
            "multiple-negatives",
            {"query_expansion": {"strategy": "min", "length": 8, "token": "nothing"}},
            "queries are expanded by nothing, which the vocabulary lacks",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, loss: str, arguments: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertModel")
    train = table(tmp_path / "t.jsonl")
    with pytest.raises(ZooError, match=message):
        finetune(tmp_path / "run", tree(model, train, loss, task_args=arguments))
    assert not (tmp_path / "run").exists()
