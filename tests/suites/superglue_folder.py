"""A small folder with the files of SuperGLUE: names, fields and quirks as published."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
LETTERS = "abcdefghij"


def words(rng: random.Random, most: int = 9) -> str:
    return " ".join(rng.choices(LETTERS, k=rng.randint(1, most)))


def boolq(rng: random.Random, idx: int, labelled: bool) -> Line:
    line: Line = {"question": words(rng), "passage": words(rng), "idx": idx}
    return {**line, "label": rng.random() < 0.5} if labelled else line


def cb(rng: random.Random, idx: int, labelled: bool) -> Line:
    line: Line = {"premise": words(rng), "hypothesis": words(rng), "idx": idx}
    labels = ["entailment", "contradiction"]  # The third one never occurs here.
    return {**line, "label": rng.choice(labels)} if labelled else line


def copa(rng: random.Random, idx: int, labelled: bool) -> Line:
    line: Line = {
        "premise": words(rng),
        "choice1": words(rng),
        "choice2": words(rng),
        "question": rng.choice(["cause", "effect"]),
        "idx": idx,
    }
    return {**line, "label": rng.randint(0, 1)} if labelled else line


def multirc(rng: random.Random, idx: int, labelled: bool) -> Line:
    questions = []
    for question in range(2):
        answers = []
        for answer in range(rng.randint(1, 3)):
            entry: Line = {"text": words(rng, 3), "idx": 6 * idx + 3 * question + answer}
            answers.append({**entry, "label": rng.randint(0, 1)} if labelled else entry)
        questions.append({"question": words(rng, 4), "answers": answers, "idx": 2 * idx + question})
    text = f"<b>Sent 1: </b>{words(rng)}<br><b>Sent 2: </b>{words(rng)}"
    return {"idx": idx, "version": 1.1, "passage": {"text": text, "questions": questions}}


def record(rng: random.Random, idx: int, labelled: bool) -> Line:
    parts = rng.choices(LETTERS, k=6)
    text = " ".join(parts) + rng.choice([".", ""]) + "\n@highlight\n" + parts[0]
    starts = [0, 2, 4, len(text) - 1]  # The first entity is there twice.
    entities = [{"start": start, "end": start} for start in starts]
    queries = []
    for query in range(2):
        entry: Line = {
            "query": f"{words(rng, 3)} @placeholder {words(rng, 3)}",
            "idx": 2 * idx + query,
        }
        if labelled:
            start = rng.choice(starts)
            entry["answers"] = [{"start": start, "end": start, "text": text[start]}]
            if rng.random() < 0.5:
                entry["answers"].append({"start": 2, "end": 2, "text": text[2]})
        queries.append(entry)
    return {
        "source": "CNN",
        "passage": {"text": text, "entities": entities},
        "qas": queries,
        "idx": idx,
    }


def rte(rng: random.Random, idx: int, labelled: bool) -> Line:
    line: Line = {"premise": words(rng), "hypothesis": words(rng), "idx": idx}
    label = rng.choice(["entailment", "not_entailment"])
    return {**line, "label": label} if labelled else line


def wic(rng: random.Random, idx: int, labelled: bool) -> Line:
    line: Line = {"word": "c", "idx": idx, "version": 1.1}
    for number in (1, 2):
        before = words(rng, 4)
        line[f"sentence{number}"] = f"{before} c {words(rng, 4)}"
        line[f"start{number}"] = len(before) + 1
        line[f"end{number}"] = len(before) + 2
    return {**line, "label": rng.random() < 0.5} if labelled else line


def wsc(rng: random.Random, idx: int, labelled: bool) -> Line:
    parts = rng.choices("abcdefgh", k=8)
    parts[2] = "i j"
    parts[6] = "Them"
    target = {"span1_index": 2, "span1_text": "i j", "span2_index": 7, "span2_text": "them"}
    line: Line = {"text": " ".join(parts), "target": target, "idx": idx}
    return {**line, "label": rng.random() < 0.5} if labelled else line


def axb(rng: random.Random, idx: int, labelled: bool) -> Line:
    line = rte(rng, idx, labelled)
    sentences = {"sentence1": line.pop("premise"), "sentence2": line.pop("hypothesis")}
    return {**sentences, **line, "logic": "Negation"}


def axg(rng: random.Random, idx: int, labelled: bool) -> Line:
    return {**rte(rng, idx, labelled), "pair_id": idx // 2}


MAKERS: dict[str, Callable[[random.Random, int, bool], Line]] = {
    "BoolQ": boolq,
    "CB": cb,
    "COPA": copa,
    "MultiRC": multirc,
    "ReCoRD": record,
    "RTE": rte,
    "WiC": wic,
    "WSC": wsc,
    "AX-b": axb,
    "AX-g": axg,
}


def make_lines(title: str, split: str, count: int) -> list[Line]:
    """Return the lines of a file, the same in every call."""
    rng = random.Random(f"{title} {split}")
    return [MAKERS[title](rng, idx, split != "test") for idx in range(count)]


def make_superglue(folder: Path, count: int = 10) -> Path:
    """Write the folder; return it."""
    for title in MAKERS:
        (folder / title).mkdir(parents=True)
        splits = [title] if title.startswith("AX") else ["train", "val", "test"]
        for split in splits:
            lines = make_lines(title, split, count)
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            (folder / title / f"{split}.jsonl").write_text(text)
    return folder
