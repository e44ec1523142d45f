"""The command ``zoo examples``: what is printed can be put together to the text again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.warm import zoo
from zoo.inspection.examples import ShownDocument

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "two",
    "dogs",
    "run",
    "by",
    "old",
    "red",
    "house",
    "near",
    "lake",
]
LENGTH = 40


SENTENCES = [
    " ".join(WORDS[(k * 5 + i * 3) % 17] for i in range(4 + k % 4)).capitalize() + "."
    for k in range(600)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of documents of two sentences, so that rows are packed with several."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    documents = ["\n".join(SENTENCES[k : k + 2]) for k in range(0, 600, 2)]
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def novel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of few long documents."""
    path = tmp_path_factory.mktemp("novel") / "text.txt"
    documents = ["\n".join(SENTENCES[k : k + 100]) for k in range(0, 600, 100)]
    path.write_text("\n\n".join(documents) + "\n")
    return path


def examples(family: str, corpus: Path, *options: object) -> dict[str, Any]:
    done = zoo(
        *("examples", family, "--train", corpus, "--max-seq-len", LENGTH, "--count", 4, "--json"),
        *("--set", "vocab_size=150", *options),
    )
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    assert len(value["examples"]) == 4 and value["seq_len"] == LENGTH
    return value


def letters(tokens: list[str]) -> str:
    """Return the letters of tokens, without the signs of a tokenizer and special tokens."""
    text = [token for token in tokens if not token.startswith(("[", "<"))]
    return "".join(c for c in "".join(text).lower() if c.isascii() and c.isalpha())


def text_of(corpus: Path) -> str:
    return letters([corpus.read_text()])


def test_masked_tokens_have_their_labels(corpus: Path) -> None:
    value = examples("bert", corpus, "--objective", "masked-lm")
    assert value["objective"] == "masked-lm"
    masked = 0
    for example in value["examples"]:
        assert len(example["documents"]) > 1  # packed
        assert sum(len(d["tokens"]) for d in example["documents"]) + example["padding"] == LENGTH
        for document in example["documents"]:
            tokens = document["tokens"]
            assert (tokens[0], tokens[-1], document["replaced"]) == ("[CLS]", "[SEP]", {})
            for place, (label,) in document["labels"].items():
                masked += tokens[int(place)] == "[MASK]"
                tokens[int(place)] = label
            assert letters(tokens) in text_of(corpus)
    assert masked >= 10  # of 24 that are selected, 80 % become the mask token


@pytest.mark.long
def test_pairs_have_a_label(corpus: Path) -> None:
    value = examples("bert", corpus)
    assert value["objective"] == "masked-lm+next-sentence"
    for document in (d for example in value["examples"] for d in example["documents"]):
        assert document["tokens"].count("[SEP]") == 2 and document["pair_label"] in (0, 1)


def test_spans_are_behind_their_sentinels(novel: Path) -> None:
    for example in examples("t5", novel)["examples"]:
        documents = {(d["input"], d["document"]): d for d in example["documents"]}
        source, target = documents["input_ids", 1], documents["decoder_input_ids", 1]
        labels = [target["labels"][str(place)][0] for place in range(len(target["tokens"]))]
        assert target["tokens"][1:] == labels[:-1] and labels[-1] == "</s>"
        spans: dict[str, list[str]] = {}
        for token in labels[:-1]:
            if token.startswith("<extra_id_"):
                spans[token] = []
            else:
                list(spans.values())[-1].append(token)
        whole = [t for token in source["tokens"] for t in spans.get(token, [token])]
        assert letters(whole) in text_of(novel)


@pytest.mark.long
def test_replaced_tokens_are_at_masks(corpus: Path) -> None:
    value = examples("electra", corpus)
    replaced = labels = 0
    for document in (d for example in value["examples"] for d in example["documents"]):
        replaced, labels = replaced + len(document["replaced"]), labels + len(document["labels"])
        assert document["replaced"].keys() <= document["labels"].keys()
    assert 0 < replaced <= labels


def test_labels_and_samples_are_in_braces() -> None:
    shown = ShownDocument("input_ids", 1, ["a", "[MASK]", "c"], {1: ["b"], 2: ["c"]}, {1: "x"})
    assert shown.text(labels=True) == "a [MASK]{b \N{RIGHTWARDS ARROW} x} c{c}"


def test_the_text_of_examples_names_labels(corpus: Path) -> None:
    done = zoo("examples", "gpt", "--train", corpus, "--max-seq-len", 16, "--count", 1)
    assert done.returncode == 0, done.stderr
    first, row, document, predicted = done.stdout.splitlines()[:4]
    assert first == "causal-lm, rows of 16 tokens" and row == "row 0"
    # each token is predicted by the one before
    tokens = document.partition(": ")[2].split()
    assert predicted.partition(": ")[2].split()[: len(tokens) - 1] == tokens[1:]
    done = zoo("examples", "elmo", "--train", corpus, "--max-seq-len", 16, "--count", 1)
    assert "  forward_targets: " in done.stdout, done.stderr


def test_errors_are_of_one_line(corpus: Path, tmp_path: Path) -> None:
    for arguments in (["gpt", "--objective", "masked-lm"], ["nothing"], ["bert", "--count", "0"]):
        done = zoo("examples", *arguments, "--train", corpus)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    done = zoo("examples", "gpt", "--train", empty)
    assert (done.returncode, done.stderr) == (
        4,
        f"error: there is no text in {empty}; name others\n",
    )


def test_only_the_first_documents_are_read(tmp_path: Path) -> None:
    """What is behind them is not even JSON; of two sources, the weights are kept."""
    row = json.dumps({"text": " ".join(SENTENCES[:40])}) + "\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(row * 300 + "not JSON\n" + row * 300)
    words = ("--max-seq-len", LENGTH, "--count", 4, "--json", "--set", "vocab_size=300")
    done = zoo("examples", "gpt", "--train", tmp_path / "a.jsonl", *words)
    assert done.returncode == 0, done.stderr
    sources = [f"--train={name}={tmp_path}/{name}.jsonl" for name in ("a", "b")]
    done = zoo("examples", "gpt", *sources, "--weight", "a=0.25", "--weight", "b=0.75", *words)
    assert done.returncode == 0, done.stderr
    shown = [example["source"] for example in json.loads(done.stdout)["examples"]]
    assert shown.count("a") == 1 and shown.count("b") == 3
