"""Language models that score a prompt by hand."""

from pathlib import Path
from typing import Any

import torch
import transformers


def log_softmax(network: Any, **inputs: Any) -> torch.Tensor:
    """Return the log-probabilities of the first row, (tokens, vocabulary)."""
    with torch.inference_mode():
        logits = network.double()(**inputs).logits[0]
    return logits.log_softmax(-1)  # type: ignore[no-any-return]


class Masked:
    """A masked model of transformers."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.network: Any = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()

    def score(self, before: str, word: str, after: str) -> float:
        """Return the pseudo-log-likelihood of a word: each of its tokens is masked in turn."""
        mask = self.tokenizer.mask_token
        pieces = self.tokenizer(before + word + after)["input_ids"]
        start = len(self.tokenizer(before)["input_ids"]) - 1  # without [SEP]
        count = len(pieces) - len(self.tokenizer(before + mask + after)["input_ids"]) + 1
        total = 0.0
        for position in range(start, start + count):
            ids = list(pieces)
            ids[position] = self.tokenizer.mask_token_id
            values = log_softmax(self.network, input_ids=torch.tensor([ids]))
            total += float(values[position, pieces[position]])
        return total


class Causal:
    """A causal model of transformers."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.network: Any = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()

    def score(self, context: str, word: str) -> float:
        """Return the log-probability of a word after a context."""
        known = len(self.tokenizer(context.rstrip())["input_ids"])
        ids = self.tokenizer(context + word)["input_ids"]
        values = log_softmax(self.network, input_ids=torch.tensor([ids[:-1]]))
        return sum(float(values[k - 1, ids[k]]) for k in range(known, len(ids)))
