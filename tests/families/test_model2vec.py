"""Static embeddings, against sentence-transformers and model2vec."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.finetuning.making import finetune, settings, write_table
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.making import back
from zoo.api import load
from zoo.errors import UsageError, VerificationError
from zoo.hub.select_files import files_to_download
from zoo.plugins import get_family
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", "##a", "##b"]
TEXTS = ["a b c", "H g", "d e f g h a b", "c cab", "a b " * 20]
UNKNOWN = "a z b"


def tokenizer() -> Tokenizer:
    """Return a tokenizer that adds special tokens, which static embeddings do not have."""
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def table(width: int = 6) -> torch.Tensor:
    return torch.randn(len(TOKENS), width, generator=torch.Generator().manual_seed(0))


def of_sentence_transformers(path: Path, *, nested: bool = False, **settings: Any) -> Any:
    """Write a model of sentence-transformers; older releases have it in a folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(1)
    modules: list[Any] = [
        StaticEmbedding(tokenizer(), embedding_weights=table()),
        Dense(6, 4),
        Normalize(),
    ]
    model = SentenceTransformer(modules=modules, device="cpu", **settings)
    model.save(str(path), create_model_card=False)
    if nested:
        listed = json.loads((path / "modules.json").read_text())
        listed[0]["path"] = "0_StaticEmbedding"
        (path / "modules.json").write_text(json.dumps(listed))
        (path / "0_StaticEmbedding").mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            (path / name).rename(path / "0_StaticEmbedding" / name)
    return model


def of_model2vec(path: Path, **settings: Any) -> Any:
    from model2vec import StaticModel

    model = StaticModel(table().numpy(), tokenizer(), normalize=True, **settings)
    keys: Any = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": 6}
    model.config.update(keys)
    model.save_pretrained(path)
    return model


@pytest.mark.by_default("folder")
@pytest.mark.parametrize("nested", [False, True], ids=["root", "folder"])
def test_sentence_transformers_both_ways(tmp_path: Path, nested: bool) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = of_sentence_transformers(
        tmp_path / "hub", nested=nested, prompts={"query": "a b "}, default_prompt_name="query"
    )
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    assert (checkpoint.family.name, checkpoint.manifest.round_trip) == ("model2vec", "exact")
    ours = load(str(checkpoint.path), backend="cpu")
    texts = [*TEXTS, UNKNOWN]
    again = SentenceTransformer(str(back(checkpoint.path, tmp_path / "back")), device="cpu")
    assert [type(module).__name__ for module in again] == ["StaticEmbedding", "Dense", "Normalize"]
    np.testing.assert_array_equal(again.encode(texts), theirs.encode(texts))
    exact = theirs.to(torch.float64).encode(texts)
    np.testing.assert_allclose(ours.embed(texts), exact, rtol=1e-5, atol=1e-6)
    assert again.prompts == theirs.prompts
    second = load(str(converted(tmp_path / "back", tmp_path / "second").path), backend="cpu")
    np.testing.assert_array_equal(second.embed(texts), ours.embed(texts))


def test_model2vec_both_ways(tmp_path: Path) -> None:
    """It leaves out the unknown token, and cuts texts."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    theirs = of_model2vec(tmp_path / "hub")
    checkpoint = converted(tmp_path / "hub", tmp_path / "model")
    ours, texts = load(str(checkpoint.path), backend="cpu"), [*TEXTS, "a b " * 300, UNKNOWN]
    with pytest.warns(match="was longer than 512 tokens and was cut"):
        found = ours.embed(texts)
    with pytest.raises(UsageError, match="do not depend on the text around them"):
        ours.embed(texts, chunks="tokens", late_chunking=True)
    np.testing.assert_allclose(found, theirs.encode(texts), rtol=1e-5, atol=1e-6)
    path = back(checkpoint.path, tmp_path / "back")
    again = StaticModel.from_pretrained(path)
    np.testing.assert_array_equal(again.encode(texts), theirs.encode(texts))
    sentence = SentenceTransformer(str(path), device="cpu")
    np.testing.assert_allclose(sentence.encode(TEXTS), found[:5], rtol=1e-5, atol=1e-6)


def test_without_modules_the_configuration_decides(tmp_path: Path) -> None:
    theirs = of_model2vec(tmp_path / "hub", max_length=None)
    (tmp_path / "hub" / "modules.json").unlink()
    ours = load(str(converted(tmp_path / "hub", tmp_path / "model").path), backend="cpu")
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"normalize": False}, "normalize is false, and modules.json says"),
        ("config.json", {"max_length": "x"}, "max_length is not a number of tokens"),
        ("config.json", {"max_length": True}, "max_length is not a number of tokens"),
        ("config.json", {"vocabulary_quantization": 9}, "vocabulary_quantization = 9 is not"),
        ("config.json", {"hidden_dim": 7}, r"1 of a different shape .embeddings 14x6"),
        ("modules.json", "Pooling", "Pooling reads token_embeddings, which StaticEmbedding does"),
        ("config_sentence_transformers.json", "SparseEncoder", "in a SparseEncoder is not impl"),
    ],
)
def test_what_is_refused(tmp_path: Path, file: str, change: Any, message: str) -> None:
    of_model2vec(tmp_path / "hub")
    path = tmp_path / "hub" / file
    if isinstance(change, dict):
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    elif file == "modules.json":
        listed = json.loads(path.read_text())
        (tmp_path / "hub" / "1_Pooling").mkdir()
        (tmp_path / "hub" / "1_Pooling" / "config.json").write_text("{}")
        kind = f"sentence_transformers.models.{change}"
        path.write_text(json.dumps([listed[0], {"idx": 1, "path": "1_Pooling", "type": kind}]))
    else:
        path.write_text(json.dumps({"model_type": change}))
    with pytest.raises(VerificationError, match=message):
        converted(tmp_path / "hub", tmp_path / "model")
    assert not (tmp_path / "model").exists()


ODD_TYPES: dict[str, list[Any]] = {
    "added_tokens": [7, "x", [7], {"a": 1}, [{"content": [1]}], [{"content": "a", "id": []}]],
    "model": [None, 7, [], {}],
    "unk_token": [7, [1], {"a": 1}],
    "vocab": [7, "x", {"a": [1]}, {"a": "b"}, {"a": True}, {"a": -1}],
    "unk_id": [[1], "x", 10**30],
}


@pytest.mark.parametrize(
    ("part", "value"), [(part, value) for part, values in ODD_TYPES.items() for value in values]
)
def test_odd_types_in_a_tokenizer(part: str, value: Any, tmp_path: Path) -> None:
    of_model2vec(tmp_path / "hub")
    path = tmp_path / "hub" / "tokenizer.json"
    definition = json.loads(path.read_text())
    if part in ("added_tokens", "model"):
        definition[part] = value
    elif part == "unk_id":
        definition["model"] = {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": value}
    else:
        definition["model"][part] = value
    path.write_text(json.dumps(definition))
    with pytest.raises(VerificationError, match=r"tokenizer\.json"):
        converted(tmp_path / "hub", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_other_pooling_is_not_a_static_embedding(tmp_path: Path) -> None:
    """Training may give a table other modules, which neither library has for it."""
    family = get_family("model2vec")
    pooling = Pooling(mode="max")
    with pytest.raises(UsageError, match="is the mean of the tokens, and the modules are max"):
        hub_pooling_files(pooling, 6, family.sentence_module)


def test_a_folder_of_a_repository_is_downloaded_and_opened(tmp_path: Path) -> None:
    """Only with the files that a conversion reads."""
    theirs = of_sentence_transformers(tmp_path / "hub", nested=True)
    names = [p.relative_to(tmp_path / "hub").as_posix() for p in (tmp_path / "hub").rglob("*")]
    more = ["README.md", "onnx/model.onnx", "0_StaticEmbedding/README.md"]
    chosen = files_to_download(sorted([*names, *more]), "a/b", allow_pickle=False)
    assert sorted(chosen) == [
        *("0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"),
        *("1_Dense/config.json", "1_Dense/model.safetensors", "2_Normalize/config.json"),
        *("config_sentence_transformers.json", "modules.json"),
    ]
    for name in more[::2]:
        (tmp_path / "hub" / name).write_text("")
    ours = load(str(tmp_path / "hub"), backend="cpu")  # converted into the cache
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), rtol=1e-5, atol=1e-6)
    assert ours.checkpoint.manifest.source is not None
    assert {*ours.checkpoint.manifest.source.files} == {*chosen}


def test_they_are_not_pretrained() -> None:
    with pytest.raises(UsageError, match="are distilled from an encoder; `zoo distill --teacher "):
        get_family("model2vec").recipe("tiny")


def test_it_trains_and_searches(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    of_sentence_transformers(tmp_path / "hub")
    start = converted(tmp_path / "hub", tmp_path / "model")
    pairs = [("a b", "b a"), ("c d", "d c"), ("e f", "f e"), ("g h", "h g")] * 4
    data = write_table(tmp_path / "pairs.tsv", [{"text": a, "pair": b} for a, b in pairs])
    tree = settings(start.path, data, task="sentence-embedding", data={"pair": "pair"})
    few = {"max_steps": 2, "batch_size": 4, "micro_batch_size": 4}
    trained = load(str(finetune(tmp_path / "run", {**tree, **few}) / "model"), backend="cpu")
    path = back(trained.checkpoint.path, tmp_path / "back")
    texts = [*TEXTS, "a b c d " * 40]
    again = SentenceTransformer(str(path), device="cpu").encode(texts)
    with pytest.warns(match="was longer than 128 tokens and was cut"):  # the length of the run
        np.testing.assert_allclose(trained.embed(texts), again, rtol=1e-5, atol=1e-6)
    assert not np.allclose(trained.embed(["a b"]), load(str(start.path)).embed(["a b"]))
    (found,) = trained.search(["a b"], TEXTS, top_k=1)
    assert found["results"][0]["text"] == TEXTS[4]  # the same two letters
