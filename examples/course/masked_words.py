"""What does BERT predict for a masked word, early and late in training?

A model first learns which words are frequent, then which fit the grammar, and only then which fit
the meaning.
"""

# %%
from _common import answers, arguments, steps, zoo

given = arguments(__doc__)
SENTENCES = ["The [MASK] was dark.", "She looked at the [MASK].", "They went [MASK] the house."]

# %% Two runs: one that has only begun, and one that continues it
early = given.output / "early"
late = given.output / "late"
zoo("pretrain", "bert", *steps(given.quick, 150), "--keep-optimizer", "-o", early)
more = "8" if given.quick else "900"
zoo("pretrain", "--continue-from", early, "--max-steps", more, "-o", late)

# %% What they predict
for run in (early, late):
    print(f"\n{run.name}")
    for result in answers("run", "fill-mask", run / "model", *SENTENCES)["results"]:
        (mask,) = result["masks"]
        words = (f"{p['token']} {p['score']:.2f}" for p in mask["predictions"])
        print(f"  {result['text']:<32} {', '.join(words)}")
