"""LSTM language models: the conformance checks, and plain torch in float64 as the reference."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from tests.families.parity import random_model
from tests.finetuning.making import labelled
from tests.objectives.test_causal import RNG, WORDS, labelled_texts, read
from tests.objectives.words import split
from tests.training.runs import assert_resumes_from, run_training
from tests.warm import zoo
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conversion.convert import convert
from zoo.data.rng import generator
from zoo.errors import UsageError, VerificationError
from zoo.hub.reference import resolve
from zoo.hub.source import CheckpointDir
from zoo.inference.generation.generate import generate
from zoo.inference.load_model import load_model
from zoo.objectives import objective_type
from zoo.testing.conformance import FamilyTests
from zoo_lstm import Lstm
from zoo_lstm.config import SIZES, LstmConfig
from zoo_lstm.lstm import rows_of_documents

LSTM = Lstm()
SMALL = LstmConfig(vocab_size=500, embedding_size=12, hidden_size=20)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"num_layers": 3},
    {"embedding_size": 20, "tie_embeddings": True},
    {"logits_bias": False},
)
LENGTHS = (9, 4, 1)


class TestLstm(FamilyTests):
    family = LSTM

    @property
    def config(self) -> LstmConfig:
        return replace(SIZES["tiny"], num_layers=2)


class WordModel(nn.Module):
    """The example of PyTorch, ``word_language_model``, in the names of its modules."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.encoder = nn.Embedding(config.vocab_size, config.embedding_size)
        self.rnn = nn.LSTM(config.embedding_size, config.hidden_size, config.num_layers)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=config.logits_bias)
        if config.tie_embeddings:
            self.decoder.weight = self.encoder.weight

    def states(self, ids: Sequence[int]) -> Tensor:
        """Return the last layer's hidden state after each token of one text."""
        with torch.no_grad():
            states, _ = self.rnn(self.encoder(torch.tensor(ids))[:, None])
        return states[:, 0]  # type: ignore[no-any-return]

    def logits(self, ids: Sequence[int]) -> Tensor:
        """Return the logits after each token of one text."""
        with torch.no_grad():
            return self.decoder(self.states(ids))  # type: ignore[no-any-return]


def reference(config: LstmConfig, model: nn.Module) -> WordModel:
    """Return plain torch modules with a model's weights."""
    parameters = model.state_dict()
    names = {"encoder.weight": "embeddings.tokens.weight"}
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        for number in range(config.num_layers):
            names[f"rnn.{name}_l{number}"] = f"layers.{number}.lstm.{name}_l0"
    if not config.tie_embeddings:
        names["decoder.weight"] = "head.decoder.weight"
    if config.logits_bias:
        names["decoder.bias"] = "head.bias"
    plain = WordModel(config).double()
    state = {name: parameters[ours] for name, ours in names.items() if ours in parameters}
    of_head = {name: t for name, t in plain.state_dict().items() if name.startswith("decoder.")}
    plain.load_state_dict({**of_head, **state})  # A model without this head keeps random ones.
    return plain


def padded(side: str) -> tuple[list[list[int]], Tensor, Tensor]:
    """Return texts, and their ids and mask in one batch."""
    texts = [generator(length).integers(5, 499, size=length).tolist() for length in LENGTHS]
    ids = torch.full((len(texts), max(LENGTHS)), 3)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        places = slice(len(text)) if side == "right" else slice(max(LENGTHS) - len(text), None)
        ids[row, places] = torch.tensor(text)
        mask[row, places] = 1
    return texts, ids, mask


def largest(difference: Tensor) -> float:
    return float(difference.detach().abs().max())


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_logits_equal_plain_torch(changes: dict[str, Any], side: str) -> None:
    config = replace(SMALL, **changes)
    model: Any = random_model(LSTM, config, "causal-lm")
    plain = reference(config, model)
    texts, ids, mask = padded(side)
    with torch.no_grad():
        logits = model(ids, mask)["logits"]
        single = model.float()(ids, mask)["logits"]
    for row, text in enumerate(texts):
        expected = plain.logits(text)
        is_token = mask[row] > 0
        assert largest(logits[row, is_token] - expected) < 1e-12
        assert largest(single[row, is_token] - expected) < 1e-5 * largest(expected)


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_text_is_classified_by_the_state_after_its_last_token(side: str) -> None:
    config = replace(SMALL, num_layers=2, labels=("a", "b", "c"))
    model: Any = random_model(LSTM, config, "sequence-classification")
    plain = reference(replace(config, logits_bias=False), model)
    texts, ids, mask = padded(side)
    with torch.no_grad():
        logits = model(ids, mask)["logits"]
        for row, text in enumerate(texts):
            expected = F.linear(plain.states(text)[-1], model.head.weight, model.head.bias)
            assert largest(logits[row] - expected) < 1e-12
            alone = model(torch.tensor([text]))["logits"][0]
            assert largest(logits[row] - alone) < 1e-12


@pytest.mark.parametrize("name", ["causal-lm", "sequence-autoencoder"])
def test_losses_equal_plain_torch(name: str) -> None:
    """Each document of a packed row is a text of its own, which begins with a state of zeros."""
    texts = [generator(k).integers(5, 499, size=3 + 5 * k).tolist() for k in range(6)]
    objective_class: Any = objective_type(LSTM, SMALL, name)
    task = objective_class(WORDS, SMALL, 48)
    dataset = task.dataset(split(*texts), 0)
    examples = [dataset.example(index, RNG) for index in range(len(dataset))]
    assert max(int(row.arrays["document_ids"].max()) for row in examples) > 1
    model: Any = random_model(LSTM, SMALL, "causal-lm")
    plain = reference(SMALL, model)
    expected = torch.zeros((), dtype=torch.float64)
    count = 0
    for row in examples:
        if name == "causal-lm":
            pairs = list(zip(read(row), labelled_texts(row), strict=True))
        else:
            # A text, its end and the text: the labels are the text and its end.
            pairs = [(ids, [*ids[len(ids) // 2 + 1 :], ids[len(ids) // 2]]) for ids in read(row)]
        for ids, labels in pairs:
            logits = plain.logits(ids)[-len(labels) :]
            expected += F.cross_entropy(logits, torch.tensor(labels), reduction="sum")
            count += len(labels)
    batch = task.collate(examples)
    assert batch.counts == {"causal-lm": count}
    loss = task.compute_loss(model, batch.tensors)
    assert float(loss.sums["causal-lm"].detach()) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("lengths", [(20, 25, 19), (1, 2, 50, 3, 1, 1)], ids=["dense", "sparse"])
def test_packed_documents_have_the_gradients_of_separate_texts(lengths: tuple[int, ...]) -> None:
    """Texts of similar lengths are read with padding after them, all others without."""
    model: Any = random_model(LSTM, replace(SMALL, num_layers=2), "none")
    texts = [torch.from_numpy(generator(k).integers(5, 499, size=k)) for k in lengths]
    document_ids = torch.cat([torch.full((len(t),), k) for k, t in enumerate(texts, 1)])[None]
    assert rows_of_documents(document_ids).is_mostly_padding == (min(lengths) == 1)
    packed = model.encode(torch.cat(texts)[None], document_ids=document_ids)[0]
    alone = torch.cat([model.encode(text[None])[0] for text in texts])
    assert largest(packed - alone) < 1e-12
    weights = torch.randn(alone.shape, dtype=alone.dtype, generator=torch.manual_seed(0))
    names = [name for name, _ in model.named_parameters()]
    gradients = [
        torch.autograd.grad((hidden * weights).sum(), list(model.parameters()))
        for hidden in (packed, alone)
    ]
    differences = {}
    for name, found, expected in zip(names, *gradients, strict=True):
        differences[name] = largest(found - expected) / largest(expected)
    assert {name: value for name, value in differences.items() if value > 1e-10} == {}


def test_rows_of_documents() -> None:
    rows = rows_of_documents(torch.tensor([[1, 1, 2, 0], [1, 2, 2, 2], [0, 0, 0, 0]]))
    assert rows.shape == (4, 3) and rows.lengths is not None
    assert rows.lengths.tolist() == [2, 1, 1, 3]
    assert rows.row[:2].tolist() == [[0, 0, 1, 1], [2, 3, 3, 3]]
    assert rows.place.tolist() == [[0, 1, 0, 3], [0, 0, 1, 2], [3, 3, 3, 3]]
    tokens = torch.arange(1.0, 13).view(3, 4, 1)
    arranged = rows.arrange(tokens)[..., 0]
    assert arranged.tolist() == [[1, 2, 0], [3, 0, 0], [5, 0, 0], [6, 7, 8]]
    restored = rows.restore(arranged[..., None])[..., 0]
    assert restored[0, :3].tolist() == [1, 2, 3] and restored[1].tolist() == [5, 6, 7, 8]


def test_generation_equals_passes_over_the_whole_text() -> None:
    model: Any = random_model(LSTM, replace(SMALL, num_layers=2), "causal-lm")
    texts, ids, mask = padded("left")
    settings = GenerationConfig(max_new_tokens=8)
    found = generate(model, {"input_ids": ids, "attention_mask": mask}, settings, eos_token_ids=[1])
    for text, new_tokens in zip(texts, found, strict=True):
        expected: list[int] = []
        while len(expected) < 8 and 1 not in expected:
            with torch.no_grad():
                logits = model(torch.tensor([[*text, *expected]]))["logits"][0, -1]
            expected.append(int(logits.argmax()))
        assert new_tokens == expected


def test_words_are_dropped_as_a_whole() -> None:
    config = replace(SMALL, word_dropout=0.25)
    embeddings: Any = random_model(LSTM, config, "none").embeddings
    ids = torch.arange(400)[None]
    torch.manual_seed(0)
    dropped = embeddings.train()(ids)[0]
    kept = embeddings.eval()(ids)[0]
    is_zero = (dropped == 0).all(-1)
    assert 60 < int(is_zero.sum()) < 140
    assert torch.allclose(dropped[~is_zero], kept[~is_zero] / 0.75)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    drawn = LSTM.model(replace(SMALL, hidden_size=64, num_layers=2), "causal-lm").state_dict()
    for name, tensor in drawn.items():
        if "bias_ih" in name:
            assert tensor.view(4, -1).mean(1).tolist() == [0, 1, 0, 0] and tensor.max() == 1
        elif "bias" in name:
            assert not tensor.any()
        elif "lstm" in name:  # Uniform up to an eighth.
            assert tensor.abs().max() <= 1 / 8 and float(tensor.std()) == pytest.approx(
                1 / 8 / 3**0.5, rel=0.03
            )


# Files of the example


def write_files(folder: Path, state: Mapping[str, Tensor], config: str) -> CheckpointDir:
    folder.mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()},
              folder / "model.safetensors")  # fmt: skip
    (folder / "config.json").write_text(config)
    return CheckpointDir(folder, str(folder))


@pytest.mark.parametrize("changes", SETTINGS[:3], ids=str)
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "weights-only"])
def test_files_of_the_example_are_read(
    tmp_path: Path, changes: dict[str, Any], pickled: bool
) -> None:
    config = replace(SMALL, **changes)
    torch.manual_seed(0)
    plain = WordModel(config)
    state = plain.state_dict()
    if config.tie_embeddings:
        del state["decoder.weight"]
    source = write_files(tmp_path / "files", state, '{"model_type": "lstm"}')
    if pickled:
        (tmp_path / "files" / "model.safetensors").unlink()
        torch.save(state, tmp_path / "files" / "pytorch_model.bin")
    convert(source, tmp_path / "model", allow_pickle=pickled)
    checkpoint = load_checkpoint(tmp_path / "model")
    assert (checkpoint.config, checkpoint.head_name) == (config, "causal-lm")
    model: Any = load_model(checkpoint, torch.float32)
    ids = list(range(7, 40))
    with torch.no_grad():
        logits = model(torch.tensor([ids]))["logits"][0]
    assert largest(logits - plain.logits(ids)) < 1e-6


def test_other_networks_are_refused(tmp_path: Path) -> None:
    plain = WordModel(SMALL)
    plain.rnn = nn.GRU(SMALL.embedding_size, SMALL.hidden_size)  # type: ignore[assignment]
    source = write_files(tmp_path / "files", plain.state_dict(), '{"model_type": "lstm"}')
    with pytest.raises(VerificationError, match="weight_hh_l0 is 60 x 20, and an LSTM has 4 gates"):
        convert(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_none_is_published() -> None:
    with pytest.raises(UsageError, match="no checkpoint of lstm is published; `zoo pretrain lstm`"):
        resolve("lstm")


@pytest.mark.parametrize("head", LSTM.heads())
def test_the_hub_has_no_such_class(head: str) -> None:
    with pytest.raises(UsageError, match=f"the Hub has no class for lstm with the head {head}"):
        LSTM.architecture(SMALL, head)


@pytest.mark.long
@pytest.mark.parametrize("objective", ["causal-lm", "sequence-autoencoder"])
def test_a_pretrained_model_becomes_a_classifier(tmp_path: Path, objective: str) -> None:
    """A run resumes; its model is scored, generates, is fine-tuned and exported."""
    options = {"objective": objective, "max_steps": 4, "save_steps": 2, "eval_steps": 4}
    run = run_training(tmp_path / "run", "lstm", **options)
    assert_resumes_from(run, tmp_path, 2)
    model = run / "model"
    text = tmp_path / "text.txt"
    text.write_text("text\nThe cat sat on the mat.\nThe dog lay on the floor.\n")
    commands = [
        ("eval", model, "--task", "perplexity", "--eval", text),
        ("run", "generate", model, "The cat", "--max-new-tokens", 4),
        ("export", model, "--onnx", "-o", tmp_path / "graph"),
    ]
    reviews = labelled(tmp_path / "reviews.tsv")
    classifier = tmp_path / "classifier"
    training = ("--task", "text-classification", "--train", reviews, "--max-steps", 2)
    commands += [
        ("finetune", model, *training, "--set", "max_seq_len=16", "-o", classifier),
        ("export", classifier / "model", "--onnx", "--int8", "-o", tmp_path / "classifier-graph"),
        ("run", "text-classification", tmp_path / "classifier-graph", "a fine film"),
    ]
    for command in commands:
        done = zoo(*command)
        assert done.returncode == 0, (command, done.stderr)
    pretrained, tuned = (load_file(p / "model.safetensors") for p in (model, classifier / "model"))
    name = "layers.0.lstm.weight_hh_l0"
    change = largest(tuned[name] - pretrained[name])
    assert 0 < change < 0.01 < largest(pretrained[name])
    operators = [
        n.op_type for n in onnx.load(tmp_path / "classifier-graph/onnx/model.onnx").graph.node
    ]
    assert operators.count("LSTM") == 1 and "Scan" not in operators
    done = zoo("convert", model, "--to", "hub", "-o", tmp_path / "hub")
    assert "the Hub has no class for lstm with the head causal-lm" in done.stderr
    assert done.returncode == 2 and not (tmp_path / "hub").exists()
