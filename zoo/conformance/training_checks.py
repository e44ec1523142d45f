"""Checks of initial weights and of dropout, against the reference library."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from msgspec.structs import asdict, replace
from torch import Tensor, nn

from zoo.conformance.comparison import reference_runs
from zoo.conformance.hf_reference import (
    reference_class,
    reference_model,
    reference_state,
)
from zoo.conformance.tiny_model import NotApplicable, TinyModel, require
from zoo.errors import UsageError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.io.tensors.formats import TensorInfo
from zoo.weights import match_tensors

SCALES = (0.8, 1.25)  # of standard deviations; truncation at two makes them 0.88 times as large
RATE = 0.2  # of dropout
TOKENS = 12  # tokens of the rows in which dropout is measured
ROWS = (32, 256, 1024)  # number of these rows, if fewer are not enough
NO_TOKEN = -1  # no input has this number
CERTAIN = 0.5  # largest error of a measurement by chance, as a fraction of the noise
DRAWS = 4  # initial models, so that small tensors have enough values
MIN_VALUES = 100  # values of a tensor for a statement on its standard deviation
ERRORS = 6  # standard errors by which measurements differ at random


class TrainingChecks(TinyModel):
    """Checks of initial weights and of dropout."""

    # accepted relative difference of the variance that dropout adds, beyond chance
    dropout_difference: ClassVar[float] = 0.1

    def check_reference_initialization(self, head: str) -> None:
        """Check that new weights are as large as the reference library's, and constants equal."""
        # Biases and norms must begin with the same value, such as 0 or 1; other tensors must have
        # about the same standard deviation. ``Family.reference_exceptions`` names heads whose own
        # tensors may differ.
        self._require_reference(head)
        exceptions = self.family.reference_exceptions
        if reason := exceptions.get("reference_initialization"):
            raise NotApplicable(reason)
        torch.manual_seed(0)
        states = [reference_state(self.family, self.config, head) for _ in range(DRAWS)]
        models = [self.family.model(self.config, head).state_dict() for _ in range(DRAWS)]
        excepted = f"reference_initialization {head}" in exceptions
        backbone = {entry.target for entry in self.family.weights(self.config, "none").entries()}
        infos = {name: TensorInfo("F32", tuple(t.shape)) for name, t in states[0].items()}
        small_tensors = []
        for copy in match_tensors(self.family.weights(self.config, head), infos).copies:
            target = copy.entry.target
            draws = []
            for state in states:
                arrays = [state[name].detach().numpy() for name in copy.names]
                draws.append(torch.from_numpy(copy.entry.op.from_hub(arrays, copy.entry.shape)))
            expected = torch.stack(draws)
            if excepted and target not in backbone and not _is_constant(expected):
                continue
            tensor = torch.stack([model[target] for model in models])
            _require_same_start(target, tensor, expected)
            if not _is_constant(expected) and expected.numel() < MIN_VALUES:
                small_tensors.append(f"{expected.numel()} values of {target}")
        if small_tensors:
            raise NotApplicable(f"{', '.join(small_tensors)}; at least {MIN_VALUES} are needed")

    def check_dropout_rates(self, head: str) -> None:
        """Check that dropout adds as much noise to hidden states and outputs as the reference's."""
        # For the backbone, each field of the configuration whose name ends in ``dropout`` is tried
        # separately; for a model with a head, all together. Without a class of the reference, the
        # check is that nothing is dropped twice.
        if reason := self.family.reference_exceptions.get("dropout_rates"):
            raise NotApplicable(reason)
        fields = [name for name in asdict(self.config) if name.endswith("dropout")]
        trials = [{name: RATE} for name in fields]
        if head != "none":
            trials = [dict.fromkeys(fields, RATE)]
        for rates in filter(None, trials):
            config = replace(self.config, **{**dict.fromkeys(fields, 0.0), **rates})
            torch.manual_seed(0)
            model = self.family.model(config, head).eval()
            randomize_weights(model)
            try:
                self._require_reference(head)
                reference_class(self.family, config, head)
            except UsageError:
                self._require_dropped_once(model, config, head)
            else:
                self._require_same_noise(model, config, head, " and ".join(rates))

    def _require_same_noise(self, model: nn.Module, config: Any, head: str, label: str) -> None:
        # More rows are tried where the error by chance is as large as half the noise.
        reference = reference_model(self.family, config, head, model.state_dict())
        for rows in ROWS:
            uncertain_tensor = self._compare_noise(model, reference, config, head, label, rows)
            if not uncertain_tensor:
                return
        raise NotApplicable(
            f"with {label} {RATE}, {ROWS[-1]} rows of {uncertain_tensor} are too few"
        )

    def _compare_noise(
        self,
        model: nn.Module,
        reference: nn.Module,
        config: Any,
        head: str,
        label: str,
        rows: int,
    ) -> str:
        """Compare the noise of both; return a tensor whose noise is not known well enough."""
        spec = self.family.onnx(config, head)
        # A reference whose output is that of the last token before the padding refuses several rows
        # without a token of padding. These rows have no padding.
        library_config: Any = reference.config
        if getattr(library_config, "pad_token_id", None) is None:
            library_config.pad_token_id = NO_TOKEN
        tokens = max(TOKENS, spec.minimums.get("tokens", 1))
        inputs = random_inputs(spec, config, [tokens], padding_side=self.family.padding_side)
        inputs = {name: tensor.repeat_interleave(rows, 0) for name, tensor in inputs.items()}
        run_model, run_library = reference_runs(self.family, config, head, model, reference, inputs)
        measured = _noise(model, run_model)
        expected_noise = _noise(reference, run_library)
        # the last layer of each stack, such as ``layers.1`` and ``decoder.layers.2``
        last_layers = {}
        for name in measured:
            if "layers." in name:
                last_layers[name.rpartition(".")[0]] = name
        uncertain_tensor = ""
        for name, (noise, error) in measured.items():
            if name in last_layers.values() or name not in expected_noise:
                continue  # some models return it after one more dropout; the outputs show it
            expected, its_error = expected_noise[name]
            largest = max(noise, expected)
            chance = ERRORS * math.hypot(error, its_error)
            require(
                abs(noise - expected) <= chance + self.dropout_difference * largest,
                f"with {label} {RATE}, dropout adds {noise:.3f} of its variance to {name}, and "
                f"{expected:.3f} in the reference; is it applied as often?",
            )
            if chance > CERTAIN * largest:
                uncertain_tensor = name
        return uncertain_tensor

    def _require_dropped_once(self, model: nn.Module, config: Any, head: str) -> None:
        inputs = random_inputs(self.family.onnx(config, head), config, [TOKENS] * ROWS[0])
        names = {module: name for name, module in model.named_modules()}
        zeros: list[dict[str, float]] = []
        for training in (False, True):
            shares: dict[str, float] = {}

            def record(
                module: nn.Module, args: tuple[Tensor, ...], shares: dict[str, float] = shares
            ) -> None:
                shares[names[module]] = float((args[0] == 0).float().mean())

            hooks = [
                module.register_forward_pre_hook(record)
                for module in names
                if isinstance(module, nn.Dropout)
            ]
            self.run(model.train(training), inputs)
            for hook in hooks:
                hook.remove()
            zeros.append(shares)
        model.eval()
        before, after = zeros
        twice = [name for name in before if before[name] < RATE / 4 and after[name] > RATE / 2]
        require(not twice, f"{', '.join(twice)} drops values that were dropped before")


def _is_constant(tensor: Tensor) -> bool:
    return bool((tensor == tensor.flatten()[0]).all())


def _require_same_start(name: str, tensor: Tensor, expected: Tensor) -> None:
    """Check that a new tensor has the reference's value or standard deviation."""
    if _is_constant(expected):
        value = float(expected.flatten()[0])
        message = f"{name} begins with values other than {value:g}, as the reference's does"
        require(torch.equal(tensor, expected), message)
        return
    chance = ERRORS * (1 / tensor.numel()) ** 0.5
    scale = float(tensor.std())
    its_scale = float(expected.std())
    low, high = SCALES
    require(
        low / (1 + chance) <= scale / its_scale <= high * (1 + chance),
        f"{name} begins with a standard deviation of {scale:.2g}, and the reference's with "
        f"{its_scale:.2g}",
    )
    difference = abs(float(tensor.mean() - expected.mean()))
    message = f"the mean of {name} begins {difference:.2g} from the reference's"
    require(difference <= its_scale * (0.1 + chance), message)


def _noise(
    module: nn.Module, run: Callable[[], Mapping[str, Tensor]]
) -> dict[str, tuple[float, float]]:
    """Return the noise that training mode adds to each tensor, and its standard error."""
    # Noise is relative to the tensor's variance
    module.eval()
    quiet = run()
    module.train()
    noisy = run()
    module.eval()
    noise = {}
    for name, tensor in quiet.items():
        if tensor.is_floating_point():
            rows = _row_noise(noisy[name], tensor)
            noise[name] = float(rows.mean()), float(rows.std() / len(rows) ** 0.5)
    return noise


def _row_noise(noisy: Tensor, quiet: Tensor) -> Tensor:
    """Return the mean square of the difference of each row, relative to the variance, (rows,)."""
    finite = noisy.isfinite() & quiet.isfinite()  # a reference may mask by infinity
    squares = torch.where(finite, noisy - quiet, 0).double().square()
    variance = quiet[finite].double().var().clamp(min=1e-12)
    rows = len(noisy)
    counts = finite.reshape(rows, -1).sum(1).clamp(min=1)
    return squares.reshape(rows, -1).sum(1) / counts / variance
