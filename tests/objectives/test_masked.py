"""The masked objective: masks and labels, and losses equal to the reference library's."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.every import every_family
from tests.families.parity import random_model
from tests.objectives.making import corpus, made, one_a_row, reference_batch, small
from tests.objectives.pieces import CLS, MASK, SEP, SIZE, WORDS, binomial, numbers, packed, rows
from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import objective_type
from zoo.objectives.examples.masking import MaskSelection, mask_budget
from zoo.objectives.examples.packing import PackedRow, pack
from zoo.objectives.masked import (
    MASKED_LM,
    MaskedLanguageModelling,
    MaskedOptions,
    apply_mask,
    model_inputs,
)
from zoo.objectives.options import parse_options
from zoo.plugins import get_family

FAMILIES = ("bert", "roberta", "albert", "distilbert", "electra", "modernbert")


def objective(family: str = "bert", length: int = 32, **options: Any) -> MaskedLanguageModelling:
    return MaskedLanguageModelling(WORDS, small(family), length, MaskedOptions(**options))


def test_smoothing_selects_by_counts_of_the_data() -> None:
    """As ``np.maximum(counts, 1) ** -args.mlm_smoothing`` of train.py of DistilBERT."""
    documents = [[7] * 40 + [8] * 10, [8] * 90 + [9]]
    split = Split.from_documents([[document] for document in documents])
    task = objective(mask_smoothing=0.7)
    weights = task.mask_weights(split)
    expected = {7: 40**-0.7, 8: 100**-0.7, 9: 1.0, 10: 1.0}
    assert weights is not None
    assert {token: weights[token] for token in expected} == pytest.approx(expected)
    assert objective().mask_weights(split) is None
    masked = [row.values["labels"].tolist() for row in made(task, split)]
    assert 9 in [label for labels in masked for label in labels]
    with pytest.raises(ValueError, match="selects tokens, and mask_strategy is words"):
        MaskedOptions(mask_smoothing=0.7, mask_strategy="words")


# Masks


@pytest.mark.parametrize("choose", ["tokens", "words", "ngrams", "spans"])
@settings(deadline=None)
@given(row=rows, seed=st.integers(0, 2**32))
def test_labels_are_where_they_should_be(choose: Any, row: PackedRow, seed: int) -> None:
    task = objective(mask_strategy=choose).mask_row(row, generator(seed))
    _, positions = task.positions["label_positions"]
    hidden = task.arrays["input_ids"]
    assert row.is_text[positions].all()
    assert task.values["labels"].tolist() == row.input_ids[positions].tolist()
    assert task.counts == {MASKED_LM: len(positions)}
    assert len(positions) <= mask_budget(choose, row, 0.15)
    others = np.setdiff1d(np.arange(len(hidden)), positions)
    assert hidden[others].tolist() == row.input_ids[others].tolist()
    assert set(hidden[positions].tolist()).isdisjoint({0, 1, CLS, SEP})
    assert task.arrays["document_ids"].tolist() == row.document_ids.tolist()
    assert task.arrays["position_ids"].tolist() == row.position_ids.tolist()


@pytest.mark.parametrize("choose", ["tokens", "words", "ngrams", "spans"])
def test_shares(choose: Any) -> None:
    row, rng = packed(generator(3).integers(5, SIZE, size=400).tolist()), generator(4)
    selected = masks = unchanged = fates = 0
    for _ in range(200):
        chosen = objective(mask_strategy=choose).select(row, rng)
        first = np.diff(chosen.group_ids, prepend=-1) > 0
        hidden = apply_mask(row.input_ids, chosen, WORDS, MaskedOptions(), rng)[chosen.positions]
        selected += len(chosen.positions)
        masks += int((hidden == MASK)[first].sum())
        unchanged += int((hidden == row.input_ids[chosen.positions])[first].sum())
        fates += int(first.sum())
    assert 0.14 * 400 * 200 < selected <= 60 * 200  # 60 = 0.15 * 400; whole words may fit worse
    assert binomial(masks, fates, 0.8)
    assert binomial(unchanged, fates, 0.1 + 0.1 / (SIZE - 5))  # a random token can be the original


def test_a_span_has_one_fate() -> None:
    chosen = MaskSelection(np.arange(1, 9), np.repeat([0, 1, 2], [3, 1, 4]))
    row = packed(range(5, 13))
    for seed in range(50):
        hidden = apply_mask(
            row.input_ids, chosen, WORDS, MaskedOptions(random_token_prob=0.0), generator(seed)
        )
        for span in (slice(1, 4), slice(4, 5), slice(5, 9)):
            masked = hidden[span] == MASK
            assert masked.all() or (hidden[span] == row.input_ids[span]).all()


def test_replacements_are_any_ordinary_token() -> None:
    row, chosen = packed([5] * 400), MaskSelection(np.arange(1, 401), np.arange(400))
    seen: set[int] = set()
    for seed in range(10):
        options = MaskedOptions(mask_token_prob=0.0, random_token_prob=1.0)
        seen |= set(
            apply_mask(row.input_ids, chosen, WORDS, options, generator(seed))[1:-1].tolist()
        )
    assert seen == set(range(5, SIZE))


def test_a_hand_worked_row() -> None:
    """Masks and labels of a small row, derived by hand."""
    row = objective(mask_prob=0.75, mask_token_prob=1.0, random_token_prob=0.0).mask_row(
        packed(range(5, 15)), generator(0)
    )
    (left,) = np.flatnonzero(row.arrays["input_ids"][1:-1] != MASK).tolist()
    assert row.arrays["input_ids"].tolist() == [
        CLS,
        *[MASK] * left,
        5 + left,
        *[MASK] * (9 - left),
        SEP,
    ]
    assert row.values["labels"].tolist() == [k for k in range(5, 15) if k != 5 + left]
    assert row.counts == {MASKED_LM: 9}


def test_masks_are_drawn_anew_each_time() -> None:
    laid = objective().dataset(corpus(), 0)
    first, two = (laid.example(0, generator(0, "train", step, 0)) for step in (0, 1))
    again = laid.example(0, generator(0, "train", 0, 0))
    assert (
        first.positions["label_positions"][1].tolist()
        != two.positions["label_positions"][1].tolist()
    )
    assert first.arrays["input_ids"].tolist() == again.arrays["input_ids"].tolist()


def test_segments_are_given_to_models_that_tell_them_apart() -> None:
    assert "token_type_ids" in made(objective("bert"), corpus())[0].arrays
    for family in ("roberta", "distilbert"):
        assert "token_type_ids" not in made(objective(family), corpus())[0].arrays


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_prob": 1.0}, "mask_prob is 1.0"),
        ({"mask_token_prob": 0.9, "random_token_prob": 0.2}, "add up to more than 1"),
        ({"mask_strategy": "letters"}, "mask_strategy is 'letters'; it is one of"),
        ({"rates": 0.1}, "'rates'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(MaskedOptions, options, MASKED_LM)


def test_a_family_without_the_head() -> None:
    gpt = get_family("gpt")
    with pytest.raises(UsageError, match="gpt cannot learn masked-lm: gpt has no head 'masked-lm'"):
        objective_type(gpt, gpt.sizes()["tiny"], MASKED_LM)


# Packed rows and losses


@pytest.mark.parametrize("name", every_family(FAMILIES))
def test_a_packed_text_is_read_as_if_it_were_alone(name: str) -> None:
    config = small(name)
    model: Any = random_model(get_family(name), config, "masked-lm")
    texts = numbers([5, 6, 7], [8], list(range(9, 21)))
    pairs = getattr(config, "type_vocab_size", 0) > 1
    framed = [
        WORDS.pair_template.wrap(t, t) if pairs else WORDS.single_template.wrap(t) for t in texts
    ]
    row = pack(framed, length=60, pad=0)
    inputs = {name: torch.from_numpy(p)[None] for name, p in row.arrays(token_types=pairs).items()}
    with torch.no_grad():
        together = model.scores(model.encode(**inputs))[0]
        for first, (ids, types, _) in zip(row.start_positions, framed, strict=True):
            alone = {"input_ids": torch.from_numpy(ids)[None]}
            if pairs:
                alone["token_type_ids"] = torch.from_numpy(types)[None]
            expected = model(**alone)["logits"][0]
            assert (together[first : first + len(ids)] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("name", every_family(FAMILIES))
def test_the_loss_equals_the_reference_librarys(name: str) -> None:
    family, task = get_family(name), objective(name)
    rows = one_a_row(made(task, corpus(documents=60)))
    assert len(rows) > 5
    model = random_model(family, task.config, "masked-lm")
    reference = reference_model(family, task.config, "masked-lm", model.state_dict()).eval()
    batch = task.collate(rows)
    outcome = task.compute_loss(model, batch.tensors)
    with torch.no_grad():
        expected = reference(**reference_batch(rows))
    loss = float(outcome.sums[MASKED_LM].detach()) / batch.counts[MASKED_LM]
    assert loss == pytest.approx(float(expected.loss), abs=1e-6)
    right, count = outcome.metrics["accuracy"]
    labels = reference_batch(rows)["labels"]
    assert int(right) == int((expected.logits.argmax(-1) == labels).sum())
    assert int(count) == batch.counts[MASKED_LM] == int((labels >= 0).sum())


def test_logits_are_computed_for_masked_tokens_alone() -> None:
    task = objective()
    batch = task.collate(made(task, corpus()))
    model: Any = random_model(get_family("bert"), task.config, "masked-lm")
    shapes: list[Any] = []
    model.head.register_forward_hook(lambda _, inputs, out: shapes.append(tuple(out.shape)))
    task.compute_loss(model, batch.tensors)
    assert shapes == [(batch.counts[MASKED_LM], SIZE)]
    assert set(model_inputs(batch.tensors)) == {
        "input_ids", "document_ids", "token_type_ids", "position_ids"
    }  # fmt: skip
