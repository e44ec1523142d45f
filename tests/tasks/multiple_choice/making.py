"""Questions with choices, and the logits of the reference library."""

import random
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.finetuning.making import LETTERS, write_table


def chosen(path: Path, count: int = 40, seed: int = 0, sizes: tuple[int, ...] = (4,)) -> Path:
    """Write questions whose correct choice has the first letter of the context."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        first, *others = rng.sample(LETTERS, k=rng.choice(sizes))
        context = " ".join([first, *rng.choices(LETTERS, k=rng.randint(0, 8))])
        endings = [" ".join([letter, *rng.choices(LETTERS, k=2)]) for letter in others]
        label = rng.randrange(len(endings) + 1)
        endings.insert(label, first)
        rows.append({"context": context, "question": "e", "choices": endings, "label": label})
    return write_table(path, rows)


Row = dict[str, Any]
ROWS: list[Row] = [
    {"context": "a b c", "question": "d", "choices": ["e f", "g", "h h h h"]},
    {"context": "j", "question": "", "choices": ["a", "b b"]},
    {"context": "c d e f g h", "question": "a _ b", "choices": ["i", "j", "c", "d"]},
    {"context": "a " * 60, "question": "b", "choices": ["c", "d"]},  # truncated
]


def reference_logits(folder: Path, row: Row) -> torch.Tensor:
    """Return the logits of a question's choices by BERT, (choices,)."""
    model: Any = transformers.BertForMultipleChoice.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    question, choices = row["question"], row["choices"]
    blank = "_" in question
    texts = [question.replace("_", c) if blank else f"{question} {c}" for c in choices]
    encoded = tokenizer(
        [row["context"]] * len(texts),
        texts,
        truncation=True,
        max_length=40,
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        logits: torch.Tensor = model(**{k: v[None] for k, v in encoded.items()}).logits[0]
    return logits
