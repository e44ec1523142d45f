"""Every objective of every family learns 20 sentences by heart: its accuracies reach 1."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.cases import dry, marked_cases
from tests.training.runs import small
from zoo.data.cache import SAMPLE
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives.base import Batch, Objective
from zoo.training.setup import PretrainSetup, pretrain_setup

pytestmark = pytest.mark.usefixtures("shared_home")
SENTENCES, MAX_STEPS, EVERY = 20, 600, 10
LONGEST = 8  # tokens of a sentence


def sentences(split: Split) -> list[list[int]]:
    """Return the starts of 20 sentences, of which no two have the same two first tokens."""
    chosen: dict[tuple[int, ...], list[int]] = {}
    for start, end in zip(split.sentences[:-1], split.sentences[1:], strict=True):
        tokens = split.read(int(start), int(min(end, start + LONGEST))).tolist()
        if len(chosen) < SENTENCES:
            chosen.setdefault(tuple(tokens[:2]), tokens)
    assert len(chosen) == SENTENCES
    return list(chosen.values())


def few_documents(split: Split, per_document: int) -> Split:
    """Return 20 sentences in documents of so many each."""
    texts = sentences(split)
    return Split.from_documents(
        [texts[k : k + per_document] for k in range(0, SENTENCES, per_document)]
    )


def one_batch(setup: PretrainSetup) -> Batch:
    """Return all rows of 20 sentences, with masks, pairs and samples drawn once.

    For the prediction of next tokens, they are one document: of several, nothing tells which one
    begins.
    """
    per_document = SENTENCES if setup.objective.name == "causal-lm" else 2
    split = few_documents(setup.corpus.split("train"), per_document)
    dataset = setup.objective.dataset(split, seed=0)
    return setup.objective.collate(
        [dataset.example(k, generator(0, k)) for k in range(len(dataset))]
    )


def accuracies(objective: Objective, model: nn.Module, batch: Batch) -> dict[str, float]:
    """Return the accuracies of a batch without dropout, by name."""
    with torch.no_grad():
        outputs = objective.forward(model.eval(), batch.tensors)
        metrics = objective.loss(outputs, batch.tensors).metrics
    pairs = {name: pair for name, pair in metrics.items() if "accuracy" in name}
    if not pairs:
        pairs = {
            term: ((logits.argmax(-1) == outputs.labels[term]).sum(), torch.tensor(len(logits)))
            for term, logits in outputs.logits.items()
        }
    assert [name for name, (_, count) in pairs.items() if not count] == [], "of nothing"
    return {name: float(correct) / float(count) for name, (correct, count) in pairs.items()}


def learn(
    objective: Objective,
    model: nn.Module,
    batch: Batch,
    parameters: Iterable[nn.Parameter],
    names: Iterable[str] = (),
) -> dict[str, float]:
    """Train on one batch until the accuracies of some names, by default all, are 1; return them."""
    rate = 1e-2 if objective.name == "bidirectional-lm" else 2e-3
    optimizer = torch.optim.Adam(parameters, lr=rate)
    reached: dict[str, float] = {}
    for step in range(1, MAX_STEPS + 1):
        sums = objective.compute_loss(model.train(), batch.tensors).sums
        weights = objective.loss_weights
        losses = [weights[term] * total / batch.counts[term] for term, total in sums.items()]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % EVERY == 0:
            measured = accuracies(objective, model, batch)
            reached = {name: measured[name] for name in names or measured}
            if set(reached.values()) == {1.0}:
                break
    return reached


def run_config(name: str) -> dict[str, Any]:
    """Return the settings of an objective: pairs are made once, and LSTMs are wide enough."""
    if name == "bidirectional-lm":
        # one row: the first tokens of several rows have the same, empty context
        return {"seq_len": 120}
    if name == "span-corruption":  # a recipe may mask too much for the rest to tell the texts apart
        return {"objective_args": {"noise_density": 0.15, "mean_span_length": 3.0}}
    if name.startswith("text-infilling"):  # one row: of a document that is cut, all may be masked
        row = {"seq_len": 200, "micro_batch_tokens": 200, "global_batch_tokens": 200}
        return {**row, "config": {"max_positions": 200}}
    pairs = name.endswith(("+next-sentence", "+sentence-order", "+sentence-structure"))
    return {"objective_args": {"dupe_factor": 1}} if pairs else {}


# the LSTMs take half a minute, and of the others test_objectives_in_runs.py has a run
SLOW = (
    *("bidirectional-lm", "prefix-lm", "text-infilling", "text-infilling+sentence-permutation"),
    "masked-lm+next-sentence",
)
CASES = [
    pytest.param(*case.values, marks=pytest.mark.long) if case.values[1] in SLOW else case
    for case in marked_cases()
]


@pytest.mark.long
@pytest.mark.parametrize(("family", "name"), CASES)
def test_twenty_sentences_are_learnt_by_heart(family: str, name: str) -> None:
    book = {"data": {"paths": [str(SAMPLE / "alice.txt")]}}  # has sentences that begin differently
    setup = pretrain_setup(dry(small(family, objective=name, **book, **run_config(name))))
    objective: Any = setup.objective
    torch.manual_seed(0)
    model: Any = objective.model(setup.family, setup.model_config)
    batch = one_batch(setup)
    if name != "replaced-token-detection":
        assert set(learn(objective, model, batch, model.parameters()).values()) == {1.0}
        return
    # the discriminator first, since a generator that knows the texts replaces no token
    generators = {id(parameter) for parameter in model.generator.parameters()}
    parameters = [p for p in model.discriminator.parameters() if id(p) not in generators]
    names = ("accuracy", "accuracy_replaced", "accuracy_original")
    assert learn(objective, model, batch, parameters, names) == dict.fromkeys(names, 1.0)
    term = "generator_accuracy"
    assert learn(objective, model, batch, model.generator.parameters(), (term,)) == {term: 1.0}
