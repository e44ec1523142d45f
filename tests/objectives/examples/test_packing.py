"""Packing of several texts into one row."""

import numpy as np

from tests.objectives.pieces import CLS, PAD, SEP, WORDS, numbers
from zoo.data.corpus import Split
from zoo.objectives.examples.packing import PackedDataset, pack, without_special_tokens


def test_a_hand_worked_row() -> None:
    first, second, third = numbers([7, 8], [9], [10])
    row = pack(
        [WORDS.pair_template.wrap(first, second), WORDS.single_template.wrap(third)],
        length=11,
        pad=PAD,
    )
    assert row.input_ids.tolist() == [CLS, 7, 8, SEP, 9, SEP, CLS, 10, SEP, PAD, PAD]
    assert row.document_ids.tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert row.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 0]
    assert row.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert np.flatnonzero(row.is_text).tolist() == [1, 2, 4, 7]
    assert row.start_positions.tolist() == [0, 6]
    assert "token_type_ids" in row.arrays(token_types=True)
    assert "token_type_ids" not in row.arrays(token_types=False)


def test_texts_without_a_frame() -> None:
    row = pack([without_special_tokens(text) for text in numbers([7, 8], [9])], length=4, pad=PAD)
    assert row.input_ids.tolist() == [7, 8, 9, PAD]
    assert row.document_ids.tolist() == [1, 1, 2, 0]
    assert row.is_text.tolist() == [True, True, True, False]


def test_a_document_continues_in_the_next_row() -> None:
    dataset = PackedDataset(Split.from_documents([[[5, 6, 7], [8, 9, 10, 11]]]), WORDS, 6, seed=0)
    rows = [dataset.row(k).input_ids.tolist() for k in range(len(dataset))]
    assert rows == [[CLS, 5, 6, 7, 8, SEP], [CLS, 9, 10, 11, SEP, PAD]]
