"""Sequence-to-sequence tasks against transformers' model: losses, generation, mixtures, runs."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoo
from tests import warm
from tests.finetuning.making import (
    HERE,
    assert_resumes_exactly,
    assert_two_processes_equal_one,
    finetune,
    reference_losses,
    settings,
    setup_of,
    training_losses,
    write_table,
)
from tests.tasks.seq2seq.making import (
    PIECES,
    TASK,
    kind,
    pairs,
    sentences,
    spiece,
    tree_of,
)
from tests.tasks.seq2seq.making import model as model
from tests.tasks.seq2seq.making import t5_hub as t5_hub
from tests.tokenizers.texts import prose
from tests.training.runs import records
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.finetuning.order import ProportionalMixture
from zoo.objectives.base import Batch
from zoo.report.mistakes import read_mistakes
from zoo.tasks import make_evaluation
from zoo.tasks.seq2seq.train import shift_right, text_key


@pytest.mark.by_default("0.1")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_losses_are_those_of_the_reference(
    smoothing: float, t5_hub: Path, model: Path, tmp_path: Path
) -> None:
    """Of torch's AdamW over transformers' model and label smoother, on the same batches."""
    import transformers
    from transformers.trainer_pt_utils import LabelSmoother

    options = {"label_smoothing_factor": smoothing}
    run = finetune(tmp_path / "run", tree_of(model, pairs(tmp_path / "t.tsv"), task_args=options))
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(t5_hub)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        names = ("input_ids", "attention_mask", "labels")
        inputs = {name: batch.tensors[name] for name in names if name in batch.tensors}
        count = int((inputs["labels"] != -100).sum())
        loss: Tensor = LabelSmoother(smoothing)(reference(**inputs), inputs["labels"])
        return loss * count, count

    losses = reference_losses(run, reference, batch_loss)
    assert training_losses(run) == pytest.approx(losses, abs=2e-5)
    assert losses[-1] != pytest.approx(losses[0], abs=1e-2), "the weights changed"


def test_the_decoders_input_is_that_of_the_reference(
    t5_hub: Path, model: Path, tmp_path: Path
) -> None:
    import transformers

    tree = tree_of(model, pairs(tmp_path / "t.tsv"), max_steps=1)
    setup = setup_of(finetune(tmp_path / "run", tree))
    loader = setup.train_dataloader(HERE)
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(t5_hub)
    for batch in loader.make_batches(0):
        labels = batch.tensors["labels"]
        assert (labels == -100).any()
        shifted = shift_right(setup.objective.context, labels)
        assert torch.equal(shifted, reference._shift_right(labels.clone()))
    loader.close()


@pytest.mark.long
def test_exact_match_is_that_of_generated_texts(model: Path, tmp_path: Path) -> None:
    """Of ``zoo run seq2seq`` on the final model; half of the targets are one of two labels."""
    rows = [{"in": text, "out": "cat" if len(text) % 2 else "dog"} for text in sentences(60)]
    held = [{"in": text, "out": "cat" if k % 4 else "dog"} for k, text in enumerate(sentences(12))]
    write_table(tmp_path / "e.tsv", held)
    tree = tree_of(
        model,
        write_table(tmp_path / "t.tsv", rows),
        data={"eval": [str(tmp_path / "e.tsv")], "prefix": "a: "},
        optimizer={"learning_rate": 0.02},
        max_steps=30,
        eval_steps=30,
        save_steps=30,
    )
    run = finetune(tmp_path / "run", tree)
    metrics = records(run, "validation")[-1]["metrics"]
    generated = zoo.load(run / "model", backend="cpu").seq2seq(["a: " + row["in"] for row in held])
    hits = [g["generated"] == row["out"] for g, row in zip(generated, held, strict=True)]
    assert metrics["exact_match"] == pytest.approx(sum(hits) / len(held))
    assert 0 < metrics["exact_match"] < 1 and set(metrics) == {"exact_match", "accuracy"}
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"] == [metrics["exact_match"], 30]


def test_a_mixture_is_in_proportion_to_sizes_up_to_a_limit() -> None:
    datasets = np.array([0] * 50 + [1] * 7 + [2] * 20)
    mixture = ProportionalMixture(datasets, 20, seed=0)
    assert mixture.num_rows == 20 + 7 + 20
    epochs = [mixture.rows(epoch) for epoch in range(5)]
    for rows in epochs:
        assert np.bincount(datasets[rows]).tolist() == [20, 7, 20]
        assert len(set(rows)) == len(rows) or (datasets[rows] == 0).sum() == 20
    large = np.concatenate([rows[datasets[rows] == 0] for rows in epochs])
    assert sorted(large[:50]) == sorted(large[50:]) == list(range(50)), "each once a turn"
    assert large[:50].tolist() != large[50:].tolist()
    assert sorted(mixture[k] for k in range(47)) == sorted(epochs[0])


@pytest.mark.long
def test_data_sets_have_their_prefixes(model: Path, tmp_path: Path) -> None:
    first, second = pairs(tmp_path / "a.tsv", 30), pairs(tmp_path / "b.jsonl", 10, seed=1)
    prefixes = {"prefix": {"second": "summarize: "}, "mixing_limit": 8}
    files = (f"first={first}", f"second={second}")
    tree = tree_of(model, *files, data=prefixes, max_steps=0, num_train_epochs=1.0, eval_steps=0)
    run = finetune(tmp_path / "run", {**tree, "save_steps": 0})
    setup = setup_of(run)
    tokenizer: Any = zoo.load(run / "model", backend="cpu").tokenizer
    rows, starts = setup.train_rows, {0: "first: ", 1: "summarize: "}
    for number in range(len(rows)):
        example = rows.example(number, np.random.default_rng(0))
        text = tokenizer.decode(example.arrays["input_ids"].tolist())
        assert text.startswith(starts[int(example.values["dataset"])])
    limited = [min(8, int((rows.values["dataset"] == k).sum())) for k in (0, 1)]
    assert setup.config.max_steps == -(-sum(limited) // 8)
    metrics = records(run, "validation")[-1]["metrics"]
    assert {"exact_match_first", "exact_match_second"} < set(metrics)


@pytest.mark.long
def test_a_data_set_without_evaluation_has_no_metric(model: Path, tmp_path: Path) -> None:
    first, second = pairs(tmp_path / "a.tsv"), pairs(tmp_path / "b.tsv", seed=1)
    tree = tree_of(model, f"first={first}", f"second={second}", max_steps=2, eval_steps=2)
    tree["data"]["eval"] = [f"first={first}"]
    run = finetune(tmp_path / "run", tree)
    metrics = records(run, "validation")[-1]["metrics"]
    assert set(metrics) == {"accuracy", "exact_match", "exact_match_first"}
    with pytest.raises(UsageError, match=r"no sample .* counts for the metric exact_match_second"):
        finetune(tmp_path / "other", {**tree, "metric_for_best_model": "exact_match_second"})


@pytest.mark.long
def test_a_resumed_run_ends_bit_for_bit_the_same(model: Path, tmp_path: Path) -> None:
    files = (f"first={pairs(tmp_path / 'a.tsv')}", f"second={pairs(tmp_path / 'b.tsv', 10, 1)}")
    tree = tree_of(model, *files, data={"mixing_limit": 12}, save_total_limit=9)
    assert_resumes_exactly(tmp_path, tree, 6)


@pytest.mark.long
def test_two_processes_have_the_losses_and_metrics_of_one(model: Path, tmp_path: Path) -> None:
    tree = tree_of(model, pairs(tmp_path / "t.tsv"), max_steps=4, eval_steps=2)
    held = pairs(tmp_path / "e.tsv", 20, seed=1)
    tree["data"]["eval"] = [str(held)]
    assert_two_processes_equal_one(tmp_path / "runs", tree)


@pytest.mark.long
def test_a_run_from_random_weights_trains_its_tokenizer(tmp_path: Path) -> None:
    rows = [{"in": text, "out": text.split()[0]} for text in prose(200) if text.split()]
    table = write_table(tmp_path / "t.jsonl", rows)
    tree = tree_of("t5", table, vocab_size=400, max_steps=2)  # type: ignore[arg-type]
    run = finetune(tmp_path / "run", tree)
    (result,) = zoo.load(run / "model", backend="cpu").seq2seq([rows[0]["in"]])
    assert set(result) == {"text", "generated", "stopped"}


@pytest.mark.long
def test_an_evaluation_has_the_loss_and_the_texts_of_the_reference(
    t5_hub: Path, model: Path, tmp_path: Path
) -> None:
    import sentencepiece
    import transformers

    texts, prefix = sentences(6), "the "
    pieces = sentencepiece.SentencePieceProcessor(model_proto=spiece())
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(t5_hub)
    reference.eval()

    def ids(text: str) -> torch.Tensor:
        return torch.tensor([[*pieces.encode(text), pieces.eos_id()]])

    targets, total, tokens = [], 0.0, 0
    with torch.no_grad():
        for k, text in enumerate(texts):
            generated = reference.generate(ids(prefix + text), max_new_tokens=3, do_sample=False)
            ordinary = [t for t in generated[0].tolist()[1:] if 2 <= t < PIECES]
            targets.append(pieces.decode(ordinary) if k % 2 else "cat")
            labels = ids(targets[-1])
            loss = reference(input_ids=ids(prefix + text), labels=labels).loss
            total, tokens = total + float(loss) * labels.shape[1], tokens + labels.shape[1]
    rows = [{"in": text, "out": target} for text, target in zip(texts, targets, strict=True)]
    table = write_table(tmp_path / "t.jsonl", rows)
    opened = zoo.load(model, backend="cpu")
    options = {"text": "in", "label": "out", "prefix": prefix, "max_new_tokens": 3}
    task = make_evaluation(TASK, opened.checkpoint, opened.session, **options)
    metrics = task.evaluate([table]).metrics
    assert metrics["loss"] == pytest.approx(total / tokens, abs=1e-5)
    results = opened.seq2seq([prefix + text for text in texts], max_new_tokens=3)
    hits = [r["generated"] == t for r, t in zip(results, targets, strict=True)]
    assert metrics["exact_match"] == pytest.approx(sum(hits) / 6) and sum(hits[1::2]) == 3


@pytest.mark.long
def test_the_commands(model: Path, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    columns = ("--text", "in", "--label", "out", "--prefix", "copy: ")
    done = warm.zoo(
        *("finetune", model, "--task", TASK, "--train", f"copy={table}", *columns),
        *("--preset", "default", "--max-steps", "2", "--device", "cpu", "-o", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    assert "all weights come from" in done.stderr
    done = warm.zoo(
        *("eval", tmp_path / "run" / "model", "--task", TASK, "--eval", table, *columns),
        *("--limit", "4", "--backend", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"exact_match +0\.\d+ +0\.\d+ to \d\.\d+", done.stdout)
    named = ("--eval", f"copy={table}", *columns[:-2], "--limit", "4", "--backend", "cpu")
    done = warm.zoo("eval", tmp_path / "run" / "model", "--task", TASK, *named)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "model" / "zoo.json").read_text())
    by_option, by_name = manifest["evaluations"]
    assert by_name["settings"]["prefix"] == {"copy": "copy: "}
    assert (by_name["metrics"], by_name["data"]) == (by_option["metrics"], by_option["data"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"pair_prefix": "x"}}, "pair_prefix is text before a second text"),
        ({"data": {"eval": ["third=t.tsv"]}}, "third=t.tsv is of no data set that is trained on"),
        ({"data": {"text": "im"}}, "has no column 'im'; there are"),
        ({"fsdp": True}, "evaluations with fsdp do not generate"),
        ({"task_args": {"num_beam": 2}}, "the task seq2seq has no option 'num_beam'; did you mean"),
        ({"metric_for_best_model": "f1"}, "seq2seq has no metric 'f1'"),
    ],
)
def test_what_does_not_fit_is_one_line(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    tree = tree_of(model, pairs(tmp_path / "t.tsv"), **changes)
    with pytest.raises(UsageError, match=message):
        finetune(tmp_path / "run", tree)
    assert not (tmp_path / "run").exists()


def glue(folder: Path) -> Path:
    """Write some tables as the archive of GLUE has them."""
    for stem, count, seed in (("train", 80, 1), ("dev", 16, 2)):
        first, second = sentences(count, seed), sentences(count, seed + 5)
        lines = {
            "CoLA": [["x", str(kind(a)), "*", a] for a in first],
            "MRPC": [
                ["Quality", "#1 String", "#2 String"],
                *([str(kind(a)), a, b] for a, b in zip(first, second, strict=True)),
            ],
            "STS-B": [
                ["sentence1", "sentence2", "score"],
                *([a, b, str(kind(a) * 2.3)] for a, b in zip(first, second, strict=True)),
            ],
        }
        for name, rows in lines.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{stem}.tsv").write_text("".join("\t".join(r) + "\n" for r in rows))
    return folder


LEARN = {
    "optimizer": {"learning_rate": 0.01},
    "max_steps": 100,
    "eval_steps": 100,
    "save_steps": 100,
}


@pytest.mark.long
def test_tasks_of_glue_as_texts(model: Path, tmp_path: Path) -> None:
    """Their files are found, and their metrics are those of the texts that are generated."""
    metrics = pytest.importorskip("sklearn.metrics")
    stats = pytest.importorskip("scipy.stats")
    folder = glue(tmp_path / "GLUE")
    tree = settings(model, Path("unused"), task=TASK, max_steps=2)
    tree["data"] = {"train": [f"glue/mrpc={folder}", f"glue/stsb={folder}"]}
    run = finetune(tmp_path / "run", {**tree, "eval_steps": 2, "save_steps": 2})
    setup = setup_of(run)
    for part, stem in ((setup.config.data.train, "train"), (setup.config.data.eval, "dev")):
        tables = ("mrpc", folder / "MRPC"), ("stsb", folder / "STS-B")
        assert part == tuple(f"glue/{name}={path / stem}.tsv" for name, path in tables)
    labels, answers = [0, 1, 1, 0], ["not_equivalent", "equivalent", "yes", ""]
    scores, numbers = [0.33, 2.3, 4.9, 1.0], ["0.4", "4", "4.8", "many"]
    targets = ["not_equivalent", "equivalent", "equivalent", "not_equivalent"]
    targets += ["0.4", "2.4", "4.8", "1.0"]
    texts = [*answers, *numbers]
    computed = setup.objective.compute_metrics(
        {
            "prediction": torch.tensor([text_key(text) for text in texts]),
            "target": torch.tensor([text_key(text) for text in targets]),
            "predicted_number": torch.tensor([*[-1.0] * 4, 0.4, 4.0, 4.8, -1.0]),
            "number": torch.tensor([*[math.nan] * 4, *scores]),
            "dataset": torch.tensor([0] * 4 + [1] * 4),
        }
    )
    expected = {
        "exact_match": 4 / 8,
        "exact_match_glue/mrpc": 2 / 4,
        "f1_glue/mrpc": metrics.f1_score(labels, [0, 1, 0, 1]),  # unknown texts: wrong labels
        "exact_match_glue/stsb": 2 / 4,
        "pearson_glue/stsb": stats.pearsonr([0.4, 4.0, 4.8, -1.0], scores)[0],
        "spearman_glue/stsb": stats.spearmanr([0.4, 4.0, 4.8, -1.0], scores)[0],
    }
    assert computed == pytest.approx(expected, abs=1e-6)
    assert set(records(run, "validation")[-1]["metrics"]) == {*expected, "accuracy"}


@pytest.mark.long
def test_the_suite_evaluates_models_that_generate_labels(model: Path, tmp_path: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    folder, runs = glue(tmp_path / "GLUE"), tmp_path / "runs"
    tree = settings(model, Path("unused"), task=TASK, **LEARN)
    tree["data"] = {"train": [f"glue/cola={folder}"]}
    run = finetune(runs / "cola", tree)
    assert setup_of(run).objective.metric_for_best_model == "matthews_correlation"
    done = warm.zoo("eval", str(runs), "--suite", "glue", "--eval", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    first = sentences(16, 2)
    opened = zoo.load(run / "model", backend="cpu")
    generated = [r["generated"] for r in opened.seq2seq([f"cola sentence: {a}" for a in first])]
    words, labels = {"unacceptable": 0, "acceptable": 1}, list(map(kind, first))
    predicted = [words.get(t, 1 - n) for t, n in zip(generated, labels, strict=True)]
    expected = metrics.matthews_corrcoef(labels, predicted)
    assert expected not in (-1, 0, 1), generated
    assert json.loads(done.stdout)["tasks"]["cola"]["score"] == pytest.approx(100 * expected)
    arguments = ("--task", "seq2seq", "--eval", f"glue/cola={folder}", "--json")
    alone = warm.zoo("eval", str(run / "model"), *arguments)
    assert alone.returncode == 0, alone.stderr
    value = json.loads(alone.stdout)
    assert value["metrics"]["matthews_correlation"] == pytest.approx(expected)
    assert value["prefix"] == {"glue/cola": "cola sentence: "}
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    recorded = [entry["metrics"]["matthews_correlation"] for entry in manifest["evaluations"]]
    assert recorded == [pytest.approx(expected)] * len(recorded)


@pytest.mark.long
def test_sources_of_two_texts(model: Path, tmp_path: Path) -> None:
    rows = [
        {"a": a, "b": b, "out": "cat"} for a, b in zip(sentences(20), sentences(20, 1), strict=True)
    ]
    file = write_table(tmp_path / "t.tsv", rows)
    tree = tree_of(model, f"own={file}", data={"text": "a", "pair": "b"}, max_steps=1)
    run = finetune(tmp_path / "run", tree)
    data = setup_of(run).config.data
    sample = setup_of(run).objective.task.data.read(data.train, data, RowProblems())[0]
    assert sample.source == f"own a: {rows[0]['a']} b: {rows[0]['b']}"
    arguments = ("--text", "a", "--pair", "b", "--label", "out", "--json")
    done = warm.zoo("eval", str(run / "model"), "--task", TASK, "--eval", f"own={file}", *arguments)
    assert done.returncode == 0, done.stderr
    scored = json.loads(done.stdout)["metrics"]["loss"]
    sources = [{"in": f"own a: {row['a']} b: {row['b']}", "out": "cat"} for row in rows]
    whole = write_table(tmp_path / "whole.tsv", sources)
    opened = zoo.load(run / "model", backend="cpu")
    evaluation = make_evaluation(TASK, opened.checkpoint, opened.session, text="in", label="out")
    assert evaluation.evaluate([whole]).metrics["loss"] == pytest.approx(scored, rel=1e-5)


@pytest.mark.long
def test_the_report_shows_generated_texts(model: Path, tmp_path: Path) -> None:
    table = pairs(tmp_path / "pairs.tsv", 12)
    tree = tree_of(model, table, data={"eval": [str(table)]}, max_steps=4, eval_steps=4)
    run = finetune(tmp_path / "run", tree)
    rows: list[dict[str, Any]] = []
    zoo.evaluate(
        run / "model",
        task=TASK,
        eval=table,
        text="in",
        label="out",
        on_prediction=lambda row: rows.append(dict(row)),
    )
    found = read_mistakes(run)
    assert found is not None and (found.samples, found.wrong) == (12, len(rows))
    texts = {row["text"]: (row["label"], row["prediction"]) for row in rows}
    shown = {row["text"]: (row["label"], row["prediction"]) for row in found.worst}
    assert shown == {text: (label, found[:400]) for text, (label, found) in texts.items()}
