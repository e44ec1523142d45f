"""Each rule of generation gives the reference library's tokens.

The long tests have it in ONNX Runtime as well, which computes the same scores: the graphs are
compared with torch in ``tests/exporting/graph/test_key_value_cache.py``.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor
from transformers.generation import logits_process

from tests.exporting.conftest import Exported, exported_once
from tests.inference.generation import conftest as gpt
from tests.inference.generation.making import SMALL as SMALL_T5
from tests.inference.generation.making import made as make_t5
from tests.inference.making import store
from zoo.checkpoint import Checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.inference.generation.config import GenerationConfig, generation_config, token_ids
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.inference.generation.processors import sampling
from zoo.inference.generation.processors.base import GenerationRule, Step
from zoo.inference.session import Session
from zoo.inference.torch_session import TorchSession
from zoo.nn.logits_processor import LogitsProcessor
from zoo_gpt import Gpt
from zoo_t5 import T5

NEW_TOKENS, LENGTHS = 10, (1, 4, 7)
END = -1  # stands for a token that ends some of the texts
ENDS = {"gpt": 1, "t5": 56}
RULES: list[dict[str, Any]] = [
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 0.7},
    {"encoder_repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"encoder_no_repeat_ngram_size": 1},
    {"encoder_no_repeat_ngram_size": 2},
    {"bad_words_ids": [[END], [5], [7, 11], [3, 4, 6], *([n] for n in range(20, 40))]},
    {"sequence_bias": [[[12], 3.0], [[30], -4.0], [[12, 30], 9.0], [[30, 12, 7], 5.5]]},
    {"min_length": 10},
    {"min_new_tokens": 6},
    {"min_length": 19, "min_new_tokens": 3},
    {"forced_bos_token_id": 17},
    {"forced_eos_token_id": END},
    {"forced_eos_token_id": [14]},
    {"suppress_tokens": [*range(10, 35), 60]},
    {"begin_suppress_tokens": [*range(10, 60)]},
    {"begin_suppress_tokens": [*range(10, 60)], "forced_bos_token_id": 3},
    {"exponential_decay_length_penalty": [3, 1.4]},
    {"remove_invalid_values": True, "suppress_tokens": [*range(50, 60)]},
    {"renormalize_logits": True, "suppress_tokens": [*range(10, 35)]},
    {"max_length": 13, "max_new_tokens": None},
    {"eos_token_id": [END, 10, 17, 39, 50, 54, 57]},
    {
        "repetition_penalty": 1.2,
        "encoder_repetition_penalty": 0.8,
        "no_repeat_ngram_size": 3,
        "encoder_no_repeat_ngram_size": 2,
        "bad_words_ids": [[5], [7, 11]],
        "sequence_bias": [[[8], 1.5]],
        "min_length": 6,
        "forced_bos_token_id": 17,
        "forced_eos_token_id": END,
        "exponential_decay_length_penalty": [5, 1.1],
        "suppress_tokens": [4, 6],
        "begin_suppress_tokens": [7, 8],
        "remove_invalid_values": True,
        "renormalize_logits": True,
    },
]
Reference = Callable[[int, dict[str, Any]], list[list[int]]]


def name_of(rule: dict[str, Any]) -> str:
    """Return a short name of a case."""
    return "all" if len(rule) > 4 else "-".join(rule) + "-" + str(next(iter(rule.values())))[:9]


SEARCHES: dict[str, dict[str, Any]] = {"greedy": {}, "beams": {"num_beams": 3}}
FAMILIES = {"gpt": (Gpt(), "causal-lm"), "t5": (T5(), "seq2seq-lm")}


def _write(family: str, path: Path) -> Checkpoint:
    """Write a small model whose outputs vary with the prompt."""
    if family == "t5":
        model, _ = make_t5("plain")
        return store(path, model, T5(), SMALL_T5, "seq2seq-lm")
    config = replace(gpt.SMALL, norm="pre", num_layers=2)
    model = Gpt().model(config, "causal-lm")
    gpt.sharp(model, 4)
    return store(path, model, Gpt(), config, "causal-lm")


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    """A model in torch."""
    return _write(request.param, tmp_path_factory.mktemp("rules") / "model")


@pytest.fixture(scope="module", params=FAMILIES)
def exported(request: pytest.FixtureRequest) -> Exported:
    """A checkpoint, its export and the report."""
    return exported_once(f"rules-{request.param}", partial(_write, request.param))


def prompts(count: int) -> list[list[int]]:
    """Return prompts of three lengths in turn, half of them of tokens that are often generated."""
    generator = torch.Generator().manual_seed(3)
    often = torch.tensor([[50, 53], [57, 39]])  # of the first and of the second model
    rows = []
    for k in range(count):
        shape = (LENGTHS[k % len(LENGTHS)],)
        if k % 2:
            rows.append(torch.randint(2, 60, shape, generator=generator).tolist())
        else:
            drawn = torch.randint(2, shape, generator=generator).sort()[0]
            rows.append(often[k // 2 % 2][drawn].tolist())
    return rows


def _with_end(value: Any, end: int) -> Any:
    """Return a value with a model's end token in the place of ``END``."""
    if isinstance(value, dict):
        return {name: _with_end(part, end) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_end(part, end) for part in value]
    return end if value == END and not isinstance(value, float) else value


def inputs_of(checkpoint: Checkpoint, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    side = "left" if checkpoint.family.name == "gpt" else "right"
    start = {"decoder_input_ids": torch.zeros(len(rows), 1, dtype=torch.int64)}
    inputs = pad(rows, side=side, pad_id=0, device="cpu")
    return inputs if side == "left" else inputs | start


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> Reference:
    return reference_of(checkpoint)


@pytest.fixture(scope="module")
def reference_of_exported(exported: Exported) -> Reference:
    return reference_of(exported[0])


def reference_of(checkpoint: Checkpoint) -> Reference:
    """Return a function from prompts and options to the reference library's tokens.

    It runs the prompts of one length together, as its rules take padding for tokens of the prompt.
    """
    family, head = checkpoint.family, checkpoint.head_name
    state: Any = TorchSession(checkpoint, "cpu").model.state_dict()
    model: Any = reference_model(family, checkpoint.config, head, state)

    @cache
    def texts(count: int, encoded: str) -> list[list[int]]:
        rows, options = prompts(count), json.loads(encoded)
        settings = transformers.GenerationConfig(
            pad_token_id=0, do_sample=False, decoder_start_token_id=0, **options
        )
        ends, found = options["eos_token_id"], dict[int, list[int]]()
        for length in LENGTHS:
            places = [k for k, row in enumerate(rows) if len(row) == length]
            ids = torch.tensor([rows[k] for k in places])
            generated = model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=settings
            )
            start = 1 if head == "seq2seq-lm" else length
            found |= dict(zip(places, generated[:, start:].tolist(), strict=True))
        return [_until_end(found[k], ends) for k in range(len(rows))]

    return lambda count, options: texts(count, json.dumps(options))


def _until_end(row: list[int], ends: Sequence[int]) -> list[int]:
    first = next((k for k, token in enumerate(row) if token in ends), len(row))
    return row[: first + 1]


def compare(
    checkpoint: Checkpoint,
    sessions: Sequence[Session],
    reference: Reference,
    options: dict[str, Any],
    count: int,
) -> None:
    end = ENDS[checkpoint.family.name]
    plain = {"max_new_tokens": NEW_TOKENS, "eos_token_id": [end]}
    options = plain | _with_end(options, end)
    settings = generation_config({}, options)
    expected = reference(count, options)
    inputs, ends = inputs_of(checkpoint, prompts(count)), [*token_ids(settings.eos_token_id)]
    for session in sessions:
        assert generate(session.decoder(), inputs, settings, eos_token_ids=ends) == expected
    plain |= {"num_beams": settings.num_beams}
    if options != {**plain, "num_beams": 3, "encoder_no_repeat_ngram_size": 2}:
        assert expected != reference(count, plain), "the rule changes nothing"


def marked_rules() -> Iterator[Any]:
    """Yield a family, a rule and a search.

    The rules are applied to the scores of rows, which are beams, and the same for all families. An
    encoder-decoder differs where a rule reads the encoder's tokens, or counts from the prompt.
    """
    for family, rule, search in itertools.product(FAMILIES, RULES, SEARCHES):
        of_encoder = any(name.startswith(("encoder", "forced_bos", "begin")) for name in rule)
        of_length = any(name.startswith(("min_", "max_")) for name in rule)
        repeats = search == "greedy" or (family == "t5" and not (of_encoder or of_length))
        marks = [pytest.mark.long] if repeats else []
        name = f"{family}-{name_of(rule)}-{search}"
        yield pytest.param(family, rule, search, marks=marks, id=name)


@pytest.mark.by_default(
    "gpt-repetition_penalty",
    "gpt-bad_words_ids",
    "gpt-min_new_tokens",
    "gpt-forced_eos_token_id",
    "gpt-exponential_decay_length_penalty",
    "gpt-max_length",
    "gpt-all",
    "t5-encoder_repetition_penalty-1.5",
    "t5-all",
)
@pytest.mark.parametrize(
    ("checkpoint", "rule", "search"), list(marked_rules()), indirect=["checkpoint"]
)
def test_a_rule_gives_the_tokens_of_the_reference(
    checkpoint: Checkpoint, reference: Reference, rule: dict[str, Any], search: str
) -> None:
    session = load_session(checkpoint, "cpu")
    compare(checkpoint, [session], reference, {**rule, **SEARCHES[search]}, 12)


@pytest.mark.long
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_gives_the_tokens_of_the_reference_for_100_prompts(
    exported: Exported, reference_of_exported: Reference, rule: dict[str, Any], search: str
) -> None:
    checkpoint, graph, _ = exported
    sessions = [load_session(checkpoint, "cpu"), load_session(graph)]
    compare(checkpoint, sessions, reference_of_exported, {**rule, **SEARCHES[search]}, 100)


class NoEvenTokens(LogitsProcessor):
    """A rule of a plugin."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert (input_ids > 0).all(), "a rule sees no padding"
        scores = scores.clone()
        scores[:, ::2] = float("-inf")
        return scores


@pytest.mark.parametrize("search", SEARCHES)
def test_a_processor_of_a_plugin_and_one_of_the_reference(search: str) -> None:
    family = Gpt()
    config = replace(gpt.SMALL, norm="pre", num_layers=2)
    model: Any = family.model(config, "causal-lm").eval()
    gpt.sharp(model, 4)
    rows = [[5, 6, 7], [8, 9], [3]]
    inputs = pad(rows, side="left", pad_id=0, device="cpu")
    settings = GenerationConfig(max_new_tokens=9, **SEARCHES[search])
    theirs = logits_process.RepetitionPenaltyLogitsProcessor(1.3)
    texts = generate(model, inputs, settings, logits_processor=[NoEvenTokens(), theirs])
    hf: Any = reference_model(family, config, "causal-lm", model.state_dict())
    for row, text in zip(rows, texts, strict=True):
        expected = hf.generate(
            torch.tensor([row]),
            attention_mask=torch.ones(1, len(row), dtype=torch.int64),
            logits_processor=logits_process.LogitsProcessorList([NoEvenTokens(), theirs]),
            max_new_tokens=9,
            eos_token_id=None,
            pad_token_id=0,
            do_sample=False,
            **SEARCHES[search],
        )
        assert text == expected[0, len(row) :].tolist()
    assert [token for text in texts for token in text if token % 2 == 0] == []


WARPERS: list[tuple[GenerationRule, Any]] = [
    (sampling.Temperature(0.7), logits_process.TemperatureLogitsWarper(0.7)),
    (sampling.TopH(0.4), logits_process.TopHLogitsWarper(0.4)),
    (sampling.TopK(5), logits_process.TopKLogitsWarper(5)),
    (sampling.TopK(1, 2), logits_process.TopKLogitsWarper(1, min_tokens_to_keep=2)),
    (sampling.TopP(0.6), logits_process.TopPLogitsWarper(0.6)),
    (sampling.TopP(0.05, 2), logits_process.TopPLogitsWarper(0.05, min_tokens_to_keep=2)),
    (sampling.MinP(0.2), logits_process.MinPLogitsWarper(0.2)),
    (sampling.MinP(0.99, 2), logits_process.MinPLogitsWarper(0.99, min_tokens_to_keep=2)),
    (sampling.TypicalP(0.5), logits_process.TypicalLogitsWarper(0.5)),
    (sampling.TypicalP(0.01, 2), logits_process.TypicalLogitsWarper(0.01, min_tokens_to_keep=2)),
    (sampling.EpsilonCutoff(0.02), logits_process.EpsilonLogitsWarper(0.02)),
    (sampling.EpsilonCutoff(0.9, 2), logits_process.EpsilonLogitsWarper(0.9, min_tokens_to_keep=2)),
    (sampling.EtaCutoff(0.1), logits_process.EtaLogitsWarper(0.1)),
    (sampling.EtaCutoff(0.01), logits_process.EtaLogitsWarper(0.01)),
]


@pytest.mark.parametrize(("rule", "theirs"), WARPERS)
def test_sampling_draws_from_the_tokens_of_the_reference(rule: GenerationRule, theirs: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.empty(40, 50, dtype=torch.float64).normal_(0, 2, generator=generator)
    scores[::3, 10:20] = float("-inf")  # which an earlier rule excluded
    ids = torch.zeros(40, 1, dtype=torch.int64)
    ours, expected = rule(Step(ids, ids, 0, 9), scores).softmax(-1), theirs(ids, scores).softmax(-1)
    assert torch.equal(ours > 0, expected > 0)
    assert (ours - expected).abs().max() < 1e-12


def test_a_sampled_beam_search_draws_like_the_reference() -> None:
    """The first token of the best of two beams, whose distribution both estimate."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()

    class Constant:
        def prefill(self, inputs: Any, room: int) -> tuple[Tensor, "Constant"]:
            return logits.expand(len(inputs["input_ids"]), -1), self

        def step(self, tokens: Tensor, state: Any) -> Tensor:
            return logits.expand(len(tokens), -1)

        def select(self, rows: Tensor) -> None: ...

    count = 4000
    settings = GenerationConfig(num_beams=2, do_sample=True, seed=3, max_new_tokens=1)
    decoder: Any = Constant()
    drawn = generate(decoder, {"input_ids": torch.ones(count, 1, dtype=torch.int64)}, settings)
    # two of four tokens are drawn without replacement; the text is the more likely one
    probs = [0.4, 0.3, 0.2, 0.1]
    expected = [0.0] * 4
    for first, second in itertools.permutations(range(4), 2):
        expected[min(first, second)] += probs[first] * probs[second] / (1 - probs[first])
    shares = [sum(text == [token] for text in drawn) / count for token in range(4)]
    assert shares == pytest.approx(expected, abs=0.03)
    assert (
        generate(decoder, {"input_ids": torch.ones(9, 1, dtype=torch.int64)}, settings) == drawn[:9]
    )


@pytest.mark.long
def test_several_sequences_of_a_prompt(checkpoint: Checkpoint) -> None:
    session, rows = load_session(checkpoint, "cpu"), prompts(3)
    model: Any = session
    inputs = inputs_of(checkpoint, rows)
    beams = GenerationConfig(max_new_tokens=6, num_beams=4, num_return_sequences=3)
    hf = reference_model(
        checkpoint.family, checkpoint.config, checkpoint.head_name, model.model.state_dict()
    )
    texts: Any = generate(session.decoder(), inputs, beams)
    for k, row in enumerate(rows):
        reference: Any = hf
        expected = reference.generate(
            torch.tensor([row]),
            attention_mask=torch.ones(1, len(row), dtype=torch.int64),
            generation_config=transformers.GenerationConfig(
                max_new_tokens=6,
                num_beams=4,
                num_return_sequences=3,
                pad_token_id=0,
                decoder_start_token_id=0,
            ),
        )
        assert texts[3 * k : 3 * k + 3] == expected[:, -6:].tolist()
    sampled = GenerationConfig(max_new_tokens=6, seed=1, num_return_sequences=2)
    pairs = generate(session.decoder(), inputs, sampled)
    alone = generate(session.decoder(), inputs, GenerationConfig(max_new_tokens=6, seed=1))
    assert pairs[::2] == alone and pairs[1::2] != alone


def test_settings_that_exclude_every_token_are_an_error() -> None:
    _, (family, head) = "gpt", FAMILIES["gpt"]
    config = replace(gpt.SMALL, norm="pre", num_layers=1)
    model: Any = family.model(config, head).eval()
    settings = GenerationConfig(seed=1, suppress_tokens=tuple(range(61)))
    with pytest.raises(UsageError, match="exclude every token"):
        generate(model, {"input_ids": torch.tensor([[5]])}, settings)
