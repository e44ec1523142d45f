"""Longformer: the conformance kit, and equality with the reference library on random weights."""

import json
from pathlib import Path
from typing import Any, ClassVar

import onnx
import onnxruntime
import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor

import zoo
from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from tests.finetuning.making import finetune, labelled, settings
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import keep_float64, reference_model
from zoo.errors import UsageError, VerificationError
from zoo.exporting.graph.trace import trace
from zoo.families.global_tokens import parse_global_tokens
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_model
from zoo.nn.global_tokens import GlobalTokenRule
from zoo.testing.conformance import FamilyTests
from zoo_longformer import Longformer
from zoo_longformer.config import SIZES, LongformerConfig

LONGFORMER = Longformer()
SMALL = LongformerConfig(
    **{**SMALL_SIZES, "max_positions": 130}, attention_window=(8, 16, 4), type_vocab_size=1
)
SEPARATOR = 2


class TestLongformer(ReferenceTests, FamilyTests):
    family = LONGFORMER
    base = replace(SIZES["base"], vocab_size=1000, max_positions=1026, num_layers=2)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"type_vocab_size": 2},
        {"pad_token_id": 5},
        {"activation": "relu"},
        {"attention_window": 4, "layer_norm_eps": 0.1},
        {"attention_window": 64, "num_heads": 3, "labels": ("one",), "problem": "regression"},
    )
    default = LongformerConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("attention_window", 7): "attention_window is 7, which is not a positive even number",
        ("attention_window", (8, 8)): "attention_window has 2 windows for 12 blocks",
        ("attention_dilation", (1, 2)): "attention_dilation",
        ("attention_mode", "sliding_chunks_no_overlap"): "attention_mode",
        ("autoregressive", True): "autoregressive",
        ("is_decoder", True): "is_decoder",
        ("hidden_act", "prelu"): "hidden_act",
        ("pad_token_id", None): "pad_token_id",
        ("max_position_embeddings", 2): "max_positions 2 leaves no position",
        ("global_tokens", (0, 600)): "position 600",
    }
    # By hand: RoBERTa's, with 3,584 more positions, and three more projections in each block.
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 124_645_632 + 3_584 * 768 + 12 * 3 * (768 * 768 + 768),
        ("large", "none"): 355_359_744 + 3_584 * 1024 + 24 * 3 * (1024 * 1024 + 1024),
    }
    variants = ({"attention_window": 8}, {"type_vocab_size": 2})
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}
    # Attention at padding is zero in the reference, and the test compares padding as well.
    test_base_equals_the_reference = None  # type: ignore[assignment]


# Parity with the reference library


def text_batch(length: int) -> tuple[Tensor, Tensor]:
    """Return two rows, the second one padded, each with the three separators of a pair of texts."""
    draw = torch.Generator().manual_seed(length)
    input_ids = torch.randint(4, 101, (2, length), generator=draw)
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, length - length // 4 :] = 0
    if length >= 7:
        input_ids[0, [2, 3, -1]] = SEPARATOR
        input_ids[1, [3, 4, 5]] = SEPARATOR
    return torch.where(mask == 1, input_ids, 1), mask


LENGTHS = (1, 3, 7, 16, 17, 33, 40, 128)  # Windows have 4, 8 and 16 tokens.
TASKS = ("sequence-classification", "question-answering", "multiple-choice", "masked-lm")


@pytest.mark.parametrize("head", TASKS)
def test_global_tokens_of_a_task_are_those_of_the_reference(head: str) -> None:
    """The reference chooses them itself, at all lengths up to many windows."""
    config = parity.suited(SMALL, head)
    model = parity.random_model(LONGFORMER, config, head)
    reference: Any = reference_model(LONGFORMER, config, head, model.state_dict())
    for length in LENGTHS:
        if head in ("question-answering", "multiple-choice") and length < 7:
            continue  # The reference needs three separators.
        input_ids, mask = text_batch(length)
        if head == "multiple-choice":
            input_ids = input_ids[:, None].expand(-1, 2, -1).contiguous()
            mask = mask[:, None].expand(-1, 2, -1).contiguous()
        assert_same_outputs_and_gradients(model, reference, input_ids, mask)


def assert_same_outputs_and_gradients(
    model: Any, reference: Any, input_ids: Tensor, mask: Tensor, **inputs: Any
) -> None:
    """Check outputs where there is no padding, and gradients of embeddings and projections."""
    with keep_float64():
        expected = reference(input_ids, attention_mask=mask, **inputs)
    our_loss = torch.zeros((), dtype=torch.double)
    reference_loss = torch.zeros((), dtype=torch.double)
    for name, output in model(input_ids, mask).items():
        real = torch.ones_like(output)
        if output.shape[: mask.dim()] == mask.shape:
            real = mask.view(*mask.shape, *[1] * (output.dim() - mask.dim())).expand_as(output)
        assert ((output - expected[name]) * real).abs().max() <= 1e-9, name
        weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output) * real
        our_loss = our_loss + (output * weight).sum()
        reference_loss = reference_loss + (expected[name] * weight).sum()
    tables = (model.embeddings.tokens.weight, reference.get_input_embeddings().weight)
    (gradient,) = torch.autograd.grad(our_loss, tables[0], retain_graph=True)
    (expected_gradient,) = torch.autograd.grad(reference_loss, tables[1], retain_graph=True)
    assert (gradient - expected_gradient).abs().max() <= 1e-9
    projections = []
    for name, parameter in reference.named_parameters():
        if ".0." in name and name.endswith("_global.weight"):
            projections.append(parameter)
    expected_gradients = torch.autograd.grad(reference_loss, projections, allow_unused=True)
    weight = model.layers[0].attention.global_qkv.weight
    (gradient,) = torch.autograd.grad(our_loss, weight, allow_unused=True)
    if gradient is None:
        assert [part for part in expected_gradients if part is not None and part.any()] == []
    else:
        assert (gradient - torch.cat(expected_gradients)).abs().max() <= 1e-9


@pytest.mark.parametrize("choice", ["none", "first", "separators", (0, 5, 31)], ids=str)
def test_global_tokens_may_be_chosen(choice: Any) -> None:
    config = replace(SMALL, global_tokens=choice)
    model = parity.random_model(LONGFORMER, config, "token-classification")
    reference = reference_model(LONGFORMER, config, "token-classification", model.state_dict())
    for length in LENGTHS:
        input_ids, mask = text_batch(length)
        global_mask = torch.zeros_like(mask)
        if choice == "first":
            global_mask[:, 0] = 1
        elif choice == "separators":
            global_mask = (input_ids == SEPARATOR).long()
            global_mask[:, 0] = 1
        elif choice != "none":
            global_mask[:, [place for place in choice if place < length]] = 1
        inputs = {"global_attention_mask": global_mask}
        assert_same_outputs_and_gradients(model, reference, input_ids, mask, **inputs)


def test_rows_of_a_batch_may_have_no_global_token() -> None:
    """A text that is shorter than all positions, next to one that has some."""
    config = replace(SMALL, global_tokens=(20, 30))
    model = parity.random_model(LONGFORMER, config, "token-classification")
    input_ids, mask = text_batch(100)
    mask[1, 10:] = 0
    with torch.no_grad():
        both = model(input_ids, mask)["logits"]
        alone = model(input_ids[1:, :10], mask[1:, :10])["logits"]
    assert (both[1, :10] - alone[0]).abs().max() < 1e-12


def test_packed_rows_compute_the_same() -> None:
    model: Any = parity.random_model(LONGFORMER, SMALL, "none")
    lengths = (50, 7, 33)
    texts = [torch.randint(4, 101, (1, length)) for length in lengths]
    documents = torch.repeat_interleave(torch.tensor([1, 2, 3]), torch.tensor(lengths))[None]
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    with torch.no_grad():
        packed = model.encode(
            torch.cat(texts, 1), position_ids=places, document_ids=documents
        ).split(lengths, 1)
        for text, part in zip(texts, packed, strict=True):
            assert (model.encode(text) - part).abs().max() < 1e-12


# Bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1000", "position 1000, and a row has the positions 0 to 127"),
        (",".join(map(str, range(200))), "names 200 positions, and a row has 128 tokens"),
        ("3,3", "names a position twice"),
        ("first,3", "is not one of task, none, first"),
        ("-1", "is not one of"),
        ("", "is not one of"),
    ],
)
def test_global_tokens_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, global_tokens=parse_global_tokens(text))


def test_published_configurations_are_read() -> None:
    """Keys of longformer-base-4096, and of the released code."""
    hub = {
        "model_type": "longformer",
        "attention_mode": "longformer",
        "attention_window": [512] * 12,
        "attention_dilation": [1] * 12,
        "autoregressive": False,
        "ignore_attention_mask": False,
        "gradient_checkpointing": False,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 4098,
        "type_vocab_size": 1,
        "vocab_size": 50265,
        "sep_token_id": 2,
    }
    translated = LONGFORMER.from_hub(hub)
    assert translated.unknown == ()
    assert translated.config == replace(SIZES["base"], attention_window=(512,) * 12)
    assert LONGFORMER.onnx(translated.config, "none").limits == {"tokens": 4096}
    with pytest.raises(VerificationError, match="attention_dilation"):
        LONGFORMER.from_hub({**hub, "attention_dilation": [2] * 12})


def test_rule_of_a_head_is_recorded_in_the_model() -> None:
    rules = {}
    for head in LONGFORMER.heads():
        model: Any = LONGFORMER.model(SMALL, head)
        assert isinstance(model.global_tokens, GlobalTokenRule)
        rules[head] = model.global_tokens.rule
    assert rules == {
        "none": "first",
        "masked-lm": "none",
        "sequence-classification": "first",
        "token-classification": "none",
        "question-answering": "question",
        "multiple-choice": "choice",
    }


# A RoBERTa that is grown


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of 40 positions in the Hub's layout, with random weights."""
    path = tmp_path_factory.mktemp("roberta")
    config = transformers.RobertaConfig(
        vocab_size=101,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=42,
        type_vocab_size=1,
    )
    model = transformers.RobertaForMaskedLM(config)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    model.save_pretrained(path)
    return path


def test_a_roberta_is_grown_as_by_the_released_notebook(roberta: Path, tmp_path: Path) -> None:
    """convert_model_to_long: ``k = 2``, then copies of the trained rows until the table is full."""
    report = zoo.convert(roberta, output=tmp_path / "long", family="longformer", max_seq_len=100)
    original = transformers.RobertaForMaskedLM.from_pretrained(roberta)
    table = original.roberta.embeddings.position_embeddings.weight
    expected = table.new_empty(102, 48)
    expected[:2] = table[:2]
    k = 2
    step = 40
    while k < 101:
        expected[k : k + step] = table[2:][: 102 - k]
        k += step
    zoo.convert(tmp_path / "long", output=tmp_path / "hub", to="hub")
    long = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "hub").eval()
    assert torch.equal(long.longformer.embeddings.position_embeddings.weight, expected)
    for ours, theirs in zip(
        long.longformer.encoder.layer, original.roberta.encoder.layer, strict=True
    ):
        attention = ours.attention.self
        for name in ("query", "key", "value"):
            weight = getattr(theirs.attention.self, name).weight
            assert torch.equal(getattr(attention, name).weight, weight)
            assert torch.equal(getattr(attention, f"{name}_global").weight, weight)
    input_ids = torch.randint(4, 101, (2, 38))
    with torch.no_grad():
        difference = long(input_ids).logits - original.eval()(input_ids).logits
    assert difference.abs().max() < 1e-5
    facts = report.to_dict()
    assert facts["grown"] == ["embeddings.positions.weight"]
    assert len(facts["initial"]) == 4 and len(facts["copied"]) > 20
    record = json.loads((tmp_path / "long" / "zoo.json").read_text("utf-8"))["account"]
    assert record["lengthened"]["initial"] == facts["initial"]
    zoo.convert(tmp_path / "long", output=tmp_path / "again")
    again = json.loads((tmp_path / "again" / "zoo.json").read_text("utf-8"))["account"]
    assert again["lengthened"] == record["lengthened"] and len(again) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "longformer"}, "--family is for --max-seq-len N"),
        (
            {"family": "longformer", "max_seq_len": 100, "position_init": "repeat"},
            "stay in their family",
        ),
        ({"family": "longformer", "max_seq_len": 30}, "reads 40 tokens"),
        (
            {"family": "bert", "max_seq_len": 100},
            "bert takes over no weights of roberta; leave --family",
        ),
        ({"family": "longformer", "max_seq_len": 100, "to": "hub"}, "zoo's layout"),
    ],
)
def test_growth_that_is_not_possible_is_refused(
    roberta: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        zoo.convert(roberta, output=tmp_path / "long", **options)
    assert not (tmp_path / "long").exists()


def test_the_families_that_can_be_grown_are_named() -> None:
    message = "longformer takes over no weights of bert; it grows models of roberta"
    with pytest.raises(UsageError, match=message):
        LONGFORMER.longer_model("bert", SMALL, 4096)


def test_global_tokens_are_an_option_of_conversions(roberta: Path, tmp_path: Path) -> None:
    """They are a part of the configuration, which every command reads, and go to the Hub's."""
    zoo.convert(roberta, output=tmp_path / "long", family="longformer", max_seq_len=100)
    zoo.convert(tmp_path / "long", output=tmp_path / "chosen", global_tokens="0,5,31")
    zoo.convert(tmp_path / "chosen", output=tmp_path / "hub", to="hub")
    hub = json.loads((tmp_path / "hub" / "config.json").read_text("utf-8"))
    assert hub["global_tokens"] == [0, 5, 31]
    zoo.convert(tmp_path / "hub", output=tmp_path / "back")
    checkpoint = load_checkpoint(tmp_path / "back")
    config: Any = checkpoint.config
    assert config.global_tokens == (0, 5, 31)
    model: Any = load_model(checkpoint, torch.float32)
    assert model.global_tokens.rule == (0, 5, 31)
    for text, message in (("0,100", "position 100, and a row has"), ("last", "not one of task")):
        with pytest.raises(UsageError, match=f"--global-tokens: .*{message}"):
            zoo.convert(tmp_path / "long", output=tmp_path / "bad", global_tokens=text)
    with pytest.raises(UsageError, match="attention of roberta has no global tokens"):
        zoo.convert(roberta, output=tmp_path / "bad", global_tokens="first")
    assert not (tmp_path / "bad").exists()


@pytest.mark.long
@pytest.mark.parametrize("head", ["none", "question-answering"])
def test_graphs_compute_windows_of_all_lengths(head: str, tmp_path: Path) -> None:
    """From one token to many windows; the number of global tokens may depend on the text."""
    config = parity.suited(replace(SMALL, max_positions=402), head)
    model = parity.random_model(LONGFORMER, config, head).float()
    spec = LONGFORMER.onnx(config, head)
    program = trace(model, random_inputs(spec, config, (17, 9, 5)), spec, 20)
    program.save(str(tmp_path / "graph.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "graph.onnx"))
    pairs = []
    for value in onnx.load(tmp_path / "graph.onnx").graph.value_info:
        axes = [axis.dim_param for axis in value.type.tensor_type.shape.dim]
        if axes[-2:] == ["tokens", "tokens"]:
            pairs.append(value.name)
    assert pairs == [], "memory is not linear"
    for lengths in ((1,), (3, 2), (17, 9), (60, 33, 1), (64,), (65,), (400, 120)):
        inputs = random_inputs(spec, config, lengths)
        separators = [1, min(lengths)]
        inputs["input_ids"][:, [place for place in separators if place < max(lengths)]] = SEPARATOR
        results = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        with torch.no_grad():
            expected = model(**inputs)
        mask = inputs["attention_mask"]
        for result, tensor in zip(results, expected.values(), strict=True):
            difference = (torch.from_numpy(result) - tensor).abs()
            if tensor.shape[:2] == mask.shape:
                difference = difference[mask == 1]
            assert difference.max() < 1e-4, lengths


def test_commands_take_other_global_tokens(roberta: Path, tmp_path: Path) -> None:
    """A model that is opened with other tokens computes as one that was converted with them."""
    zoo.convert(roberta, output=tmp_path / "long", family="longformer", max_seq_len=100)
    zoo.convert(tmp_path / "long", output=tmp_path / "chosen", global_tokens="0,5")
    plain = load_checkpoint(tmp_path / "long")
    changed = plain.with_global_tokens("0,5")
    input_ids = torch.arange(4, 68)[None]
    mask = torch.ones_like(input_ids)
    outputs = []
    for checkpoint in (changed, load_checkpoint(tmp_path / "chosen"), plain):
        model: Any = load_model(checkpoint, torch.float32)
        outputs.append(model(input_ids, mask)["logits"])
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    # Caches tell both apart, and what is written of the model records the tokens.
    assert changed.identity != plain.identity and changed.file_digests != plain.file_digests
    assert changed.model.config["global_tokens"] == (0, 5)
    assert plain.with_global_tokens(None) is plain
    model = zoo.load(tmp_path / "long", backend="cpu", global_tokens="first")
    assert model.checkpoint.config.global_tokens == "first"
    for path, text, message in (
        (tmp_path / "long", "0,100", "position 100, and a row has the positions 0 to 99"),
        (roberta, "first", "attention of roberta has no global tokens"),
    ):
        with pytest.raises(UsageError, match=f"--global-tokens: .*{message}"):
            zoo.load(path, backend="cpu", global_tokens=text)


@pytest.mark.long
def test_a_fine_tuned_and_an_exported_model_record_their_global_tokens(tmp_path: Path) -> None:
    config = {"global_tokens": "separators"}
    table = labelled(tmp_path / "table.jsonl")
    run = finetune(tmp_path / "run", settings("longformer", table, max_steps=2, config=config))
    trained = run / "model"
    assert load_checkpoint(trained).model.config["global_tokens"] == "separators"
    again = finetune(
        tmp_path / "again", settings(trained, table, max_steps=2, config={"global_tokens": "0,2"})
    )
    assert load_checkpoint(again / "model").model.config["global_tokens"] == [0, 2]
    zoo.export(trained, output=tmp_path / "graph", global_tokens="none")
    graph = load_checkpoint(tmp_path / "graph")
    assert graph.model.config["global_tokens"] == "none"
    text = "a b c d"
    chosen = zoo.load(trained, backend="cpu", global_tokens="none").classify([text])[0]
    exported = zoo.load(tmp_path / "graph").classify([text])[0]
    assert exported["scores"] == pytest.approx(chosen["scores"], abs=1e-5)
    assert chosen["scores"] != zoo.load(trained, backend="cpu").classify([text])[0]["scores"]
    with pytest.raises(UsageError, match="export the model again with --global-tokens"):
        zoo.load(tmp_path / "graph", global_tokens="first")
