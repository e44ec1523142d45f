"""T5's prefix and plain language models of source and target: one stack, as in its table 2."""

import math
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.families.further_version import FurtherVersionTests
from tests.families.test_t5 import FAMILY, LATER, SMALL, random_model
from tests.objectives.words import split, vocabulary
from tests.training.runs import assert_resumes_from, run_training
from tests.warm import zoo
from zoo.checkpoint import load_checkpoint
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.families.base import Head
from zoo.objectives.prefix import PrefixLm, PrefixLmOptions
from zoo_t5 import T5
from zoo_t5.config import SIZES, T5Config

LM = "seq2seq-lm"
STACKS = ("prefix", "causal")
EPSILON = 1e-6


def single(stack: Any, **changes: Any) -> T5Config:
    return replace(SMALL, single_stack=stack, num_decoder_layers=None, **changes)


class SingleStackT5(T5):
    """The family with the heads of both single stacks."""

    named_heads: ClassVar[dict[str, Head]] = {name: T5.named_heads[name] for name in ("none", LM)}


@pytest.mark.long
class TestPrefix(FurtherVersionTests):
    family = SingleStackT5()
    test_label_leaks = None  # objectives and masks are of every version
    test_imports = None  # of the plugin

    @property
    def config(self) -> T5Config:
        return replace(SIZES["tiny"], single_stack="prefix")


@pytest.mark.long
class TestCausal(TestPrefix):
    @property
    def config(self) -> T5Config:
        return replace(SIZES["tiny"], single_stack="causal")


def bucket(distance: int, config: T5Config, *, bidirectional: bool) -> int:
    """Return the bucket of a key at a distance from its query, by the formula of the paper."""
    buckets = config.num_buckets
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    growth = math.log(distance / exact) / math.log(config.max_distance / exact)
    return first + min(exact + int(growth * (buckets - exact)), buckets - 1)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    mean_square = x.float().square().mean(-1, keepdim=True)  # In float32, as in the released code.
    return x * (mean_square + EPSILON).rsqrt() * weight


def reference_logits(model: Any, config: T5Config, source: list[int], target: list[int]) -> Tensor:
    """Return the logits after each token of a row, (tokens, vocabulary), in plain torch."""
    weights = {name: tensor.double() for name, tensor in model.state_dict().items()}
    sees_source = config.single_stack == "prefix"
    ids = [*source, *target]
    count = len(ids)
    buckets = torch.zeros(count, count, dtype=torch.int64)
    may_see = torch.zeros(count, count, dtype=torch.bool)
    for query in range(count):
        for key in range(count):
            buckets[query, key] = bucket(key - query, config, bidirectional=sees_source)
            may_see[query, key] = key <= query or (sees_source and key < len(source))
    table = weights["embeddings.tokens.weight"]
    x = table[ids]
    for number in range(config.num_layers):
        layer = {name.removeprefix(f"layers.{number}."): tensor for name, tensor in weights.items()}
        positions = weights.get("positions.weight", layer.get("positions.weight"))
        assert positions is not None
        joint = norm(x, layer["attention_norm.weight"]) @ layer["attention.qkv.weight"].T
        queries, keys, values = joint.view(count, 3, config.num_heads, -1).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", queries, keys) + positions[buckets].permute(2, 0, 1)
        shares = scores.masked_fill(~may_see, -math.inf).softmax(-1)
        attended = torch.einsum("hqk,khd->qhd", shares, values).reshape(count, -1)
        x = x + attended @ layer["attention.out.weight"].T
        inner = norm(x, layer["ffn_norm.weight"]) @ layer["ffn.up.weight"].T
        if config.gated:
            gate, linear = inner.chunk(2, dim=-1)
            inner = torch.nn.functional.gelu(gate, approximate="tanh") * linear
        else:
            inner = inner.relu()
        x = x + inner @ layer["ffn.down.weight"].T
    x = norm(x, weights["final_norm.weight"])
    output_table = table
    if config.output_table:
        output_table = weights["head.weight"]
    else:
        x = x * config.hidden_size**-0.5
    logits: Tensor = x @ output_table.T
    return logits


LENGTHS = ((41, 9), (3, 12), (150, 1))  # Tokens of each source and of its target.


def texts() -> tuple[list[list[int]], list[list[int]]]:
    """Return sources and targets of different lengths; targets begin with the first token."""
    generator = torch.Generator().manual_seed(0)

    def draw(length: int) -> list[int]:
        return torch.randint(5, 100, (length,), generator=generator).tolist()

    return [draw(source) for source, _ in LENGTHS], [[0, *draw(n)] for _, n in LENGTHS]


def padded(rows: list[list[int]], pad: int = 0) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


VERSIONS = pytest.mark.parametrize(
    "changes", [{}, LATER, {**LATER, "series": "umt5"}], ids=["plain", "gated", "umt5"]
)


@VERSIONS
@pytest.mark.parametrize("stack", STACKS)
def test_padded_rows_equal_single_rows_in_plain_torch(stack: str, changes: dict[str, Any]) -> None:
    config = single(stack, **changes)
    model: Any = random_model(config, LM).double().eval()
    sources, targets = texts()
    mask = padded([[1] * len(source) for source in sources])
    with torch.no_grad():
        logits = model(padded(sources, 7), mask, decoder_input_ids=padded(targets, 9))["logits"]
        for row, source, target in zip(logits, sources, targets, strict=True):
            expected = reference_logits(model, config, source, target)[len(source) :]
            difference = (row[: len(target)] - expected).abs().max()
            assert difference < 1e-10 * expected.abs().max()


@pytest.mark.parametrize("stack", STACKS)
def test_packed_rows_equal_single_rows_in_plain_torch(stack: str) -> None:
    """A packed row has several sources, and the same number of targets in another row."""
    config = single(stack)
    model: Any = random_model(config, LM).double().eval()
    sources, targets = texts()

    def pack(rows: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
        numbers = [[k] * len(row) for k, row in enumerate(rows, start=1)]
        ids = [*chain(*rows), *[7] * padding]
        return torch.tensor([ids]), torch.tensor([[*chain(*numbers), *[0] * padding]])

    source_ids, source_documents = pack(sources, 5)
    target_ids, target_documents = pack(targets, 3)
    with torch.no_grad():
        hidden = model.hidden(
            source_ids,
            None,
            target_ids,
            document_ids=source_documents,
            decoder_document_ids=target_documents,
        )
        logits = [model.scores(states) for states in hidden]
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        rows_of_text = reference_logits(model, config, source, target)
        expected = rows_of_text[: len(source)], rows_of_text[len(source) :]
        for part, documents, rows in zip(
            logits, (source_documents, target_documents), expected, strict=True
        ):
            difference = (part[documents == number] - rows).abs().max()
            assert difference < 1e-10 * rows.abs().max()


@VERSIONS
@pytest.mark.parametrize("stack", STACKS)
def test_greedy_generation_with_a_cache_equals_that_without(
    stack: str, changes: dict[str, Any]
) -> None:
    """The longest texts that are compared have tokens in the last bucket of positions."""
    model: Any = random_model(single(stack, **changes), LM).double().eval()
    sources, _ = texts()
    mask = padded([[1] * len(source) for source in sources])
    generated: list[list[int]] = [[] for _ in sources]
    with torch.no_grad():
        inputs = {"input_ids": padded(sources, 7), "attention_mask": mask}
        logits, state = model.prefill(inputs, 12)
        for _ in range(12):
            for row, source in enumerate(sources):
                target = torch.tensor([[0, *generated[row]]])
                alone = model(torch.tensor([source]), decoder_input_ids=target)["logits"][0, -1]
                assert (logits[row] - alone).abs().max() < 1e-9 * alone.abs().max()
                generated[row].append(int(alone.argmax()))
            assert logits.argmax(-1).tolist() == [tokens[-1] for tokens in generated]
            logits = model.step(torch.tensor([tokens[-1] for tokens in generated]), state)


def test_only_a_prefix_stack_sees_the_whole_source() -> None:
    source = torch.arange(5, 25)[None]
    changed = source.clone()
    changed[0, -1] = 99
    target = torch.tensor([[0, 30, 31]])
    for stack in STACKS:
        model: Any = random_model(single(stack), LM).double().eval()
        with torch.no_grad():
            before, after = (model.hidden(ids, None, target)[0] for ids in (source, changed))
        is_equal = torch.equal(before[:, :-1], after[:, :-1])
        assert is_equal == (stack == "causal")


def count_block_parameters(config: T5Config) -> int:
    """Return the parameters of all blocks without cross-attention, which the paper leaves out."""
    count = 0
    for name, parameter in FAMILY.model(config, LM).named_parameters():
        if name.startswith(("layers.", "decoder.layers.")) and ".cross" not in name:
            count += parameter.numel()
    return count


@pytest.mark.parametrize("stack", STACKS)
def test_it_has_half_of_the_parameters_and_the_operations_of_an_encoder_decoder(stack: str) -> None:
    """Table 2: P and M, where an encoder-decoder has 2P and M."""
    both = replace(SMALL, num_decoder_layers=None)
    assert 2 * count_block_parameters(single(stack)) == count_block_parameters(both)
    model: Any = FAMILY.model(single(stack), LM)
    source = torch.ones(1, 24, dtype=torch.int64)
    target = torch.ones(1, 8, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model.hidden(source, None, target)
    tokens = 32
    width, inner = SMALL.hidden_size, SMALL.inner_size
    # Each token passes each matrix once, as in one of an encoder-decoder's stacks.
    matrices = 4 * width * inner + 2 * width * SMALL.intermediate_size
    products = 2 * tokens * matrices
    attention = 2 * 2 * tokens * tokens * inner
    assert counter.get_total_flops() == SMALL.num_layers * (products + attention)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie_encoder_decoder": True}, "has no decoder, and tie_encoder_decoder is true"),
        ({"num_decoder_layers": 2}, "has no decoder, and num_decoder_layers is 2"),
    ],
)
def test_settings_of_a_decoder_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(single("prefix"), **changes)


@pytest.mark.long
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("objective", ["span-corruption", "prefix-lm"])
def test_a_run_resumes_bit_for_bit(tmp_path: Path, stack: str, objective: str) -> None:
    changes = {"config": {"single_stack": stack}, "objective": objective, "max_steps": 4}
    whole = run_training(tmp_path / "whole", "t5", **changes, save_steps=2, eval_steps=4)
    assert_resumes_from(whole, tmp_path, 2)


def test_no_class_of_the_hub_has_one_stack() -> None:
    for stack in STACKS:
        with pytest.raises(UsageError, match="one stack reads source and target, which no class"):
            FAMILY.architecture(single(stack), LM)
        assert not FAMILY.has_reference(single(stack), LM)


@pytest.mark.long
def test_a_trained_model_is_scored_exported_and_not_written_for_the_hub(tmp_path: Path) -> None:
    changes = {"config": {"single_stack": "prefix"}, "max_steps": 1, "eval_steps": 1}
    run_training(tmp_path / "run", "t5", **changes)
    model = tmp_path / "run/model"
    refusals = {
        ("convert", model, "--to", "hub"): (
            "one stack reads source and target, which no class of the Hub has"
        ),
        ("export", model, "--to", "ctranslate2"): (
            "it has no stack that reads source and target as one text"
        ),
    }
    for command, message in refusals.items():
        done = zoo(*command, "-o", tmp_path / "out")
        assert done.returncode != 0 and message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()
    done = zoo("look", model, "The cat sat", "--text-target", "on", "-o", tmp_path / "look.html")
    assert done.returncode == 0, done.stderr
    table = tmp_path / "table.tsv"
    table.write_text("text\tlabel\nThe cat\tsat\nThe very old dog of the house\tlay down\n")
    done = zoo("export", model, "--onnx", "-o", tmp_path / "onnx")
    assert done.returncode == 0, done.stderr
    reports = []
    for ref in (model, tmp_path / "onnx"):
        done = zoo("eval", ref, "--task", "seq2seq", "--eval", table, "--max-new-tokens", 3)
        assert done.returncode == 0, done.stderr
        reports.append(done.stdout)
    assert reports[0] == reports[1] and "loss" in reports[0]


@pytest.mark.long
def test_a_further_run_and_fine_tuning_begin_with_its_weights(tmp_path: Path) -> None:
    changes = {"config": {"single_stack": "prefix"}, "max_steps": 1, "eval_steps": 1}
    run_training(tmp_path / "run", "t5", **changes)
    model = tmp_path / "run/model"
    start = {"init_from": {"model": str(model)}, "lr_scheduler": {"warmup_steps": 0}}
    further = run_training(tmp_path / "further", "t5", **start, max_steps=1, eval_steps=1)
    assert load_checkpoint(further / "model").config == load_checkpoint(model).config
    table = tmp_path / "table.tsv"
    table.write_text("text\tlabel\n" + "one two\tthree\nfour\tfive six\n" * 4)
    for task in ("seq2seq", "text-classification"):
        done = zoo(
            "finetune", model, "--task", task, "--train", table, "--eval", table,
            "--max-steps", 2, "-o", tmp_path / task,
        )  # fmt: skip
        if task == "seq2seq":
            assert done.returncode == 0, done.stderr
        else:
            assert "single_stack prefix has no head sequence-classification" in done.stderr
            assert done.returncode != 0 and not (tmp_path / task).exists()


@pytest.mark.parametrize("stack", STACKS)
def test_a_language_model_also_learns_from_sources(stack: str) -> None:
    """Section 3.2.3: it predicts the whole text, and a prefix language model only the target."""
    config = single(stack, vocab_size=100)
    words = vocabulary([f"w{number}" for number in range(97)])
    objective = PrefixLm(words, config, 24)
    model: Any = random_model(config, LM).double().eval()
    rng = generator(0, "texts")
    texts = [rng.integers(3, 100, size=size).tolist() for size in (31, 5, 12, 9)]
    dataset = objective.dataset(split(*texts), 0)
    batch = objective.collate([dataset.example(index, rng) for index in range(len(dataset))])
    assert batch.rows > 1 and batch.tensors["document_ids"].max() > 1

    sums = {LM: 0.0, "source-lm": 0.0}
    counts = {LM: 0, "source-lm": 0}
    for row in range(batch.rows):
        sources = documents_of(batch.tensors, "", row)
        targets = documents_of(batch.tensors, "decoder_", row)
        for source, target in zip(sources, targets, strict=True):
            with torch.no_grad():
                losses = reference_logits(model, config, source, target).log_softmax(-1).neg()
            # Each token is predicted from the one before it; a target ends in the token 1.
            ends = [*target[1:], 1]
            sums[LM] += sum(float(losses[len(source) + k, word]) for k, word in enumerate(ends))
            sums["source-lm"] += sum(float(losses[k, w]) for k, w in enumerate(source[1:]))
            counts[LM] += len(ends)
            counts["source-lm"] += len(source) - 1
    terms = [LM, "source-lm"] if stack == "causal" else [LM]
    assert batch.counts == {term: counts[term] for term in terms}
    output = objective.compute_loss(model, batch.tensors)
    assert output.sums.keys() == set(terms)
    for term in terms:
        assert float(output.sums[term].detach()) == pytest.approx(sums[term], rel=1e-6)
    weights = {LM: 0.5, "source-lm": 0.5} if stack == "causal" else {LM: 1.0}
    assert objective.loss_weights == weights


def documents_of(tensors: dict[str, Tensor], prefix: str, row: int) -> list[list[int]]:
    """Return the tokens of each document in a row of sources or targets."""
    ids = tensors[f"{prefix}input_ids"][row]
    documents = tensors[f"{prefix}document_ids"][row]
    return [ids[documents == k].tolist() for k in range(1, int(documents.max()) + 1)]


def test_predicting_a_source_that_is_seen_is_refused() -> None:
    words = vocabulary(["a"])
    for config in (SMALL, single("prefix")):
        with pytest.raises(UsageError, match="the model sees the tokens of a source before it"):
            PrefixLm(words, config, 24, PrefixLmOptions(predict_source=True))
    silent = PrefixLm(words, single("causal"), 24, PrefixLmOptions(predict_source=False))
    assert silent.loss_weights == {LM: 1.0}
