"""Labels of words: files, first tokens, repaired spans, losses, entity scores, evaluation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    finetune,
    losses_of_transformers,
    settings,
    setup_of,
    texts,
    training_losses,
    write_table,
)
from tests.tasks.token_classification.making import TASK, tagged
from tests.training.runs import records
from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import finetune_setup
from zoo.inference.results import EvaluatedModel
from zoo.inference.task import TaskWarning
from zoo.metrics.entities import entities, entity_counts, entity_scores
from zoo.tasks import make_evaluation
from zoo.tasks.token_classification.data import (
    first_tokens,
    is_iob,
    marks_spans,
    read_words,
    repair_iob,
)
from zoo.tasks.token_classification.results import WordResults
from zoo.tasks.token_classification.train import WordData
from zoo.training.config.finetune import TableConfig


def tagger(pretrained: Pretrained, labels: list[str]) -> zoo.Model:
    """Return a token classifier with random weights."""
    names = {"id2label": dict(enumerate(labels)), "label2id": {n: k for k, n in enumerate(labels)}}
    path, _ = pretrained("BertForTokenClassification", **names)
    return zoo.load(path, backend="cpu")


def test_columns_of_words(tmp_path: Path) -> None:
    (tmp_path / "t.conll").write_text("-DOCSTART- O\n\nHe NP B-X\nran VB O\n\n\nShe NP O\n")
    samples = read_words([tmp_path / "t.conll"], Columns())
    assert [(s.words, s.labels) for s in samples] == [
        (("He", "ran"), ("B-X", "O")),
        (("She",), ("O",)),
    ]
    assert read_words([tmp_path / "t.conll"], Columns("1", "2"))[0].labels == ("NP", "VB")
    (tmp_path / "t.conll").write_text("He B-X\nran\n")
    with pytest.raises(UsageError, match=r"t\.conll:2 has 1 columns"):
        read_words([tmp_path / "t.conll"], Columns())


def test_universal_dependencies(tmp_path: Path) -> None:
    """Words that are split (2-3) or added (4.1) are not those of the text's annotation."""
    lines = ["# text = I can't", "1\tI\tI\tPRON\tPRP", "2-3\tcan't\t_\t_\t_", "2\tca\tcan\tAUX\tMD"]
    lines += ["3\tn't\tnot\tPART\tRB", "3.1\tgo\tgo\tVERB\tVB", "", "1\tGo\tgo\tVERB\tVB", ""]
    (tmp_path / "t.conllu").write_text("\n".join(lines))
    samples = read_words([tmp_path / "t.conllu"], Columns())
    assert [(s.words, s.labels) for s in samples] == [
        (("I", "ca", "n't"), ("PRON", "AUX", "PART")),
        (("Go",), ("VERB",)),
    ]


def test_columns_of_universal_dependencies_have_names(tmp_path: Path) -> None:
    (tmp_path / "t.conllu").write_text("1\tcan\tbe\tAUX\tMD\n")
    (sample,) = read_words([tmp_path / "t.conllu"], Columns("lemma", "XPOS"))
    assert (sample.words, sample.labels) == (("be",), ("MD",))
    with pytest.raises(UsageError, match=r"no column 'lema'; .* from 1, or named: id, form, lemma"):
        read_words([tmp_path / "t.conllu"], Columns("lema"))


@pytest.mark.parametrize("name", ["tag", "0"])
def test_a_column_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.conll").write_text("He NP O\n")
    with pytest.raises(UsageError, match=rf"has no column '{name}'; .* are counted from 1$"):
        read_words([tmp_path / "t.conll"], Columns("1", name))


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_a_word_may_have_white_space_in_it(tmp_path: Path, separator: str) -> None:
    (tmp_path / "t.conll").write_text(f"10\u00a0000{separator}B-X\nat{separator}O\n", "utf-8")
    (sample,) = read_words([tmp_path / "t.conll"], Columns())
    assert (sample.words, sample.labels) == (("10\u00a0000", "at"), ("B-X", "O"))


def test_lists_of_words(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b"], "tags": [3, "x"]}]
    table = write_table(tmp_path / "t.jsonl", rows)
    (sample,) = read_words([table], Columns("tokens", "tags"))
    assert (sample.words, sample.labels) == (("a", "b"), ("3", "x"))
    table.write_text(json.dumps({"tokens": ["a"], "tags": []}))
    with pytest.raises(UsageError, match="has 1 words and 0 labels"):
        read_words([table], Columns("tokens", "tags"))


def test_spans_begin_with_b() -> None:
    assert repair_iob(["I-X", "I-X", "O", "I-Y", "I-X", "B-X", "I-X"]) == (
        "B-X",
        "I-X",
        "O",
        "B-Y",
        "B-X",
        "B-X",
        "I-X",
    )
    assert is_iob(["O", "B-X", "I-X"]) and not is_iob(["NOUN", "O"]) and not is_iob(["O"])


def test_first_tokens_of_words() -> None:
    """Offsets of a tokenizer whose tokens include the space before, and of one whose do not."""
    words, special = ["ab", "c", "def"], [True, False, False, False, False]
    spaced = [(0, 0), (0, 2), (2, 4), (4, 6), (6, 8)]
    assert first_tokens(words, spaced, special) == {0: 1, 1: 2, 2: 3}
    plain = [(0, 0), (0, 1), (1, 2), (3, 4), (5, 8)]
    assert first_tokens(words, plain, special) == {0: 1, 1: 3, 2: 4}


def test_entities_equal_those_of_seqeval() -> None:
    metrics: Any = pytest.importorskip("seqeval.metrics")
    labelling: Any = pytest.importorskip("seqeval.metrics.sequence_labeling")
    import random

    rng, names = random.Random(0), ["O", "B-X", "I-X", "B-Y", "I-Y"]
    pairs = [
        tuple([rng.choice(names) for _ in range(rng.randint(1, 12))] for _ in range(2))
        for _ in range(300)
    ]
    actual = [first for first, second in pairs]
    guessed = [(second * 12)[: len(first)] for first, second in pairs]
    assert [entities(row) for row in actual] == [set(labelling.get_entities(row)) for row in actual]
    counts = [
        numbers
        for first, second in zip(actual, guessed, strict=True)
        for numbers in entity_counts(first, second).values()
    ]
    assert entity_scores(counts) == pytest.approx(
        {
            "precision": metrics.precision_score(actual, guessed),
            "recall": metrics.recall_score(actual, guessed),
            "f1": metrics.f1_score(actual, guessed),
        },
        abs=1e-12,
    )


def test_losses_are_those_of_the_reference(pretrained: Pretrained, tmp_path: Path) -> None:
    labels = ["B-LOW", "B-MID", "I-LOW", "I-MID", "O"]
    names = {"id2label": dict(enumerate(labels)), "label2id": {n: k for k, n in enumerate(labels)}}
    model, source = pretrained("BertForTokenClassification", **names)
    tree = settings(model, tagged(tmp_path / "t.conll", 80), task=TASK, micro_batch_size=8)
    run = finetune(tmp_path / "run", tree)
    expected = losses_of_transformers(run, source, "BertForTokenClassification")
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)
    assert set(records(run, "validation")[-1]["metrics"]) == {
        "accuracy",
        "precision",
        "recall",
        "f1",
    }


def test_labels_are_at_first_tokens(pretrained: Pretrained, tmp_path: Path) -> None:
    """``ab`` is two tokens, of which the second has no label and counts in no loss."""
    model, _ = pretrained()
    table = tmp_path / "t.conll"
    table.write_text("ab X\na Y\n\nc X\n\n" * 10)
    tree = settings(model, table, task=TASK, max_steps=1, data={"eval": [str(table)]})
    setup = setup_of(finetune(tmp_path / "run", tree))
    rows = setup.train_rows
    index = int(rows.lengths.argmax())
    example = rows.example(index, None)  # type: ignore[arg-type]
    assert example.arrays["labels"].tolist() == [-100, 0, -100, 1, -100]
    assert example.counts == {TASK: 2}


@pytest.mark.long
def test_the_metrics_are_those_of_the_predictions(pretrained: Pretrained, tmp_path: Path) -> None:
    """Accuracy and F1 of the last evaluation, from the labels that ``zoo run classify`` gives."""
    model, _ = pretrained()
    held = tagged(tmp_path / "e.conll", seed=5)
    tree = settings(model, tagged(tmp_path / "t.conll", 80), task=TASK, data={"eval": [str(held)]})
    run = finetune(tmp_path / "run", {**tree, "max_steps": 40, "eval_steps": 40, "save_steps": 40})
    samples = read_words([held], Columns())
    results = zoo.load(run / "model", backend="cpu").classify([" ".join(s.words) for s in samples])
    counts, hits, words = list[tuple[int, ...]](), 0, 0
    for sample, result in zip(samples, results, strict=True):
        predicted = [token["label"] for token in result["tokens"]]
        assert len(predicted) == len(sample.words), "each letter is a token"
        counts += entity_counts(sample.labels, predicted).values()
        hits += sum(a == b for a, b in zip(sample.labels, predicted, strict=True))
        words += len(predicted)
    metrics = records(run, "validation")[-1]["metrics"]
    assert metrics["accuracy"] == pytest.approx(hits / words)
    assert metrics["f1"] == pytest.approx(entity_scores(counts)["f1"])


def test_the_mean_f1_of_two_labels_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, f1_score

    context = EvaluatedModel(config=None, labels=("NOUN", "VERB"))
    actual, predicted = np.random.default_rng(0).integers(2, size=(2, 50))
    predictions = {"label": actual, "prediction": predicted, "begins": actual == 0}
    metrics = WordResults().metrics(context, predictions)
    assert metrics["f1_macro"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    assert metrics["accuracy"] == pytest.approx(accuracy_score(actual, predicted))


WELL_FORMED = {
    "BIOES": ["B-X", "I-X", "E-X", "S-Y", "O", "S-X", "B-Y", "E-Y", "S-X"],
    "BILOU": ["B-X", "I-X", "L-X", "U-Y", "O", "U-X", "B-Y", "L-Y", "U-X"],
    "BMES": ["B-X", "M-X", "E-X", "S-Y", "O", "S-X", "B-Y", "E-Y", "S-X"],
}


@pytest.mark.parametrize("scheme", WELL_FORMED)
def test_other_schemes_become_iob2(scheme: str) -> None:
    expected = ["B-X", "I-X", "I-X", "B-Y", "O", "B-X", "B-Y", "I-Y", "B-X"]
    assert list(repair_iob(WELL_FORMED[scheme])) == expected
    assert marks_spans(WELL_FORMED[scheme]) and not is_iob(WELL_FORMED[scheme])


def test_labels_of_no_scheme_or_of_two_mark_no_spans() -> None:
    for labels in (["S-X", "E-X"], ["O"], ["O", "B-X", "S-X", "U-X"], ["O", "NOUN"], ["B-X", "X"]):
        assert not marks_spans(labels)
    for labels in (["B", "O"], ["S", "M", "L", "O"], ["B", "I"], ["B", "I", "O", "B-X"]):
        assert not marks_spans(labels)
    assert marks_spans(["O", "S-X"]) and marks_spans(["O", "B-X", "I-X"])


def test_entities_of_arbitrary_labels_in_bioes_are_those_of_seqeval() -> None:
    """Of sequences that break the scheme, too."""
    from seqeval.metrics.sequence_labeling import get_entities

    names = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]
    rng = np.random.default_rng(0)
    for _ in range(500):
        labels = rng.choice(names, rng.integers(1, 12)).tolist()
        assert entities(repair_iob(labels)) == set(get_entities(labels)), labels


@pytest.mark.parametrize("scheme", WELL_FORMED)
def test_scores_of_other_schemes_are_those_of_entities(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    """Of samples to train on, and of a model whose labels are of the scheme."""
    from seqeval.metrics import f1_score

    labels = WELL_FORMED[scheme]
    model = tagger(pretrained, sorted(set(labels)))
    (result,) = model.classify(["a b c d e f g h i"])
    predicted = [token["label"] for token in result["tokens"]]
    data = tmp_path / "t.conll"
    data.write_text("".join(f"{w}\t{n}\n" for w, n in zip("abcdefghi", labels, strict=True)))
    metrics = make_evaluation(TASK, model.checkpoint, model.session).evaluate([data]).metrics
    as_bioes = [
        [n.replace("L-", "E-").replace("U-", "S-").replace("M-", "I-") for n in row]
        for row in (labels, predicted)
    ]
    assert metrics["f1"] == pytest.approx(f1_score(as_bioes[:1], as_bioes[1:]))
    changed = 6 if scheme == "BMES" else 5
    assert f"{changed} labels of {data} are in the scheme {scheme}" in caplog.text
    (read,) = WordData().read([str(data)], TableConfig(train=(str(data),)), RowProblems())
    assert list(read.labels) == list(repair_iob(labels))


# Labels of a model in any order, whether types come last, and what seqeval has in their place.
FORMS: dict[str, tuple[list[str], bool]] = {
    "no types": (["I", "O", "B"], False),
    "no types in BIOES": (["S", "E", "I", "B", "O"], False),
    "IOB1": (["I-Y", "O", "I-X", "B-X"], False),
    "types first": (["X-I", "Y-B", "Y-I", "X-B", "O"], True),
}


@pytest.mark.parametrize("form", FORMS)
def test_entities_of_other_forms_are_those_of_seqeval(form: str) -> None:
    from seqeval.metrics.sequence_labeling import get_entities

    names, is_suffix = FORMS[form]
    assert marks_spans(names)
    rng = np.random.default_rng(0)
    for _ in range(500):
        labels = rng.choice(names, rng.integers(1, 12)).tolist()
        expected = set(get_entities(labels, suffix=is_suffix))
        assert entities(labels) == expected, labels
        assert entities(repair_iob(labels)) == expected, labels
        assert is_iob([*repair_iob(labels), "B-X", "I-X"]) or form.startswith("no types")


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_scores_of_other_forms_are_those_of_seqeval(
    pretrained: Pretrained, tmp_path: Path, form: str
) -> None:
    """The model's predictions against random labels, in an evaluation and in a run's metrics."""
    from seqeval.metrics import f1_score

    names, is_suffix = FORMS[form]
    model = tagger(pretrained, names)
    sentences = texts(12)
    predicted = [
        [token["label"] for token in result["tokens"]] for result in model.classify(sentences)
    ]
    rng = np.random.default_rng(1)
    actual = [
        [name if rng.random() < 0.5 else str(rng.choice(names)) for name in row]
        for row in predicted
    ]
    lines = [
        "".join(f"{w}\t{n}\n" for w, n in zip(text.split(), row, strict=True))
        for text, row in zip(sentences, actual, strict=True)
    ]
    data = tmp_path / "t.conll"
    data.write_text("\n".join(lines))
    metrics = make_evaluation(TASK, model.checkpoint, model.session).evaluate([data]).metrics
    expected = f1_score(actual, predicted, suffix=is_suffix)
    assert 0 < expected < 1
    assert metrics["f1"] == pytest.approx(expected)


def test_a_run_on_labels_without_types(tmp_path: Path) -> None:
    lines = tagged(tmp_path / "t.conll").read_text().split("\n")
    bare = [line.replace("-LOW", "").replace("-MID", "") for line in lines]
    (tmp_path / "t.conll").write_text("\n".join(bare))
    tree = settings("bert", tmp_path / "t.conll", vocab_size=300, task=TASK)
    objective = finetune_setup(finetune_config(tree, {})).objective
    assert objective.labels == ("B", "I", "O")
    assert objective.metric_for_best_model == "f1"
    metrics = WordResults().metrics(
        objective.context,
        {
            "label": np.array([0, 1, 2, 0, 0]),
            "prediction": np.array([0, 1, 2, 0, 1]),
            "begins": np.array([True, False, False, True, False]),
        },
    )
    assert metrics["precision"] == pytest.approx(1 / 2)  # (0, 1) and not (3, 4)
    assert metrics["recall"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("names", [["O", "B-X", "I-X"], ["O", "X-B", "X-I"]])
def test_data_and_model_with_labels_of_different_forms(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture, names: list[str]
) -> None:
    data = tmp_path / "t.conll"
    data.write_text("a\tX-B\nb\tX-I\nc\tO\nd\tX-B\n")
    model = tagger(pretrained, names)
    result = make_evaluation(TASK, model.checkpoint, model.session).evaluate([data])
    assert result.details["classes"]["X"]["entities"] == 2
    assert f"3 labels of {data} end with B, I or another prefix, and now begin" in caplog.text


@pytest.mark.parametrize("spans", [True, False], ids=["entities", "labels"])
def test_an_evaluation_has_the_scores_of_classify(
    pretrained: Pretrained, tmp_path: Path, spans: bool
) -> None:
    """From labels that ``classify`` gives for single letters, each of them one token."""
    labels = ["B-X", "I-X", "O"] if spans else ["ADJ", "NOUN", "VERB"]
    model = tagger(pretrained, labels)
    sentences = texts(12)
    results = model.classify(sentences)
    predicted = [[token["label"] for token in result["tokens"]] for result in results]
    actual = [[labels[k % 3] if k % 4 else name for k, name in enumerate(row)] for row in predicted]
    lines = [
        "\n".join(f"{w}\t{n}" for w, n in zip(t.split(), row, strict=True)) + "\n"
        for t, row in zip(sentences, actual, strict=True)
    ]
    (tmp_path / "t.conll").write_text("\n".join(lines))
    result = make_evaluation(TASK, model.checkpoint, model.session).evaluate([tmp_path / "t.conll"])
    if spans:
        actual = [list(repair_iob(row)) for row in actual]
        pairs = zip(actual, predicted, strict=True)
        counts = [numbers for pair in pairs for numbers in entity_counts(*pair).values()]
        assert result.metrics["f1"] == pytest.approx(entity_scores(counts)["f1"])
    words = sum(map(len, actual))
    hits = sum(
        a == p for x, y in zip(actual, predicted, strict=True) for a, p in zip(x, y, strict=True)
    )
    assert result.metrics["accuracy"] == pytest.approx(hits / words)
    assert (result.metrics["words"], result.metrics["sentences"]) == (words, 12)
    low, high = result.details["intervals"]["accuracy"]
    assert low <= result.metrics["accuracy"] <= high


def test_truncated_words_are_in_the_scores_of_labels(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """Words without a prediction lower the recall of their label; scikit-learn's scores agree."""
    from sklearn.metrics import f1_score, recall_score

    model = tagger(pretrained, ["ADJ", "NOUN", "VERB"])
    words = ["a", "b"] * 100  # more than the model reads
    with pytest.warns(TaskWarning):
        (result,) = model.classify([" ".join(words)])
    predicted = [token["label"] for token in result["tokens"]]
    assert len(predicted) < len(words)
    (tmp_path / "t.conll").write_text("".join(f"{w}\tNOUN\n" for w in words))
    evaluation = make_evaluation(TASK, model.checkpoint, model.session)
    with pytest.warns(TaskWarning, match=r"was longer than 40 tokens and was cut"):
        scores = evaluation.evaluate([tmp_path / "t.conll"])
    predicted += ["none"] * (len(words) - len(predicted))
    labels, actual = ["ADJ", "NOUN", "VERB"], ["NOUN"] * len(words)
    options: dict[str, Any] = {"labels": labels, "average": "macro", "zero_division": 0.0}
    assert scores.metrics["f1_macro"] == pytest.approx(f1_score(actual, predicted, **options))
    noun = scores.details["classes"]["NOUN"]
    assert noun["words"] == scores.metrics["words"] == len(words)
    options["average"] = None
    assert noun["recall"] == pytest.approx(recall_score(actual, predicted, **options)[1])
    assert noun["recall"] == pytest.approx(scores.metrics["accuracy"])


def test_an_evaluation_repairs_spans_before_it_compares_labels(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A model that was trained on single words in IOB1 has ``B-`` alone."""
    model = tagger(pretrained, ["B-X", "O"])
    (tmp_path / "t.conll").write_text("a\tI-X\nb\tO\nc\tI-X\n")
    result = make_evaluation(TASK, model.checkpoint, model.session).evaluate([tmp_path / "t.conll"])
    assert result.details["classes"]["X"]["entities"] == 2
    assert f"2 spans of {tmp_path / 't.conll'} began with I-" in caplog.text
    (tmp_path / "t.conll").write_text("a\tB-X\nb\tI-X\n")
    with pytest.raises(UsageError, match=r"t\.conll:2: the model has no label 'I-X'; it has B-X"):
        make_evaluation(TASK, model.checkpoint, model.session).evaluate([tmp_path / "t.conll"])
