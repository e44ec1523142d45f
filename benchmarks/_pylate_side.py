"""Models, scores and losses of PyLate; see colbert_in_pylate.py.

Reads a request from standard input. This file runs in an environment of its own, without zoo.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pylate import losses, models, scores


def main() -> None:
    """Open or make a model, write its embeddings, scores and losses, and save it again."""
    request = json.load(sys.stdin)
    torch.manual_seed(0)
    model = models.ColBERT(request["model"], device="cpu", **request["settings"])
    found: dict[str, Any] = {}
    encoded = {}
    for name, is_query in (("queries", True), ("documents", False)):
        encoded[name] = model.encode(request[name], is_query=is_query, show_progress_bar=False)
        for number, vectors in enumerate(encoded[name]):
            found[f"{name}-{number}"] = vectors
    found["scores"] = np.array(
        [
            [float(scores.colbert_scores(query[None], text[None])) for text in encoded["documents"]]
            for query in encoded["queries"]
        ]
    )
    if request["save"]:
        model.save(request["save"], create_model_card=False)
    if request["rows"]:
        found |= trained(model.double().eval(), request["rows"])
    np.savez(Path(request["output"]), **found)


def trained(model: Any, rows: dict[str, list[Any]]) -> dict[str, Any]:
    """Return losses and their gradients in float64, without dropout."""
    columns = [model.tokenize(rows["query"], is_query=True)]
    columns += [model.tokenize(rows[n], is_query=False) for n in ("positive", "negative")]
    both = [t for pair in zip(rows["positive"], rows["negative"], strict=True) for t in pair]
    labels = torch.tensor(rows["scores"], dtype=torch.float64)
    distilled = [columns[0], model.tokenize(both, is_query=False)]
    values = {
        "contrastive": losses.Contrastive(model)(columns),
        "distillation": losses.Distillation(model, normalize_scores=False)(distilled, labels),
    }
    weights = dict(model.named_parameters())
    (words,) = [weights[name] for name in weights if name.endswith("word_embeddings.weight")]
    found: dict[str, Any] = {}
    for name, loss in values.items():
        (gradient,) = torch.autograd.grad(loss, words)
        found |= {name: loss.detach().numpy(), f"{name}, gradient": gradient.numpy()}
    return found


if __name__ == "__main__":
    main()
