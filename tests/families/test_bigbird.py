"""BigBird: the conformance kit, and equality with the reference library on random weights."""

import json
from pathlib import Path
from typing import Any, ClassVar

import onnxruntime
import pytest
import torch
import transformers
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from tests.tokenizers.texts import prose
from tests.tokenizers.trained import pieces
from zoo.conformance.hf_reference import reference_model
from zoo.exporting.graph.trace import trace
from zoo.families.random_inputs import random_inputs
from zoo.nn.capture import capture
from zoo.objectives.losses.predictions import cross_entropy_sum
from zoo.testing.conformance import FamilyTests
from zoo.tokenizers import SourceFiles
from zoo_bigbird import BigBird
from zoo_bigbird.config import SIZES, BigBirdConfig

BIGBIRD = BigBird()
# Rows of more than 14 tokens have block-sparse attention.
SMALL = BigBirdConfig(**SMALL_SIZES, sep_token_id=66, block_size=2, num_random_blocks=1)
# Rows of more than 36 tokens have it, and two blocks of each head are random.
BLOCKS = replace(
    SMALL, max_positions=80, block_size=4, num_random_blocks=2, dropout=0.0, attention_dropout=0.0
)


class TestBigBird(ReferenceTests, FamilyTests):
    family = BIGBIRD
    golden = Path(__file__).parents[1] / "golden" / "bigbird"
    base = replace(SIZES["base"], vocab_size=1000, max_positions=1024)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"attention_type": "original_full"},
        {"use_bias": False, "scale_embedding": True},
        {"tie_embeddings": False, "type_vocab_size": 4, "num_random_blocks": 2},
        {"activation": "relu", "block_size": 1},
        {"layer_norm_eps": 0.1, "num_heads": 2, "block_size": 3, "max_positions": 42},
        {"labels": ("one",), "problem": "regression"},
    )
    default = BigBirdConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("add_cross_attention", True): "add_cross_attention",
        ("attention_type", "sliding"): "attention_type",
        ("num_random_blocks", 0): "num_random_blocks",
        ("block_size", 0): "block_size",
        ("type_vocab_size", 1): "type_vocab_size",
    }
    # (50,358 + 4,096 + 2) 768 + 1,536; 12 layers of 7,087,872; 590,592; 642,486; 1,538
    counts: ClassVar[dict[tuple[str, str], int]] = {("base", "pretraining"): 128_112_824}
    variants = ({"use_bias": False}, {"attention_type": "original_full"}, {"pooler": False})
    carried: ClassVar[dict[str, Any]] = {"eos_token_id": 3}


def batch(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two rows, the second one padded, and their mask."""
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(1, BLOCKS.vocab_size, (2, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, tokens - tokens // 3 :] = 0
    return ids, mask


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "tokens",
    [1, pytest.param(36, marks=pytest.mark.long), 37, pytest.param(40, marks=pytest.mark.long), 61],
)
def test_outputs_and_gradients_equal_the_reference(tokens: int, training: bool) -> None:
    model = parity.random_model(BIGBIRD, BLOCKS, "masked-lm").train(training)
    reference: Any = reference_model(BIGBIRD, BLOCKS, "masked-lm", model.state_dict())
    reference.train(training).requires_grad_(True)
    ids, mask = batch(tokens)
    logits = model(ids, mask)["logits"]
    expected = reference(ids, mask).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)
    logits.square().mean().backward()
    expected.square().mean().backward()
    attention = reference.bert.encoder.layer[0].attention.self
    theirs = [part.weight.grad for part in (attention.query, attention.key, attention.value)]
    ours = model.get_parameter("layers.0.attention.qkv.weight").grad
    assert ours is not None
    torch.testing.assert_close(ours, torch.cat(theirs), rtol=0, atol=1e-9)


def test_two_steps_of_training_equal_a_plain_loop() -> None:
    """Random blocks, the masked-word loss and AdamW, in float64."""
    model: Any = parity.random_model(BIGBIRD, BLOCKS, "masked-lm").train()
    reference: Any = reference_model(BIGBIRD, BLOCKS, "masked-lm", model.state_dict())
    reference.train().requires_grad_(True)
    settings: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1}
    parameters = [part for part in model.parameters() if part.requires_grad]
    optimizers = [
        torch.optim.AdamW(parameters, **settings),
        torch.optim.AdamW(reference.parameters(), **settings),
    ]
    ids, mask = batch(61)
    labels = ids[0, 5:9]
    losses = []
    for _ in range(2):
        hidden = model.encode(ids, mask)[0, 5:9]
        sums = cross_entropy_sum(model.project(hidden), labels, "loss").sums
        loss = sums["loss"] / len(labels)
        logits = reference(ids, mask).logits[0, 5:9]
        plain = torch.nn.functional.cross_entropy(logits, labels)
        assert abs(loss.item() - plain.item()) <= 1e-9 * plain.item()
        losses.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]
        plain.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert losses[1] < losses[0]


def test_a_short_batch_does_not_change_later_ones() -> None:
    """The reference keeps full attention after a batch of short rows."""
    model = parity.random_model(BIGBIRD, BLOCKS, "masked-lm")
    ids, mask = batch(61)
    with torch.no_grad():
        before = model(ids, mask)["logits"]
        model(ids[:, :36], mask[:, :36])
        assert torch.equal(model(ids, mask)["logits"], before)


def test_rows_end_within_a_block() -> None:
    """A row of the longest length is padded in attention only, where the reference fails."""
    config = replace(BLOCKS, max_positions=78)
    longer = parity.random_model(BIGBIRD, BLOCKS, "masked-lm")
    model = BIGBIRD.model(config, "masked-lm").double().eval()
    state = dict(longer.state_dict())
    state["embeddings.positions.weight"] = state["embeddings.positions.weight"][:78]
    model.load_state_dict(state)
    ids, mask = batch(78)
    with torch.no_grad():
        expected = longer(ids, mask)["logits"]
        torch.testing.assert_close(model(ids, mask)["logits"], expected, rtol=0, atol=1e-12)


def test_documents_of_long_packed_rows_do_not_see_each_other() -> None:
    model: Any = parity.random_model(BIGBIRD, BLOCKS, "masked-lm").train()
    ids, _ = batch(61)
    documents = torch.ones_like(ids)
    documents[:, 20:] = 2
    documents[:, 55:] = 0
    changed = ids.clone()
    changed[:, 20:55] = 7
    hidden = model.encode(ids, document_ids=documents)
    other_hidden = model.encode(changed, document_ids=documents)
    assert torch.equal(hidden[:, :20], other_hidden[:, :20])
    assert not torch.equal(hidden[:, 20:55], other_hidden[:, 20:55])


def test_captured_attention_is_what_the_blocks_compute() -> None:
    model = parity.random_model(BIGBIRD, BLOCKS, "none")
    ids, _ = batch(61)
    with torch.no_grad():
        expected = model(ids)["last_hidden_state"]
        with capture(model, attention="all") as captured:
            hidden = model(ids)["last_hidden_state"]
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-9)
    weights = captured.attention[0]
    assert weights.shape == (2, BLOCKS.num_heads, 61, 61)
    # A token of the third block attends to the first block, its window and the last block.
    row = weights[0, 0, 10]
    assert (row[16:60] == 0).all() and (row[:16] > 0).all() and row[60] > 0


@pytest.mark.long
@pytest.mark.parametrize("training", [False, True])
def test_compiled_models_compute_the_same(training: bool) -> None:
    model = parity.random_model(BIGBIRD, BLOCKS, "masked-lm").train(training)
    compiled: Any = torch.compile(model, backend="eager")
    for tokens in (61, 70, 20):
        ids, mask = batch(tokens)
        logits = compiled(ids, mask)["logits"]
        torch.testing.assert_close(logits, model(ids, mask)["logits"], rtol=0, atol=1e-12)


@pytest.mark.long
def test_one_graph_has_full_and_block_sparse_attention() -> None:
    model = parity.random_model(BIGBIRD, replace(BLOCKS, num_layers=1), "masked-lm").float()
    spec = BIGBIRD.onnx(BLOCKS, "masked-lm")
    example = random_inputs(spec, BLOCKS, (7, 5))
    program = trace(model, example, spec, opset=20)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for tokens in (1, 3, 35, 36, 37, 40, 61, 80):
        ids, mask = batch(tokens)
        types = torch.zeros_like(ids)
        with torch.no_grad():
            expected = model(ids, mask)["logits"]
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        (logits,) = session.run(None, arrays)
        torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("saved", [False, True])
def test_tokens_are_those_of_the_reference(saved: bool, tmp_path: Path) -> None:
    """Neither passes token types to the model, although the saved template has them."""
    special = "[CLS],[SEP],[MASK]"
    model = pieces(pad_id=0, eos_id=1, bos_id=2, unk_id=3, control_symbols=special)
    (tmp_path / "spiece.model").write_bytes(model)
    (tmp_path / "config.json").write_text('{"model_type": "big_bird"}')
    reference: Any = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(reference).__name__ == "BigBirdTokenizer"
    source = tmp_path
    if saved:
        source = tmp_path / "saved"
        reference.save_pretrained(source)
        settings = json.loads((source / "tokenizer_config.json").read_text())
        settings.pop("model_input_names", None)
        (source / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = BIGBIRD.tokenizer(SourceFiles(source))
    for text in filter(None, prose()[:100]):
        assert tokenizer.encode(text).ids == reference(text)["input_ids"], text
    encoding = tokenizer.encode("a cat", "the dog")
    expected = reference("a cat", "the dog")
    assert encoding.ids == expected["input_ids"]
    assert "token_type_ids" not in expected and set(encoding.type_ids) == {0}


def test_types_of_questions_and_texts_are_found_in_the_model() -> None:
    config = replace(BLOCKS, labels=("start", "end"))
    model = parity.random_model(BIGBIRD, config, "question-answering")
    reference: Any = reference_model(BIGBIRD, config, "question-answering", model.state_dict())
    ids, mask = batch(50)
    ids[:, 9] = config.sep_token_id
    with torch.no_grad():
        logits = model(ids, mask)
        expected = reference(ids, mask)
    for name in ("start_logits", "end_logits"):
        torch.testing.assert_close(logits[name], expected[name], rtol=0, atol=1e-9)
        assert (logits[name][:, 1:10] < -1e5).all() and (logits[name][:, 0] > -1e5).all()
    assert "token_type_ids" not in BIGBIRD.onnx(config, "question-answering").inputs
