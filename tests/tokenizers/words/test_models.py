"""Models whose texts a library splits: fine-tuning, places in texts, and exports."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.tokenizers import test_moses_bpe
from tests.tokenizers.words import test_jieba, test_tweets
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.errors import UsageError
from zoo.exporting.targets.gguf.vocabulary import load_described

for library in ("rjieba", "sacremoses", "emoji"):
    pytest.importorskip(library)

Write = Callable[[Path], object]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
}
XLM_SIZES = {"emb_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 128}
KINDS: dict[str, tuple[Write, str, dict[str, Any]]] = {
    "Moses": (test_moses_bpe.write_files, "Flaubert", XLM_SIZES),
    "jieba": (test_jieba.write_files, "RoFormer", SIZES),
    "fastBPE": (test_tweets.write_files, "Roberta", {**SIZES, "type_vocab_size": 1}),
}
HEADS = {"Moses": "FlaubertWithLMHeadModel"}
CONTEXT = "@me: l'été de Ünïcode, \u00ab 天气非常 \u00bb (x )…"
ANSWERS = ("Ünïcode", "天气非常")


def make_model(kind: str, folder: Path) -> Path:
    """Return a converted model, with what splits its texts as the name of its directory."""
    import torch
    import transformers

    write, prefix, sizes = KINDS[kind]
    hub = folder / "hub"
    hub.mkdir()
    write(hub)
    vocabulary = (hub / "vocab.json") if (hub / "vocab.json").exists() else (hub / "vocab.txt")
    rows = vocabulary.read_text("utf-8").count("\n") + 5
    config = getattr(transformers, f"{prefix}Config")(vocab_size=rows, **sizes)
    torch.manual_seed(0)
    model_class = getattr(transformers, HEADS.get(kind, f"{prefix}ForMaskedLM"))
    model_class(config).save_pretrained(hub)
    zoo.convert(hub, output=folder / kind)
    return folder / kind


def all_kinds(default: str) -> list[Any]:
    """Return one kind for the default run, and the others as ``long``."""
    kinds = []
    for kind in KINDS:
        marks = [] if kind == default else [pytest.mark.long]
        kinds.append(pytest.param(kind, marks=marks))
    return kinds


@pytest.fixture(scope="module", params=all_kinds("Moses"))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(request.param, tmp_path_factory.mktemp("models"))


@pytest.mark.long
def test_answers_are_places_in_the_text(model: Path, tmp_path: Path) -> None:
    rows = []
    texts = []
    for answer in ANSWERS:
        texts.append((f"{answer}?", CONTEXT))
        answers = {"text": [answer], "answer_start": [CONTEXT.index(answer)]}
        rows.append({"question": f"{answer}?", "context": CONTEXT, "answers": answers})
    data = tmp_path / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    zoo.finetune(
        model,
        task="question-answering",
        train=data,
        eval=data,
        output=tmp_path / "run",
        max_steps=40,
        learning_rate=0.02,
    )
    results = zoo.run("question-answering", tmp_path / "run" / "model", texts)
    for answer, result in zip(ANSWERS, results, strict=True):
        assert result["answer"] == answer
        assert (result["start"], result["end"]) == (
            CONTEXT.index(answer),
            CONTEXT.index(answer) + len(answer),
        )


@pytest.mark.long
def test_words_are_labelled_in_the_text(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "words.conll"
    words = ["@me:", "l'été", "(Paris)", "天气非常", "…"]
    labels = ["O", "B-TIME", "B-LOC", "B-ART", "O"]
    lines = [f"{word} {label}\n" for word, label in zip(words, labels, strict=True)]
    data.write_text("".join(lines), "utf-8")
    zoo.finetune(
        model,
        task="token-classification",
        train=data,
        eval=data,
        output=tmp_path / "run",
        max_steps=40,
        learning_rate=0.02,
    )
    text = " ".join(words)
    (result,) = zoo.run("token-classification", tmp_path / "run" / "model", [text])
    for word, label in zip(words, labels, strict=True):
        start = text.index(word)
        first = next(token for token in result["tokens"] if token["start"] >= start)
        assert first["label"] == label, word


@pytest.mark.long
@pytest.mark.parametrize("kind", all_kinds("jieba"))
def test_exports_say_what_splits_texts(kind: str, tmp_path: Path) -> None:
    model = make_model(kind, tmp_path)
    export = tmp_path / "export"
    zoo.export(model, output=export)
    checkpoint = load_checkpoint(model)
    expected = load_text_tokenizer(checkpoint).encode([CONTEXT], max_tokens=None)[0].ids
    exported = load_text_tokenizer(load_checkpoint(export))
    assert exported.encode([CONTEXT], max_tokens=None)[0].ids == expected
    card = (export / "README.md").read_text("utf-8")
    assert f"Texts are split by {kind} before `tokenizer.json`" in card
    assert "```js" not in card
    assert "from tokenizers import" not in card
    assert "AutoTokenizer" in card
    with pytest.raises(UsageError, match=f"{kind} splits, which llama.cpp cannot do"):
        load_described(checkpoint)
    # What the card says of transformers is true of the files.
    from transformers import AutoTokenizer

    shutil.rmtree(export / "onnx")
    assert AutoTokenizer.from_pretrained(export)(CONTEXT)["input_ids"] == expected
