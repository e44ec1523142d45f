import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.inference.processing.batching import collate, plan_batches
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.info import TokenizerInfo

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def cost(batches: list[list[int]], lengths: list[int], call: int) -> int:
    return sum(call + len(batch) * max(1, max(lengths[k] for k in batch)) for batch in batches)


@given(LENGTHS, st.integers(1, 100))
def test_every_text_is_in_one_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        widest = max(lengths[k] for k in batch)
        assert len(batch) == 1 or widest * len(batch) <= budget


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 30), st.integers(0, 9))
def test_no_other_cut_of_the_sorted_texts_is_cheaper(
    lengths: list[int], budget: int, call: int
) -> None:
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    candidates = []
    for cuts in itertools.product([False, True], repeat=len(order) - 1):
        groups = [[order[0]]]
        for cut, k in zip(cuts, order[1:], strict=True):
            if cut:
                groups.append([k])
            else:
                groups[-1].append(k)
        if all(len(g) == 1 or len(g) * lengths[g[0]] <= budget for g in groups):
            candidates.append(cost(groups, lengths, call))
    assert cost(plan_batches(lengths, budget, call), lengths, call) == min(candidates)


@given(LENGTHS, st.integers(1, 100), st.sampled_from([0.0, 0.1, 0.5]))
def test_cheap_padding_makes_large_batches(
    lengths: list[int], budget: int, padding_cost: float
) -> None:
    batches = plan_batches(lengths, budget, padding_cost=padding_cost)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        sizes = [max(1, lengths[k]) for k in batch]
        padding = max(sizes) * len(sizes) - sum(sizes)
        assert len(batch) == 1 or sum(sizes) + padding_cost * padding <= budget + 1e-9
    assert len(batches) <= len(plan_batches(lengths, budget))


def test_texts_of_any_length_share_a_batch_where_padding_is_free() -> None:
    assert plan_batches([5, 200, 5, 60], 1024, 32, padding_cost=0.0) == [[1, 3, 0, 2]]


def test_texts_of_equal_length_share_a_batch_and_an_odd_one_does_not_widen_it() -> None:
    assert plan_batches([5, 200, 5, 5], 1024, 32) == [[1], [0, 2, 3]]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    """A tokenizer whose words are letters, without special tokens except ``z`` between texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    library = Tokenizer(models.WordLevel({letter: k for k, letter in enumerate("abcdefz")}, "z"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A z $B:1", special_tokens=[("z", 6)]
    )
    return TextTokenizer(library, TokenizerInfo(special={}))


NAMES = ("input_ids", "attention_mask", "token_type_ids")


def test_texts_of_one_length_need_no_mask(tokenizer: TextTokenizer) -> None:
    batch = collate(tokenizer.encode(["b c", "d e"], max_tokens=None), NAMES, 9)
    assert batch.inputs.keys() == {"input_ids"}
    assert batch.inputs["input_ids"].tolist() == [[1, 2], [3, 4]]
    assert batch.mask.all()


def test_padding_is_on_the_right_and_masked(tokenizer: TextTokenizer) -> None:
    batch = collate(tokenizer.encode([("b", "c"), "d"], max_tokens=None), NAMES, 9)
    assert batch.inputs["input_ids"].tolist() == [[1, 6, 2], [3, 9, 9]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.inputs["token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert {array.dtype for array in batch.inputs.values()} == {np.dtype(np.int64)}
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]


def test_an_input_that_the_session_does_not_take_is_left_out(tokenizer: TextTokenizer) -> None:
    texts = tokenizer.encode([("b", "c"), "d"], max_tokens=None)
    assert collate(texts, NAMES[:2], 0).inputs.keys() == set(NAMES[:2])
