"""Which layer of ELMo tells two meanings of a word apart?

Peters et al. 2018 (arXiv:1802.05365, section 5.3) found that lower layers know more of syntax,
and higher ones more of meaning. This script pretrains a small ELMo and compares the vectors of
one word in two sentences, layer by layer. Layer 0 reads characters only, so that its vectors are
equal.
"""

# %%
import numpy as np
from _common import answers, arguments, steps, zoo

given = arguments(__doc__)
run = given.output / "elmo"
model = given.output / "elmo-layers"

# %% Pretrain: a forward and a backward language model, over characters
zoo("pretrain", "elmo", *steps(given.quick, 600), "-o", run)
zoo("convert", run / "model", "--head", "none", "-o", model)

# %% One word in two sentences
WORD = "light"
SENTENCES = ["The light of the moon was white.", "Her step was light and quick."]
results = answers("run", "features", model, *SENTENCES, "--layers", "0,1,2")["results"]

# %% How similar are its vectors?
print(f"\ncosine of the vectors of {WORD!r} in two sentences")
for layer in ("0", "1", "2"):
    first, second = (
        np.array(result["layers"][layer][result["tokens"].index(WORD)]) for result in results
    )
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    print(f"  layer {layer}: {cosine:.3f}")
