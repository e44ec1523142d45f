"""SuperGLUE against transformers and scikit-learn, its text-to-text forms, and its formulas."""

import json
import random
import re
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sklearn import metrics

import zoo
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.superglue_folder import make_lines, make_superglue
from zoo.data.readers.tables import Row
from zoo.errors import UsageError
from zoo.suites.answers import Answer, Item
from zoo.suites.superglue import TASKS
from zoo.suites.superglue.record import Candidate
from zoo.suites.superglue.wsc import is_same_referent

COUNT = 12
CLASSIFIERS = {
    "boolq": ("False", "True"),
    "cb": ("entailment", "contradiction", "neutral"),
    "multirc": ("False", "True"),
    "record": ("False", "True"),
    "rte": ("entailment", "not_entailment"),
    "wic": ("LABEL_0", "LABEL_1"),  # Numbers, as models of transformers without names have them.
    "wsc": ("False", "True"),
}
BY_NAME: dict[str, Any] = {task.name: task for task in TASKS}
Texts = tuple[str, ...]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_superglue(tmp_path / "SuperGLUE", COUNT)


@pytest.fixture
def models(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """A directory with a model of random weights for each task."""
    (tmp_path / "runs").mkdir()
    changes = {"initializer_range": 0.5, "max_position_embeddings": 128}
    for task, labels in CLASSIFIERS.items():
        source = hub_checkpoint(
            "BertForSequenceClassification", task, id2label=dict(enumerate(labels)), **changes
        )
        converted(source, tmp_path / "runs" / task)
    source = hub_checkpoint("BertForMultipleChoice", "copa", **changes)
    converted(source, tmp_path / "runs" / "copa")
    return tmp_path / "runs"


def logits(source: Path, texts: Sequence[Texts], architecture: str) -> torch.Tensor:
    """Return the logits of transformers, one text or pair at a time."""
    model: Any = getattr(transformers, architecture).from_pretrained(source).eval()
    tokenizer = transformers.BertTokenizer(str(source / "vocab.txt"))
    rows = []
    with torch.no_grad():
        for row in texts:
            inputs = tokenizer(*row, return_tensors="pt")
            if architecture == "BertForMultipleChoice":
                inputs = {name: value[None] for name, value in inputs.items()}
            rows.append(model(**inputs).logits[0])
    return torch.stack(rows)


def numbers(folder: Path, task: str, texts: Sequence[Texts]) -> list[int]:
    predicted: list[int] = (
        logits(folder / task, texts, "BertForSequenceClassification").argmax(-1).tolist()
    )
    return predicted


def expected_metrics(folder: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of all tasks from transformers' logits and scikit-learn's formulas."""
    values = {}

    lines = make_lines("BoolQ", "val", COUNT)
    predicted = numbers(folder, "boolq", [(row["passage"], row["question"]) for row in lines])
    actual = [int(row["label"]) for row in lines]
    values["boolq"] = {"accuracy": metrics.accuracy_score(actual, predicted)}

    lines = make_lines("CB", "val", COUNT)
    predicted = numbers(folder, "cb", [(row["premise"], row["hypothesis"]) for row in lines])
    actual = [CLASSIFIERS["cb"].index(row["label"]) for row in lines]
    f1 = metrics.f1_score(actual, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
    values["cb"] = {"accuracy": metrics.accuracy_score(actual, predicted), "f1_macro": f1}

    lines = make_lines("COPA", "val", COUNT)
    asked = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
    texts: list[Texts] = []
    for row in lines:
        for choice in ("choice1", "choice2"):
            texts.append((f"{row['premise']} {asked[row['question']]}", row[choice]))
    scores = logits(folder / "copa", texts, "BertForMultipleChoice").view(-1, 2)
    actual = [row["label"] for row in lines]
    accuracy = metrics.accuracy_score(actual, scores.argmax(-1).tolist())
    values["copa"] = {"accuracy": accuracy}

    texts, actual, groups = [], [], []
    for row in make_lines("MultiRC", "val", COUNT):
        paragraph = row["passage"]["text"].replace("<br>", " ")
        paragraph = paragraph.replace("<b>", "").replace("</b>", "")
        for question in row["passage"]["questions"]:
            for answer in question["answers"]:
                texts.append((paragraph, f"{question['question']} {answer['text']}"))
                actual.append(answer["label"])
                groups.append(question["idx"])
    predicted = numbers(folder, "multirc", texts)
    values["multirc"] = {
        "f1a": metrics.f1_score(actual, predicted),
        "exact_match": all_match(groups, actual, predicted),
    }

    f1s, exacts = [], []
    for row in make_lines("ReCoRD", "val", COUNT):
        text = row["passage"]["text"]
        passage = re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", text).replace("\n@highlight\n", ". ")
        names = sorted({text[span["start"]] for span in row["passage"]["entities"]})
        for query in row["qas"]:
            texts = [(passage, query["query"].replace("@placeholder", name)) for name in names]
            rows = logits(folder / "record", texts, "BertForSequenceClassification")
            best = names[int(rows.softmax(-1)[:, 1].argmax())]
            answers = [answer["text"] for answer in query["answers"]]
            f1s.append(max(official_f1(best, answer) for answer in answers))
            exacts.append(max(official_exact(best, answer) for answer in answers))
    values["record"] = {"f1": sum(f1s) / len(f1s), "exact_match": sum(exacts) / len(exacts)}

    values |= expected_entailment(folder)
    lines = make_lines("WiC", "val", COUNT)
    texts = []
    for row in lines:
        marked = []
        for number in ("1", "2"):
            sentence, start = row[f"sentence{number}"], row[f"start{number}"]
            marked.append(f"{sentence[:start]}* c *{sentence[start + 1 :]}")
        texts.append(tuple(marked))
    actual = [int(row["label"]) for row in lines]
    accuracy = metrics.accuracy_score(actual, numbers(folder, "wic", texts))
    values["wic"] = {"accuracy": accuracy}

    lines = make_lines("WSC", "val", COUNT)
    texts = [(row["text"].replace("i j", "* i j *").replace("Them", "# Them #"),) for row in lines]
    actual = [int(row["label"]) for row in lines]
    accuracy = metrics.accuracy_score(actual, numbers(folder, "wsc", texts))
    values["wsc"] = {"accuracy": accuracy}
    return values


def expected_entailment(folder: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of the tasks that the model of RTE answers."""
    values = {}
    for task, title, columns in (
        ("rte", "RTE", ("premise", "hypothesis")),
        ("axb", "AX-b", ("sentence1", "sentence2")),
        ("axg", "AX-g", ("premise", "hypothesis")),
    ):
        lines = make_lines(title, "val" if task == "rte" else title, COUNT)
        predicted = numbers(folder, "rte", [(row[columns[0]], row[columns[1]]) for row in lines])
        actual = [CLASSIFIERS["rte"].index(row["label"]) for row in lines]
        accuracy = metrics.accuracy_score(actual, predicted)
        if task == "rte":
            values[task] = {"accuracy": accuracy}
        elif task == "axb":
            correlation = metrics.matthews_corrcoef(actual, predicted)
            values[task] = {"matthews_correlation": correlation}
        else:
            pairs = list(zip(predicted[::2], predicted[1::2], strict=True))
            parity = sum(first == second for first, second in pairs) / len(pairs)
            values[task] = {"accuracy": accuracy, "gender_parity": parity}
    return values


def all_match(groups: Sequence[int], actual: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Return the fraction of groups whose predictions are all correct."""
    correct: dict[int, list[bool]] = {}
    for group, first, second in zip(groups, actual, predicted, strict=True):
        correct.setdefault(group, []).append(first == second)
    return sum(map(all, correct.values())) / len(correct)


def official_words(text: str) -> list[str]:
    """Normalize as ``record_evaluation.py`` of the benchmark does."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def official_exact(prediction: str, answer: str) -> float:
    return float(official_words(prediction) == official_words(answer))


def official_f1(prediction: str, answer: str) -> float:
    first, second = official_words(prediction), official_words(answer)
    common = sum((Counter(first) & Counter(second)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(first), common / len(second)
    return 2 * precision * recall / (precision + recall)


def test_scores_equal_those_of_other_libraries(data: Path, models: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    result = zoo.evaluate(models, suite="superglue", eval=data, record=False, predictions=answers)
    expected = expected_metrics(tmp_path)
    tasks = dict(result.details["tasks"])
    assert list(tasks) == [task.name for task in TASKS]
    scores = []
    for name, values in tasks.items():
        score = 100 * sum(expected[name].values()) / len(expected[name])
        assert values == pytest.approx({**expected[name], "score": score}, abs=1e-6), name
        if not name.startswith("ax"):
            scores.append(score)
    assert result.metrics["average"] == pytest.approx(sum(scores) / 8)
    assert not result.details["missing"]
    check_answers(answers, tmp_path)


def check_answers(answers: Path, folder: Path) -> None:
    """Compare files of the leaderboard with transformers' predictions, or their form."""
    read = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in answers.iterdir()
    }
    assert sorted(read) == sorted(task.title for task in TASKS)
    lines = make_lines("BoolQ", "test", COUNT)
    predicted = numbers(folder, "boolq", [(row["passage"], row["question"]) for row in lines])
    assert read["BoolQ"] == [
        {"idx": idx, "label": ["false", "true"][label]} for idx, label in enumerate(predicted)
    ]
    lines = make_lines("CB", "test", COUNT)
    predicted = numbers(folder, "cb", [(row["premise"], row["hypothesis"]) for row in lines])
    assert [line["label"] for line in read["CB"]] == [CLASSIFIERS["cb"][n] for n in predicted]
    assert {line["label"] for line in read["WiC"]} <= {"false", "true"}
    assert {line["label"] for line in read["WSC"]} <= {"False", "True"}
    assert {line["label"] for line in read["COPA"]} <= {0, 1}
    source = make_lines("MultiRC", "test", COUNT)
    for line, row in zip(read["MultiRC"], source, strict=True):
        for question in row["passage"]["questions"]:
            del question["question"]
            for answer in question["answers"]:
                del answer["text"]
        for question in line["passage"]["questions"]:
            for answer in question["answers"]:
                assert answer.pop("label") in (0, 1)
        questions = row["passage"]["questions"]
        for question in questions:
            question["answers"] = [{"idx": answer["idx"]} for answer in question["answers"]]
        assert line == {"idx": row["idx"], "passage": {"questions": questions}}
    queries = [query for row in make_lines("ReCoRD", "test", COUNT) for query in row["qas"]]
    assert [line["idx"] for line in read["ReCoRD"]] == [query["idx"] for query in queries]


# Fields of a row -> source and targets of the code of T5.
FORMS: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "boolq": (
        {"question": "is it so", "passage": "It is.", "label": True},
        "boolq passage: It is. question: is it so",
        ("True",),
    ),
    "cb": (
        {"premise": "P.", "hypothesis": "H.", "label": "neutral"},
        "cb hypothesis: H. premise: P.",
        ("neutral",),
    ),
    "copa": (
        {"premise": "P.", "choice1": "A.", "choice2": "B.", "question": "effect", "label": 1},
        "copa choice1: A. choice2: B. premise: P. question: effect",
        ("choice2",),
    ),
    "multirc": (
        {
            "passage": {
                "text": "<b>Sent 1: </b>One.<br>Two.",
                "questions": [
                    {"question": "Q?", "idx": 4, "answers": [{"text": "A", "idx": 9, "label": 0}]}
                ],
            }
        },
        "multirc question: Q? answer: A paragraph: Sent 1: One. Two.",
        ("False",),
    ),
    "record": (
        {
            "passage": {
                "text": "Tom saw Ann.\n@highlight\nAnn ran\n@highlight\nTom sat",
                "entities": [
                    {"start": 0, "end": 2},
                    {"start": 8, "end": 10},
                    {"start": 13 + 11, "end": 13 + 13},
                ],
            },
            "qas": [{"query": "@placeholder ran.", "idx": 0, "answers": [{"text": "Ann"}]}],
        },
        "record query: @placeholder ran. entities: Ann, Tom passage: Tom saw Ann. Ann ran. Tom sat",
        ("Ann",),
    ),
    "rte": (
        {"premise": "P.", "hypothesis": "H.", "label": "not_entailment"},
        "rte hypothesis: H. premise: P.",
        ("not_entailment",),
    ),
    "wic": (
        {"word": "bed", "sentence1": "A bed.", "sentence2": "Beds.", "label": False},
        "wic sentence1: A bed. sentence2: Beds. word: bed",
        ("False",),
    ),
    "wsc": (
        {
            "text": "Mitchell asked Tom if he could lend some money.",
            "target": {
                "span1_index": 2,
                "span1_text": "Tom",
                "span2_index": 4,
                "span2_text": "he",
            },
            "label": True,
        },
        "wsc: Mitchell asked Tom if *he* could lend some money.",
        ("True",),
    ),
    "axb": (
        {"sentence1": "P.", "sentence2": "H.", "label": "entailment"},
        "rte hypothesis: H. premise: P.",
        ("entailment",),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_text_to_text_forms(name: str) -> None:
    values, source, targets = FORMS[name]
    (item,) = BY_NAME[name].text_to_text_items(Row("a:1", {"idx": 3, **values}))
    assert (item.text, item.targets) == (source, targets)


def odd_text(rng: random.Random) -> str:
    pieces = ["", " ", "the", "A", "an", "東京", "🙂", "x-y", "don't", "U.S.", "Ann", "\n", "ß"]
    return " ".join(rng.choices(pieces, k=rng.randint(0, 4)))


def test_formulas_on_odd_strings() -> None:
    """F1 and exact match of ReCoRD, and both metrics of MultiRC, on hundreds of odd answers."""
    rng = random.Random(0)
    items, answers, f1s, exacts = [], [], [], []
    record = BY_NAME["record"]
    for number in range(400):
        correct = tuple(odd_text(rng) for _ in range(rng.randint(1, 3)))
        text = rng.choice([*correct, odd_text(rng)])
        details = Candidate("", correct)
        items.append(Item(idx=number, location="a", text="", targets=correct, details=details))
        answers.append(Answer(None, text))
        f1s.append(max(official_f1(text, answer) for answer in correct))
        exacts.append(max(official_exact(text, answer) for answer in correct))
    values = record.metrics(items, answers)
    assert values == pytest.approx({"f1": sum(f1s) / 400, "exact_match": sum(exacts) / 400})

    items, answers, actual, predicted, groups = [], [], [], [], []
    for number in range(600):
        group = rng.randint(0, 150)
        label = rng.choice(["False", "True"])
        generated = rng.choice(["False", "True", "maybe", ""])
        items.append(Item(idx=(group // 4, group, number), location="a", text="", targets=(label,)))
        known = generated in ("False", "True")
        answers.append(Answer(generated if known else None, generated))
        actual.append(label == "True")
        # Other texts count as the opposite of the label.
        predicted.append(generated == "True" if known else label != "True")
        groups.append(group)
    values = BY_NAME["multirc"].metrics(items, answers)
    assert values == pytest.approx(
        {
            "f1a": metrics.f1_score(actual, predicted),
            "exact_match": all_match(groups, actual, predicted),
        }
    )


@pytest.mark.parametrize(
    ("prediction", "referent", "same"),
    [
        ("Tom", "tom", True),
        ("The big dog", "the dog", True),
        ("dog", "their big dog", True),
        ("Bob", "Bob's hat", False),
        ("Bob's", "Bob's hat", True),
        ("cat", "dog", False),
    ],
)
def test_referents_of_generated_noun_phrases(prediction: str, referent: str, same: bool) -> None:
    assert is_same_referent(prediction, referent) is same


def test_wrong_files_are_refused(data: Path, models: Path) -> None:
    no_entities = {"text": "a", "entities": []}
    cases = {
        "BoolQ": ({**make_lines("BoolQ", "val", 1)[0], "label": "yes"}, "the label is 'yes'"),
        "CB": ({"premise": "p", "idx": 0, "label": "neutral"}, "has no 'hypothesis'"),
        "COPA": ({**make_lines("COPA", "val", 1)[0], "label": 2}, "the label is 2, not 0 or 1"),
        "MultiRC": ({"idx": 0, "passage": {"text": 3}}, r"Expected `str`, got `int`"),
        "ReCoRD": (
            {**make_lines("ReCoRD", "val", 1)[0], "passage": no_entities},
            "has no entities",
        ),
        "WiC": (
            {**make_lines("WiC", "val", 1)[0], "start1": None},
            "start1 and end1 are not a span",
        ),
        "WSC": ({**make_lines("WSC", "val", 1)[0], "text": "n"}, "'i j' is not in the text"),
        "RTE": (make_lines("RTE", "test", 1)[0], "has no label"),
    }
    for title, (line, message) in cases.items():
        path = data / title / "val.jsonl"
        path.write_text(json.dumps(line) + "\n")
        with pytest.raises(UsageError, match=message) as refusal:
            zoo.evaluate(models, suite="superglue", eval=data, tasks=title.lower(), record=False)
        assert "val.jsonl:1" in str(refusal.value)
    with pytest.raises(UsageError, match="has the labels entailment, not_entailment, and the task"):
        (models / "boolq").rename(models / "old")
        (models / "rte").rename(models / "boolq")
        make_superglue(data.parent / "fresh")
        zoo.evaluate(models, suite="superglue", eval=data.parent / "fresh", tasks="boolq")
