"""Masked and permuted prediction, compared with the two streams of the released code."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.families import parity
from tests.families.mpnet_streams import two_streams
from tests.families.reference import SMALL_SIZES
from tests.objectives.making import corpus
from tests.objectives.pieces import MASK, SIZE, WORDS, packed
from zoo.conformance.hf_reference import reference_model
from zoo.data.rng import generator
from zoo.families.random_inputs import randomize_weights
from zoo.objectives.masked import MASKED_LM, MaskedOptions
from zoo_mpnet import MPNet
from zoo_mpnet.config import MPNetConfig
from zoo_mpnet.objective import INPUTS, MaskedAndPermuted

MPNET = MPNet()
CONFIG = MPNetConfig(
    **{**SMALL_SIZES, "vocab_size": SIZE, "max_positions": 60},
    dropout=0.0,
    attention_dropout=0.0,
)


def objective(**options: Any) -> MaskedAndPermuted:
    return MaskedAndPermuted(WORDS, CONFIG, 40, MaskedOptions(**options))


def test_the_query_stream_is_that_of_the_released_code() -> None:
    """Two documents share a row, which ends with padding."""
    task = objective(mask_prob=0.3)
    texts = (range(5, 22), range(30, 41))
    row = packed(*texts, length=40)
    example = task.mask_row(row, generator(3))
    batch = task.collate([example]).tensors
    model: Any = parity.random_model(MPNET, CONFIG, "masked-lm")
    reference = reference_model(MPNET, CONFIG, "masked-lm", model.state_dict())
    targets, masked_ids = batch["targets"][0], batch["target_ids"][0]
    with torch.no_grad():
        ours = model.encode_targets(**{name: batch[name] for name in INPUTS})[0]
        for number in (1, 2):
            (places,) = torch.nonzero(batch["document_ids"][0] == number, as_tuple=True)
            slots = [
                slot
                for slot in range(int(example.counts[MASKED_LM]))
                if int(targets[slot]) in places.tolist()
            ]
            assert len(slots) > 1, "the seed draws targets in both documents"
            order = targets[slots] - places[0]
            ids = batch["input_ids"][0, places]
            expected = two_streams(reference, ids, order, masked_ids[slots])
            assert (ours[slots] - expected).abs().max() <= 1e-9


def test_a_row_has_its_tokens_in_the_order_of_their_prediction() -> None:
    task = objective()
    row = packed(range(5, 40), length=40)
    example = task.mask_row(row, generator(0))
    count = int(example.counts[MASKED_LM])
    order, targets = example.arrays["order"], example.arrays["targets"]
    assert count == round(37 * 0.15)
    assert order[targets[:count]].tolist() == list(range(1, count + 1))
    assert np.count_nonzero(order) == count
    assert example.values["labels"].tolist() == row.input_ids[targets[:count]].tolist()
    assert example.arrays["input_ids"].tolist() == row.input_ids.tolist()
    assert row.is_text[targets[:count]].all()


def test_masks_follow_the_released_shares() -> None:
    task = objective()
    split = corpus(documents=300)
    dataset = task.dataset(split, 0)
    masked, same, total = 0, 0, 0
    for index in range(len(dataset)):
        example = dataset.example(index, generator(1, index))
        count = int(example.counts[MASKED_LM])
        ids = example.arrays["target_ids"][:count]
        masked += int(np.count_nonzero(ids == MASK))
        same += int(np.count_nonzero(ids == example.values["labels"]))
        total += count
    assert masked / total == pytest.approx(0.8, abs=0.04)
    assert same / total == pytest.approx(0.1, abs=0.03)


def test_two_steps_are_those_of_a_plain_loop() -> None:
    """SGD on the mean cross-entropy of all predictions, from the two streams of the reference."""
    task = objective()
    rows = [packed(range(5, 30), length=40), packed(range(20, 51), length=40)]
    model: Any = MPNET.model(CONFIG, "masked-lm").double()
    randomize_weights(model)
    reference: Any = reference_model(MPNET, CONFIG, "masked-lm", model.state_dict())
    reference.requires_grad_(True)
    for parameter in (*model.parameters(), *reference.parameters()):
        parameter.data = parameter.data.clone()
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(2):
        examples = [task.mask_row(row, generator(step, n)) for n, row in enumerate(rows)]
        batch = task.collate(examples)
        output = task.compute_loss(model.train(), batch.tensors)
        loss = output.sums[MASKED_LM] / batch.counts[MASKED_LM]
        total = torch.zeros((), dtype=torch.float64)
        for row, example in zip(rows, examples, strict=True):
            count = int(example.counts[MASKED_LM])
            length = int(np.count_nonzero(row.document_ids))
            order = torch.from_numpy(example.arrays["targets"][:count])
            masked_ids = torch.from_numpy(example.arrays["target_ids"][:count])
            ids = torch.from_numpy(row.input_ids[:length])
            logits = reference.lm_head(two_streams(reference, ids, order, masked_ids))
            labels = torch.from_numpy(example.values["labels"])
            total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        expected = total / batch.counts[MASKED_LM]
        assert float(loss) == pytest.approx(float(expected), rel=1e-6)
        for optimizer, value in ((ours, loss), (theirs, expected)):
            optimizer.zero_grad()
            torch.autograd.backward(value)
            optimizer.step()
    table = reference.mpnet.embeddings.word_embeddings.weight
    # Our loss is computed in float32, as in training.
    assert (model.embeddings.tokens.weight - table).abs().max() <= 1e-5
