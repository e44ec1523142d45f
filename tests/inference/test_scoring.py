"""Log-likelihoods of texts, against the reference's logits, one row at a time."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.evaluation.conftest import Small, causal, hub_checkpoint, small, source
from zoo.api import Model
from zoo.errors import UsageError
from zoo.families.base import Head
from zoo.inference import scoring
from zoo.inference.scoring import CausalScorer, MaskedScorer, make_scorer, scorer_type

__all__ = ["causal", "hub_checkpoint", "small", "source"]
TEXTS = ["a b c", "ab", "c c a b ab a b", "b"]


def test_causal_scores_are_sums_of_the_references_log_probabilities(
    causal: tuple[Model, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", 3)
    model, reference, tokenizer = causal
    scorer = make_scorer(model.checkpoint, model.session)
    scores = scorer.score(scorer.tokenizer.encode(TEXTS, max_tokens=None))
    for text, score in zip(TEXTS, scores, strict=True):
        # as lm-evaluation-harness does, the first token is predicted from <|endoftext|>
        ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text)["input_ids"]]])
        with torch.inference_mode():
            log_probs = reference(ids).logits[0, :-1].double().log_softmax(-1)
        expected = log_probs.gather(1, ids[0, 1:, None]).sum()
        assert score.log_prob == pytest.approx(float(expected), rel=1e-5)
        assert score.tokens == ids.shape[1] - 1
        assert score.correct == int((log_probs.argmax(-1) == ids[0, 1:]).sum())


def test_a_head_that_fills_masks_and_generates_reads_both_sides() -> None:
    """So that masks score it, and exports have no cache."""
    both = Head((), {"logits": "batch tokens vocab_size"}, ("fill-mask", "generate"), "")
    assert scorer_type("masked-lm", both) is MaskedScorer and not both.has_cache
    generating = replace(both, tasks=("generate",))
    assert scorer_type("causal-lm", generating) is CausalScorer and generating.has_cache
    assert not replace(both, tasks=("fill-mask",)).has_cache


def test_masked_scores_are_pseudo_log_likelihoods(small: Small) -> None:
    import transformers

    model, path = small("BertForMaskedLM")
    reference: Any = transformers.BertForMaskedLM.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    scorer = make_scorer(model.checkpoint, model.session)
    scores = scorer.score(scorer.tokenizer.encode(TEXTS, max_tokens=None))
    for text, score in zip(TEXTS, scores, strict=True):
        ids = torch.tensor(tokenizer(text)["input_ids"])
        expected = 0.0
        for position in range(1, len(ids) - 1):
            masked = ids.clone()
            masked[position] = tokenizer.mask_token_id
            with torch.inference_mode():
                logits = reference(masked[None]).logits[0, position].double()
            expected += float(logits.log_softmax(-1)[ids[position]])
        assert score.log_prob == pytest.approx(expected, rel=1e-5)
        assert score.tokens == len(ids) - 2


def test_discriminator_scores_are_log_probabilities_of_original_tokens(small: Small) -> None:
    import transformers

    model, path = small("ElectraForPreTraining")
    reference: Any = transformers.ElectraForPreTraining.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    scorer = make_scorer(model.checkpoint, model.session)
    scores = scorer.score(scorer.tokenizer.encode(TEXTS, max_tokens=None))
    for text, score in zip(TEXTS, scores, strict=True):
        with torch.inference_mode():
            logits = reference(**tokenizer(text, return_tensors="pt")).logits[0, 1:-1].double()
        # P(original) = 1 - sigmoid(logit)
        expected = torch.log(1 - torch.sigmoid(logits)).sum()
        assert score.log_prob == pytest.approx(float(expected), rel=1e-5)
        assert score.correct == int((logits < 0).sum())


def test_texts_without_rows_get_no_score(causal: tuple[Model, Any, Any]) -> None:
    model, _, _ = causal
    scorer = make_scorer(model.checkpoint, model.session)
    assert scorer.score([]) == []
    (encoded,) = scorer.tokenizer.encode(["a b"], max_tokens=None)
    rows = list(scorer.rows(encoded, 2))  # those of the third text
    assert [text for text, _ in scorer.stream_scores(rows)] == [2]
    (empty,) = scorer.tokenizer.encode([""], max_tokens=None)
    assert [score.tokens > 0 for score in scorer.score([empty, encoded])] == [False, True]


def test_a_head_that_predicts_no_tokens_is_refused(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match="the head none, which cannot be scored here"):
        make_scorer(model.checkpoint, model.session)
