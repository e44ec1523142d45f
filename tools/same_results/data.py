"""Texts and tables that models learn from: a few short rows for each task."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROWS = 24
WORDS = ("good", "fine", "great", "bad", "poor", "weak")  # the first three have one label
RELATIONS = ("entailment", "neutral", "contradiction")
SAMPLE = Path(__file__).parents[2] / "zoo" / "data" / "sample"


def sample(number: int) -> dict[str, Any]:
    """Return a row with the columns of most tasks."""
    word = WORDS[number % 6]
    opposite = WORDS[(number + 3) % 6]
    good = word in WORDS[:3]
    text = " ".join([*["the"] * (number % 5), word, "day", str(number)])
    return {
        "text": text,
        "other": f"it was {word} on day {number}",
        "negative": f"it was {opposite} on day {number}",
        "second_negative": f"no {word} day",
        "label": "yes" if good else "no",
        "score": float(number % 7),
        "margin": number % 7 / 2,
        "margins": [number % 7 / 2, number % 3 / 2],
        "stars": str(1 + number % 4),
        "kinds": "warm,long" if good else "cold",
        "target": f"{word} {word}",
        "relation": RELATIONS[number % 3],
        "in_pair": number % 2,
    }


def question(number: int) -> dict[str, Any]:
    """Return a row of a table of questions."""
    text = str(sample(number)["text"])
    word = WORDS[number % 6]
    answers = {"text": [word], "answer_start": [text.index(word)]}
    return {"id": str(number), "question": "which?", "context": text, "answers": answers}


def choice(number: int) -> dict[str, Any]:
    """Return a row of a table of choices."""
    choices = [WORDS[number % 6], WORDS[(number + 3) % 6]]
    return {"context": f"day {number}", "choices": choices, "label": number % 2}


def ranking(number: int) -> dict[str, Any]:
    """Return a row of a query, texts and their grades."""
    word = WORDS[number % 6]
    opposite = WORDS[(number + 3) % 6]
    return {
        "query": f"a {word} day {number}",
        "documents": [f"it was {word}", f"it was {opposite}", f"day {number}"],
        "grades": [2, 0, 1],
        "relevant": [1, 0, 1],
    }


def conll(number: int) -> str:
    """Return a sentence of a file of labelled words."""
    lines = []
    for word in str(sample(number)["text"]).split():
        label = "B-MOOD" if word in WORDS else "O"
        lines.append(f"{word} {label}\n")
    return "".join(lines)


TABLES: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "samples": sample,
    "questions": question,
    "choices": choice,
    "rankings": ranking,
}


def write_data(folder: Path) -> dict[str, Path]:
    """Write all tables and texts to a folder; return name -> file."""
    folder.mkdir(parents=True)
    files = {}
    for name, row in TABLES.items():
        files[name] = folder / f"{name}.jsonl"
        lines = [json.dumps(row(number)) + "\n" for number in range(ROWS)]
        files[name].write_text("".join(lines))
    files["words"] = folder / "words.conll"
    files["words"].write_text("\n".join(conll(number) for number in range(ROWS)))
    files["pairs"] = folder / "pairs.tsv"
    pairs = [f"mood\tthe {WORDS[n % 3]} day\tday {WORDS[n % 3]} the\n" for n in range(8)]
    files["pairs"].write_text("paradigm\tgood\tbad\n" + "".join(pairs))
    files["sentences"] = folder / "sentences.txt"
    sentences = [f"{sample(number)['text']}\n" for number in range(ROWS)]
    files["sentences"].write_text("".join(sentences))
    files["texts"] = folder / "texts"
    files["texts"].mkdir()
    for name in ("alice", "emerald_city"):
        text = (SAMPLE / f"{name}.txt").read_text("utf-8")
        for start in (2000, 14_000):
            part = text[start : start + 8000].replace("\n", "\n\n")  # documents
            (files["texts"] / f"{name}-{start}.txt").write_text(part, "utf-8")
    files["text"] = folder / "text.txt"
    files["text"].write_text(text[2000:4000], "utf-8")
    files["beir"] = write_collection(folder / "beir")
    return files


def write_collection(folder: Path) -> Path:
    """Write a BEIR folder of a few texts and queries."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"d{number}", "title": "", "text": sample(number)["other"]} for number in range(12)
    ]
    queries = [{"_id": f"q{number}", "text": sample(number)["text"]} for number in range(4)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    grades = [f"q{number}\td{number}\t1\n" for number in range(4)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(grades))
    return folder
