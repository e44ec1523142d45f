"""Late-interaction and sparse encoders, and rows to rank."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import Make
from tests.finetuning.making import texts
from tests.inference.conftest import converted
from zoo.api import Model, load
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

TEXTS = ["a b c", "j i", "d e f g h i j a b", "c", "f a b", "g g h ."]
QUERIES = ["a b", "j", "c d e f g h i j a b c"]
TOKENS = "token_embeddings"
PROMPTS = {"query": "a b ", "document": "c d "}


def both(theirs: Any, tmp_path: Path) -> tuple[Model, Any]:
    """Return the model here, and the library's model of what comes back."""
    theirs.eval().save(str(tmp_path / "hub"), create_model_card=False)
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    back = CheckpointDir(checkpoint.path, str(checkpoint.path))
    convert(back, tmp_path / "back", to="hub")
    return load(str(checkpoint.path), backend="cpu"), type(theirs)(str(tmp_path / "back"))


def sparse(hub_checkpoint: Make, **settings: Any) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    encoder = Transformer(str(hub_checkpoint("BertForMaskedLM")), transformer_task="fill-mask")
    pooling = SpladePooling(settings.pop("strategy", "max"), settings.pop("activation", "relu"))
    return SparseEncoder(modules=[encoder, pooling], device="cpu", **settings)


def late(hub_checkpoint: Make, **settings: Any) -> Any:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    source = hub_checkpoint("BertModel", vocab_size=len("abcdefghij") + 8)
    (source / "vocab.txt").write_text((source / "vocab.txt").read_text() + ".\n")
    expansion = settings.pop("expansion", None)
    encoder = Transformer(str(source), query_expansion=expansion, document_length=7)
    torch.manual_seed(3)
    identity = torch.nn.Identity()
    dense = Dense(32, 8, bias=False, activation_function=identity, module_input_name=TOKENS)
    mask = MultiVectorMask(skiplist_words=[".", "nothing"])
    modules = [encoder, dense, mask, Normalize(module_input_name=TOKENS)]
    return MultiVectorEncoder(modules=modules, prompts=PROMPTS, device="cpu", **settings)


def dense(hub_checkpoint: Make, **settings: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    encoder = Transformer(str(hub_checkpoint("BertModel")))
    return SentenceTransformer(
        modules=[encoder, Pooling(32)], prompts=PROMPTS, device="cpu", **settings
    )


@pytest.fixture
def encoder(hub_checkpoint: Make, tmp_path: Path) -> Path:
    dense(hub_checkpoint).save(str(tmp_path / "hub"), create_model_card=False)
    return converted(tmp_path / "hub", tmp_path / "model").path


def samples(count: int = 8) -> list[dict[str, Any]]:
    """Return queries with relevant texts and others, as the evaluators take them."""
    rng, found = random.Random(0), sorted(set(texts(count * 9, 4)))
    rng.shuffle(found)
    return [
        {
            "query": found.pop(),
            "positive": [found.pop() for _ in range(1 + k % 3)],
            "negative": [found.pop() for _ in range(4)],
        }
        for k in range(count)
    ]
