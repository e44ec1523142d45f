"""The trainer: the loop over steps, from a batch to a logged, evaluated and saved step."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from zoo.data.rng import torch_seed
from zoo.errors import Interrupted, VerificationError
from zoo.nn.kernels.embedding import recycle_gradients, sum_row_gradients, use_row_gradients
from zoo.nn.kernels.onednn_linear import is_faster, use_onednn
from zoo.objectives.base import Batch, LossOutput
from zoo.training.config.run_config import RunConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import (
    free_gathered_weights,
    full_tensor,
    local_tensor,
    parallelize,
    set_requires_grad_sync,
)
from zoo.training.graceful_shutdown import StopSignal
from zoo.training.logging.aggregate import MetricSums, Predictions, mean_over_sources
from zoo.training.loss_module import LossModule, require_terms
from zoo.training.optim.ema import EMA
from zoo.training.optim.lr_scheduler import lr_multiplier
from zoo.training.optim.optimizers import clip_grad_norm, optimizer_method
from zoo.training.optim.param_groups import parameter_groups

TOKENS = "number of tokens"  # Key of a count next to those of loss terms.


class Callback:
    """Base class of the trainer's callbacks; every method does nothing by default."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Called once, before the first step of this process."""

    def on_step_begin(self, trainer: "Trainer") -> None:
        """Called before the batch of a step is loaded."""

    def on_step_end(self, trainer: "Trainer") -> None:
        """Called after the weights were updated, before logging, evaluation and saving."""

    def on_log(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """Called with a record of a logging step or an evaluation, see ``Logger.log``."""

    def on_save(self, trainer: "Trainer") -> None:
        """Called when a checkpoint is due."""

    def on_train_end(self, trainer: "Trainer") -> None:
        """Called once, after the last step of the run."""

    def on_close(self, trainer: "Trainer") -> None:
        """Called when the process stops training, also after an error."""


class Trainer:
    """Trains a model on an objective."""

    # The result of a step is a function of the weights, the optimizer's state and the number of the
    # step. Splitting a step's rows into micro-batches, or over ranks, only changes rounding: each
    # loss term is divided by the count of the whole step before gradients are accumulated.

    def __init__(
        self,
        loss_module: LossModule,
        config: RunConfig,
        dist: DistContext,
        train_dataloader: BatchLoader,
        eval_batches: Sequence[Batch] = (),
        callbacks: Sequence[Callback] = (),  # called in this order at each event
        stop: StopSignal | None = None,  # after a signal, a checkpoint is saved and the run ends
        max_time: float | None = None,  # seconds of training in this process
        # Weight of each source in the mean of an evaluation; empty to weight rows equally.
        source_shares: Mapping[str, float] | None = None,
    ) -> None:
        self.loss_module = loss_module
        self.config = config
        self.dist = dist
        self.train_dataloader = train_dataloader
        self.eval_batches = eval_batches
        self.callbacks = list(callbacks)
        self.stop = stop or StopSignal()
        if dist.device.type == "cpu" and is_faster():
            use_onednn(loss_module)
        self.optimizer_method = optimizer_method(config.optimizer)
        is_plain = dist.device.type == "cpu" and dist.world_size == 1 and not config.compile
        if is_plain and self.optimizer_method.takes_row_gradients:
            use_row_gradients(loss_module.model)
        self.parallel_module = parallelize(loss_module, config, dist)
        self.param_groups = parameter_groups(loss_module.model, config.optimizer)
        self.optimizer = self.optimizer_method.make(self.param_groups, config.optimizer)
        self.ema = None
        if config.ema_decay is not None:
            has_adapter = config.adapter is not None
            self.ema = EMA(loss_module.model, config.ema_decay, trained_only=has_adapter)
        self.step = 0  # Number of optimizer steps done.
        self.optimizer_began = 0  # Step at which the optimizer's state began.
        self.tokens = 0  # Number of tokens trained on, over all ranks.
        # Best value of the objective's ``metric_for_best_model``, and its step.
        self.best: tuple[float, int] | None = None
        self.should_stop = False  # Whether to end after this step; a callback may set it.
        # Whether to save a checkpoint and end after this step, for a resume; a callback may set it.
        self.should_pause = False
        self.is_pausing = False  # Whether the checkpoint that is saved is this process's last one.
        # Predictions of the last evaluation by name, of all ranks, (rows, ...) each.
        self.predictions: Mapping[str, torch.Tensor] = {}
        self.max_time = max_time
        self.source_shares = source_shares or {}
        self.stopped_at: int | None = None  # Step at which ``max_time`` was over.
        self.train_metrics = MetricSums()  # Sums since the last logging step.
        # Hidden states that a stateful model carries to the next step, by micro-batch.
        self.recurrent_states: list[RecurrentState] = []
        self._autocast = autocast(config, dist.device)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total loss."""
        return self.loss_module.objective.loss_weights

    @property
    def model(self) -> nn.Module:
        """The module that is trained, without wrappers."""
        return self.loss_module.model

    def train(self) -> None:
        """Train to the last step, or until ``max_time`` is over."""
        config = self.config
        try:
            self._call("on_train_begin")
            end_time = math.inf
            if self.max_time is not None:
                end_time = time.monotonic() + self.max_time
            while self.step < config.max_steps and not (self.should_stop or self.stopped_at):
                self.dist.begin_step(self.step + 1)
                self._call("on_step_begin")
                step_record = self.train_step(self.train_dataloader.batches(self.step))
                self._call("on_step_end")
                is_last = self.step == config.max_steps
                interrupted = self.dist.any(self.stop.received or self.should_pause)
                if self.step % config.logging_steps == 0 or is_last:
                    means = self.train_metrics.compute_and_reset(self.loss_weights)
                    self.log("train", {**means, **step_record, "tokens": self.tokens})
                if self.step % config.eval_steps == 0 or is_last:
                    evaluation = self.evaluate(self.eval_batches)
                    self.update_best(evaluation)
                    self.log("validation", evaluation)
                is_last = is_last or self.should_stop
                has_limit = end_time < math.inf
                if has_limit and not is_last and self.dist.any(time.monotonic() >= end_time):
                    self.stopped_at = self.step
                # An extra evaluation or record would make a resumed run another one.
                self.is_pausing = is_last or interrupted or self.stopped_at is not None
                if self.step % config.save_steps == 0 or self.is_pausing:
                    self.check_weights()
                    self._call("on_save")
                if interrupted and not is_last:
                    raise Interrupted(
                        f"interrupted; step {self.step} of {config.max_steps} is saved"
                    )
            self._call("on_train_end")
        finally:
            self._call("on_close")
            self.train_dataloader.close()

    def update_best(self, evaluation: Mapping[str, Any]) -> None:
        """Set ``best`` if an evaluation is better than all earlier ones."""
        objective = self.loss_module.objective
        name = objective.metric_for_best_model
        if name == "loss":
            value = evaluation["loss"]
        else:
            value = evaluation["metrics"][name]
        sign = 1 if objective.greater_is_better else -1
        if math.isnan(value):  # NaN would stay the best for ever: no value is above it.
            return
        if self.best is None or sign * value > sign * self.best[0]:
            self.best = (value, self.step)

    def train_step(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Run forward and backward passes of all micro-batches, and update the weights once."""
        self.loss_module.train()
        self.loss_module.objective.begin_step(self.model, self.step, self.config.max_steps)
        self.train_metrics.merge(self.forward_backward(batches).reduce(self.dist))
        optimizer_config = self.config.optimizer
        norm = clip_grad_norm(self.loss_module.parameters(), optimizer_config.max_grad_norm)
        if not norm.isfinite():
            raise self._nonfinite_error(self.step + 1, lambda: self._repeat_forward(batches))
        rate = learning_rate(self.config, self.step)
        updates = self.step - self.optimizer_began
        self.optimizer_method.set_hyperparams(self.optimizer, optimizer_config, rate, updates)
        self.optimizer.step()
        recycle_gradients(self.model)
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.model)
        self.step += 1
        return {"learning_rate": rate, "gradient_norm": float(norm)}

    def forward_backward(self, batches: Sequence[Batch]) -> MetricSums:
        """Accumulate the gradients of a step's micro-batches."""
        sums = MetricSums()
        local_counts = {}
        for term in batches[0].counts:
            local_counts[term] = sum(batch.counts[term] for batch in batches)
        # One collective operation sums both: each waits for all processes.
        local_tokens = sum(batch.tokens for batch in batches)
        summed = self.dist.sum_counts({**local_counts, TOKENS: local_tokens})
        self.tokens += int(summed[TOKENS])
        counts = {term: summed[term] for term in local_counts}
        for index, batch in enumerate(batches):
            is_last = index == len(batches) - 1
            set_requires_grad_sync(self.parallel_module, self.config, last=is_last)
            output = self._forward(index, batch)
            self.total_loss(output, counts).backward()  # type: ignore[no-untyped-call]
            sum_row_gradients(self.model)
            sums.add(output, batch.counts)
            if batch.sources:
                sums.add_sources(output, batch)
        return sums

    def total_loss(self, output: LossOutput, counts: Mapping[str, float]) -> torch.Tensor:
        """Return the weighted sum of a micro-batch's terms, each divided by the step's count."""
        # DDP and FSDP average gradients over ranks, so the loss is multiplied by the world size.
        require_terms(self.loss_module.objective, output)
        terms = [
            output.sums[term] * (weight * self.dist.world_size / (counts[term] or 1))
            for term, weight in self.loss_weights.items()
        ]
        return torch.stack(terms).sum()

    def _forward(self, index: int, batch: Batch) -> LossOutput:
        # Dropout is seeded by step, rank and micro-batch, and is the same after a resume.
        seed = torch_seed(self.config.seed, "dropout", self.step, self.dist.rank, index)
        # torch.manual_seed formats a traceback for each type of device that is not in use.
        if self.dist.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        tensors = {
            name: tensor.to(self.dist.device, non_blocking=True)
            for name, tensor in batch.tensors.items()
        }
        if index < len(self.recurrent_states):
            tensors |= self.recurrent_states[index]
        with self._autocast:
            output: LossOutput = self.parallel_module(tensors)
        if output.recurrent_state:
            self.recurrent_states[index : index + 1] = [output.recurrent_state]
        return output

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Return mean losses and metrics over held-out batches, see ``MetricSums``.

        Each batch of a run with several sources is of one of them, and ``sources`` has their means.
        """
        # With an EMA, its weights are evaluated: they become the final model.
        self.loss_module.eval()
        weights = contextlib.nullcontext() if self.ema is None else self.ema.applied(self.model)
        with weights:
            sums_by_source, predictions = self._evaluation_sums(batches)
            free_gathered_weights(self.loss_module)
            record = self._mean_of_evaluation(sums_by_source)
            if not math.isfinite(record["loss"]):
                raise self._nonfinite_error(self.step, lambda: self._evaluation_sums(batches))
        self.predictions = self.dist.gather_rows(predictions)
        objective = self.loss_module.objective
        objective.finish_evaluation(self.model, self.predictions)
        free_gathered_weights(self.loss_module)
        record["metrics"] |= objective.compute_metrics(self.predictions)
        return record

    def _mean_of_evaluation(self, sums_by_source: Mapping[str, MetricSums]) -> dict[str, Any]:
        """Return the means over all processes."""
        pooled_sums = MetricSums()
        records = {}
        for source, sums in sums_by_source.items():
            pooled_sums.merge(sums.reduce(self.dist))
            records[source] = sums.compute(self.loss_weights)
        if self.source_shares:
            return mean_over_sources(records, self.source_shares)
        record = pooled_sums.compute(self.loss_weights)
        if list(records) != [""]:
            record["sources"] = records
        return record

    def _evaluation_sums(
        self, batches: Sequence[Batch]
    ) -> tuple[dict[str, MetricSums], dict[str, torch.Tensor]]:
        """Return losses and metrics of this process by source, and the predictions by name.

        The source is an empty text where a run has no sources.
        """
        sums_by_source: dict[str, MetricSums] = {}
        predictions = Predictions()
        for batch in batches:
            tensors = {name: tensor.to(self.dist.device) for name, tensor in batch.tensors.items()}
            with self._autocast:
                output: LossOutput = self.loss_module(tensors)
            sums = sums_by_source.setdefault(batch.source, MetricSums())
            sums.add(output, batch.counts)
            predictions.add(output.predictions)
        return sums_by_source, predictions.tensors()

    def log(self, split: str, record: Mapping[str, Any]) -> None:
        """Pass a record of a split, ``train`` or ``validation``, to the callbacks."""
        for callback in self.callbacks:
            callback.on_log(self, {"step": self.step, "split": split, **record})

    def check_weights(self) -> None:
        """Raise an error if a weight is not finite, so that no such checkpoint is saved."""
        # Each process checks its shards, so that there is one collective operation and not one for
        # each parameter.
        is_finite = all_finite(map(local_tensor, self.loss_module.parameters()))
        if self.dist.any(not is_finite):
            raise self._nonfinite_error(self.step, lambda: None)

    def _repeat_forward(self, batches: Sequence[Batch]) -> None:
        for index, batch in enumerate(batches):
            self._forward(index, batch)

    def _nonfinite_error(self, step: int, forward: Callable[[], Any]) -> VerificationError:
        """Return an error that names the first non-finite tensor of a repeated forward pass."""
        location = find_nonfinite(self.model, forward)
        return VerificationError(
            f"step {step}: not a finite number, first in {location}",
            "earlier checkpoints are intact; try a lower learning rate, or more warm-up",
        )

    def _call(self, event: str) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self)


def learning_rate(config: RunConfig, step: int) -> float:
    """Return the learning rate of an update of a run."""
    warmup = getattr(config, "seq_len_warmup", None)
    rate = config.optimizer.learning_rate
    if step < config.seq_len_warmup_steps and warmup is not None:
        rate = rate if warmup.learning_rate is None else warmup.learning_rate
    return rate * lr_multiplier(config.lr_scheduler, step, config.max_steps)


def autocast(config: RunConfig, device: torch.device) -> Any:
    """Return the autocast context of the configured precision."""
    enabled = computes_in_bfloat16(config, device.type)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def computes_in_bfloat16(config: RunConfig, device_type: str) -> bool:
    """Return whether the configured precision is bfloat16 on a device of a type, such as cuda."""
    if config.precision == "auto":
        return device_type == "cuda" and torch.cuda.is_bf16_supported()
    return config.precision == "bfloat16"


def find_nonfinite(module: nn.Module, run: Callable[[], Any]) -> str:
    """Return the name of the first weight, layer output or gradient that is not finite."""
    for name, parameter in module.named_parameters():
        if not _is_finite(parameter):
            return f"the weights {name}"
    nonfinite_outputs: list[str] = []

    def check_output(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not nonfinite_outputs and not _is_finite(output):
                nonfinite_outputs.append(f"the output of {name}")

        return hook

    submodules = [(name, child) for name, child in module.named_modules() if name]
    handles = [child.register_forward_hook(check_output(name)) for name, child in submodules]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    if nonfinite_outputs:
        return nonfinite_outputs[0]
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and not _is_finite(parameter.grad):
            return f"the gradient of {name}"
    return "the loss"


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether all values of all tensors are finite, with one synchronization."""
    # The smallest and the largest value are NaN if any value is, and one pass finds both.
    flags = []
    for tensor in tensors:
        if tensor.numel():
            flags += [extreme.isfinite() for extreme in tensor.detach().aminmax()]
    return not flags or bool(torch.stack(flags).all())


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        values = value.coalesce().values() if value.is_sparse else value
        return not values.is_floating_point() or bool(full_tensor(values.isfinite().all()))
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return True


RecurrentState = dict[str, torch.Tensor]
