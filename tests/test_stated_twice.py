"""What holds where two keys of a checkpoint's files state one fact, as in the libraries.

Each test writes files that contradict each other, and compares zoo with the library that the files
are of. docs/configuration-files.md has a row for each.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import VOCABULARY, Make, hub_checkpoint
from tests.closeness import assert_same
from tests.inference.conftest import converted
from zoo.api import Model, load

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
LONG = "a b c d e f g h i j a b c d e f g h i j"
TEXTS = [LONG, "c d", "j i h g f e d c b a a a"]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
SIGMAS = ("\N{GREEK SMALL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}")
POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
CROSS_ENCODER: dict[str, Any] = {
    "model_type": "CrossEncoder",
    "activation_fn": "torch.nn.modules.linear.Identity",
    "prompts": {},
    "default_prompt_name": None,
}


def write(folder: Path, **files: dict[str, Any] | list[Any]) -> None:
    """Add keys to the JSON files of a directory; two underscores in a name are a slash."""
    for name, keys in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        if path.exists() and isinstance(keys, dict):
            keys = {**json.loads(path.read_text()), **keys}
        path.write_text(json.dumps(keys))


def sentence_encoder(hub_checkpoint: Make, **sentence: Any) -> Path:
    folder = hub_checkpoint("BertModel")
    write(folder, modules=MODULES, sentence_bert_config=sentence, **{"1_Pooling__config": POOLING})
    return folder


def cross_encoder(hub_checkpoint: Make, labels: int = 1, **sentence: Any) -> Path:
    names = {number: f"LABEL_{number}" for number in range(labels)}
    folder = hub_checkpoint("BertForSequenceClassification", id2label=names)
    text = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    write(
        folder,
        modules=MODULES[:1],
        sentence_bert_config={**text, **sentence},
        config_sentence_transformers=CROSS_ENCODER,
    )
    return folder


def both_ways(folder: Path) -> list[Model]:
    """Return a model that is read in place, and its conversion."""
    target = folder.with_name(f"{folder.name}-converted")
    checkpoint = converted(folder, target)
    return [load(str(folder), backend="cpu"), load(str(checkpoint.path), backend="cpu")]


def embedded(folder: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu")


def set_lengths(folder: Path, tokenizer: int | None, **sentence: int | None) -> None:
    if tokenizer is not None:
        write(folder, tokenizer_config={"model_max_length": tokenizer})
    stated = {key: length for key, length in sentence.items() if length is not None}
    write(folder, sentence_bert_config=stated)


@pytest.mark.parametrize(("sentence", "tokenizer"), [(20, 8), (8, 20), (None, 8), (8, None)])
def test_the_length_of_a_text(
    hub_checkpoint: Make, sentence: int | None, tokenizer: int | None
) -> None:
    folder = sentence_encoder(hub_checkpoint)
    set_lengths(folder, tokenizer, max_seq_length=sentence)
    expected = embedded(folder).encode(TEXTS)
    for ours in both_ways(folder):
        assert_same(ours.embed(TEXTS), expected)
        assert ours.checkpoint.model.max_tokens == (sentence or tokenizer)


@pytest.mark.parametrize(("sentence", "tokenizer"), [(20, 8), (8, 20), (None, 8)])
def test_the_length_of_a_pair(hub_checkpoint: Make, sentence: int | None, tokenizer: int) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = cross_encoder(hub_checkpoint)
    set_lengths(folder, tokenizer, max_seq_length=sentence)
    pairs = [(text, TEXTS[1]) for text in TEXTS]
    expected = library.CrossEncoder(str(folder), device="cpu").predict(pairs)
    for ours in both_ways(folder):
        assert_same([row["score"] for row in ours.classify(pairs)], expected)


@pytest.mark.parametrize("expansion", [None, "fixed", "min"])
@pytest.mark.parametrize(("own", "sentence", "tokenizer"), [(20, 12, 8), (6, 20, 8), (6, None, 8)])
def test_the_length_of_a_query(
    hub_checkpoint: Make, own: int, sentence: int | None, tokenizer: int, expansion: str | None
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = hub_checkpoint("BertModel")
    mask = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
    listed = [*MODULES[:1], {"idx": 1, "name": "1", "path": "1_MultiVectorMask", "type": mask}]
    write(folder, modules=listed, sentence_bert_config={}, **{"1_MultiVectorMask__config": {}})
    settings = {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim"}
    write(folder, config_sentence_transformers={**settings, "prompts": {}})
    if expansion is not None:
        added = {"strategy": expansion, "length": 5, "token": None, "attend": False}
        write(folder, sentence_bert_config={"query_expansion": added})
    set_lengths(folder, tokenizer, max_seq_length=sentence, query_length=own, document_length=own)
    theirs = library.MultiVectorEncoder(str(folder), device="cpu")
    for ours in both_ways(folder):
        for name in ("encode_query", "encode_document"):
            for found, expected in zip(
                getattr(ours, name)(TEXTS), getattr(theirs, name)(TEXTS), strict=True
            ):
                assert_same(found, expected)


def test_lower_case_of_a_sentence_encoder(hub_checkpoint: Make) -> None:
    """The tokenizer's own steps follow, and added tokens stay as they are."""
    folder = sentence_encoder(hub_checkpoint, do_lower_case=True)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "A", *SIGMAS, "[Q]"]) + "\n")
    grown = hub_checkpoint("BertModel", name="grown", vocab_size=len(VOCABULARY) + 4)
    (grown / "model.safetensors").rename(folder / "model.safetensors")
    (grown / "config.json").rename(folder / "config.json")
    write(
        folder,
        tokenizer_config={"do_lower_case": False, "additional_special_tokens": ["[Q]"]},
        config_sentence_transformers={"prompts": {"query": "[Q] A "}},
    )
    texts = ["A B c", f"a{SIGMAS[1]}", SIGMAS[0].upper()]
    theirs = embedded(folder)
    for ours in both_ways(folder):
        assert_same(ours.embed(texts), theirs.encode(texts))
        expected = theirs.encode(texts, prompt_name="query")
        assert_same(ours.embed(texts, prompt_name="query"), expected)


@pytest.mark.parametrize(
    ("stated", "width"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, 64),
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True}, 64),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, 32),
        ({"pooling_mode": ["mean", "cls"], "pooling_mode_max_tokens": True}, 64),
    ],
)
def test_the_pooling(hub_checkpoint: Make, stated: dict[str, Any], width: int) -> None:
    folder = sentence_encoder(hub_checkpoint)
    (folder / "1_Pooling/config.json").write_text(json.dumps({**stated, "embedding_dimension": 32}))
    expected = embedded(folder).encode(TEXTS)
    for ours in both_ways(folder):
        found = np.asarray(ours.embed(TEXTS))
        assert found.shape[1] == width
        assert_same(found, expected)
