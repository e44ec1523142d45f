"""Texts, and the logits that the reference library computes for them."""

from pathlib import Path
from typing import Any

import pytest
import torch

TEXTS = ["a", "b a", "c c d", "e f a b", "j", "h i", "a a a", "g b"]


def logits(source: Path, pairs: bool = False) -> torch.Tensor:
    """Return the logits of transformers' model for the texts, one by one."""
    transformers: Any = pytest.importorskip("transformers")
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt"), do_lower_case=True)
    with torch.no_grad():
        rows = [
            model(**tokenizer(t, t[::-1] if pairs else None, return_tensors="pt")).logits[0]
            for t in TEXTS
        ]
    return torch.stack(rows)
