"""How much does fine-tuning change the encoder, and how far does a frozen one get?

A frozen encoder is a fixed function, on which a linear head is trained. The comparison tells what
of a task the pretrained vectors know already. The encoder is one that was just pretrained.
"""

# %%
import csv
import json
from pathlib import Path

from _common import arguments, steps, zoo

import zoo as package

given = arguments(__doc__)
encoder = given.output / "encoder"
zoo("pretrain", "bert", *steps(given.quick, 400), "-o", encoder)

# %% Sentences of two books
sample = Path(package.__file__).parent / "data" / "sample"
table = given.output / "books.csv"
with table.open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["text", "label"])
    for name in ("alice", "wizard_of_oz"):
        text = (sample / f"{name}.txt").read_text("utf-8").replace("\n", " ")
        sentences = [part.strip() for part in text.split(". ") if 40 < len(part) < 200]
        rows.writerows((sentence, name) for sentence in sentences[: 60 if given.quick else 600])

# %% The head only, and everything
config = json.loads((encoder / "model" / "config.json").read_text("utf-8"))
layers = config["config"]["num_layers"]
task = ("--task", "text-classification", "--train", table, "--seed", "1")
zoo("finetune", encoder / "model", *task, "--freeze", layers, "-o", given.output / "frozen")
zoo("finetune", encoder / "model", *task, "-o", given.output / "full")
zoo("compare", given.output / "frozen", given.output / "full")
