"""One run of ``setfit``, in a process of its own; see ``benchmarks.few_labels``.

    PYTHON -m benchmarks._setfit_side MODEL TRAIN EVAL SEED ITERATIONS STEPS OUTPUT

MODEL is in the Hub's layout, the tables have the columns text and label.
"""

import csv
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def rows(path: str) -> dict[str, list[Any]]:
    """Return the columns of a table."""
    with Path(path).open(newline="") as file:
        read = list(csv.DictReader(file))
    return {"text": [row["text"] for row in read], "label": [int(row["label"]) for row in read]}


def main(
    model: str, train: str, evaluation: str, seed: str, iterations: str, steps: str, output: str
) -> None:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from transformers import set_seed

    set_seed(int(seed))
    body = SetFitModel.from_pretrained(model)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            batch_size=16,
            max_steps=int(steps),
            num_iterations=int(iterations),
            body_learning_rate=2e-5,
            max_length=256,
            seed=int(seed),
            report_to="none",
            save_strategy="no",
        )
        trainer = Trainer(body, arguments, train_dataset=Dataset.from_dict(rows(train)))
        trainer.train()
    wanted = rows(evaluation)
    found = [int(label) for label in body.predict(wanted["text"], show_progress_bar=False)]
    right = [a == b for a, b in zip(found, wanted["label"], strict=True)]
    Path(output).write_text(json.dumps({"correct": right}))


if __name__ == "__main__":
    main(*sys.argv[1:])
