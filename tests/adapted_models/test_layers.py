"""The layers of adapters against their formulas, in float64."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from zoo.adapted_models.layers import adapted_modules, merge_adapters
from zoo.errors import UsageError
from zoo.nn.adapters import (
    Bottleneck,
    BottleneckAdapter,
    DoRAAdapter,
    IA3Adapter,
    LinearAdapter,
    LoRAAdapter,
    attach_adapter,
    attach_beside,
    attach_to_norm,
    can_adapt,
)
from zoo.nn.kernels.onednn_linear import use_onednn
from zoo.nn.kernels.small_batch_linear import optimize_for_inference
from zoo.nn.transformer import FeedForward

ROWS = {"0": range(0, 4), "2": range(8, 12)}  # query and value of a fused matrix


def random_linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, 12).double()


def randomized(adapter: LinearAdapter) -> LinearAdapter:
    for parameter in adapter.double().parameters():
        nn.init.normal_(parameter)
    return adapter


def lora() -> LoRAAdapter:
    return LoRAAdapter(ROWS, 12, 6, rank=2, scaling=3.0)


def dora() -> DoRAAdapter:
    return DoRAAdapter(ROWS, 12, 6, rank=2, scaling=3.0)


def low_rank_weight(weight: Tensor, adapter: LoRAAdapter) -> Tensor:
    """W + scaling B A of each part, one matrix at a time."""
    changed = weight.detach().clone()
    for name, rows in ROWS.items():
        changed[rows.start : rows.stop] += 3.0 * adapter.lora_B[name] @ adapter.lora_A[name]
    return changed


def dora_weight(weight: Tensor, adapter: DoRAAdapter) -> Tensor:
    changed = low_rank_weight(weight, adapter)
    for name, rows in ROWS.items():
        for k, row in enumerate(rows):
            length = math.sqrt(float(changed[row].square().sum()))
            changed[row] *= float(adapter.lora_magnitude_vector[name][k]) / length
    return changed


@pytest.mark.parametrize(("make", "formula"), [(lora, low_rank_weight), (dora, dora_weight)])
def test_low_rank_updates_change_only_their_rows(
    make: Callable[[], LoRAAdapter], formula: Callable[[Tensor, LoRAAdapter], Tensor]
) -> None:
    linear, x = random_linear(), torch.randn(5, 6, dtype=torch.float64)
    bias = linear.bias.detach().clone()
    adapter = make()
    attach_adapter(linear, adapter)
    randomized(adapter)
    with torch.no_grad():
        expected = formula(linear.weight, adapter)
        torch.testing.assert_close(linear(x), x @ expected.T + bias)
        some = slice(8, 12)
        found = adapter(x, linear.weight[some], linear.bias[some], some)
        torch.testing.assert_close(found, x @ expected[some].T + bias[some])
        merge_adapters(linear)
    assert type(linear) is nn.Linear and list(adapted_modules(linear)) == []
    torch.testing.assert_close(linear.weight.detach(), expected)
    assert torch.equal(linear.weight[4:8], random_linear().weight[4:8])


@pytest.mark.parametrize("make", [lora, dora])
def test_new_adapters_change_nothing(make: Callable[[], LoRAAdapter]) -> None:
    linear, x = random_linear(), torch.randn(5, 6, dtype=torch.float64)
    before = linear(x)
    attach_adapter(linear, make().double())
    torch.testing.assert_close(linear(x), before)


def test_ia3_scales_outputs_with_their_bias_or_inputs() -> None:
    x = torch.randn(5, 6, dtype=torch.float64)
    outputs, inputs = random_linear(), random_linear()
    by_row = randomized(IA3Adapter(ROWS, 12, 6, scales_input=False))
    by_column = randomized(IA3Adapter({"0": range(12)}, 12, 6, scales_input=True))
    with torch.no_grad():
        factors = torch.ones(12, dtype=torch.float64)
        for name, rows in ROWS.items():
            factors[rows.start : rows.stop] = by_row.get_parameter(f"ia3_l.{name}")[:, 0]
        expected = (outputs(x) * factors, inputs(x * by_column.get_parameter("ia3_l.0")[0]))
        attach_adapter(outputs, by_row)
        attach_adapter(inputs, by_column)
        for _ in range(2):  # with the adapters, and merged
            torch.testing.assert_close(outputs(x), expected[0])
            torch.testing.assert_close(inputs(x), expected[1])
            merge_adapters(nn.ModuleList([outputs, inputs]))


def test_dora_has_no_gradient_through_lengths() -> None:
    """Section 4.3 of the paper: the length in the denominator is a constant."""
    linear, x = random_linear(), torch.randn(5, 6, dtype=torch.float64)
    adapter = dora()
    attach_adapter(linear, adapter)
    randomized(adapter)
    linear(x).square().sum().backward()
    weight = low_rank_weight(linear.weight, adapter).detach().requires_grad_()
    lengths = weight.detach().norm(dim=1)
    gain = torch.ones(12, dtype=torch.float64)
    for name, rows in ROWS.items():
        magnitude = adapter.lora_magnitude_vector[name].detach()
        gain[rows.start : rows.stop] = magnitude / lengths[rows.start : rows.stop]
    loss = (x @ weight.T * gain + linear.bias.detach()).square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    for name, rows in ROWS.items():
        part = weight.grad[rows.start : rows.stop]
        expected = 3.0 * adapter.lora_B[name].detach().T @ part
        torch.testing.assert_close(adapter.lora_A[name].grad, expected)


def test_only_plain_linear_maps_can_have_an_adapter() -> None:
    class Other(nn.Linear):
        pass

    assert can_adapt(nn.Linear(2, 2)) and not can_adapt(Other(2, 2))


def test_bottlenecks_add_to_outputs_or_to_a_normalized_sum() -> None:
    torch.manual_seed(1)
    x = torch.randn(5, 6, dtype=torch.float64)
    linear, norm = nn.Linear(6, 6).double(), nn.LayerNorm(6).double()
    nn.init.normal_(norm.weight)
    y, z = linear(x), norm(x)
    after = BottleneckAdapter(6, 2, act="silu", scaling=0.5)
    inside = Bottleneck(6, 2, act="relu", scaling=1.0).double()
    for module in (after.double(), inside):
        for parameter in module.parameters():
            nn.init.normal_(parameter)
    attach_adapter(linear, after)
    attach_to_norm(norm, inside)
    down, up = after.bottleneck.down, after.bottleneck.up
    inner = y @ down.weight.T + down.bias
    expected = y + 0.5 * ((inner * torch.sigmoid(inner)) @ up.weight.T + up.bias)
    torch.testing.assert_close(linear(x), expected)
    inner = (z @ inside.down.weight.T + inside.down.bias).clamp(min=0)
    summed = x + inner @ inside.up.weight.T + inside.up.bias
    centred = summed - summed.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    torch.testing.assert_close(norm(x), centred / deviation * norm.weight + norm.bias)


@pytest.mark.parametrize("prepare", [use_onednn, optimize_for_inference])
def test_linear_maps_that_compute_the_same_can_be_adapted(
    prepare: Callable[[nn.Module], None],
) -> None:
    linear, x = random_linear(), torch.randn(5, 6, dtype=torch.float64)
    expected = linear(x) * 2
    prepare(linear)
    assert type(linear) is not nn.Linear and can_adapt(linear)
    adapter = IA3Adapter({"0": range(12)}, 12, 6, scales_input=False).double()
    nn.init.constant_(adapter.ia3_l["0"], 2)
    attach_adapter(linear, adapter)
    torch.testing.assert_close(linear(x), expected)


def test_a_part_of_a_model_has_one_adapter() -> None:
    """One that cannot be merged would be lost under the next."""
    bottleneck = Bottleneck(8, 2, act="relu", scaling=1.0)
    linear, norm = nn.Linear(8, 8), nn.LayerNorm(8)
    network = FeedForward(hidden_size=8, intermediate_size=12, act="relu")
    after = BottleneckAdapter(8, 2, act="relu", scaling=1.0)
    update = LoRAAdapter({"0": range(8)}, 8, 8, rank=2, scaling=1.0)
    attach_adapter(linear, after)
    attach_to_norm(norm, bottleneck)
    attach_beside(network, bottleneck)
    again: list[Callable[[], None]] = [
        lambda: attach_adapter(linear, update),
        lambda: attach_to_norm(norm, bottleneck),
        lambda: attach_beside(network, bottleneck),
    ]
    for attach in again:
        with pytest.raises(UsageError, match="two adapters change the same part"):
            attach()
    assert linear.adapter is after


def test_a_bottleneck_next_to_a_feed_forward_network() -> None:
    """Of He et al. 2022 (arXiv:2110.04366): its input is the network's."""
    bottleneck = Bottleneck(8, 2, act="relu", scaling=4.0)
    network, x = FeedForward(hidden_size=8, intermediate_size=12, act="gelu"), torch.randn(2, 3, 8)
    before = network(x)
    attach_beside(network, bottleneck)
    down, up = bottleneck.down, bottleneck.up
    change = 4 * (torch.relu(x @ down.weight.T + down.bias) @ up.weight.T + up.bias)
    torch.testing.assert_close(network(x), before + change)
