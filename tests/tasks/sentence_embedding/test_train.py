"""Sentence embeddings: losses by hand and over transformers' model, pooling, orders, runs."""

import json
import math
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from tests import warm
from tests.checkpoints import Make
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    HERE,
    finetune,
    reference_losses,
    setup_of,
    texts,
    training_losses,
    write_table,
)
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.making import TASK, table, tree_of
from tests.training.runs import assert_resumes_from, finish_in_two_processes, records
from zoo.errors import UsageError, ZooError
from zoo.finetuning.embeddings.losses.functions import (
    cosent,
    cosine_error,
    pair_features,
    triplet,
)
from zoo.finetuning.embeddings.losses.multiple_negatives import MultipleNegatives
from zoo.finetuning.embeddings.order import NoDuplicatesOrder
from zoo.finetuning.embeddings.representation import EmbeddedBatch, Representation
from zoo.finetuning.runs import FineTuneRun
from zoo.objectives.base import Batch
from zoo.sentence_models.module_files import MODES
from zoo.sentence_models.numpy_modules import pool as numpy_pool
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import hub_pooling_files
from zoo.sentence_models.torch_modules import pool
from zoo.tasks import make_evaluation
from zoo.training.build import build_model
from zoo.training.distributed.context import DistContext

LOSSES = ("multiple-negatives", "cosent", "cosine", "triplet", "softmax")


def cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(a @ b / math.sqrt(float(a @ a)) / math.sqrt(float(b @ b)))


@pytest.fixture
def vectors() -> torch.Tensor:
    """Embeddings of four columns, (columns, rows, hidden), float64."""
    return torch.randn(4, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_multiple_negatives_by_hand(vectors: torch.Tensor) -> None:
    """Of each anchor among its text, those of others, and two hard negatives of each."""
    anchors, *rest = vectors.numpy()
    candidates = [text for column in rest for text in column]
    expected = []
    for k, anchor in enumerate(anchors):
        scores = [20 * cosine(anchor, candidate) for candidate in candidates]
        expected.append(math.log(sum(map(math.exp, scores))) - scores[k])
    context: Any = None  # Dense vectors are compared without options.
    batch = EmbeddedBatch(context, Representation(), vectors, torch.empty(0))
    assert float(MultipleNegatives().sum(batch)) == pytest.approx(sum(expected), rel=1e-12)


def test_cosent_by_hand(vectors: torch.Tensor) -> None:
    """Pairs of equal score, here the last two, have no order."""
    first, second, _, _ = vectors.numpy()
    scores = [0.3, 0.1, 0.9, 0.5, 0.7, 0.7]
    cosines = [cosine(u, v) for u, v in zip(first, second, strict=True)]
    total = 1.0
    for i, low in enumerate(scores):
        for j, high in enumerate(scores):
            total += math.exp(20 * (cosines[i] - cosines[j])) if low < high else 0.0
    loss = cosent(vectors[0], vectors[1], torch.tensor(scores), scale=20.0)
    assert loss.item() == pytest.approx(math.log(total), rel=1e-12)


def test_the_other_losses_by_hand(vectors: torch.Tensor) -> None:
    u, v, w, _ = vectors.numpy()
    scores = torch.tensor([0.3, 0.1, -0.9, 0.5, 0.0, 1.0], dtype=torch.float64)
    errors = [(cosine(a, b) - s) ** 2 for a, b, s in zip(u, v, scores.tolist(), strict=True)]
    assert cosine_error(vectors[0], vectors[1], scores).tolist() == pytest.approx(errors)
    near, far = np.linalg.norm(u - v, axis=1), np.linalg.norm(u - w, axis=1)
    expected = np.maximum(near - far + 1.0, 0)
    assert 0 < (expected == 0).sum() < 6
    losses = triplet(vectors[0], vectors[1], vectors[2], margin=1.0)
    assert losses.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    features = np.concatenate([u, v, np.abs(u - v)], axis=1)
    assert np.array_equal(pair_features(vectors[0], vectors[1]).numpy(), features)


def reference_loss(loss: str, columns: list[torch.Tensor], labels: Any, classifier: Any) -> Any:
    """Return the mean loss as sentence-transformers' classes compute it."""
    if loss == "multiple-negatives":
        candidates = F.normalize(torch.cat(columns[1:]), dim=1)
        scores = F.normalize(columns[0], dim=1) @ candidates.T * 20.0
        return F.cross_entropy(scores, torch.arange(len(scores)))
    first, second = columns[:2]
    if loss == "triplet":
        distances = [F.pairwise_distance(first, other, p=2) for other in columns[1:]]
        return F.relu(distances[0] - distances[1] + 5).mean()
    if loss == "softmax":
        features = torch.cat([first, second, torch.abs(first - second)], 1)
        return F.cross_entropy(classifier(features), labels)
    cosines = F.cosine_similarity(first, second)
    if loss == "cosine":
        return F.mse_loss(cosines, labels)
    scores = cosines * 20
    scores = scores[:, None] - scores[None, :]
    scores = scores - (1 - (labels[:, None] < labels[None, :]).float()) * 1e12
    return torch.logsumexp(torch.cat((torch.zeros(1), scores.view(-1))), dim=0)


@pytest.mark.by_default("multiple-negatives")
@pytest.mark.parametrize("loss", LOSSES)
def test_the_losses_are_those_of_the_reference(
    pretrained: Pretrained, tmp_path: Path, loss: str
) -> None:
    """Of torch's AdamW over transformers' model and the mean of its token vectors."""
    import transformers

    model, source = pretrained("BertModel")
    run = finetune(tmp_path / "run", tree_of(model, table(tmp_path / "t.tsv"), loss, max_steps=6))
    setup = setup_of(run)
    classifier: Any = build_model(setup).module.classifier
    reference: Any = transformers.BertModel.from_pretrained(source, add_pooling_layer=False)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        columns = []
        for k in range(3 if loss in ("multiple-negatives", "triplet") else 2):
            end = f"_{k}" if k else ""
            ids = batch.tensors[f"input_ids{end}"]
            mask = batch.tensors.get(f"attention_mask{end}", torch.ones_like(ids))
            hidden = reference(input_ids=ids, attention_mask=mask).last_hidden_state
            columns.append((hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True))
        return reference_loss(loss, columns, batch.tensors.get("labels"), classifier), 1

    trained = nn.ModuleList([reference, *([classifier] if classifier else ())])
    losses = reference_losses(run, trained, batch_loss)
    assert training_losses(run) == pytest.approx(losses, abs=2e-5)
    assert losses[-1] != pytest.approx(losses[0], abs=1e-3), "the weights changed"


@pytest.mark.parametrize("mode", MODES.values())
@pytest.mark.parametrize("normalize", [False, True])
def test_pooling_is_that_of_inference(mode: Any, normalize: bool) -> None:
    hidden = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(5)[None] < torch.tensor([5, 1, 3])[:, None]
    pooling = Pooling(mode=mode, normalize=normalize)
    expected = numpy_pool(hidden.numpy(), mask.numpy(), pooling)
    np.testing.assert_allclose(pool(hidden, mask.long(), pooling).numpy(), expected, atol=1e-6)


def test_no_batch_has_a_text_twice() -> None:
    """Every row is in an epoch once; the rows that fill no batch begin the next epoch."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 150, size=(203, 2))
    order = NoDuplicatesOrder(numbers, 8, 0)
    assert order.num_rows == 200
    rows = [order[k] for k in range(600)]
    for start in range(0, 600, 8):
        batch = [set(numbers[row].tolist()) for row in rows[start : start + 8]]
        assert sum(map(len, batch)) == len(set.union(*batch))
    assert len(set(rows[:200])) == 200
    assert {rows.count(row) for row in range(203)} == {2, 3}, "what is left over comes next"
    again = NoDuplicatesOrder(numbers, 8, 0)
    assert [again[k] for k in range(400, 600)] == rows[400:], "a function of the position"


def test_rows_that_share_a_text_of_their_batch_are_counted() -> None:
    order = NoDuplicatesOrder(np.array([[0, 1], [0, 2], [3, 3], [4, 5]]), 4, 0)
    assert order.duplicates(0) == 2, "not the row whose texts are equal"


def test_duplicates_that_cannot_be_avoided_are_spread() -> None:
    numbers = np.array([[0, 1 + k] for k in range(6)] + [[100 + k, 200 + k] for k in range(10)])
    order = NoDuplicatesOrder(numbers, 4, 0)
    rows = [order[k] for k in range(16)]
    assert sorted(rows) == list(range(16))
    assert max(sum(row < 6 for row in rows[k : k + 4]) for k in range(0, 16, 4)) <= 3


@pytest.mark.long
def test_correlations_are_those_of_scipy(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Of a run's last evaluation and of ``zoo eval``, over embeddings of the final model."""
    stats: Any = pytest.importorskip("scipy.stats")
    model = encoder(hub_checkpoint, tmp_path / "model", Pooling())
    held = table(tmp_path / "e.jsonl", 20, seed=7)
    changes = {"max_steps": 4, "data": {"eval": [str(held)]}}
    run = finetune(
        tmp_path / "run", tree_of(model, table(tmp_path / "t.jsonl"), "cosent", **changes)
    )
    trained = zoo.load(run / "model", backend="cpu")
    rows = [json.loads(line) for line in held.read_text().splitlines()]
    first, second = (trained.embed([row[name] for row in rows]) for name in ("text", "pair"))
    cosines = [cosine(*pair) for pair in zip(first, second, strict=True)]
    scores = [row["score"] for row in rows]
    expected = {
        "spearman": stats.spearmanr(cosines, scores).statistic,
        "pearson": stats.pearsonr(cosines, scores).statistic,
    }
    # the cosines are 0.998 with a deviation of 0.002, of which rounding in float32 is 4e-5
    assert records(run, "validation")[-1]["metrics"] == pytest.approx(expected, abs=1e-4)
    columns = {"pair": "pair", "label": "score"}
    task = make_evaluation(TASK, trained.checkpoint, trained.session, **columns)
    result = task.evaluate([held])
    assert result.metrics == pytest.approx({**expected, "samples": 20}, abs=1e-4)
    low, high = result.details["intervals"]["spearman"]
    assert low <= result.metrics["spearman"] <= high


@pytest.mark.long
@pytest.mark.parametrize("loss", ["multiple-negatives", "triplet"])
def test_ties_are_of_the_precision_of_the_run(
    pretrained: Pretrained, tmp_path: Path, loss: str
) -> None:
    """Cosines of embeddings in bfloat16 that differ by its rounding are tied."""
    model, _ = pretrained("BertModel")
    run = finetune(tmp_path / "run", tree_of(model, table(tmp_path / "t.tsv"), loss, max_steps=1))
    setup = setup_of(run)
    module, batch = build_model(setup).module, setup.eval_batches(HERE)[0]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=64) + 2**-8 * rng.normal(size=(8, 64))
    vectors = rows.astype(np.float32)
    predictions = {"anchor": vectors, "text": vectors, "negative": vectors[::-1]}
    predictions["texts"] = np.stack([np.arange(8), np.arange(8, 16)], -1)
    found = []
    for lower in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            setup.objective.forward(module, batch.tensors)
        results = setup.objective.task.results
        found.append(results.metrics(setup.objective.context, predictions)["accuracy"])
    assert found == [1.0, 0.5 if loss == "triplet" else pytest.approx(1 / 8)]


@pytest.mark.long
def test_retrieval_is_that_of_the_runs_last_evaluation(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Of distinct anchors and texts, by ``zoo.evaluate`` without negatives."""
    model = encoder(hub_checkpoint, tmp_path / "model", Pooling())
    anchors = sorted({" ".join(text.split()[:3]) for text in texts(60, 3)})[:20]
    rows = [{"text": a, "pair": f"{a} j j"} for a in anchors]
    rows += [{"text": anchors[0], "pair": rows[1]["pair"]}, rows[2]]  # a second text; a repetition
    held = write_table(tmp_path / "e.jsonl", rows)
    changes = {"max_steps": 4, "data": {"eval": [str(held)], "negatives": []}}
    train_file = table(tmp_path / "t.jsonl")
    run = finetune(tmp_path / "run", tree_of(model, train_file, "multiple-negatives", **changes))
    metrics = dict(zoo.evaluate(run / "model", task=TASK, eval=held, pair="pair").metrics)
    assert (metrics.pop("queries"), metrics.pop("texts")) == (20, 20)
    logged = records(run, "validation")[-1]["metrics"]
    assert logged == pytest.approx({name: metrics[name] for name in logged}, abs=0.02)


@pytest.mark.by_default("triplet")
@pytest.mark.parametrize("loss", ["multiple-negatives", "triplet"])
def test_an_evaluation_on_scores(hub_checkpoint: Make, tmp_path: Path, loss: str) -> None:
    """Of a run that is trained without: the numbers of ``zoo eval``, and the loss of CoSENT."""
    model = encoder(hub_checkpoint, tmp_path / "model", Pooling())
    held = table(tmp_path / "e.jsonl", 8, seed=7)
    data = {"eval": [str(held)], "eval_score": "score"}
    tree = tree_of(model, table(tmp_path / "t.jsonl"), loss, data=data, micro_batch_size=8)
    run = finetune(tmp_path / "run", {**tree, "max_steps": 2})
    (record,) = records(run, "validation")
    trained = zoo.load(run / "model", backend="cpu")
    columns = {"pair": "pair", "label": "score"}
    task = make_evaluation(TASK, trained.checkpoint, trained.session, **columns)
    metrics = dict(task.evaluate([held]).metrics)
    assert metrics.pop("samples") == 8
    assert record["metrics"] == pytest.approx(metrics, abs=1e-3)
    rows = [json.loads(line) for line in held.read_text().splitlines()]
    pair = [torch.tensor(trained.embed([row[name] for row in rows])) for name in ("text", "pair")]
    scores = torch.tensor([row["score"] for row in rows])
    expected = float(reference_loss("cosent", pair, scores, None))
    assert record["loss"] == pytest.approx(expected, rel=1e-3)


def encoder(hub_checkpoint: Make, path: Path, pooling: Pooling) -> Path:
    """Convert a model with the files of a sentence encoder."""
    source = hub_checkpoint("BertModel", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    for name, content in hub_pooling_files(pooling, 32).items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(content)
    return converted(source, path).path


@pytest.mark.long
def test_the_checkpoints_pooling_goes_on_and_is_written(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Vectors of the converted directory are those of transformers' first tokens."""
    import transformers

    model = encoder(hub_checkpoint, tmp_path / "model", Pooling(mode="cls", normalize=True))
    tree = tree_of(model, table(tmp_path / "t.tsv"), "multiple-negatives", max_seq_len=30)
    run = finetune(tmp_path / "run", tree)
    hub, inputs = tmp_path / "hub", texts(5, seed=9)
    done = warm.zoo("convert", run / "model", "--to", "hub", "-o", hub)
    assert done.returncode == 0, done.stderr
    modules = [
        module["type"].split(".")[-1] for module in json.loads((hub / "modules.json").read_text())
    ]
    assert modules == ["Transformer", "Pooling", "Normalize"]
    flags = json.loads((hub / "1_Pooling" / "config.json").read_text())
    assert flags["pooling_mode_cls_token"] and not flags["pooling_mode_mean_tokens"]
    assert json.loads((hub / "sentence_bert_config.json").read_text())["max_seq_length"] == 30
    reference: Any = transformers.AutoModel.from_pretrained(hub)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    ours = zoo.load(run / "model", backend="cpu").embed(inputs)
    for text, vector in zip(inputs, ours, strict=True):
        with torch.no_grad():
            hidden = reference(**tokenizer(text, return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(vector, F.normalize(hidden[0, 0], dim=0).numpy(), atol=1e-5)


E5 = Pooling(
    include_prompt=False,
    prompts={"query": "a b ", "passage": "c "},
    default_prompt_name="query",
    similarity_fn_name="dot",
    truncate_dim=24,
)


@pytest.mark.long
def test_prompts_and_similarity_go_on(hub_checkpoint: Make, tmp_path: Path) -> None:
    """In the saved model, in the Hub's layout, and in evaluations during training."""
    model = encoder(hub_checkpoint, tmp_path / "model", E5)
    held = write_table(
        tmp_path / "e.jsonl",
        [{"text": a, "pair": b} for a, b in zip(texts(12, 3), texts(12, 4), strict=True)],
    )
    changes = {"max_steps": 2, "data": {"eval": [str(held)], "negatives": []}, "max_seq_len": 30}
    train_file = table(tmp_path / "t.jsonl")
    run = finetune(tmp_path / "run", tree_of(model, train_file, "multiple-negatives", **changes))
    saved = zoo.load(run / "model", backend="cpu").checkpoint.model.pooling
    assert saved == replace(E5, max_tokens=30)
    metrics = zoo.evaluate(run / "model", task=TASK, eval=held, pair="pair").metrics
    logged = records(run, "validation")[-1]["metrics"]
    assert logged == pytest.approx({name: metrics[name] for name in logged}, abs=1e-6)
    hub = tmp_path / "hub"
    assert warm.zoo("convert", run / "model", "--to", "hub", "-o", hub).returncode == 0
    stated = json.loads((hub / "config_sentence_transformers.json").read_text())
    assert stated == {
        "prompts": E5.prompts,
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 24,
    }


@pytest.mark.by_default("cosent")
@pytest.mark.parametrize(
    ("loss", "prompts"),
    [("multiple-negatives", ["query", "passage", "passage"]), ("cosent", ["query", "query"])],
)
def test_prompts_precede_the_texts_of_a_loss(
    hub_checkpoint: Make, tmp_path: Path, loss: str, prompts: list[str]
) -> None:
    """Vectors before training are the embeddings of texts with the prompts of an evaluation."""
    model = encoder(hub_checkpoint, tmp_path / "model", replace(E5, truncate_dim=None))
    tree = tree_of(model, table(tmp_path / "t.jsonl"), loss, max_steps=1)
    setup = setup_of(finetune(tmp_path / "run", tree))
    objective: Any = setup.objective
    loader = setup.train_dataloader(HERE)
    batch = next(iter(loader.make_batches(0)))
    loader.close()
    module: Any = build_model(setup).module.eval()
    module.backbone.load_state_dict(load_file(model / "model.safetensors"))
    with torch.inference_mode():
        vectors = objective.forward(module, batch.tensors).logits[TASK]
    before = zoo.load(model, backend="cpu")
    assert len(vectors) == len(prompts)
    for k, (column, name) in enumerate(zip(vectors, prompts, strict=True)):
        ids = batch.tensors[f"input_ids_{k}" if k else "input_ids"].tolist()
        read = [before.tokenizer.decode(row) for row in ids]
        prompt = E5.prompts[name]
        assert [text for text in read if not text.startswith(prompt)] == []
        expected = before.embed([t.removeprefix(prompt) for t in read], prompt_name=name)
        np.testing.assert_allclose(column.numpy(), expected, atol=1e-5)


def test_data_that_has_the_prompts_is_said(
    hub_checkpoint: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = encoder(hub_checkpoint, tmp_path / "model", E5)
    rows = [{"text": f"a b {a}", "pair": f"j {a}"} for a in texts(20)]
    tree = tree_of(model, write_table(tmp_path / "t.jsonl", rows), "multiple-negatives")
    tree["data"]["negatives"] = []
    with caplog.at_level("WARNING", "zoo"):
        finetune(tmp_path / "run", {**tree, "max_steps": 1})
    assert "texts begin with the model's prompt, which precedes every text anyway" in caplog.text


def test_pooling_can_be_set(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = encoder(hub_checkpoint, tmp_path / "model", Pooling(mode="cls", lowercase=True))
    arguments = {"pooling": "max", "normalize": True}
    tree = tree_of(model, table(tmp_path / "t.tsv"), "cosine", max_steps=1, task_args=arguments)
    run = finetune(tmp_path / "run", tree)
    pooling = json.loads((run / "model" / "config.json").read_text())["pooling"]
    assert {k: pooling[k] for k in ("mode", "normalize", "lowercase")} == {
        "mode": "max",
        "normalize": True,
        "lowercase": True,
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "loss", ["multiple-negatives", pytest.param("softmax", marks=pytest.mark.long)]
)
def test_a_resumed_run_ends_bit_for_bit_the_same(
    pretrained: Pretrained, tmp_path: Path, loss: str
) -> None:
    """With dropout, without the checkpoint that it started from, and with a classifier."""
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model, _ = pretrained("BertModel", **dropout)
    tree = tree_of(model, table(tmp_path / "t.tsv"), loss, save_total_limit=9)
    whole = finetune(tmp_path / "whole", tree)
    shutil.rmtree(model)
    assert_resumes_from(whole, tmp_path, 6, kind=FineTuneRun)
    names = load_file(whole / "model" / "model.safetensors")
    assert not [name for name in names if "classifier" in name or "backbone" in name]


# micro-batches that are whole in each process, and that two processes share; evaluations likewise
@pytest.mark.long
@pytest.mark.parametrize("micro", [4, 8])
@pytest.mark.parametrize("loss", ["multiple-negatives", "cosent"])
def test_two_processes_have_the_losses_and_metrics_of_one(
    pretrained: Pretrained, tmp_path: Path, loss: str, micro: int
) -> None:
    """Also where texts are compared with those of the other process, through which gradients go."""
    import yaml

    model, _ = pretrained("BertModel")
    held = [table(tmp_path / f"e{count}.tsv", count, seed=1) for count in (16, 18)]
    for file in held:
        data = {"eval": [str(file)]}
        tree = tree_of(model, table(tmp_path / "t.tsv"), loss, data=data)
        tree |= {"max_steps": 4, "eval_steps": 2, "micro_batch_size": micro}
        (tmp_path / "r.yaml").write_text(yaml.safe_dump(tree))
        single = finetune(tmp_path / f"{file.stem}-single", tree)
        parallel = tmp_path / f"{file.stem}-parallel"
        arguments = (str(tmp_path / "r.yaml"), "-o", str(parallel))
        finish_in_two_processes("finetune", *arguments)
        for split in ("train", "validation"):
            pairs = zip(records(parallel, split), records(single, split), strict=True)
            for record, other in pairs:
                assert record["loss"] == pytest.approx(other["loss"], abs=1e-5)
                for metric, value in other["metrics"].items():
                    # By rounding, two almost equal similarities of 16 may change places.
                    tolerance = 2e-3 if metric == "spearman" else 1e-4
                    assert record["metrics"][metric] == pytest.approx(value, abs=tolerance)


def test_processes_that_do_not_divide_a_micro_batch(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertModel")
    tree = tree_of(model, table(tmp_path / "t.tsv"), "cosent", micro_batch_size=3, max_steps=1)
    setup = setup_of(finetune(tmp_path / "run", tree))
    with pytest.raises(UsageError, match="of 3, which 2 processes do not divide; --set micro"):
        setup.train_dataloader(DistContext(0, 2, torch.device("cpu")))


def test_a_warning_about_texts_that_are_in_a_batch_twice(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All 12 samples of which have the anchor "a", and no other batch is there."""
    model, _ = pretrained("BertModel")
    rows = [{"text": "a", "pair": text, "other": "b c d"} for text in texts(12, 1)]
    data = {"eval": [str(table(tmp_path / "e.jsonl", 8))]}
    tree = tree_of(model, write_table(tmp_path / "t.jsonl", rows), "multiple-negatives", data=data)
    with caplog.at_level("WARNING", "zoo"):
        finetune(tmp_path / "run", {**tree, "max_steps": 1})
    assert "8 of 8 samples share a text with another one of their batch" in caplog.text


def test_the_encoder_of_an_encoder_decoder(tmp_path: Path) -> None:
    """With classes in the order of the settings."""
    order = {"labels": ["z", "x", "y"]}
    train = table(tmp_path / "t.tsv")
    run = finetune(
        tmp_path / "run",
        tree_of("t5", train, "softmax", max_steps=2, vocab_size=300, data=order),
    )
    assert zoo.load(run / "model", backend="cpu").embed(["a b"]).shape[0] == 1
    record = json.loads((run / "run.json").read_text())
    assert record["data"]["labels"] == ["z", "x", "y"]
    assert set(records(run, "validation")[-1]["metrics"]) == {"accuracy"}


def test_the_command(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertModel")
    columns = ("--text", "text", "--pair", "pair", "--negative", "other")
    done = warm.zoo(
        *("finetune", model, "--task", TASK, "--train", table(tmp_path / "t.tsv"), *columns),
        *("--preset", "default", "--set", "batch_size=8", "--max-steps", "4", "--device", "cpu"),
        *("-o", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    losses = [record["losses"] for record in records(tmp_path / "run")]
    assert [set(terms) for terms in losses] == [{TASK}] * len(losses)
    assert [a for a, b in pairwise(map(str, losses)) if a == b] == []
    done = warm.zoo(
        *("eval", tmp_path / "run" / "model", "--task", TASK, "--eval", tmp_path / "t.tsv"),
        *("--pair", "pair", "--label", "score", "--backend", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"spearman +\S+ +\S+ to \S+", done.stdout)


@pytest.mark.by_default("cosent-changes0", "triplet-changes3", "cosine-changes7")
@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        ("cosent", {"data": {"label": None}}, "the loss cosent needs scores or classes"),
        ("multiple-negatives", {"data": {"label": "score"}}, "takes no labels"),
        ("cosine", {"data": {"negatives": ["other"]}}, "takes no negatives"),
        ("triplet", {"data": {"negatives": []}}, "the loss triplet needs one negative"),
        ("triplet", {"data": {"pair": None}}, "compares two texts; name the column of the second"),
        ("triplet", {"data": {"negatives": ["othr"]}}, "no column 'othr'; did you mean other"),
        ("multiple-negatives", {"batch_size": 99}, "samples to train on are less than a batch"),
        ("cosine", {"data": {"label": "class"}}, "which is not a number"),
        ("triplet", {"data": {"eval_score": "score"}}, "name them with --eval"),
        ("cosine", {"data": {"eval_score": "score"}}, "leave out data.eval_score"),
        ("cosine", {"task_args": {"score_range": [0, 0.01]}}, "is not a cosine similarity"),
        ("cosine", {"task_args": {"score_range": [5, 0]}}, "not the lowest score first"),
        ("info-nce", {}, "the task sentence-embedding: loss is 'info-nce'; it is one of"),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, loss: str, changes: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertModel")
    with pytest.raises(ZooError, match=message):
        finetune(tmp_path / "run", tree_of(model, table(tmp_path / "t.jsonl"), loss, **changes))
    assert not (tmp_path / "run").exists()
