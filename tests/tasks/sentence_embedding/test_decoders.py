"""Decoders that embed texts: published layouts with tiny weights, against sentence-transformers."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.finetuning.making import finetune
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.making import (
    features,
    setup_and_batch,
    table,
    trained_module,
    tree_of,
    wide,
)
from zoo import export
from zoo.api import Model, load
from zoo.conformance.hf_reference import keep_float64

END = "<|endoftext|>"
PAD = "<pad>"
LINES = ["the cat sat on the mat", "retrieve relevant passages of a web search query"]
TEXTS = [
    "the cat",
    "the cat sat on the mat, and a web search query",
    "x",
    "the mat the mat the mat the mat the mat of relevant passages",
]


def write_tokenizer(folder: Path, *, padding_side: str, pad: str) -> None:
    """Write a byte-level BPE that ends each text with a token, as these models have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}",
        pair=f"$A {END} $B:1 {END}:1",
        special_tokens=[(END, tokenizer.token_to_id(END))],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=pad, padding_side=padding_side
    )
    fast.save_pretrained(folder)


def write_model(folder: Path, model: Any) -> None:
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(folder)


SHAPE: Mapping[str, Any] = {
    "vocab_size": 310,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 128,
}


def last_token(folder: Path) -> Any:
    """Write the layout of Qwen3-Embedding: the last token, rows padded on the left."""
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.model import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    config = transformers.Qwen3Config(**SHAPE, num_hidden_layers=3, num_key_value_heads=2)
    write_model(folder / "base", transformers.Qwen3Model(config))
    write_tokenizer(folder / "base", padding_side="left", pad=END)
    encoder = Transformer(str(folder / "base"), max_seq_length=100)
    instruction = "Instruct: Given a web search query, retrieve relevant passages\nQuery:"
    return SentenceTransformer(
        modules=[encoder, Pooling(32, "lasttoken"), Normalize()],
        prompts={"query": instruction, "document": ""},
        similarity_fn_name="cosine",
        device="cpu",
    )


def both_directions(folder: Path) -> Any:
    """Write the layout of EmbeddingGemma: attention both ways, the mean, and two linear maps."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.model import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    config = transformers.Gemma3TextConfig(
        **SHAPE,
        num_hidden_layers=4,
        num_key_value_heads=1,
        query_pre_attn_scalar=16,
        sliding_window=8,
        sliding_window_pattern=2,
        use_bidirectional_attention=True,
    )
    write_model(folder / "base", transformers.Gemma3TextModel(config))
    write_tokenizer(folder / "base", padding_side="right", pad=PAD)
    linear: dict[str, Any] = {"bias": False, "activation_function": torch.nn.Identity()}
    modules = [
        Transformer(str(folder / "base"), max_seq_length=100),
        Pooling(32, "mean"),
        Dense(32, 48, **linear),
        Dense(48, 32, **linear),
        Normalize(),
    ]
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    return SentenceTransformer(
        modules=modules, prompts=prompts, similarity_fn_name="cosine", device="cpu"
    )


LAYOUTS = {"last token": last_token, "both directions": both_directions}


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path]:
    """The library's model, and a folder with its files in ``hub`` and ours in ``model``."""
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("decoder")
    reference = LAYOUTS[request.param](folder)
    reference.save(str(folder / "hub"), create_model_card=False)
    converted(folder / "hub", folder / "model")
    return reference, folder


@pytest.fixture
def pair(layout: tuple[Any, Path]) -> tuple[Any, Model]:
    """The library's model, and ours."""
    reference, folder = layout
    return reference, load(str(folder / "model"), backend="cpu")


@pytest.mark.by_default("last token")
@pytest.mark.parametrize("options", [{}, {"prompt_name": "query"}], ids=["plain", "query"])
def test_vectors_are_the_library_s(pair: tuple[Any, Model], options: dict[str, Any]) -> None:
    """In a batch of mixed lengths, some longer than the window, and alone."""
    reference, model = pair
    expected = reference.encode(TEXTS, **options)
    together = model.embed(TEXTS, **options)
    np.testing.assert_allclose(together, expected, atol=1e-5)
    for text, vector in zip(TEXTS, expected, strict=True):
        alone = model.embed([text], **options)
        np.testing.assert_allclose(alone[0], vector, atol=1e-5)


def test_vectors_do_not_depend_on_the_side_of_the_padding(
    layout: tuple[Any, Path], tmp_path: Path
) -> None:
    """The library pads on the side that a file names; the vectors of both sides are ours."""
    reference, folder = layout
    expected = reference.encode(TEXTS)
    hub = tmp_path / "hub"
    shutil.copytree(folder / "hub", hub)
    file = hub / "tokenizer_config.json"
    settings = json.loads(file.read_text("utf-8"))
    side = {"left": "right", "right": "left"}[settings["padding_side"]]
    file.write_text(json.dumps({**settings, "padding_side": side}), "utf-8")
    model = load(str(converted(hub, tmp_path / "model").path), backend="cpu")
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-5)


@pytest.mark.long
def test_a_pooled_graph_has_the_vectors_of_the_library(
    layout: tuple[Any, Path], tmp_path: Path
) -> None:
    reference, folder = layout
    export(str(folder / "model"), output=str(tmp_path / "graph"), to="onnx", pooled=True)
    model = load(str(tmp_path / "graph"))
    np.testing.assert_allclose(model.embed(TEXTS), reference.encode(TEXTS), atol=1e-5)


LONG = pytest.mark.long  # the losses read vectors, whatever the model
LOSSES = [
    "multiple-negatives",
    *(pytest.param(name, marks=LONG) for name in ("cosent", "cosine", "triplet")),
]


@pytest.mark.by_default("both directions")
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_are_the_library_s(
    layout: tuple[Any, Path], tmp_path: Path, loss: str
) -> None:
    """In float64, of a batch of eight rows; the library rounds a scale of embeddings to float32."""
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.model import SentenceTransformer

    classes = {
        "multiple-negatives": losses.MultipleNegativesRankingLoss,
        "cosent": losses.CoSENTLoss,
        "cosine": losses.CosineSimilarityLoss,
        "triplet": losses.TripletLoss,
    }
    _, folder = layout
    rows = table(tmp_path / "t.jsonl")
    tree = tree_of(folder / "model", rows, loss, max_steps=1, micro_batch_size=8)
    setup, batch = setup_and_batch(finetune(tmp_path / "run", tree))
    module = trained_module(setup)
    with keep_float64():  # norms are computed in float32 otherwise
        sums = setup.objective.compute_loss(module, wide(batch.tensors)).sums
    computed = sums["sentence-embedding"] / batch.counts["sentence-embedding"]
    computed.backward()

    encoder = SentenceTransformer(str(folder / "hub"), device="cpu").double().train()
    columns = 3 if loss in ("multiple-negatives", "triplet") else 2
    labels = wide(batch.tensors).get("labels")
    with keep_float64():
        expected = classes[loss](encoder)(features(batch, columns), labels)
    expected.backward()
    torch.testing.assert_close(computed.detach(), expected.detach(), rtol=1e-6, atol=1e-6)
    (words,) = [p for name, p in module.named_parameters() if name.endswith("tokens.weight")]
    reference_model: Any = encoder[0]
    reference_words = reference_model.auto_model.get_input_embeddings().weight
    assert reference_words.grad.abs().max() > 1e-4, "a gradient to compare"
    torch.testing.assert_close(words.grad, reference_words.grad, rtol=1e-6, atol=1e-6)
