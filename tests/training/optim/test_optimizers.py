import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from torch import nn

from zoo.errors import UsageError
from zoo.families.recipe import OptimizerConfig
from zoo.training.optim.optimizers import clip_grad_norm, optimizer_method
from zoo.training.optim.param_groups import parameter_groups

Array = NDArray[np.float64]
STEPS = 7
B1, B2, EPS, DECAY = 0.9, 0.98, 1e-3, 0.1  # large enough that an error in either is visible
NAMES = ("adamw", "adafactor", "lamb", "stable-adamw", "adagrad")
MEANS = {"step", "exp_avg", "exp_avg_sq"}
STATE = {"adamw": MEANS, "lamb": MEANS, "stable-adamw": MEANS, "adagrad": {"step", "sum"}}


def model(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(dtype)


def gradient(step: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng([step, *shape]).normal(size=shape)


def learning_rate(step: int) -> float:
    return [0.0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05][step]


def make_config(name: str, **more: Any) -> OptimizerConfig:
    shared = {"learning_rate": 0.3, "betas": (B1, B2), "eps": EPS}
    shared["weight_decay"] = 0.0 if name == "adagrad" else DECAY
    return msgspec.convert({"name": name, **shared, **more}, OptimizerConfig)


def updates(model: nn.Module, config: OptimizerConfig, steps: range) -> torch.optim.Optimizer:
    optimizer = optimizer_method(config).make(parameter_groups(model, config), config)
    go_on(model, optimizer, config, steps)
    return optimizer


def go_on(model: nn.Module, optimizer: Any, config: OptimizerConfig, steps: range) -> None:
    for step in steps:
        for parameter in model.parameters():
            drawn = torch.from_numpy(gradient(step, tuple(parameter.shape)))
            parameter.grad = drawn.to(parameter.dtype)
        optimizer_method(config).set_hyperparams(optimizer, config, learning_rate(step), step)
        optimizer.step()


def by_hand(
    start: Array, update: Callable[[Array, Array, Array, int], Array], scale: float = 1.0
) -> Array:
    """Return the updated weights, computed from Adam's moments with an explicit formula."""
    weight, m, v = start, np.zeros_like(start), np.zeros_like(start)
    for step in range(STEPS):
        g = gradient(step, start.shape)
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        weight = weight - scale * learning_rate(step) * update(weight, m, v, step + 1)
    return weight


def corrected(weight: Array, m: Array, v: Array, t: int) -> Array:
    return (m / (1 - B1**t)) / (np.sqrt(v / (1 - B2**t)) + EPS) + decay(weight) * weight


def uncorrected(weight: Array, m: Array, v: Array, t: int) -> Array:
    return m / (np.sqrt(v) + EPS) + decay(weight) * weight


def with_ratio(plain: Callable[[Array, Array, Array, int], Array]) -> Any:
    def update(weight: Array, m: Array, v: Array, t: int) -> Array:
        r = plain(weight, m, v, t)
        return r if weight.ndim < 2 else r * np.linalg.norm(weight) / np.linalg.norm(r)

    return update


def decay(weight: Array) -> float:
    return DECAY if weight.ndim > 1 else 0.0


@pytest.mark.parametrize(
    ("name", "correction", "formula"),
    [
        ("adamw", True, corrected),
        ("adamw", False, uncorrected),
        ("lamb", True, with_ratio(corrected)),
        ("lamb", False, with_ratio(uncorrected)),
    ],
)
def test_updates_are_those_of_the_formula(name: str, correction: bool, formula: Any) -> None:
    ours = model()
    expected = [by_hand(p.detach().numpy().copy(), formula) for p in ours.parameters()]
    updates(ours, make_config(name, bias_correction=correction), range(STEPS))
    for parameter, weight in zip(ours.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=0, atol=1e-12)


def test_amsgrad_is_that_of_torch_and_of_the_formula() -> None:
    ours = model()
    theirs = model()
    start = [parameter.detach().numpy().copy() for parameter in ours.parameters()]
    updates(ours, make_config("adamw", args={"amsgrad": True}), range(STEPS))
    decayed = [
        {"params": [p], "weight_decay": decay(p.detach().numpy())} for p in theirs.parameters()
    ]
    optimizer = torch.optim.AdamW(decayed, betas=(B1, B2), eps=EPS, amsgrad=True)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
            (parameter,) = group["params"]
            parameter.grad = torch.from_numpy(gradient(step, tuple(parameter.shape)))
        optimizer.step()
    for parameter, other, weight in zip(ours.parameters(), theirs.parameters(), start, strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=1e-13)
        m = np.zeros_like(weight)
        v = np.zeros_like(weight)
        largest = np.zeros_like(weight)
        for step in range(STEPS):
            g = gradient(step, weight.shape)
            m = B1 * m + (1 - B1) * g
            v = B2 * v + (1 - B2) * g**2
            largest = np.maximum(largest, v)
            weight = weight - learning_rate(step) * corrected(weight, m, largest, step + 1)
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=0, atol=1e-12)


def stable(start: Array, gradients: list[Array]) -> Array:
    """Return weights after Algorithm 2 of arXiv:2304.13013, whose decay rates are debiased."""
    weight, v, u = start, np.zeros_like(start), np.zeros_like(start)
    for t, g in enumerate(gradients, start=1):
        beta1 = B1 * (1 - B1 ** (t - 1)) / (1 - B1**t)
        beta2 = B2 * (1 - B2 ** (t - 1)) / (1 - B2**t)
        v, u = beta1 * v + (1 - beta1) * g, beta2 * u + (1 - beta2) * g**2
        rms = np.sqrt(np.mean(g**2 / np.maximum(u, EPS**2)))
        rate = learning_rate(t - 1) / max(1, rms)
        weight = weight - rate * decay(weight) * weight - rate * v / (np.sqrt(u) + EPS)
    return weight


def test_stable_adamw_clips_the_update_after_a_spike() -> None:
    """A gradient a hundred times as large as those before, and one of nothing but zeros."""
    ours, config = model(), make_config("stable-adamw")
    optimizer = optimizer_method(config).make(parameter_groups(ours, config), config)
    starts = [p.detach().numpy().copy() for p in ours.parameters()]
    factors = [1, 1, 1, 1, 100, 0, 1]
    for step, factor in enumerate(factors):
        for parameter in ours.parameters():
            parameter.grad = factor * torch.from_numpy(gradient(step, tuple(parameter.shape)))
        optimizer_method(config).set_hyperparams(optimizer, config, learning_rate(step), step)
        optimizer.step()
    for parameter, start in zip(ours.parameters(), starts, strict=True):
        drawn = [k * gradient(step, start.shape) for step, k in enumerate(factors)]
        actual = parameter.detach().numpy()
        np.testing.assert_allclose(actual, stable(start, drawn), rtol=0, atol=1e-12)


@pytest.mark.parametrize("correction", [True, False])
def test_each_layer_has_its_learning_rate(correction: bool) -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])}).double()
    formula = corrected if correction else uncorrected
    scales = {"layers.0": 0.5**3, "layers.1": 0.5**2}
    expected = {
        name: by_hand(p.detach().numpy().copy(), formula, scales[name.rpartition(".")[0]])
        for name, p in model.named_parameters()
    }
    updates(
        model,
        make_config("adamw", bias_correction=correction, layerwise_lr_decay=0.5),
        range(STEPS),
    )
    for name, parameter in model.named_parameters():
        actual = parameter.detach().numpy()
        np.testing.assert_allclose(actual, expected[name], rtol=0, atol=1e-12)


def test_without_bias_correction_float32_is_as_exact_as_it_can_be() -> None:
    ours = model(torch.float32)
    expected = [by_hand(p.detach().double().numpy(), uncorrected) for p in ours.parameters()]
    updates(ours, make_config("adamw", bias_correction=False), range(STEPS))
    for parameter, weight in zip(ours.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=1e-6, atol=1e-6)


def test_adafactor_is_that_of_transformers() -> None:
    """The library factors matrices of any size."""
    ours, theirs = model(), model()
    config = make_config("adafactor", weight_decay=0.0, min_dim_size_to_factor=1)
    updates(ours, config, range(STEPS))
    reference: Any = transformers.Adafactor(
        theirs.parameters(), lr=1.0, scale_parameter=True, relative_step=False, warmup_init=False
    )
    for step in range(STEPS):
        for parameter in theirs.parameters():
            parameter.grad = torch.from_numpy(gradient(step, tuple(parameter.shape)))
        reference.param_groups[0]["lr"] = learning_rate(step)
        reference.step()
    for mine, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, their, rtol=0, atol=1e-12)


def test_adafactor_is_that_of_the_paper() -> None:
    ours = model()
    start = ours[0].weight.detach().numpy().copy()  # type: ignore[index]
    updates(ours, make_config("adafactor", min_dim_size_to_factor=3), range(STEPS))
    weight, rows, columns = start, np.zeros(3), np.zeros(4)
    for step in range(STEPS):
        lr, beta = learning_rate(step), 1 - (step + 1) ** -0.8
        g = gradient(step, start.shape)
        rows = beta * rows + (1 - beta) * (g**2 + 1e-30).sum(1)
        columns = beta * columns + (1 - beta) * (g**2 + 1e-30).sum(0)
        u = g / np.sqrt(np.outer(rows, columns) / rows.sum())
        u = u / max(1.0, math.sqrt((u**2).mean()))
        alpha = lr * max(1e-3, math.sqrt((weight**2).mean()))
        weight = weight - alpha * u - lr * DECAY * weight
    actual = ours[0].weight.detach().numpy()  # type: ignore[index]
    np.testing.assert_allclose(actual, weight, rtol=0, atol=1e-12)


def test_adafactor_does_not_factor_small_matrices() -> None:
    """``AdafactorOptimizer.apply_grad`` of mesh_tensorflow/optimize.py, without factored_dims."""
    ours = model()
    start = ours[0].weight.detach().numpy().copy()  # type: ignore[index]
    updates(ours, make_config("adafactor", weight_decay=0.0), range(STEPS))
    weight, v = start, np.zeros_like(start)
    for step in range(STEPS):
        decay_rate = 1 - (step + 1) ** -0.8
        g = gradient(step, start.shape)
        v = v * decay_rate + (g**2 + 1e-30) * (1 - decay_rate)
        x = g / np.sqrt(v)
        x = x / max(1.0, math.sqrt((x**2).mean()))
        weight = weight - x * learning_rate(step) * max(1e-3, math.sqrt((weight**2).mean()))
    actual = ours[0].weight.detach().numpy()  # type: ignore[index]
    np.testing.assert_allclose(actual, weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("shape", "factored"), [((128, 128), True), ((127, 4096), False)])
def test_adafactor_factors_two_dimensions_of_128(shape: tuple[int, int], factored: bool) -> None:
    """T5's operative_config.gin: AdafactorOptimizer.min_dim_size_to_factor = 128."""
    weight = nn.Parameter(torch.ones(shape))
    config = make_config("adafactor", weight_decay=0.0)
    module = nn.ParameterList([weight])
    optimizer = optimizer_method(config).make(parameter_groups(module, config), config)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert set(optimizer.state[weight]) == {
        "step",
        *(("row", "column") if factored else ["square"]),
    }


def test_adafactor_leaves_a_row_without_gradient_as_it_is() -> None:
    model = nn.Embedding(3, 4)
    before = model.weight.detach().clone()
    config = make_config("adafactor", weight_decay=0.0, min_dim_size_to_factor=1)
    optimizer = optimizer_method(config).make(parameter_groups(model, config), config)
    model.weight.grad = torch.full_like(model.weight, 1e-6)
    model.weight.grad[1] = 0.0
    optimizer_method(config).set_hyperparams(optimizer, config, 0.1, 0)
    optimizer.step()
    assert torch.equal(model.weight[1], before[1])
    assert model.weight.isfinite().all() and not torch.equal(model.weight[0], before[0])


def test_lamb_takes_no_ratio_of_zeros() -> None:
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    config = make_config("lamb")
    optimizer = optimizer_method(config).make(parameter_groups(model, config), config)
    model.weight.grad = torch.ones_like(model.weight)
    optimizer_method(config).set_hyperparams(optimizer, config, 0.1, 0)
    optimizer.step()
    expected = torch.full_like(model.weight, -0.1 / (1 + EPS))
    torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("accumulator", [1.0, 0.0025])
def test_adagrad_is_that_of_tensorflow(accumulator: float) -> None:
    """accum += g * g; var -= lr * g / sqrt(accum): tensorflow/core/kernels/training_ops.cc."""
    ours = model()
    expected = [p.detach().numpy().copy() for p in ours.parameters()]
    updates(ours, make_config("adagrad", initial_accumulator_value=accumulator), range(STEPS))
    for parameter, weight in zip(ours.parameters(), expected, strict=True):
        total = np.full_like(weight, accumulator)
        for step in range(STEPS):
            g = gradient(step, weight.shape)
            total = total + g * g
            weight = weight - learning_rate(step) * g / np.sqrt(total)
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=0, atol=1e-12)


def test_adagrad_sees_no_difference_between_a_scale_of_the_loss_and_one_of_its_sums() -> None:
    """Recipes rely on it: released code may scale a loss, while the zoo uses means."""
    plain, scaled = model(), model()
    updates(plain, make_config("adagrad", initial_accumulator_value=1 / 400), range(STEPS))
    config = make_config("adagrad", initial_accumulator_value=1.0)
    optimizer = optimizer_method(config).make(parameter_groups(scaled, config), config)
    for step in range(STEPS):
        for parameter in scaled.parameters():
            parameter.grad = 20 * torch.from_numpy(gradient(step, tuple(parameter.shape)))
        optimizer_method(config).set_hyperparams(optimizer, config, learning_rate(step), step)
        optimizer.step()
    for a, b in zip(plain.parameters(), scaled.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_optimizer_resumes_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    whole, config = model(dtype), make_config(name, bias_correction=False)
    updates(whole, config, range(STEPS))
    half = model(dtype)
    saved = updates(half, config, range(3)).state_dict()
    resumed = model(dtype)
    resumed.load_state_dict(half.state_dict())
    optimizer = optimizer_method(config).make(parameter_groups(resumed, config), config)
    optimizer.load_state_dict(saved)
    go_on(resumed, optimizer, config, range(3, STEPS))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_state_is_tensors_and_groups_have_names(name: str) -> None:
    trained = model()
    state = updates(trained, make_config(name), range(2)).state_dict()
    names = [label for group in state["param_groups"] for label in group["names"]]
    assert sorted(names) == sorted(label for label, _ in trained.named_parameters())
    values = [value for tensors in state["state"].values() for value in tensors.values()]
    assert values
    assert [value for value in values if not isinstance(value, torch.Tensor)] == []
    if name in STATE:
        assert [tensors for tensors in state["state"].values() if set(tensors) != STATE[name]] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_a_gradient_is_left_alone(name: str) -> None:
    trained, config = model(), make_config(name)
    optimizer = optimizer_method(config).make(parameter_groups(trained, config), config)
    before = [parameter.detach().clone() for parameter in trained.parameters()]
    optimizer_method(config).set_hyperparams(optimizer, config, 0.1, 0)
    optimizer.step()
    pairs = zip(before, trained.named_parameters(), strict=True)
    assert [name for old, (name, new) in pairs if not torch.equal(old, new)] == []
    if name != "adagrad":  # its accumulators exist from the start
        assert not optimizer.state_dict()["state"]


def test_adamw_runs_in_one_kernel() -> None:
    trained = model(torch.float32)
    optimizer = updates(trained, make_config("adamw"), range(1))
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]


def with_gradients(scale: float) -> nn.Module:
    trained = model()
    for parameter in trained.parameters():
        parameter.grad = scale * torch.from_numpy(gradient(0, tuple(parameter.shape)))
    return trained


def flat(model: nn.Module) -> Array:
    gradients = [p.grad.numpy().ravel() for p in model.parameters() if p.grad is not None]
    return np.concatenate(gradients)


def test_gradients_are_scaled_to_the_limit() -> None:
    model = with_gradients(3.0)
    before = flat(model)
    norm = clip_grad_norm(iter(model.parameters()), 0.5)
    assert float(norm) == pytest.approx(np.linalg.norm(before))
    np.testing.assert_allclose(flat(model), before * 0.5 / np.linalg.norm(before), rtol=2e-6)


@pytest.mark.parametrize("limit", [None, 100.0])
def test_gradients_within_the_limit_stay_as_they_are(limit: float | None) -> None:
    model = with_gradients(1.0)
    before = flat(model)
    assert float(clip_grad_norm(model.parameters(), limit)) == pytest.approx(np.linalg.norm(before))
    assert np.array_equal(flat(model), before)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("limit", [None, 1.0])
def test_a_norm_that_is_not_finite_is_returned(value: float, limit: float | None) -> None:
    model = with_gradients(1.0)
    first = next(model.parameters())
    assert first.grad is not None
    first.grad[0, 0] = value
    assert not clip_grad_norm(model.parameters(), limit).isfinite()


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"learning_rate": 0.0}, "learning_rate is 0"
    yield {"learning_rate": math.inf}, "learning_rate is inf"
    yield {"eps": 0.0}, "eps is 0"
    yield {"betas": (0.9, 1.0)}, "betas are"
    yield {"weight_decay": -0.1}, "weight_decay is -0.1"
    yield {"layerwise_lr_decay": 0.0}, "layerwise_lr_decay is 0"
    yield {"initial_accumulator_value": 0.0}, "initial_accumulator_value is 0"
    yield {"max_grad_norm": 0.0}, "max_grad_norm is 0"
    yield {"max_grad_norm": math.nan}, "max_grad_norm is nan"


@pytest.mark.parametrize(("changes", "message"), list(wrong()))
def test_invalid_values_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**{"learning_rate": 0.1, **changes})
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"learning_rate": 0.1, **changes}, OptimizerConfig)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "adagrad", "weight_decay": 0.1}, "weight_decay is 0.1, and adagrad has none"),
        ({"name": "adamv"}, "no optimizer is called 'adamv'; did you mean adamw"),
        ({"args": {"beta3": 0.9}}, "adamw has no setting 'beta3' in optimizer.args"),
    ],
)
def test_unknown_optimizers_and_settings_are_errors(settings: dict[str, Any], message: str) -> None:
    config = msgspec.convert({"learning_rate": 0.1, **settings}, OptimizerConfig)
    with pytest.raises(UsageError, match=re.escape(message)):
        optimizer_method(config)
