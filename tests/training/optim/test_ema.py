import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from zoo.training.optim.ema import EMA


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.head = nn.Embedding(3, 2), nn.Linear(2, 3)
        self.head.weight = self.embeddings.weight


def moved(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))


def test_it_is_the_sum_of_the_definition() -> None:
    model, decay = Tied(), 0.9
    average = EMA(model, decay)
    seen = [model.head.bias.detach().double()]
    for step in range(20):
        moved(model, step)
        average.update(model)
        seen.append(model.head.bias.detach().double())
    expected = decay**20 * seen[0]
    for step, value in enumerate(seen[1:], start=1):
        expected = expected + (1 - decay) * decay ** (20 - step) * value
    assert list(average.tensors) == ["embeddings.weight", "head.bias"]
    torch.testing.assert_close(average.tensors["head.bias"].double(), expected, atol=1e-6, rtol=0)


def test_average_of_a_half_precision_model_is_float32() -> None:
    model = nn.Linear(2, 2, bias=False).bfloat16()
    nn.init.ones_(model.weight)
    average = EMA(model, 0.999)
    nn.init.zeros_(model.weight)
    average.update(model)
    torch.testing.assert_close(average.tensors["weight"], torch.full((2, 2), 0.999))


def test_weights_are_restored_after_the_average_was_applied() -> None:
    model = Tied()
    average = EMA(model, 0.5)
    start = average.tensors["head.bias"].clone()
    moved(model, 0)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(KeyboardInterrupt), average.applied(model):
        assert torch.equal(model.head.bias, start)
        assert model.head.weight is model.embeddings.weight
        raise KeyboardInterrupt
    pairs = zip(weights, model.named_parameters(), strict=True)
    assert [name for before, (name, after) in pairs if not torch.equal(before, after)] == []
    average.copy_to(model)
    assert torch.equal(model.head.bias, start)


def test_average_resumes_from_its_state_dict() -> None:
    model = Tied()
    average = EMA(model, 0.9)
    moved(model, 0)
    average.update(model)
    other = EMA(Tied(), 0.9)
    other.load_state_dict(load(save(average.state_dict())))
    for seed in (1, 2):
        moved(model, seed)
        average.update(model)
        other.update(model)
    assert [
        name for name, t in average.tensors.items() if not torch.equal(other.tensors[name], t)
    ] == []


def test_the_average_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="other parameters"):
        EMA(Tied(), 0.9).load_state_dict(EMA(nn.Linear(2, 3), 0.9).state_dict())


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_that_averages_nothing_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay of an average"):
        EMA(Tied(), decay)
