"""Greedy and beam search equal the reference library's, with and without a cache."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import transformers
from msgspec import structs
from torch import Tensor

from tests.inference.generation.conftest import SIZES, MakePair, prompts
from zoo.errors import UsageError, VerificationError
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder, pad
from zoo.inference.generation.generate import generate, stream

PAD = 0
END = 1  # a token that ends some of the texts of seed 4
SEEDS = [(4, END), (3, 29), (2, 31)]  # seed, end token


def reference_texts(
    model: Any, inputs: Mapping[str, Tensor], end: int = END, **options: Any
) -> list[list[int]]:
    """Return the reference library's continuations of prompts, cut after the end token."""
    settings = transformers.GenerationConfig(
        eos_token_id=end, pad_token_id=PAD, do_sample=False, **options
    )
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    generated = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    rows = generated[:, ids.shape[1] :].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


class Uncached:
    """Model that computes every step from the whole text, without a cache."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, "Uncached"]:
        self.ids = inputs["input_ids"]
        self.mask = inputs.get("attention_mask", torch.ones_like(self.ids))
        return self._logits(), self

    def step(self, tokens: Tensor, state: "Uncached") -> Tensor:
        self.ids = torch.cat([self.ids, tokens[:, None]], 1)
        self.mask = torch.cat([self.mask, torch.ones_like(tokens[:, None])], 1)
        return self._logits()

    def select(self, rows: Tensor) -> None:
        self.ids, self.mask = self.ids[rows], self.mask[rows]

    def _logits(self) -> Tensor:
        return self.model(self.ids, self.mask)["logits"][:, -1]  # type: ignore[no-any-return]


def batch(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    return pad(rows, side="left", pad_id=PAD, device="cpu")


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_greedy_equals_the_reference(pair: MakePair, norm: str) -> None:
    model, reference = pair(norm=norm)
    inputs = batch(prompts(20))
    ours = generate(model, inputs, GenerationConfig(max_new_tokens=30), eos_token_ids=[END])
    if norm == "pre":
        assert ours == reference_texts(reference, inputs, max_new_tokens=30)
    else:  # the reference has no position ids for left padding: one prompt at a time
        alone = [batch([prompt]) for prompt in prompts(20)]
        assert ours == [reference_texts(reference, a, max_new_tokens=30)[0] for a in alone]
    assert [row for row in ours if row[-1] == END] and [row for row in ours if len(row) == 30]


SIMILAR_BEAMS: list[dict[str, Any]] = [  # one of two settings that another case has together
    {"early_stopping": "never"},
    {"length_penalty": 0.0},
    {"length_penalty": 2.0},
    {"length_penalty": -1.0},
    {"num_beams": 2},
]


@pytest.mark.by_default("2-31-{}", "3-29-{'length_penalty': -1.0}", "4-1-{'early_stopping': True}")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"early_stopping": True},
        {"length_penalty": 2.0, "early_stopping": "never"},
        {"length_penalty": -1.0, "early_stopping": "never"},
        {"min_new_tokens": 6},
        *(pytest.param(options, marks=pytest.mark.long) for options in SIMILAR_BEAMS),
        {"num_beams": 7, "early_stopping": True, "length_penalty": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize(("seed", "end"), SEEDS)
def test_beams_equal_the_reference(
    pair: MakePair, seed: int, end: int, options: dict[str, Any]
) -> None:
    model, reference = pair(seed)
    settings: dict[str, Any] = {"max_new_tokens": 16, "num_beams": 4, **options}
    inputs = batch(prompts(20))
    ours = generate(model, inputs, GenerationConfig(**settings), eos_token_ids=[end])
    assert ours == reference_texts(reference, inputs, end, **settings)
    assert len(set(map(tuple, ours))) > 5
    if options.get("length_penalty") != 2.0:  # unless long texts are favoured
        assert len({len(row) for row in ours}) > 1


def test_the_least_length_equals_the_reference(pair: MakePair) -> None:
    model, reference = pair()
    inputs = batch(prompts(20))
    options: dict[str, Any] = {"max_new_tokens": 20, "min_new_tokens": 9}
    ours = generate(model, inputs, GenerationConfig(**options), eos_token_ids=[END])
    assert ours == reference_texts(reference, inputs, **options)
    assert min(map(len, ours)) >= 10


@pytest.mark.by_default("{'num_beams': 4}-post")
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 4}, {"seed": 3, "top_k": 9, "temperature": 1.3}], ids=str
)
def test_a_cache_changes_no_token(pair: MakePair, norm: str, options: dict[str, Any]) -> None:
    model, _ = pair(norm=norm)
    settings = GenerationConfig(max_new_tokens=25, **options)
    for rows in (prompts(12), [[5, 6, 7]] * 3):  # with and without padding
        cached = generate(model, batch(rows), settings, eos_token_ids=[END])
        assert cached == generate(Uncached(model), batch(rows), settings, eos_token_ids=[END])


@pytest.mark.by_default("{'num_beams': 3}")
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"seed": 3}], ids=str)
def test_a_batch_changes_no_text(pair: MakePair, options: dict[str, Any]) -> None:
    model, _ = pair()
    settings, rows = GenerationConfig(max_new_tokens=20, **options), prompts(12)
    together = generate(model, batch(rows), settings, eos_token_ids=[END])
    alone = [
        generate(model, batch([row]), settings, eos_token_ids=[END], row_ids=[k])[0]
        for k, row in enumerate(rows)
    ]
    assert together == alone


@pytest.mark.long
def test_a_text_may_end_at_several_tokens(pair: MakePair) -> None:
    model, _ = pair()
    for beams in (1, 4):
        free = generate(
            model, batch(prompts(20)), GenerationConfig(max_new_tokens=20, num_beams=beams)
        )
        assert [row for row in free if len(row) != 20] == []
        ends = [END, 19, 28, 53]
        generated = generate(
            model,
            batch(prompts(20)),
            GenerationConfig(max_new_tokens=20, num_beams=beams),
            eos_token_ids=ends,
        )
        assert [token for row in generated for token in row[:-1] if token in ends] == []
        assert [row for row in generated if row[-1] in ends]


def test_streaming_gives_the_same_tokens(pair: MakePair) -> None:
    model, _ = pair()
    for seed in (None, 1):
        settings = GenerationConfig(max_new_tokens=20, seed=seed)
        for row in prompts(5):
            whole = generate(model, batch([row]), settings, eos_token_ids=[END])[0]
            assert list(stream(model, batch([row]), settings, eos_token_ids=[END])) == whole


@pytest.mark.parametrize("size", ["small", "gpt"])
@pytest.mark.long
def test_base_size_equals_the_reference(pair: MakePair, size: str) -> None:
    shape = structs.asdict(SIZES[size])
    model, reference = pair(**{name: shape[name] for name in shape if name != "labels"})
    model.optimize_for_inference()
    rows = prompts(4, vocabulary=5000)
    for beams in (1, 4):
        ours = [
            generate(
                model,
                batch([row]),
                GenerationConfig(max_new_tokens=6, num_beams=beams),
                eos_token_ids=[END],
            )[0]
            for row in rows
        ]
        options = {"max_new_tokens": 6, "num_beams": beams}
        theirs = [reference_texts(reference, batch([row]), **options)[0] for row in rows]
        assert ours == theirs


@pytest.mark.by_default("{}")
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 2}, {"num_beams": 3}, {"num_beams": 6}], ids=str
)
def test_a_quickened_model_says_the_same(pair: MakePair, options: dict[str, Any]) -> None:
    model, _ = pair()
    settings = GenerationConfig(max_new_tokens=20, **options)
    before = [generate(model, batch([row]), settings, eos_token_ids=[END]) for row in prompts(8)]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.optimize_for_inference()
    assert before == [
        generate(model, batch([row]), settings, eos_token_ids=[END]) for row in prompts(8)
    ]
    after = model.state_dict()
    assert after.keys() == state.keys()
    assert [name for name, tensor in state.items() if not torch.equal(after[name], tensor)] == []


def test_nan_is_an_error(pair: MakePair) -> None:
    model, _ = pair()
    with torch.no_grad():
        model.final_norm.bias[0] = float("nan")
    for beams in (1, 2):
        with pytest.raises(VerificationError, match="NaN"):
            generate(model, batch([[5]]), GenerationConfig(num_beams=beams))


def test_a_model_that_generates_says_so(pair: MakePair) -> None:
    from zoo_gpt import Gpt

    model, _ = pair()
    assert isinstance(model, SessionDecoder)
    assert not isinstance(Gpt().model(Gpt().sizes()["tiny"], "none"), SessionDecoder)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 0},
        {"min_new_tokens": 21},
        {"num_beams": 0},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"seed": -1},
        {"length_penalty": float("nan")},
        {"length_penalty": 400.0, "num_beams": 2},  # 20 ** 400 overflows
        {"length_penalty": 2.0},  # requires beams
        {"early_stopping": True},
        {"early_stopping": "always"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        GenerationConfig(**options)


@pytest.mark.parametrize("penalty", [-10.0, 10.0])
def test_any_length_has_a_weight(pair: MakePair, penalty: float) -> None:
    model, _ = pair()
    settings = GenerationConfig(max_new_tokens=40, num_beams=2, length_penalty=penalty)
    assert [] not in generate(model, batch(prompts(3)), settings, eos_token_ids=[END])
