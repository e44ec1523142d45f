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

from zoo.data.rng import torch_seed
from zoo.errors import VerificationError
from zoo.objectives.base import Batch, LossOutput
from zoo.training.config.schema import TrainConfig
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import parallelize, set_requires_grad_sync
from zoo.training.logging.aggregate import MetricSums
from zoo.training.loss_module import LossModule
from zoo.training.nonfinite import all_finite, find_nonfinite
from zoo.training.optim.ema import EMA
from zoo.training.optim.lr_scheduler import lr_multiplier
from zoo.training.optim.optimizers import clip_grad_norm, make_optimizer, set_hyperparams
from zoo.training.optim.param_groups import parameter_groups

RecurrentState = dict[str, torch.Tensor]


class TrainStep:
    """A lesson on its way.

    Args:
        lesson: what is trained, on its device.
        settings: of the run.
        ranks: the processes that share it.
        micro_batches: which rows of a step each of this process's micro-batches has.

    Attributes:
        step: how many updates were made.
        tokens: how many tokens they looked at.
        totals: losses and metrics since they were last read.
        recurrent_states: what a recurrent model keeps between steps, one entry a micro-batch.
    """

    def __init__(
        self,
        lesson: LossModule,
        settings: TrainConfig,
        ranks: DistContext,
        micro_batches: Sequence[range],
    ) -> None:
        self.lesson, self.settings, self.ranks = lesson, settings, ranks
        self.micro_batches = micro_batches
        self.wrapped = parallelize(lesson, settings, ranks)
        self.groups = parameter_groups(lesson.model, settings.optimizer)
        self.optimizer = make_optimizer(self.groups, settings.optimizer)
        self.average = None
        if settings.ema_decay is not None:
            self.average = EMA(lesson.model, settings.ema_decay)
        self.step, self.tokens = 0, 0
        self.totals = MetricSums()
        self.recurrent_states: list[RecurrentState] = []
        self._autocast = autocast(settings, ranks.device)

    def train_step(self, batches: Sequence[Batch]) -> dict[str, float]:
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
        self.totals.merge(self.forward_backward(batches).reduce(self.ranks))
        rate_ = self.settings.optimizer.learning_rate * lr_multiplier(
            self.settings.lr_scheduler, self.step, self.settings.max_steps
        )
        norm = clip_grad_norm(self.lesson.parameters(), self.settings.optimizer.max_grad_norm)
        if not norm.isfinite():
            raise self._not_finite(self.step + 1, lambda: self._again(batches))
        set_hyperparams(self.optimizer, self.settings.optimizer, rate_, self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.lesson.model)
        self.tokens += self.ranks.sum_counts({"tokens": sum(b.tokens for b in batches)})["tokens"]
        self.step += 1
        return {"learning_rate": rate_, "gradient_norm": float(norm)}

    def forward_backward(self, batches: Sequence[Batch]) -> MetricSums:
        """Sum up the gradients of a step; see ``update``.

        Returns:
            this process's losses and metrics.
        """
        totals = MetricSums()
        counts = self.ranks.sum_counts(_summed([batch.counts for batch in batches]))
        for number, batch in enumerate(batches):
            set_requires_grad_sync(self.wrapped, last=number == len(batches) - 1)
            outcome = self._forward(number, batch)
            self.loss(outcome, counts).backward()  # type: ignore[no-untyped-call]
            totals.add(outcome, batch.counts)
        return totals

    def loss(self, outcome: LossOutput, counts: Mapping[str, int]) -> torch.Tensor:
        """Return what gradients are taken of: each term's part of the step's mean.

        Wrappers for several devices average gradients, so that each device's part is multiplied
        by the number of devices.
        """
        parts = [
            outcome.sums[term] * (weight * self.ranks.world_size / max(1, counts[term]))
            for term, weight in self.lesson.objective.loss_weights.items()
        ]
        return torch.stack(parts).sum()

    def _forward(self, number: int, batch: Batch) -> LossOutput:
        place = (self.step, self.ranks.rank, number)
        torch.manual_seed(torch_seed(self.settings.seed, "dropout", *place))
        tensors = {
            name: tensor.to(self.ranks.device, non_blocking=True)
            for name, tensor in batch.tensors.items()
        }
        if number < len(self.recurrent_states):
            tensors |= self.recurrent_states[number]
        with self._autocast:
            outcome: LossOutput = self.wrapped(tensors)
        if outcome.recurrent_state:
            self.recurrent_states[number : number + 1] = [outcome.recurrent_state]
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
        where = find_nonfinite(self.lesson.model, again)
        return VerificationError(
            f"step {step}: not a finite number, first in {where}",
            "what was saved before is good; try a lower learning rate, or more warm-up",
        )

    @torch.no_grad()
    def validate(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Return the mean losses and metrics over held-out batches; see ``MetricSums.read``.

        They are those of the averaged weights where there are any: a run leaves these behind.

        Raises:
            VerificationError: the loss is not finite.
        """
        self.lesson.eval()
        average = self.average
        with average.applied(self.lesson.model) if average else contextlib.nullcontext():
            totals = self._look(batches)
            found = totals.reduce(self.ranks).compute_and_reset(self.lesson.objective.loss_weights)
            if not math.isfinite(found["loss"]):
                raise self._not_finite(self.step, lambda: self._look(batches))
        return found

    def _look(self, batches: Sequence[Batch]) -> MetricSums:
        totals = MetricSums()
        for batch in batches:
            tensors = {name: t.to(self.ranks.device) for name, t in batch.tensors.items()}
            with self._autocast:
                totals.add(self.lesson(tensors), batch.counts)
        return totals


def autocast(settings: TrainConfig, device: torch.device) -> Any:
    """Return the context that products are computed in."""
    half = settings.precision == "bfloat16" or (
        settings.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {term: sum(each[term] for each in counts) for term in counts[0]}
