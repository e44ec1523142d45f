"""Late interaction in the layouts of PyLate and of Stanford's ColBERT.

``MultiVectorEncoder`` of sentence-transformers opens both, and is the reference.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import Make, hub_checkpoint
from tests.closeness import assert_same, assert_within
from tests.inference.conftest import converted
from tests.sentence_models.making import METADATA, of_pylate, of_stanford
from tests.tasks.sentence_embedding.making import back
from zoo.api import load
from zoo.errors import VerificationError

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TEXTS = ["a b c", "j . i", "d e f g h i j a b", "c", "g g h ."]
QUERIES = ["a b", "j", "c d e f g h i j a b c"]


def embeddings(model: Any) -> list[np.ndarray[Any, Any]]:
    """Return the embeddings of the tokens of all queries and texts."""
    return [
        np.asarray(found)
        for name, texts in (("encode_query", QUERIES), ("encode_document", TEXTS))
        for found in getattr(model, name)(texts)
    ]


def assert_embeds(path: Path, back: Path, theirs: Any) -> None:
    """Check a converted model, and what the library opens again, against the library."""
    from sentence_transformers import MultiVectorEncoder

    expected = embeddings(theirs)
    again = embeddings(MultiVectorEncoder(str(back), device="cpu"))
    for one, other in zip(again, expected, strict=True):
        assert_within(one, other)
    exact = embeddings(theirs.double())
    for dtype, vectors in (("float32", expected), ("float64", exact)):
        ours = embeddings(load(str(path), backend="cpu", dtype=dtype))
        for one, other in zip(ours, vectors, strict=True):
            assert_same(one, other, dtype)


@pytest.mark.by_default("attended, a prompt")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"do_query_expansion": False, "document_prefix": "", "skiplist_words": []},
        {"attend_to_expansion_tokens": True, "prompts": {"query": "a b "}},
    ],
    ids=["defaults", "no expansion", "attended, a prompt"],
)
def test_pylate_both_ways(hub_checkpoint: Make, tmp_path: Path, changes: dict[str, Any]) -> None:
    from sentence_transformers import MultiVectorEncoder

    source = of_pylate(hub_checkpoint, **changes)
    theirs = MultiVectorEncoder(str(source), device="cpu")
    checkpoint = converted(source, tmp_path / "model")
    assert checkpoint.manifest.account["modules"] == {"1_Dense": ["linear.weight"]}
    written = back(checkpoint.path, tmp_path / "back")
    for name in ("modules.json", "config_sentence_transformers.json", "1_Dense/config.json"):
        found, expected = (json.loads((path / name).read_text()) for path in (written, source))
        if "prompts" in expected:  # a prompt that is empty is not needed
            for settings in (found, expected):
                settings["prompts"] = {n: t for n, t in settings["prompts"].items() if t}
        if "1_Dense" in name:
            del expected["use_residual"]
        assert found == expected, name
    assert_embeds(checkpoint.path, written, theirs)
    assert converted(written, tmp_path / "again").model.pooling == checkpoint.model.pooling


@pytest.mark.long
@pytest.mark.parametrize(
    "changes", [{}, {"mask_punctuation": False, "attend_to_mask_tokens": True}]
)
def test_stanford(hub_checkpoint: Make, tmp_path: Path, changes: dict[str, Any]) -> None:
    """What comes back has the modules of MultiVectorEncoder; the metadata is kept."""
    from sentence_transformers import MultiVectorEncoder

    source = of_stanford(hub_checkpoint, **changes)
    theirs = MultiVectorEncoder(str(source), device="cpu")
    checkpoint = converted(source, tmp_path / "model")
    ours = load(str(checkpoint.path), backend="cpu")
    assert checkpoint.manifest.round_trip == "exact"
    assert checkpoint.manifest.account["modules"] == {"1_Dense": ["linear.weight"]}
    written = back(checkpoint.path, tmp_path / "back")
    assert json.loads((written / "artifact.metadata").read_text()) == {**METADATA, **changes}
    ranked = ours.rerank(QUERIES[0], TEXTS)
    scores = theirs.similarity(theirs.encode_query(QUERIES[:1]), theirs.encode_document(TEXTS))
    best = sorted(scores[0].tolist(), reverse=True)
    assert_same([row["score"] for row in ranked], best)
    assert_embeds(checkpoint.path, written, theirs)


def test_a_projection_that_is_missing_or_does_not_fit(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = of_stanford(hub_checkpoint)
    weights = load_file(source / "model.safetensors")
    for changed, message in (
        ({"linear.weight": torch.ones(8, 31)}, "in_features of Dense is 31, but .* width of 32"),
        ({"linear.weight": torch.ones(8)}, "linear.weight is not a matrix"),
        (None, "has linear.weight, which its weights lack"),
    ):
        kept = {n: t for n, t in weights.items() if n != "linear.weight"}
        save_file({**kept, **(changed or {})}, source / "model.safetensors")
        with pytest.raises(VerificationError, match=message):
            converted(source, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (of_pylate, {"query_prefix": 3}, "query_prefix = 3 is not a text"),
        (of_pylate, {"temperature": 3}, "the key 'temperature' is unknown"),
        (of_pylate, {"query_length": 0}, "query_expansion|query_length"),
        (of_pylate, {"skiplist_words": 3}, "skiplist_words"),
        (of_stanford, {"similarity": "l2"}, "artifact.metadata: similarity = 'l2' is not impl"),
        (of_stanford, {"interaction": "flipr"}, "interaction = 'flipr' is not implemented"),
        (of_stanford, {"temperature": 3}, "artifact.metadata: the key 'temperature' is unknown"),
    ],
)
def test_what_is_refused(
    hub_checkpoint: Make, tmp_path: Path, make: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(VerificationError, match=message):
        converted(make(hub_checkpoint, **changes), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_list_without_modules_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    hub = of_pylate(hub_checkpoint)
    (hub / "modules.json").write_text("[]")
    with pytest.raises(VerificationError, match=r"modules\.json lists no modules"):
        converted(hub, tmp_path / "model")
