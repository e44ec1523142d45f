"""What does a student keep of its teacher, and how much faster is it?

Sanh et al. 2019 (arXiv:1910.01108) keep 97 % of BERT's quality in half of its layers. A student
learns from the teacher's whole distribution over words, and not from the one right word only. Its
table shows what is kept.
"""

# %%
import json

from _common import arguments, steps, zoo

given = arguments(__doc__)
teacher = given.output / "teacher"
student = given.output / "student"

# %% A teacher, and a student with half of its layers
zoo("pretrain", "bert", *steps(given.quick, 600), "-o", teacher)
zoo(
    "distill",
    "--teacher",
    teacher / "model",
    "--student",
    "distilbert",
    *steps(given.quick, 400),
    "-o",
    student,
)

# %% What it keeps
scores = json.loads((student / "scores.json").read_text("utf-8"))
small = scores["student"]
large = scores["teachers"][0]
print(f"\nparameters: {small['parameters'] / large['parameters']:.0%} of the teacher's")
print(f"loss: {small['metrics']['loss']:.3f}, and the teacher's {large['metrics']['loss']:.3f}")
print(f"the same prediction: {small['agreement']:.0%} of the masked words")
