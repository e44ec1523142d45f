"""Rerankers, sparse and late-interaction models of other families, and MiniLM, as they come back.

The reference is sentence-transformers, on the same weights.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints import Make
from tests.closeness import assert_same, assert_within
from tests.tasks.reranker.making import QUERIES, TEXTS, TOKENS, both
from zoo.api import load

PAIRS = [(query, text) for query in QUERIES for text in TEXTS]
# of an architecture whose defaults are ids outside of a tiny vocabulary
IDS = {
    "pad_token_id": 0,
    "cls_token_id": 2,
    "bos_token_id": 2,
    "sep_token_id": 3,
    "eos_token_id": 3,
}


def cross_encoder(source: str) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(source, activation_fn=torch.nn.Identity(), device="cpu")


def sparse_encoder(source: str) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    encoder = Transformer(source, transformer_task="fill-mask")
    return SparseEncoder(modules=[encoder, SpladePooling("max")], device="cpu")


def late_interaction(source: str, width: int = 32) -> Any:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(3)
    identity = torch.nn.Identity()
    dense = Dense(width, 8, bias=False, activation_function=identity, module_input_name=TOKENS)
    mask, unit = MultiVectorMask(skiplist_words=["a"]), Normalize(module_input_name=TOKENS)
    return MultiVectorEncoder(modules=[Transformer(source), dense, mask, unit], device="cpu")


def computed(model: Any, texts: list[str]) -> np.ndarray[Any, Any]:
    """Return what a model of either side computes for pairs, or for texts, as one array."""
    if hasattr(model, "predict"):
        return np.asarray(model.predict(PAIRS))
    if hasattr(model, "classify") and model.checkpoint.head_name == "sequence-classification":
        return np.array([entry["score"] for entry in model.classify(PAIRS)])
    found = model.encode_document(texts)
    if isinstance(found, list):
        return np.concatenate([np.asarray(vectors) for vectors in found])
    return np.asarray(found.to_dense() if hasattr(found, "to_dense") else found)


@pytest.mark.by_default(
    "cross_encoder-ModernBertForSequenceClassification",
    "sparse_encoder-DistilBertForMaskedLM",
    "late_interaction-XLMRobertaModel",
)
@pytest.mark.parametrize(
    ("make", "architecture"),
    [
        (cross_encoder, "XLMRobertaForSequenceClassification"),
        (cross_encoder, "ElectraForSequenceClassification"),
        (cross_encoder, "DebertaV2ForSequenceClassification"),
        (cross_encoder, "ModernBertForSequenceClassification"),
        (sparse_encoder, "DistilBertForMaskedLM"),
        (sparse_encoder, "XLMRobertaForMaskedLM"),
        (late_interaction, "XLMRobertaModel"),
        (late_interaction, "ModernBertModel"),
    ],
)
def test_families(hub_checkpoint: Make, tmp_path: Path, make: Any, architecture: str) -> None:
    from transformers import BertTokenizer

    changes: dict[str, Any] = IDS if architecture.startswith("ModernBert") else {}
    labels = {"num_labels": 1} if "Classification" in architecture else {}
    source = hub_checkpoint(architecture, **changes, **labels)
    BertTokenizer.from_pretrained(str(source)).save_pretrained(source)
    theirs = make(str(source))
    ours, back = both(theirs, tmp_path)
    expected = computed(theirs, TEXTS)
    assert_within(computed(back, TEXTS), expected)
    assert_same(computed(ours, TEXTS), expected)


SENTENCES = ["A cat sits on the mat.", "Naïve café 中文 😀!", "It was the best of times.", "Hm"]


@pytest.mark.long
@pytest.mark.parametrize("make", [None, pytest.param(late_interaction, marks=pytest.mark.long)])
def test_a_real_encoder(packaged: Path, tmp_path: Path, make: Any) -> None:
    """MiniLM, also with a projection of its tokens; its own embeddings agree to 1e-6 in float32."""
    from sentence_transformers import SentenceTransformer

    theirs = (
        SentenceTransformer(str(packaged), device="cpu")
        if make is None
        else make(str(packaged), 384)
    )
    ours, back = both(theirs, tmp_path)
    expected = computed(theirs, SENTENCES)
    assert_within(computed(back, SENTENCES), expected)
    (assert_within if make is None else assert_same)(computed(ours, SENTENCES), expected)
    embedded = (theirs.encode_query(SENTENCES), theirs.encode_document(SENTENCES))
    for row, scores in zip(
        ours.search(SENTENCES, SENTENCES), theirs.similarity(*embedded), strict=True
    ):
        found = {entry["corpus_id"]: entry["score"] for entry in row["results"]}
        assert_within([found[k] for k in range(len(SENTENCES))], scores)
    exact = load(str(ours.checkpoint.path), backend="cpu", dtype="float64")
    assert_same(computed(exact, SENTENCES), computed(theirs.double(), SENTENCES), "float64")
