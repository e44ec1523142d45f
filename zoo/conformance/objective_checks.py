"""Check that no prediction of a pretraining objective is made from its own label."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.conformance.smoke_train import smoke_settings
from zoo.conformance.tiny_model import NotApplicable, TinyModel, require
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.random_inputs import randomize_weights
from zoo.nn.heads import VocabularyProjection
from zoo.objectives import objective_type
from zoo.objectives.base import Example, Objective, Outputs
from zoo.objectives.examples.vocabulary import Ids
from zoo.overrides import override
from zoo.plugins import iter_families

DOCUMENTS, DOCUMENT_TOKENS = 4, 150  # of the texts in which tokens are exchanged
EXCHANGES = 256  # tokens that are exchanged, one at a time
ROWS = 64  # of a batch
ERRORS = 4  # standard errors by which a share exceeds the declared one at random
ROUNDING = 1e-6  # of logits in float32, relative to the largest


@dataclass
class Visible:
    """Predictions of a loss term whose label changes with an exchanged token."""

    labels: int = 0  # number of predictions
    seen: int = 0  # number of these predictions whose logits change as well


class ObjectiveChecks(TinyModel):
    """Checks of the pretraining objectives of a family."""

    def check_label_leaks(self) -> None:
        """Check that no prediction of the recipe's objective depends on its own label."""
        # The objectives in ``Family.objectives`` are tried as well. Tokens of a text are exchanged
        # one at a time. Where that changes the label of a prediction, its logits must not change,
        # except for the share in ``Objective.visible_labels``.
        self._require_recipe()
        first, split = _smoke_objective(self.family, self.config)
        others = [name for name in self.family.objectives if name != first.name]
        found = require_no_leak(self.family, first, split)
        for name in others:
            with contextlib.suppress(
                UsageError
            ):  # it does not fit the size, or its defaults do not
                found += require_no_leak(self.family, _like(first, self.family, name), split)
        if not found:
            raise NotApplicable(f"no label of {', '.join([first.name, *others])} is a token")


def check_objective(name: str) -> None:
    """Check the labels of an objective for any family, with the first that can learn it."""
    for family in iter_families():
        try:
            first, split = _smoke_objective(family, family.sizes()["tiny"])
            objective = _like(first, family, name)
        except UsageError:
            continue
        if not require_no_leak(family, objective, split):
            raise NotApplicable(f"no label of {name} is a token")
        return
    raise NotApplicable(f"no installed family can learn {name} with its default options")


def _smoke_objective(family: Family, config: Any) -> tuple[Objective, Split]:
    """Return the objective of the recipe for ``tiny``, and the texts of ``smoke_train``."""
    from zoo.training.config.schema import pretrain_config
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(pretrain_config(smoke_settings(family, config), {}), offline=True)
    return setup.objective, setup.corpus.split("train")


def _like(first: Objective, family: Family, name: str) -> Objective:
    """Return an objective with default options for the tokenizer and model of another one."""
    kind = objective_type(family, first.config, name)
    return kind(first.vocabulary, first.config, first.length)


def require_no_leak(family: Family, objective: Objective, split: Split) -> int:
    """Check that predictions do not depend on their labels; return how many labels changed."""
    torch.manual_seed(0)
    model = objective.model(family, objective.config).double().eval()
    randomize_weights(model)
    measured: dict[str, Visible] = {}
    pairs = list(_exchanged_pairs(objective, split))
    for start in range(0, len(pairs), ROWS):
        _measure(objective, model, pairs[start : start + ROWS], measured)
    for term, visible in measured.items():
        declared = objective.visible_labels.get(term, 0.0)
        chance = ERRORS * (declared * (1 - declared) / max(visible.labels, 1)) ** 0.5
        require(
            visible.seen <= (declared + chance) * visible.labels,
            f"{objective.name}: {visible.seen} of {visible.labels} predictions of {term} depend on "
            f"their own labels, and at most {declared:.0%} should; are labels masked in the "
            "inputs, and inputs of a decoder shifted?",
        )
    return sum(visible.labels for visible in measured.values())


class _RecordedSplit(Split):
    """A split that records what is read from it."""

    def __init__(self, tokens: NDArray[np.integer[Any]], like: Split) -> None:
        super().__init__([tokens], like.sentences, like.documents)
        self.reads: list[tuple[int, int]] = []

    @override
    def read(self, start: int, end: int) -> Ids:
        self.reads.append((start, end))
        return super().read(start, end)


def _exchanged_pairs(objective: Objective, split: Split) -> Iterator[tuple[Example, Example]]:
    """Yield pairs of examples: of a text, and of the text with one token exchanged."""
    # Both examples of a pair are drawn by the same random numbers. Pairs whose predictions are in
    # different places are left out, as are examples that read the token twice, which happens where
    # the second segment may be any part of the text
    text = _beginning(split)
    (tokens,) = text.shards
    rng = generator(0, "exchanges")
    plain = objective.dataset(text, 0)
    for place in rng.permutation(len(tokens))[:EXCHANGES].tolist():
        changed = np.array(tokens)
        token = int(tokens[place])
        starts = objective.vocabulary.starts_word
        known = objective.vocabulary.ordinary_ids
        alike = known[(known != token) & (starts[known] == starts[token])]
        changed[place] = int(rng.choice(alike if len(alike) else known[known != token]))
        recorded = _RecordedSplit(changed, text)
        other = objective.dataset(recorded, 0)
        for row in rng.permutation(len(plain)).tolist():
            recorded.reads.clear()
            second = other.example(row, generator(0, "example", place, row))
            times = sum(start <= place < end for start, end in recorded.reads)
            if times == 0 and recorded.reads:
                continue
            first = plain.example(row, generator(0, "example", place, row))
            if times < 2 and _is_comparable(first, second):
                yield first, second
                break


def _beginning(split: Split) -> Split:
    """Return the first documents of a split, each cut after some sentences."""
    documents = []
    for first, last in zip(split.documents[:DOCUMENTS], split.documents[1:], strict=False):
        sentences: list[list[int]] = []
        for at in range(int(first), int(last)):
            if sum(map(len, sentences)) >= DOCUMENT_TOKENS:
                break
            sentences.append(split.read(*map(int, split.sentences[at : at + 2])).tolist())
        documents.append(sentences)
    return Split.from_documents(documents)


def _is_comparable(first: Example, second: Example) -> bool:
    """Return whether two examples differ, and have their predictions in the same places."""
    same = all(
        np.array_equal(part[name], other[name])
        for part, other in ((first.arrays, second.arrays), (first.values, second.values))
        for name in part
    )
    places = first.positions.keys() | second.positions.keys()
    return (
        not same
        and first.counts == second.counts
        and all(
            np.array_equal(first.positions[name][1], second.positions[name][1]) for name in places
        )
    )


def _measure(
    objective: Objective,
    model: nn.Module,
    pairs: list[tuple[Example, Example]],
    measured: dict[str, Visible],
) -> None:
    """Count the predictions whose label changes, and those whose logits change with it."""
    # With the same logits, the derivative of the loss with respect to them changes if and only if
    # the label does
    batches = [objective.collate(examples).tensors for examples in zip(*pairs, strict=True)]
    with torch.no_grad():
        plain, other = (_with_logits(objective.forward(model, batch)) for batch in batches)
    held = replace(other, logits=plain.logits)
    slopes = _slopes(objective, plain, batches[0])
    its_slopes = _slopes(objective, held, batches[1])
    for term, slope in slopes.items():
        logits, its_logits = plain.logits[term], other.logits[term]
        relabelled = (slope != its_slopes[term]).flatten(1).any(1)
        difference = (logits - its_logits).abs()
        moved = (difference > ROUNDING * logits.abs().max()).flatten(1).any(1)
        visible = measured.setdefault(term, Visible())
        visible.labels += int(relabelled.sum())
        visible.seen += int((relabelled & moved).sum())


def _with_logits(outputs: Outputs) -> Outputs:
    """Return outputs whose logits are all computed, one prediction (or one row) each."""
    logits = {
        term: (value.logits() if isinstance(value, VocabularyProjection) else value).float()
        for term, value in outputs.logits.items()
    }
    return replace(outputs, logits={n: value for n, value in logits.items() if value.dim() > 1})


def _slopes(
    objective: Objective, outputs: Outputs, batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the derivatives of the loss with respect to the logits, by loss term."""
    logits = {n: value.detach().clone().requires_grad_() for n, value in outputs.logits.items()}
    sums = objective.loss(replace(outputs, logits=logits), batch).sums
    with torch.enable_grad():
        total = torch.stack([value.double() for value in sums.values()]).sum()
    slopes = torch.autograd.grad(total, list(logits.values()), allow_unused=True)
    return {
        name: torch.zeros_like(logits[name]) if slope is None else slope
        for name, slope in zip(logits, slopes, strict=True)
    }
