"""Permutation language modelling, compared with the formulas of the released code.

The functions ``released_...`` are written after the code of zihangdai/xlnet, with plain loops; they
draw random numbers in the same order as those under test.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tokenizers import AddedToken, Tokenizer, models
from torch.nn import functional as F

from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.distillation.losses.base import ModelShape
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.term_tables import parse_term
from zoo.errors import UsageError
from zoo.families.random_inputs import randomize_weights
from zoo.nn.capture import capture
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.tokenizers.info import TokenizerInfo
from zoo_xlnet import XLNet
from zoo_xlnet.config import SIZES
from zoo_xlnet.objective import (
    MAX_SPAN,
    SPAN_PROBS,
    Flags,
    PermutationLanguageModelling,
    PermutationLanguageModellingOptions,
    factorize,
    hidden_keys,
    sample_spans,
)
from zoo_xlnet.stream import Ids, MarkedStream, ReversedStream, draw_segments

SPECIAL = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6}
END, LENGTH, SEED = 7, 24, 3
CONFIG = replace(
    SIZES["tiny"], vocab_size=60, hidden_size=48, intermediate_size=40, num_layers=2, dropout=0.0
)


def corpus() -> Split:
    """Return six documents of nine sentences."""
    draw = np.random.default_rng(0)
    return Split.from_documents(
        [
            [draw.integers(10, 60, size).tolist() for size in draw.integers(1, 12, 9)]
            for _ in range(6)
        ]
    )


def vocabulary() -> TokenizerView:
    """Return a vocabulary in which tokens with an even number start a word."""
    names = {number: f"<{role}>" for role, number in SPECIAL.items()} | {END: "<eod>"}
    tokens = {names.get(k, ("\u2581", "x")[k % 2] + str(k)): k for k in range(60)}
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token="<unk>"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names.values()])
    special = {role: names[number] for role, number in SPECIAL.items()}
    return TokenizerView(tokenizer, TokenizerInfo(special), 60, XLNet().starts_word)


def objective(**options: Any) -> PermutationLanguageModelling:
    """Return an objective with a memory of fewer tokens than two rows give."""
    return PermutationLanguageModelling(
        vocabulary(),
        CONFIG,
        LENGTH,
        PermutationLanguageModellingOptions(**{"mem_len": 20, **options}),
    )


def released_perm_mask(order: Ids, is_masked: Flags, special: Flags) -> tuple[Flags, Flags]:
    """``_local_perm``: mask and targets of a part for a permutation of its tokens."""
    ordinary = ~is_masked & ~special
    rev_index = np.where(ordinary, -1, order)
    target = ~ordinary & ~special
    self_rev_index = np.where(target, rev_index, rev_index + 1)
    return (self_rev_index[:, None] <= rev_index[None, :]) & ~ordinary, target


@pytest.mark.parametrize("seed", range(5))
def test_permutation_mask_is_that_of_the_released_code(seed: int) -> None:
    """Both parts by ``_local_perm``, joined as in ``get_dataset``."""
    draw = np.random.default_rng(seed)
    sizes = (12, 11)
    parts = np.repeat([0, 1], sizes)
    special, selected = draw.random(23) < 0.2, draw.random(23) < 0.3
    order = factorize(parts, selected, special, np.random.default_rng(seed))
    again = np.random.default_rng(seed)
    masks, targets = [], []
    for part in range(2):
        here = parts == part
        permutation = again.permutation(sizes[part])
        mask, target = released_perm_mask(permutation, selected[here], special[here])
        masks.append(mask)
        targets.append(target)
    expected = np.block([[masks[0], np.ones((12, 11), bool)], [np.zeros((11, 12), bool), masks[1]]])
    is_target = np.concatenate(targets)
    assert np.array_equal(is_target, selected & ~special)
    actual = hidden_keys(torch.from_numpy(order), torch.from_numpy(is_target))
    assert np.array_equal(actual.numpy(), expected)


def test_permutation_mask_of_the_papers_example() -> None:
    """The order 3, 2, 4, 1 of figure 4, where the last two are predicted."""
    order = torch.tensor([2, 0, 0, 1])  # x3 and x2 are the context, then x4, then x1
    is_target = torch.tensor([True, False, False, True])
    seen = ~hidden_keys(order, is_target)
    assert seen.tolist() == [
        [False, True, True, True],  # x1 from x2, x3 and x4
        [False, True, True, False],
        [False, True, True, False],
        [False, True, True, False],  # x4 from x2 and x3
    ]


def released_spans(starts: Flags, goal: int, k: int, draw: np.random.Generator) -> Flags:
    """``_sample_mask`` without the tokens that are drawn singly at its end."""
    mask, count, at = np.zeros(len(starts), dtype=bool), 0, 0
    while at < len(starts):
        if count >= goal:
            break
        n = int(draw.choice(MAX_SPAN, p=SPAN_PROBS)) + 1
        n = min(n, goal - count)
        context = n * k
        left = int(draw.integers(context))
        begin = at + left
        while begin < len(starts) and not starts[begin]:
            begin += 1
        if begin >= len(starts):
            break
        end, words = begin + 1, 1
        while end < len(starts):
            if starts[begin]:  # as released: not ``end``
                words += 1
                if words > n:
                    break
            end += 1
        if end >= len(starts):
            break
        mask[begin:end] = True
        count += end - begin
        at = end + context - left
    return mask


@pytest.mark.parametrize("seed", range(20))
def test_spans_are_those_of_the_released_code(seed: int) -> None:
    """As many tokens as wanted; those that no span has are drawn singly."""
    starts = np.random.default_rng(seed).random(60) < 0.6
    actual = sample_spans(starts, 10, 6, np.random.default_rng(seed))
    expected = released_spans(starts, 10, 6, np.random.default_rng(seed))
    assert actual.sum() == 10 and expected.any()
    assert (actual & expected).sum() == expected.sum()


def released_segments(
    sent_ids: Flags, begin: int, total: int, draw: np.random.Generator
) -> tuple[int, int, int, int]:
    """``_split_a_and_b``, whose label is not used."""
    length = len(sent_ids)
    end, cuts = begin + 1, []
    while end < length:
        if sent_ids[end] != sent_ids[end - 1]:
            if end - begin >= total:
                break
            cuts.append(end)
        end += 1
    if not cuts or draw.random() < 0.5:
        a_end = int(draw.choice(cuts)) if cuts else end
        b_len = max(1, total - (a_end - begin))
        b_begin = int(draw.integers(0, length - 1 - b_len + 1))
        b_end = b_begin + b_len
        while b_begin > 0 and sent_ids[b_begin - 1] == sent_ids[b_begin]:
            b_begin -= 1
        while b_end < length - 1 and sent_ids[b_end - 1] == sent_ids[b_end]:
            b_end += 1
    else:
        a_end = int(draw.choice(cuts))
        b_begin, b_end = a_end, end
    while a_end - begin + b_end - b_begin > total:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    return begin, a_end, b_begin, b_end


@pytest.mark.parametrize("reverse", [False, True])
def test_segments_are_those_of_the_released_code(reverse: bool) -> None:
    """Segments of both kinds, from any place of the stream."""
    stream: Any = MarkedStream(corpus(), END, SEED)
    if reverse:
        stream = ReversedStream(stream)
    sizes = np.diff(stream.boundaries_around(0, len(stream)))
    sent_ids = np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)
    for seed in range(200):
        begin = seed % (len(sent_ids) - 30)
        segments = draw_segments(stream, begin, 20, np.random.default_rng(seed))
        expected = released_segments(sent_ids, begin, 20, np.random.default_rng(seed))
        assert (*segments.first, *segments.second) == expected


def test_stream_has_all_documents_and_is_read_in_both_directions() -> None:
    """Each document is followed by ``<eod>``, and no token is lost."""
    split = corpus()
    stream = MarkedStream(split, END, SEED)
    length = len(stream)
    whole = stream.read(0, length)
    starts = split.document_starts()
    expected = {tuple(split.read(int(a), int(b))) for a, b in pairwise(starts)}
    cuts = np.flatnonzero(whole == END)
    documents = np.split(whole, cuts + 1)
    assert {tuple(document[:-1]) for document in documents if len(document)} == expected
    for start, end in ((0, 1), (5, 40), (17, 18), (length - 9, length)):
        assert np.array_equal(stream.read(start, end), whole[start:end])
        backward = ReversedStream(stream).read(start, end)
        assert np.array_equal(backward, whole[::-1][start:end])
    boundaries = stream.boundaries_around(0, length)
    backward = ReversedStream(stream).boundaries_around(0, length)
    assert np.array_equal(np.diff(backward), np.diff(boundaries)[::-1])


def test_rows_go_on_where_the_memory_ends() -> None:
    """A row begins with the stretch after that of the row before; half are in reverse order."""
    dataset: Any = objective().dataset(corpus(), SEED)
    examples = [dataset.example(k, np.random.default_rng(k)) for k in range(len(dataset))]
    for k, example in enumerate(examples):
        ids, types = example.arrays["input_ids"], example.arrays["token_type_ids"]
        direction, row = divmod(k, len(dataset) // 2)
        start = row * (LENGTH // 2)
        first_part = dataset.streams[direction].read(start, start + LENGTH // 2)
        assert np.array_equal(ids[: LENGTH // 2], first_part)
        assert example.values["direction"].tolist() == [direction]
        assert ids[-1] == SPECIAL["cls"] and ids[-2] == SPECIAL["sep"] and (ids == 4).sum() == 2
        first_separator = int(np.flatnonzero(ids == 4)[0])
        assert types.tolist() == [0] * (first_separator + 1) + [1] * (
            LENGTH - first_separator - 2
        ) + [2]
        count = example.counts["permutation-lm"]
        targets = example.arrays["targets"][:count]
        assert np.array_equal(example.values["labels"], ids[targets])
        assert np.array_equal(np.flatnonzero(example.arrays["is_target"]), targets)
        assert count <= LENGTH // 6 and not np.isin(ids[targets], (3, 4)).any()


def test_loss_of_consecutive_steps_equals_the_reference() -> None:
    """The memory of the first two steps is used in the third, by rows of both directions."""
    ours = objective()
    dataset = ours.dataset(corpus(), SEED)
    model: Any = XLNet().model(CONFIG, "masked-lm").double().eval()
    randomize_weights(model)
    reference: Any = reference_model(XLNet(), CONFIG, "masked-lm", model.state_dict())
    backbone = reference.transformer
    backbone.bi_data, backbone.mem_len, backbone.reuse_len = True, 20, LENGTH // 2
    encodings = backbone.relative_positional_encoding
    backbone.relative_positional_encoding = lambda *args, **options: encodings(
        *args, **options
    ).double()
    state: dict[str, torch.Tensor] = {}
    mems = None
    for step in range(3):
        rows = (step, len(dataset) // 2 + step)
        examples = [dataset.example(row, np.random.default_rng(row)) for row in rows]
        batch = ours.collate(examples)
        tensors = {**batch.tensors, **state}
        with torch.no_grad():
            output = ours.compute_loss(model, tensors)
            mapping = F.one_hot(tensors["targets"], LENGTH).double()
            hidden = hidden_keys(tensors["order"], tensors["is_target"]).double()
            result = reference(
                tensors["input_ids"],
                token_type_ids=tensors["token_type_ids"],
                perm_mask=hidden,
                target_mapping=mapping,
                mems=mems,
                use_mems=True,
            )
        state, mems = output.recurrent_state, result.mems
        logits = result.logits.flatten(0, 1)[tensors["label_positions"]]
        expected = F.cross_entropy(logits, tensors["labels"], reduction="sum")
        assert batch.counts == {"permutation-lm": len(tensors["labels"])}
        # our logits are converted to float32 for the loss
        assert float(output.sums["permutation-lm"]) == pytest.approx(float(expected), rel=1e-5)
        for number, states in enumerate(mems):
            assert torch.allclose(
                state[f"memory.{number}"], states.transpose(0, 1), rtol=0, atol=1e-9
            )
    assert state["memory.0"].shape == (2, 20, CONFIG.hidden_size)


def test_no_prediction_depends_on_its_token_or_on_later_ones() -> None:
    """A changed token changes the predictions after it in the order alone."""
    ours = objective()
    dataset = ours.dataset(corpus(), SEED)
    tensors = ours.collate([dataset.example(2, np.random.default_rng(5))]).tensors
    model: Any = XLNet().model(CONFIG, "masked-lm").double().eval()
    randomize_weights(model)
    hidden = hidden_keys(tensors["order"], tensors["is_target"])
    targets = tensors["targets"]

    def predictions(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            states, _ = model.encode_targets(ids, tensors["token_type_ids"], hidden, targets)
        return states[0]  # type: ignore[no-any-return]

    before = predictions(tensors["input_ids"])
    for token in range(LENGTH):
        ids = tensors["input_ids"].clone()
        ids[0, token] = 11 + (ids[0, token] == 11)
        same = (predictions(ids) == before).all(-1)
        assert same.tolist() == hidden[0, targets[0], token].tolist()


def captured_view(seed: int = 0, **layers: Any) -> ModelOutput:
    """Return the results of the second of two consecutive steps, with a memory."""
    ours = objective()
    dataset = ours.dataset(corpus(), SEED)
    model: Any = XLNet().model(CONFIG, "masked-lm").eval()
    randomize_weights(model, seed=seed)
    state: dict[str, torch.Tensor] = {}
    for step in range(2):
        rows = (step, len(dataset) // 2 + step)
        examples = [dataset.example(row, np.random.default_rng(row)) for row in rows]
        tensors = {**ours.collate(examples).tensors, **state}
        with torch.no_grad(), capture(model, **layers) as captured:
            outputs = ours.forward(model, tensors)
        state = dict(outputs.recurrent_state)
    return ModelOutput(model, ours, outputs, captured, tensors)


def test_distillation_compares_the_tokens() -> None:
    """Neither the second stream, which follows the tokens of a row, nor a memory before them."""
    view = captured_view(hidden=(-1,), attention_scores=(0,), queries_keys_values=(0,))
    captured, past = view.captured, view.batch["memory.0"].shape[1]
    assert past and captured.hidden[-1].shape[1] == LENGTH + LENGTH // 6
    assert torch.equal(view.hidden(-1), captured.hidden[-1][:, :LENGTH])
    scores = captured.attention_scores[0]
    assert scores.shape[2:] == (LENGTH + LENGTH // 6, past + LENGTH)
    assert torch.equal(view.attention_scores(0), scores[:, :, :LENGTH, past:])
    for states, whole, start in zip(
        view.queries_keys_values(0), captured.queries_keys_values[0], (0, past, past), strict=True
    ):
        assert torch.equal(states, whole[:, :, start : start + LENGTH])


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "attention-mse"},
        {"kind": "attention-kl", "layers": "last"},
        {"kind": "relations", "layers": "last", "relations": ["queries", "values"]},
    ],
)
def test_attention_is_distilled(table: dict[str, Any]) -> None:
    """The losses of TinyBERT and MiniLM are 0 for equal models, and else finite."""
    shape = ModelShape(CONFIG.num_layers, CONFIG.hidden_size, CONFIG.num_heads, 0, causal=False)
    term = parse_term("term", table, "term")
    (loss,) = term.loss.build(term, objective(), shape, [shape])
    student, same, other = (captured_view(k, **loss.captured("student")) for k in (0, 0, 1))
    assert float(loss.total(student, [same], None)) == 0
    assert 0 < float(loss.total(student, [other], None)) < 1e6


def test_options_and_rows_are_checked() -> None:
    """The message names the option, or the length of the rows."""
    with pytest.raises(ValueError, match="predict_every"):
        PermutationLanguageModellingOptions(predict_every=1)
    with pytest.raises(ValueError, match="mem_len"):
        PermutationLanguageModellingOptions(mem_len=-1)
    with pytest.raises(UsageError, match="rows of 8 tokens"):
        PermutationLanguageModelling(vocabulary(), CONFIG, 8, PermutationLanguageModellingOptions())
