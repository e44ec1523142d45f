"""AdamW with the gradients of some rows, compared with torch's on gradients of all rows."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.nn.kernels import embedding
from zoo.nn.kernels.embedding import Embedding, sum_row_gradients, use_row_gradients
from zoo.training.optim import row_adamw
from zoo.training.optim.eager import eager
from zoo.training.optim.optimizers import clip_grad_norm
from zoo.training.optim.row_adamw import RowAdamW

SETTINGS: dict[str, Any] = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-6}
ROWS = 100
WIDTH = 24


class Scorer(nn.Module):
    """A table of tokens, a linear map, and logits of the table if it is tied."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.tokens = Embedding(ROWS, WIDTH)
        self.map = nn.Linear(WIDTH, WIDTH)
        self.tied = tied

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.map(self.tokens(ids)).tanh()
        return hidden @ self.tokens.weight.T if self.tied else hidden


def batch(step: int) -> Tensor:
    draw = torch.Generator().manual_seed(step)
    highest = 9 if step < 3 else ROWS  # at first, most blocks have no gradient
    return torch.randint(0, highest, (3, 5), generator=draw)


@pytest.fixture(autouse=True)
def tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "LEAST_OF_ROWS", 0)
    monkeypatch.setattr(row_adamw, "ROWS_AT_ONCE", 16)  # the last block has fewer rows


@pytest.mark.parametrize("passes", [1, 3], ids=["one pass", "three passes"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_equal_those_with_gradients_of_all_rows(
    weight_decay: float, tied: bool, passes: int
) -> None:
    torch.manual_seed(0)
    ours = Scorer(tied=tied)
    reference = Scorer(tied=tied)
    reference.load_state_dict(ours.state_dict())
    use_row_gradients(ours)
    settings = {**SETTINGS, "weight_decay": weight_decay}
    optimizers = [
        eager(RowAdamW)(ours.parameters(), **settings),
        torch.optim.AdamW(reference.parameters(), **settings, fused=True),
    ]
    for step in range(6):
        for model, optimizer in zip((ours, reference), optimizers, strict=True):
            for number in range(passes):
                model(batch(step + number)).square().sum().backward()
                sum_row_gradients(model)
            norm = clip_grad_norm(model.parameters(), 1.0)
            assert norm > 1
            optimizer.step()
            gradient = model.tokens.weight.grad
            assert gradient is not None
            assert gradient.is_sparse == (model is ours and not tied)
            optimizer.zero_grad()
        for parameter, other in zip(ours.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(parameter, other)
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    for number, state in states[1].items():
        torch.testing.assert_close(states[0][number], state)


def test_an_update_is_that_of_torch_bit_for_bit() -> None:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.ones(ROWS, WIDTH)) for _ in range(2)]
    optimizers = [
        eager(RowAdamW)(weights[:1], **SETTINGS, weight_decay=0.1),
        torch.optim.AdamW(weights[1:], **SETTINGS, weight_decay=0.1, fused=True),
    ]
    rows = [[3, 40, 99], [0, 3], [], [57]]
    for ids in rows:
        values = torch.randn(len(ids), WIDTH)
        gradient = torch.sparse_coo_tensor(
            torch.tensor([ids], dtype=torch.int64), values, (ROWS, WIDTH), check_invariants=True
        )
        weights[0].grad = gradient.coalesce()
        weights[1].grad = gradient.to_dense()
        for optimizer in optimizers:
            optimizer.step()
        assert torch.equal(weights[0], weights[1])
        kept = weights[0].grad
        assert kept is not None and torch.equal(kept.to_dense(), weights[1].grad)


def test_a_state_that_was_saved_continues_the_same_way() -> None:
    torch.manual_seed(0)
    model = Scorer(tied=False)
    use_row_gradients(model)
    optimizer = eager(RowAdamW)(model.parameters(), **SETTINGS)

    def step(number: int) -> None:
        model(batch(number)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for number in range(3):
        step(number)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    saved = {
        number: {key: value.clone() for key, value in state.items()}
        for number, state in optimizer.state_dict()["state"].items()
    }
    for number in (3, 4):
        step(number)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    optimizer = eager(RowAdamW)(model.parameters(), **SETTINGS)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": saved, "param_groups": groups})
    for number in (3, 4):
        step(number)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name])
