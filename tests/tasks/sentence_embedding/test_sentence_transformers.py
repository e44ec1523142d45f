"""Embeddings and similarities of directories that sentence-transformers writes, against itself."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make
from tests.closeness import assert_same, subtracted
from tests.inference.conftest import converted
from zoo.api import load

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TEXTS = ["a b c", "j i", "d e f g h i j a b", "c"]
PROMPTS = {"query": "a b", "document": "c d e"}


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("sentence_transformers")


@pytest.mark.by_default("mean-cosine-True-True", "weightedmean-dot-False-False")
@pytest.mark.parametrize(
    ("mode", "function", "normalize", "include_prompt"),
    [
        ("mean", "cosine", True, True),
        ("cls", "dot", False, True),
        ("max", "euclidean", False, True),
        ("mean_sqrt_len_tokens", "manhattan", False, False),
        ("weightedmean", "dot", False, False),
        ("lasttoken", "cosine", False, True),
    ],
)
def test_embeddings_and_similarities_are_the_library_s(
    library: Any,
    hub_checkpoint: Make,
    tmp_path: Path,
    mode: str,
    function: str,
    normalize: bool,
    include_prompt: bool,
) -> None:
    base = pytest.importorskip("sentence_transformers.base.modules")
    poolings = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    encoder = base.Transformer(str(hub_checkpoint("BertModel")), max_seq_length=8)
    width = encoder.get_embedding_dimension()
    pooling = poolings.Pooling(width, pooling_mode=mode, include_prompt=include_prompt)
    modules = [encoder, pooling, *([base.Normalize()] if normalize else [])]
    theirs = library.SentenceTransformer(
        modules=modules,
        prompts=PROMPTS,
        default_prompt_name="document",
        similarity_fn_name=function,
        device="cpu",
    )
    theirs.save(str(tmp_path / "hub"), create_model_card=False)
    ours = load(str(converted(tmp_path / "hub", tmp_path / "model").path), backend="cpu")
    cases: list[dict[str, Any]] = [{}, {"prompt_name": "query"}, {"prompt": "f g "}]
    for dtype, options in itertools.product(("float32", "float64"), cases):
        if dtype == "float64":
            ours, theirs = (
                load(str(tmp_path / "model"), backend="cpu", dtype=dtype),
                theirs.double(),
            )
        expected = theirs.encode(TEXTS, **options)
        assert_same(ours.embed(TEXTS, **options), expected, dtype)
        pairs = [*zip(TEXTS, TEXTS[::-1], strict=True)]
        vectors = theirs.encode(TEXTS, **options), theirs.encode(TEXTS[::-1], **options)
        similarity = theirs.similarity_pairwise(*vectors).numpy()
        size = subtracted(expected, function)
        assert_same(ours.similarity(pairs, **options), similarity, dtype, size=size)
