"""Generation of encoder-decoder models equals the reference library's, with and without cache."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.inference.generation.conftest import prompts
from tests.inference.generation.making import CONFIGS, FAMILY, SMALL, made
from zoo.conformance.hf_reference import reference_model
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder, pad
from zoo.inference.generation.generate import generate, stream

PAD, START = 0, 0
SEARCHES: list[Any] = [
    {},
    {"min_new_tokens": 9},
    # Beams with the settings below have these steps as well.
    pytest.param({"num_beams": 2}, marks=pytest.mark.long),
    pytest.param({"num_beams": 4}, marks=pytest.mark.long),
    {"num_beams": 4, "early_stopping": True, "length_penalty": 0.5},
    {"num_beams": 5, "early_stopping": "never", "length_penalty": 2.0},
]


def batch(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    return pad(rows, side="right", pad_id=PAD, device="cpu")


def sources(count: int) -> list[list[int]]:
    return prompts(count, longest=30)


class Uncached:
    """Model that computes every step from the source and the whole target, without a cache."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, "Uncached"]:
        self.inputs = dict(inputs)
        self.target = torch.full((len(inputs["input_ids"]), 1), START)
        return self._logits(), self

    def step(self, tokens: Tensor, state: "Uncached") -> Tensor:
        self.target = torch.cat([self.target, tokens[:, None]], 1)
        return self._logits()

    def select(self, rows: Tensor) -> None:
        self.inputs = {name: tensor[rows] for name, tensor in self.inputs.items()}
        self.target = self.target[rows]

    def _logits(self) -> Tensor:
        logits: Tensor = self.model(**self.inputs, decoder_input_ids=self.target)["logits"]
        return logits[:, -1]


def reference_texts(
    name: str, model: Any, inputs: Mapping[str, Tensor], end: int, **options: Any
) -> list[list[int]]:
    reference: Any = reference_model(FAMILY, CONFIGS[name], "seq2seq-lm", model.state_dict())
    settings = transformers.GenerationConfig(
        eos_token_id=end,
        pad_token_id=PAD,
        decoder_start_token_id=START,
        do_sample=False,
        **options,
    )
    generated = reference.generate(**inputs, generation_config=settings)[:, 1:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in generated]


@pytest.mark.by_default("later", "plain-{}")
@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_texts_equal_the_references(name: str, options: dict[str, Any]) -> None:
    model, end = made(name)
    inputs, settings = batch(sources(20)), {"max_new_tokens": 24, **options}
    ours = generate(model, inputs, GenerationConfig(**settings), eos_token_ids=[end])
    assert ours == reference_texts(name, model, inputs, end, **settings)
    assert len(set(map(tuple, ours))) > 8, "the model says too few different things"
    assert len({row[-1] == end for row in ours}) == 2, "some texts end, others are cut"


@pytest.mark.by_default(
    "plain-{'num_beams': 5, 'early_stopping': 'never', 'length_penalty': 2.0}", "later-{}"
)
@pytest.mark.parametrize("options", [*SEARCHES, {"seed": 3, "top_k": 9}], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_cache_changes_no_token(name: str, options: dict[str, Any]) -> None:
    model, end = made(name)
    settings = GenerationConfig(max_new_tokens=24, **options)
    for rows in (sources(8), [[5, 6, 7, 8]] * 3):  # with and without padding
        cached = generate(model, batch(rows), settings, eos_token_ids=[end])
        assert cached == generate(Uncached(model), batch(rows), settings, eos_token_ids=[end])


@pytest.mark.by_default("{'num_beams': 3}")
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"seed": 3}], ids=str)
def test_a_batch_changes_no_text(options: dict[str, Any]) -> None:
    model, end = made("later")
    settings, rows = GenerationConfig(max_new_tokens=20, **options), sources(9)
    together = generate(model, batch(rows), settings, eos_token_ids=[end])
    alone = [
        generate(model, batch([row]), settings, eos_token_ids=[end], row_ids=[place])[0]
        for place, row in enumerate(rows)
    ]
    assert together == alone


def test_streaming_gives_the_same_tokens() -> None:
    model, end = made("plain")
    settings = GenerationConfig(max_new_tokens=20)
    for row in sources(4):
        whole = generate(model, batch([row]), settings, eos_token_ids=[end])[0]
        assert list(stream(model, batch([row]), settings, eos_token_ids=[end])) == whole


def test_more_tokens_than_there_was_room_for() -> None:
    model, _ = made("plain")
    with torch.no_grad():
        logits, state = model.prefill(batch([[5, 6, 7]]), 2)
        _, roomy = model.prefill(batch([[5, 6, 7]]), 50)
        for _ in range(20):
            token = logits.argmax(-1)
            logits, expected = model.step(token, state), model.step(token, roomy)
            assert (logits - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_beams_share_what_is_kept_of_their_source() -> None:
    model, _ = made("plain")
    with torch.no_grad():
        _, state = model.prefill(batch([[5, 6, 7], [8, 9]]), 9)
        state.select(torch.tensor([0, 0, 1, 1]))
        before = [keys.data_ptr() for keys, _ in state.cross_attention_cache]
        state.select(torch.tensor([1, 0, 3, 3]))  # a permutation of the beams of each source
        assert [keys.data_ptr() for keys, _ in state.cross_attention_cache] == before
        state.select(torch.tensor([2, 3]))  # the first text is finished
        assert {keys.shape[0] for keys, _ in state.cross_attention_cache} == {2}
        assert state.mask.shape[0] == 2


def test_heads_that_write_say_so() -> None:
    for head in FAMILY.heads():
        model = FAMILY.model(SMALL, head)
        assert isinstance(model, SessionDecoder) == (head in ("seq2seq-lm", "causal-lm")), head
