"""How does T5 learn a task as text to text?

Raffel et al. 2020 (arXiv:1910.10683) write every task as a text that goes in and one that comes
out. Here the task is to write numbers in words. The model is pretrained on spans first, and the
same model is fine-tuned on the table.
"""

# %%
import csv

from _common import answers, arguments, steps, zoo

given = arguments(__doc__)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

# %% Pretrain on spans of text that are left out
spans = given.output / "spans"
zoo("pretrain", "t5", *steps(given.quick, 300), "-o", spans)

# %% A table of sources and targets
table = given.output / "numbers.csv"
with table.open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["source", "target"])
    for number in range(100):
        source = f"write {' '.join(f'{number:02}')}"
        rows.writerow([source, " ".join(WORDS[int(digit)] for digit in f"{number:02}")])

# %% Fine-tune, and ask
run = given.output / "numbers"
zoo(
    "finetune",
    spans / "model",
    "--task",
    "seq2seq",
    "--train",
    table,
    "--text",
    "source",
    "--label",
    "target",
    *steps(given.quick, 300),
    "-o",
    run,
)
questions = ["write 4 2", "write 0 7"]
for result in answers("run", "seq2seq", run / "model", *questions)["results"]:
    print(f"{result['text']} -> {result['generated']}")
