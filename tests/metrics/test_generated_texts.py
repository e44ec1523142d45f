"""Metrics of generated texts are those of rouge-score, sacrebleu and SQuAD's script, exactly."""

import random
import sys
from typing import Any

import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from tests.tasks.question_answering.making import raw_scores
from zoo.errors import UsageError
from zoo.metrics import METRICS
from zoo.metrics.intervals import bootstrap_samples
from zoo.plugins.metrics import select_metrics

WORDS = ["the", "The", "a", "cat", "cats", "sat", "on", "mat", ".", ",", "!", "?", "—"]
WORDS += ["running", "runs", "3.14", "don't", "猫が", "坐在", "垫子上", "Übung", "naïve", "🙂"]
WORDS += ["שלום", "привет", "&quot;", "<unk>", "👩\u200d👩\u200d👧", "a\u0301", "\u200b"]
ODD = ["", " ", "\n", "a", ".", "猫", "🙂", "the", "\tx  y\n", "\u00a0", "I.\nYou.\n\nWe."]
ODD += ["\U0001d518\U0001d52b"]


def odd_texts(count: int, seed: int) -> list[str]:
    """Return texts of words of several scripts, some of them empty or a single character."""
    rng = random.Random(seed)
    texts = list(ODD)
    while len(texts) < count:
        words = rng.choices(WORDS, k=rng.randint(1, 14))
        texts.append(rng.choice([" ", " ", "\n"]).join(words))
    rng.shuffle(texts)
    return texts


PREDICTIONS = odd_texts(240, 0)
# One to three references; some equal the text, and some are a part of it.
REFERENCES = [
    [PREDICTIONS[n][: 20 * (n % 3)] if n % 4 == 0 else text, *odd_texts(12, n)[: n % 3]]
    for n, text in enumerate(odd_texts(240, 1))
]
SINGLE = [texts[:1] for texts in REFERENCES]


def compute(request: str, predictions: list[str], references: list[list[str]]) -> float:
    ((_, metric),) = select_metrics([request], "texts", "seq2seq").items()
    return metric.value(metric.statistics(predictions, references))


def streams(references: list[list[str]]) -> list[list[str | None]]:
    most = max(map(len, references))
    return [[t[n] if n < len(t) else None for t in references] for n in range(most)]


@pytest.mark.by_default("ter:normalized=true,asian_support=1-library6-several")
@pytest.mark.parametrize("references", [SINGLE, REFERENCES], ids=["one", "several"])
@pytest.mark.parametrize(
    ("request_", "library"),
    [
        ("bleu", sacrebleu.BLEU()),
        ("bleu:lowercase=true,tokenize=zh", sacrebleu.BLEU(lowercase=True, tokenize="zh")),
        (
            "bleu:smooth_method=add-k,max_ngram_order=2,effective_order=true",
            sacrebleu.BLEU(smooth_method="add-k", max_ngram_order=2, effective_order=True),
        ),
        ("chrf", sacrebleu.CHRF()),
        ("chrf:word_order=2", sacrebleu.CHRF(word_order=2)),
        ("ter", sacrebleu.TER()),
        (
            "ter:normalized=true,asian_support=1",
            sacrebleu.TER(normalized=True, asian_support=True),
        ),
    ],
)
def test_corpus_metrics_equal_sacrebleu(
    request_: str, library: Any, references: list[list[str]]
) -> None:
    expected = library.corpus_score(PREDICTIONS, streams(references))
    assert compute(request_, PREDICTIONS, references) == expected.score
    ((_, metric),) = select_metrics([request_], "texts", "seq2seq").items()
    assert metric.signature(references) == library.get_signature().format()


@pytest.mark.parametrize("request_", ["bleu", "chrf", "ter"])
def test_every_odd_text_alone_equals_sacrebleu(request_: str) -> None:
    library = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}
    for text, references in zip(PREDICTIONS, REFERENCES, strict=True):
        expected = library[request_].corpus_score([text], [[other] for other in references])
        assert compute(request_, [text], [references]) == expected.score, (text, references)


@pytest.mark.by_default("True-rougeLsum-several", "True-rouge1-several")
@pytest.mark.parametrize("references", [SINGLE, REFERENCES], ids=["one", "several"])
@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
@pytest.mark.parametrize("stemmer", [False, True])
def test_rouge_equals_the_library(name: str, stemmer: bool, references: list[list[str]]) -> None:
    scorer = RougeScorer([name], use_stemmer=stemmer)
    expected = [
        max(scorer.score(target, text)[name].fmeasure for target in targets)
        for text, targets in zip(PREDICTIONS, references, strict=True)
    ]
    request = f"{name}:use_stemmer={str(stemmer).lower()}"
    ((_, metric),) = select_metrics([request], "texts", "seq2seq").items()
    statistics = metric.statistics(PREDICTIONS, references)
    assert statistics[:, 0].tolist() == expected
    assert metric.value(statistics) == np.mean(expected)
    assert f"stemmer:{'yes' if stemmer else 'no'}|rouge-score:0.1" in metric.signature(references)


def test_squad_equals_the_script() -> None:
    """The script divides by other numbers, so that the last digit may differ."""
    exact, f1 = raw_scores(PREDICTIONS, REFERENCES)
    assert compute("squad_exact_match", PREDICTIONS, REFERENCES) == np.mean(exact)
    assert compute("squad_f1", PREDICTIONS, REFERENCES) == pytest.approx(np.mean(f1), rel=1e-14)
    assert 0 < np.mean(exact) < np.mean(f1) < 1


def test_bootstrap_draws_rows_of_statistics() -> None:
    """A draw has the library's value for the drawn texts."""
    ((_, metric),) = select_metrics(["bleu"], "texts", "seq2seq").items()
    statistics = metric.statistics(PREDICTIONS, SINGLE)
    values = []

    def of_rows(rows: Any) -> dict[str, float]:
        texts = [PREDICTIONS[n] for n in rows]
        expected = sacrebleu.BLEU().corpus_score(texts, [[SINGLE[n][0] for n in rows]]).score
        values.append((metric.value(statistics[rows]), expected))
        return {"bleu": values[-1][0]}

    (low, high) = bootstrap_samples(of_rows, len(statistics), seed=0, resamples=5)["bleu"]
    assert low < high
    assert [pair for pair in values if pair[0] != pair[1]] == []


TEXT_METRICS = [spec.name for spec in METRICS if spec.metric]


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_better_texts_are_on_the_declared_side(name: str) -> None:
    good = ["the cat sat on the mat", "a dog ran over the road"]
    bad = ["the mat ran", "over cat a"]
    references = [[text] for text in good]
    ((spec,),) = [[spec for spec in METRICS if spec.name == name]]
    difference = compute(name, good, references) - compute(name, bad, references)
    assert (difference > 0) is spec.greater_is_better


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_missing_references_are_one_line(name: str) -> None:
    for references, message in (
        ([["a"]], "there are 2 texts and references for 1; give each text its references"),
        ([["a"], []], "text 2 has no reference; give each text one or more"),
    ):
        with pytest.raises(UsageError) as caught:
            compute(name, ["a", "b"], references)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "library"), [("rouge2", "rouge_score"), ("bleu", "sacrebleu"), ("ter", "sacrebleu")]
)
def test_a_missing_library_is_named_before_texts_are_generated(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError) as caught:
        select_metrics([name], "texts", "seq2seq")
    package = library.replace("_", "-")
    assert str(caught.value) == f"{library} is not installed; pip install {package}"
