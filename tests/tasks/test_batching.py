import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zoo.tasks.batching import collate, plan_batches

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@dataclass
class Tokens:
    ids: list[int]
    type_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.type_ids = self.type_ids or [0] * len(self.ids)


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


def test_texts_of_equal_length_share_a_batch_and_an_odd_one_does_not_widen_it() -> None:
    assert plan_batches([5, 200, 5, 5], 1024, 32) == [[1], [0, 2, 3]]


def test_texts_of_one_length_need_no_mask() -> None:
    batch = collate([Tokens([1, 2]), Tokens([3, 4])], ("input_ids", "attention_mask"), 9)
    assert batch.inputs.keys() == {"input_ids"}
    assert batch.inputs["input_ids"].tolist() == [[1, 2], [3, 4]]
    assert batch.mask.all()


def test_padding_is_on_the_right_and_masked() -> None:
    texts = [Tokens([1, 2, 3], [0, 0, 1]), Tokens([4])]
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch = collate(texts, names, 9)
    assert batch.inputs["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.inputs["token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert all(array.dtype == np.int64 for array in batch.inputs.values())
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]


def test_an_input_that_the_session_does_not_take_is_left_out() -> None:
    batch = collate([Tokens([1, 2], [0, 1]), Tokens([3])], ("input_ids", "attention_mask"), 0)
    assert batch.inputs.keys() == {"input_ids", "attention_mask"}
