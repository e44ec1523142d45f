"""What does a model learn from replaced tokens, and what from masked ones, in three minutes each?

ELECTRA (Clark et al. 2020, arXiv:2003.10555) learns from all tokens, BERT from 15 % of them. Both
models are fine-tuned on one task afterwards, since losses of different objectives cannot be
compared: which of two books is a sentence from?
"""

# %%
import csv
from pathlib import Path

from _common import arguments, zoo

import zoo as package

given = arguments(__doc__)
TIME = "3s" if given.quick else "3m"

# %% The task: sentences of two books
sample = Path(package.__file__).parent / "data" / "sample"
given.output.mkdir(parents=True, exist_ok=True)
table = given.output / "books.csv"
with table.open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["text", "label"])
    for name in ("alice", "black_beauty"):
        text = (sample / f"{name}.txt").read_text("utf-8").replace("\n", " ")
        sentences = [part.strip() for part in text.split(". ") if 40 < len(part) < 200]
        rows.writerows((sentence, name) for sentence in sentences[: 60 if given.quick else 600])

# %% The same time for both
for family in ("bert", "electra"):
    zoo("pretrain", family, "--max-time", TIME, "--seed", "1", "-o", given.output / family)
    zoo(
        "finetune",
        given.output / family / "model",
        "--task",
        "text-classification",
        "--train",
        table,
        "--seed",
        "1",
        "-o",
        given.output / f"{family}-books",
    )

# %% Side by side
zoo("compare", given.output / "bert-books", given.output / "electra-books")
