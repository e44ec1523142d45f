"""Checks of pretraining objectives: they train, and predict nothing from its own label."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.conformance.smoke_train import smoke_objective, smoke_settings
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

# of the texts in which tokens are exchanged
DOCUMENTS = 4
DOCUMENT_TOKENS = 150
EXCHANGES = 256  # tokens that are exchanged, one at a time, in the first of these texts
# The labels of pairs of texts are searched in this number of batches.
MAX_BATCHES = 12
# Further parts of the documents are read while there are too few labels.
MAX_DOCUMENT_PARTS = 20
MIN_LABELS = 30  # labels of a loss term for a statement on it
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

    def check_objectives(self, directory: Path) -> None:
        """Check that the objectives of the family train and evaluate a model."""
        self._require_recipe()
        first = self.family.recipe("tiny").objective
        smoke_objective(self.family, self.config, first, directory / first)
        reasons = []
        for name in self.family.objectives:
            if name == first:
                continue
            try:
                smoke_objective(self.family, self.config, name, directory / name)
            except UsageError as error:  # it does not fit the size, or its defaults do not
                reasons.append(f"{name}: {error}")
        if reasons:
            raise NotApplicable("; ".join(reasons))

    def check_label_leaks(self) -> None:
        """Check that no prediction of the recipe's objective depends on its own label."""
        # The objectives in ``Family.objectives`` are tried as well. Tokens of a text are exchanged
        # one at a time. Where that changes the label of a prediction, its logits must not change,
        # except for the share in ``Objective.visible_labels``.
        self._require_recipe()
        first, split = _smoke_objective(self.family, self.config)
        labels = {first.name: require_no_leak(self.family, first, split)}
        for name in self.family.objectives:
            if name == first.name:
                continue
            # one that does not fit the size, or has no default options, is left out
            with contextlib.suppress(UsageError):
                objective = _like(first, self.family, name)
                labels[name] = require_no_leak(self.family, objective, split)
        require_enough(labels)


def check_objective(name: str) -> None:
    """Check the labels of an objective for any family, with the first that can learn it."""
    family, objective, split = _with_some_family(name)
    require_enough({name: require_no_leak(family, objective, split)})


def train_objective(name: str, directory: Path) -> None:
    """Train two steps by an objective for any family, with the first that can learn it."""
    family, _, _ = _with_some_family(name)
    smoke_objective(family, family.sizes()["tiny"], name, directory)


def _with_some_family(name: str) -> tuple[Family, Objective, Split]:
    """Return the first family that can learn an objective, the objective, and texts for it."""
    for family in iter_families():
        try:
            first, split = _smoke_objective(family, family.sizes()["tiny"])
            return family, _like(first, family, name), split
        except UsageError:
            continue
    raise NotApplicable(f"no installed family can learn {name} with its default options")


def require_enough(labels: Mapping[str, Mapping[str, int]]) -> None:
    """Check that enough labels changed for a statement on each loss term.

    Args:
        labels: objective -> loss term -> number of labels; 0 for a term whose labels are not
            tokens.

    Raises:
        NotApplicable: there were too few.
    """
    total = 0
    too_few = []
    for objective, counts in labels.items():
        for term, count in counts.items():
            total += count
            if 0 < count < MIN_LABELS:
                noun = "label" if count == 1 else "labels"
                too_few.append(f"{objective}: {count} {noun} of {term}")
    if too_few:
        raise NotApplicable(f"{', '.join(too_few)}; at least {MIN_LABELS} are needed")
    if not total:
        raise NotApplicable(f"no label of {', '.join(labels)} is a token")


def _smoke_objective(family: Family, config: Any) -> tuple[Objective, Split]:
    """Return the objective of the recipe for ``tiny``, and the texts of ``smoke_train``."""
    from zoo.training.config.schema import pretrain_config
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(pretrain_config(smoke_settings(family, config), {}), offline=True)
    return setup.objective, setup.corpus.split("train")


def _like(first: Objective, family: Family, name: str) -> Objective:
    """Return an objective with default options for the tokenizer and model of another one."""
    objective_class = objective_type(family, first.config, name)
    return objective_class(first.vocabulary, first.config, first.length)


def require_no_leak(family: Family, objective: Objective, split: Split) -> dict[str, int]:
    """Check that predictions do not depend on their labels.

    Returns:
        loss term -> number of labels that changed with a token, without terms whose labels are all
        visible by design.
    """
    torch.manual_seed(0)
    model = objective.model(family, objective.config).double().eval()
    randomize_weights(model)
    measured: dict[str, Visible] = {}
    for pairs in _batches_of_pairs(objective, split, measured):
        _measure(objective, model, pairs, measured)
    for term, visible in measured.items():
        declared = objective.visible_labels.get(term, 0.0)
        chance = ERRORS * (declared * (1 - declared) / max(visible.labels, 1)) ** 0.5
        require(
            visible.seen <= (declared + chance) * visible.labels,
            f"{objective.name}: {visible.seen} of {visible.labels} predictions of {term} depend on "
            f"their own labels, and at most {declared:.0%} should; are labels masked in the "
            "inputs, and inputs of a decoder shifted?",
        )
    return _count_labels(objective, measured)


def _count_labels(objective: Objective, measured: Mapping[str, Visible]) -> dict[str, int]:
    """Return the number of labels by loss term, without those that are visible by design."""
    counts = {}
    for term, visible in measured.items():
        if objective.visible_labels.get(term, 0.0) < 1:
            counts[term] = visible.labels
    return counts


def _batches_of_pairs(
    objective: Objective, split: Split, measured: Mapping[str, Visible]
) -> Iterator[list[tuple[Example, Example]]]:
    """Yield batches of pairs until enough labels of each term changed, or no text is left."""
    # An exchange that changes no value of an example rarely changes a label, so after the first
    # pairs only those whose values differ are worth a forward pass.
    batch: list[tuple[Example, Example]] = []
    batches = 0
    for tried, pair in enumerate(_exchanged_pairs(objective, split), start=1):
        if tried <= EXCHANGES or _values_differ(*pair):
            batch.append(pair)
        elif not pair[0].values:
            break  # examples of this objective have no values, so no later pair differs in them
        if len(batch) < ROWS:
            continue
        yield batch
        batch = []
        batches += 1
        # A term of which no label changed has no tokens as labels.
        counts = [count for count in _count_labels(objective, measured).values() if count]
        if tried >= EXCHANGES and min(counts, default=MIN_LABELS) >= MIN_LABELS:
            return
        if batches == MAX_BATCHES:
            return
    if batch:
        yield batch


def _values_differ(first: Example, second: Example) -> bool:
    for name, values in first.values.items():
        if not np.array_equal(values, second.values[name]):
            return True
    return False


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
    for part in range(MAX_DOCUMENT_PARTS):
        text = _documents(split, part)
        if text is None:
            return
        yield from _pairs_of_text(objective, text, EXCHANGES if part == 0 else None)


def _pairs_of_text(
    objective: Objective, text: Split, count: int | None
) -> Iterator[tuple[Example, Example]]:
    # Both examples of a pair are drawn by the same random numbers. Pairs whose predictions are in
    # different places are left out, as are examples that read the token twice, which happens where
    # the second segment may be any part of the text
    (tokens,) = text.shards
    rng = generator(0, "exchanges")
    plain = objective.dataset(text, 0)
    for place in rng.permutation(len(tokens))[:count].tolist():
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


def _documents(split: Split, part: int) -> Split | None:
    """Return a part of the first documents of a split; ``None`` where they have ended."""
    # Each part of a document begins and ends with a sentence
    documents = []
    for first, last in itertools.pairwise(split.documents[: DOCUMENTS + 1].tolist()):
        sentences: list[list[int]] = []
        skipped = 0
        for at in range(first, last):
            if sum(map(len, sentences)) >= DOCUMENT_TOKENS:
                break
            sentence = split.read(*map(int, split.sentences[at : at + 2])).tolist()
            if skipped < part * DOCUMENT_TOKENS:
                skipped += len(sentence)
            else:
                sentences.append(sentence)
        if sentences:
            documents.append(sentences)
    return Split.from_documents(documents) if documents else None


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
        logits = plain.logits[term]
        its_logits = other.logits[term]
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
