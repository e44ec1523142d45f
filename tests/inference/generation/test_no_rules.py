"""Without rules a step of generation does no work for them."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.generate import generate
from zoo.inference.generation.scores import Scores

STEPS = 5


class Decoder:
    """A decoder whose likeliest token is always 6."""

    def prefill(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> tuple[Tensor, Any]:
        return torch.arange(7.0).repeat(len(inputs["input_ids"]), 1), self

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        return torch.arange(7.0).repeat(len(tokens), 1)

    def select(self, rows: Tensor) -> None:
        pass


@pytest.mark.parametrize(
    "search",
    [{}, {"num_beams": 3}, {"do_sample": True, "seed": 1}],
    ids=["greedy", "beams", "draw"],
)
def test_rules_are_called_in_each_step_or_not_at_all(
    search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    of, concatenate = Scores.of, torch.cat
    joined: list[int] = []

    def counted(self: Scores, logits: Tensor, rows: Any, new_tokens: Tensor) -> Tensor:
        calls.append(tuple(new_tokens.shape))  # type: ignore[arg-type]
        return of(self, logits, rows, new_tokens)

    def counted_cat(*args: Any, **options: Any) -> Tensor:
        joined.append(1)
        return concatenate(*args, **options)

    monkeypatch.setattr(Scores, "of", counted)
    monkeypatch.setattr(torch, "cat", counted_cat)
    inputs = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
    plain = generate(Decoder(), inputs, GenerationConfig(max_new_tokens=STEPS, **search))
    assert [len(row) for row in plain] == [STEPS, STEPS]
    assert (calls, joined) == ([], [])
    rules = GenerationConfig(max_new_tokens=STEPS, suppress_tokens=(6,), **search)
    ruled = generate(Decoder(), inputs, rules)
    assert [6 in row for row in ruled] == [False, False]
    rows = 2 * search.get("num_beams", 1)
    assert calls == [(rows, step) for step in range(STEPS)]
