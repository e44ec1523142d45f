"""A small table for each task, and a run of one step."""

from pathlib import Path
from typing import Any

from tests.finetuning.making import labelled, texts, write_table
from tests.tasks.token_classification.making import tagged

STEP = {"max_steps": 1, "eval_steps": 1, "save_steps": 1, "batch_size": 4, "report_to": []}
CLASSIFICATION = "text-classification"


def data(task: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return a table for a task, and the names of its columns."""
    rows: list[dict[str, Any]]
    match task:
        case "text-classification":
            return labelled(folder / "t.tsv"), {}
        case "token-classification":
            return tagged(folder / "t.conll"), {}
        case "question-answering":
            rows = [
                {
                    "question": "a b",
                    "context": text,
                    "answers": {"text": [text[0]], "answer_start": [0]},
                }
                for text in texts(40)
            ]
            return write_table(folder / "t.jsonl", rows), {
                "text": "question",
                "pair": "context",
                "label": "answers",
            }
        case "multiple-choice":
            rows = [{"context": t, "choices": ["a b", "c"], "label": 0} for t in texts(40)]
            return write_table(folder / "t.jsonl", rows), {"text": "context"}
        case "sentence-embedding":
            rows = [{"a": t, "b": t[::-1]} for t in texts(40)]
            return write_table(folder / "t.tsv", rows), {"text": "a", "pair": "b"}
    rows = [{"text": t, "label": t[:1]} for t in texts(40)]
    return write_table(folder / "t.tsv", rows), {"label": "label"}
