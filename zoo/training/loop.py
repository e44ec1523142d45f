"""The loop: batches to losses, losses to gradients, gradients to weights.

All that a step does follows from the weights, the optimizer's state and the number of the step.
How a step's rows are split into micro-batches, and over ranks, changes rounding alone: each
loss term is divided by the count of the whole step before gradients are summed.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from zoo.data.random import torch_seed
from zoo.errors import VerificationError
from zoo.objectives.base import Batch, Outcome
from zoo.training.averaging import Average
from zoo.training.finite import all_finite, first_not_finite
from zoo.training.groups import parameter_groups
from zoo.training.lesson import Lesson
from zoo.training.optimizers import clip, make_optimizer, set_rates
from zoo.training.ranks import Ranks
from zoo.training.schedules import rate
from zoo.training.settings import Settings
from zoo.training.totals import Totals
from zoo.training.wrapping import sync_gradients, wrap

Memory = dict[str, torch.Tensor]


class Trainer:
    """A lesson on its way.

    Args:
        lesson: what is trained, on its device.
        settings: of the run.
        ranks: the processes that share it.
        micros: which rows of a step each of this process's micro-batches has.

    Attributes:
        step: how many updates were made.
        tokens: how many tokens they looked at.
        totals: losses and metrics since they were last read.
        memories: what a recurrent model keeps between steps, one entry a micro-batch.
    """

    def __init__(
        self, lesson: Lesson, settings: Settings, ranks: Ranks, micros: Sequence[range]
    ) -> None:
        self.lesson, self.settings, self.ranks = lesson, settings, ranks
        self.micros = micros
        self.wrapped = wrap(lesson, settings, ranks)
        self.groups = parameter_groups(lesson.learner, settings.optimizer)
        self.optimizer = make_optimizer(self.groups, settings.optimizer)
        self.average = None
        if settings.average is not None:
            self.average = Average(lesson.learner, settings.average)
        self.step, self.tokens = 0, 0
        self.totals = Totals()
        self.memories: list[Memory] = []
        self._autocast = autocast(settings, ranks.device)

    def update(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Make one update of the weights.

        Args:
            batches: the micro-batches of this step that are this process's.

        Returns:
            the learning rate and the gradient's norm.

        Raises:
            VerificationError: the loss or the gradient is not finite; the weights are as they
                were before the step.
        """
        self.lesson.train()
        self.totals.merge(self.accumulate(batches).over(self.ranks))
        rate_ = self.settings.optimizer.learning_rate * rate(
            self.settings.schedule, self.step, self.settings.steps
        )
        norm = clip(self.lesson.parameters(), self.settings.optimizer.clip)
        if not norm.isfinite():
            raise self._not_finite(self.step + 1, lambda: self._again(batches))
        set_rates(self.optimizer, self.settings.optimizer, rate_, self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.lesson.learner)
        self.tokens += self.ranks.total({"tokens": sum(b.tokens for b in batches)})["tokens"]
        self.step += 1
        return {"learning_rate": rate_, "gradient_norm": float(norm)}

    def accumulate(self, batches: Sequence[Batch]) -> Totals:
        """Sum up the gradients of a step; see ``update``.

        Returns:
            this process's losses and metrics.
        """
        totals = Totals()
        counts = self.ranks.total(_summed([batch.counts for batch in batches]))
        for number, batch in enumerate(batches):
            sync_gradients(self.wrapped, last=number == len(batches) - 1)
            outcome = self._forward(number, batch)
            self.loss(outcome, counts).backward()  # type: ignore[no-untyped-call]
            totals.add(outcome, batch.counts)
        return totals

    def loss(self, outcome: Outcome, counts: Mapping[str, int]) -> torch.Tensor:
        """Return what gradients are taken of: each term's part of the step's mean.

        Wrappers for several devices average gradients, so that each device's part is multiplied
        by the number of devices.
        """
        parts = [
            outcome.sums[term] * (weight * self.ranks.count / max(1, counts[term]))
            for term, weight in self.lesson.objective.terms.items()
        ]
        return torch.stack(parts).sum()

    def _forward(self, number: int, batch: Batch) -> Outcome:
        place = (self.step, self.ranks.rank, number)
        torch.manual_seed(torch_seed(self.settings.seed, "dropout", *place))
        tensors = {
            name: tensor.to(self.ranks.device, non_blocking=True)
            for name, tensor in batch.tensors.items()
        }
        if number < len(self.memories):
            tensors |= self.memories[number]
        with self._autocast:
            outcome: Outcome = self.wrapped(tensors)
        if outcome.memory:
            self.memories[number : number + 1] = [outcome.memory]
        return outcome

    def _again(self, batches: Sequence[Batch]) -> None:
        for number, batch in enumerate(batches):
            self._forward(number, batch)

    def check_weights(self) -> None:
        """Refuse weights that are not finite: they are not worth keeping.

        Raises:
            VerificationError: names the first.
        """
        if not all_finite(self.lesson.parameters()):
            raise self._not_finite(self.step, lambda: None)

    def _not_finite(self, step: int, again: Callable[[], Any]) -> VerificationError:
        """Say where numbers stopped being numbers in a step, from the same done again."""
        where = first_not_finite(self.lesson.learner, again)
        return VerificationError(
            f"step {step}: not a finite number, first in {where}",
            "what was saved before is good; try a lower learning rate, or more warm-up",
        )

    @torch.no_grad()
    def validate(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Return the mean losses and metrics over held-out batches; see ``Totals.read``.

        They are those of the averaged weights where there are any: a run leaves these behind.

        Raises:
            VerificationError: the loss is not finite.
        """
        self.lesson.eval()
        average = self.average
        with average.swapped(self.lesson.learner) if average else contextlib.nullcontext():
            totals = self._look(batches)
            found = totals.over(self.ranks).read(self.lesson.objective.terms)
            if not math.isfinite(found["loss"]):
                raise self._not_finite(self.step, lambda: self._look(batches))
        return found

    def _look(self, batches: Sequence[Batch]) -> Totals:
        totals = Totals()
        for batch in batches:
            tensors = {name: t.to(self.ranks.device) for name, t in batch.tensors.items()}
            with self._autocast:
                totals.add(self.lesson(tensors), batch.counts)
        return totals


def autocast(settings: Settings, device: torch.device) -> Any:
    """Return the context that products are computed in."""
    half = settings.precision == "bfloat16" or (
        settings.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {term: sum(each[term] for each in counts) for term in counts[0]}
