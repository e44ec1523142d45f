from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

from tests.inference.conftest import Small
from zoo.errors import UsageError

TEXTS = ["a [MASK] c", "[MASK] b [MASK][MASK] ab", "[MASK]"]


def expected(source: Path, text: str, top_k: int) -> list[list[tuple[str, float]]]:
    """Compute the predictions from the reference's logits, one text at a time."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    network: Any = transformers.BertForMaskedLM.from_pretrained(source)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        logits = network.eval()(**inputs).logits[0]
    masks = logits[inputs["input_ids"][0] == tokenizer.mask_token_id]
    best = masks.softmax(dim=-1).topk(top_k)
    return [
        list(zip(tokenizer.convert_ids_to_tokens(ids), scores.tolist(), strict=True))
        for ids, scores in zip(best.indices, best.values, strict=True)
    ]


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForPreTraining"])
def test_predictions_are_the_references(small: Small, architecture: str) -> None:
    model, source = small(architecture)
    results = model.fill_mask(TEXTS, top_k=4)
    assert [result["text"] for result in results] == TEXTS
    for result in results:
        ours = [[(p["token"], p["score"]) for p in mask["predictions"]] for mask in result["masks"]]
        theirs = expected(source, result["text"], 4)
        assert [[token for token, _ in mask] for mask in ours] == [
            [token for token, _ in mask] for mask in theirs
        ]
        for mask, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose([s for _, s in mask], [s for _, s in other], rtol=1e-4)


def test_positions_are_characters_of_the_text(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    positions = [[m["position"] for m in r["masks"]] for r in model.fill_mask(TEXTS)]
    assert positions == [[2], [0, 9, 15], [0]]
    assert [place for place in positions[1] if not TEXTS[1][place:].startswith("[MASK]")] == []


def test_all_predictions_are_probabilities_that_sum_to_one(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    every = model.fill_mask(["a [MASK]"], top_k=model.checkpoint.config.vocab_size)
    scores = [p["score"] for p in every[0]["masks"][0]["predictions"]]
    assert sum(scores) == pytest.approx(1, abs=1e-12)
    assert scores == sorted(scores, reverse=True)


def test_rows_of_the_model_without_a_token_are_not_predicted(small: Small) -> None:
    model, _ = small("BertForMaskedLM", vocab_size=30)
    predictions = model.fill_mask(["a [MASK]"], top_k=30)[0]["masks"][0]["predictions"]
    assert {p["token"] for p in predictions} == set(
        map(model.tokenizer.token, range(len(predictions)))
    )
    assert len(predictions) == 17


def test_a_text_without_a_mask_is_named(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(UsageError, match=r"text 2 has no mask token; write \[MASK\]"):
        model.fill_mask(["a [MASK]", "a"])


def test_a_mask_that_was_cut_off_is_named(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(
        UsageError, match=r"text 1: \[MASK\] is in the part of the text that was cut at 40 tokens"
    ):
        model.fill_mask(["a " * 50 + "[MASK]"])
    with pytest.warns(UserWarning, match="was longer than 40"):
        (result,) = model.fill_mask(["[MASK] " + "a " * 50 + "[MASK]"])
    assert len(result["masks"]) == 1
    assert result["truncated"] == 14


@pytest.mark.parametrize("top_k", [0, 18])
def test_an_impossible_number_of_predictions_is_refused(small: Small, top_k: int) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(UsageError, match="ask for 1 to 17"):
        model.fill_mask(["[MASK]"], top_k=top_k)


def test_pairs_are_refused(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(UsageError, match="text 1 has a text_pair"):
        model.fill_mask([("[MASK]", "a")])  # type: ignore[list-item]
