"""Token ids and boundaries of a built corpus, compared with the tokenizers library."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from blake3 import blake3
from tokenizers import Tokenizer

from tests.data.making import SMALL, built, contents, files_of, paragraphs, trained
from tests.processes import run_limited
from tests.reporting import record
from zoo.data.cache import SAMPLE, cached_corpus
from zoo.data.corpus import Corpus
from zoo.data.tokenizer import TokenizerToTrain, load_tokenizer
from zoo.errors import UsageError
from zoo.plugins import get_family

KINDS = [("bert", None), ("modernbert", None), ("roberta", None), ("t5", None), ("elmo", None)]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(paragraphs()), "utf-8")
    return path


@pytest.mark.by_default("bert", "elmo")
@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_tokens_are_those_of_each_document_as_a_whole(
    tmp_path: Path, texts: Path, family: str, kind: str | None
) -> None:
    tokenizer = trained(family, kind=kind)
    split = built(tmp_path / "out", texts, tokenizer=tokenizer).split("train")
    naive = Tokenizer.from_buffer(tokenizer.json)
    documents = contents(split)
    assert len(documents) == len(paragraphs())
    for document, text in zip(documents, paragraphs(), strict=True):
        wanted = naive.encode(text.strip(), add_special_tokens=False).ids
        assert [token for sentence in document for token in sentence] == wanted


@pytest.mark.by_default("bert")
@pytest.mark.parametrize(
    ("family", "space"), [("bert", ""), ("roberta", " "), ("gpt", " "), ("t5", "")]
)
def test_sentences_have_the_tokens_that_they_have_alone(
    tmp_path: Path, texts: Path, family: str, space: str
) -> None:
    tokenizer = trained(family)
    lines = [line.strip() for text in paragraphs() for line in text.split(". ") if line.strip()]
    texts.write_text("\n".join(lines), "utf-8")
    split = built(tmp_path / "out", texts, tokenizer=tokenizer, sentence_splitter="line").split(
        "train"
    )
    naive = Tokenizer.from_buffer(tokenizer.json)
    (document,) = contents(split)
    assert len(document) == len(lines)
    for number, (ids, line) in enumerate(zip(document, lines, strict=True)):
        before = space if number else ""
        assert ids == naive.encode(before + line, add_special_tokens=False).ids


def test_empty_sentences_and_documents_are_skipped(tmp_path: Path) -> None:
    nothing = "\u200b"  # removed by the tokenizer's normalization
    (tmp_path / "a.txt").write_text(f"One\n{nothing}\ntwo\n\n{nothing}\n\nthree", "utf-8")
    split = built(tmp_path / "out", tmp_path / "a.txt", sentence_splitter="line").split("train")
    assert [len(document) for document in contents(split)] == [2, 1]


def test_documents_and_sentences_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SMALL, "utf-8")
    corpus = built(tmp_path / "out", tmp_path / "a.txt")
    decode = Tokenizer.from_buffer(corpus.tokenizer_json).decode
    documents = [
        [decode(ids).replace(" ", "") for ids in d] for d in contents(corpus.split("train"))
    ]
    assert [len(document) for document in documents] == [2, 1]
    assert documents[0][0] == "Mr.Bellrang."
    assert documents[0][1].endswith("askedthecat.")


@pytest.mark.by_default("bert", "gpt")
@pytest.mark.parametrize(("family", "kind"), [*KINDS, ("gpt", None), ("deberta", "byte-level-bpe")])
def test_text_that_spells_a_special_token_is_text(
    tmp_path: Path, family: str, kind: str | None
) -> None:
    # The paragraphs lack some capitals, which would be unknown.
    tokenizer = trained(family, kind=kind, lowercase=family != "elmo")
    special = [token for role, token in tokenizer.info.special.items() if role != "unk"]
    (tmp_path / "a.txt").write_text(" x ".join([*special, "<extra_id_3>", "word"]), "utf-8")
    split = built(tmp_path / "out", tmp_path / "a.txt", tokenizer=tokenizer).split("train")
    naive = Tokenizer.from_buffer(tokenizer.json)
    forbidden = {naive.token_to_id(t) for t in (*special, "<extra_id_3>")}
    unknown = naive.token_to_id(tokenizer.info.special["unk"])
    ids = [token for sentence in contents(split)[0] for token in sentence]
    assert not set(ids) & (forbidden - {unknown, None})
    if family not in ("t5", "elmo"):  # unseen characters become unknown tokens there
        shown = naive.decode(ids, skip_special_tokens=False).replace(" ", "")
        wanted = (tmp_path / "a.txt").read_text().replace(" ", "")
        assert shown.lower() == wanted.lower()


def test_the_files_are_as_the_manifest_says(tmp_path: Path, texts: Path) -> None:
    built(tmp_path / "out", texts, eval_fraction=0.2)
    manifest = json.loads((tmp_path / "out/corpus.json").read_text("utf-8"))
    listed = {n: f for split in manifest["splits"].values() for n, f in split["files"].items()}
    files = files_of(tmp_path / "out")
    assert manifest["tokenizer_digest"] == blake3(files.pop("tokenizer.json")).hexdigest()
    assert listed.keys() == files.keys()
    for name, content in files.items():
        assert listed[name] == {"bytes": len(content), "blake3": blake3(content).hexdigest()}
    (digest,) = manifest["sources"].values()
    assert digest["blake3"] == blake3(texts.read_bytes()).hexdigest()
    train = manifest["splits"]["train"]
    ends = np.frombuffer(files["train/sentences.bin"], "<i8")
    assert (len(ends), ends[-1]) == (train["sentences"] + 1, train["tokens"])
    assert len(files["train/tokens-00000.bin"]) == 2 * train["tokens"]
    assert len(np.frombuffer(files["train/documents.bin"], "<i8")) == train["documents"] + 1


@pytest.mark.by_default("300")
@pytest.mark.parametrize("shard", [1, 300, 1000, 1 << 20])
def test_a_document_lies_in_one_shard(tmp_path: Path, texts: Path, shard: int) -> None:
    whole = built(tmp_path / "whole", texts).split("train")
    split = built(tmp_path / "out", texts, shard_bytes=shard).split("train")
    assert contents(split) == contents(whole)
    ends = np.cumsum([len(s) for s in split.shards])
    starts = split.document_starts()
    assert set(ends) <= set(starts.tolist())
    longest = 2 * np.diff(starts).max()
    assert [s for s in split.shards if not 2 * len(s) <= max(shard, longest)] == []
    if shard == 1:
        assert len(split.shards) == len(split.documents) - 1
    if shard == 1000:  # no shard has room for another document
        sizes = [2 * len(s) for s in split.shards]
        nexts = [2 * int(starts[np.searchsorted(starts, e) + 1] - e) for e in ends[:-1]]
        assert [(a, b) for a, b in zip(sizes, nexts, strict=False) if not a + b > shard] == []


def test_nothing_depends_on_how_many_work_or_on_chunks(
    tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.data.encoding.CHUNK_CHARS", 2000)
    built(tmp_path / "one", texts, eval_fraction=0.1, workers=1)
    built(tmp_path / "two", texts, eval_fraction=0.1, workers=2)
    monkeypatch.undo()
    built(tmp_path / "big", texts, eval_fraction=0.1, workers=1)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") == files_of(tmp_path / "big")


@pytest.mark.long
def test_the_held_out_documents_are_others_and_stay_the_same(tmp_path: Path, texts: Path) -> None:
    def splits(name: str, **options: object) -> tuple[list[str], list[str]]:
        corpus = built(tmp_path / name, texts, **{"eval_fraction": 0.2, **options})
        train, held = (contents(corpus.split(split)) for split in ("train", "validation"))
        return [str(document) for document in train], [str(document) for document in held]

    everything = [
        str(document) for document in contents(built(tmp_path / "0", texts).split("train"))
    ]
    train, held = splits("a")
    assert sorted(train + held) == sorted(everything)
    assert 4 <= len(held) <= 22  # of 60; false with probability 0.001
    assert splits("b") == (train, held)
    assert splits("c", seed=1)[1] != held
    texts.write_text("\n\n".join([*paragraphs(), "More is added. It changes little."]), "utf-8")
    assert splits("d")[1][: len(held)] == held
    assert len(splits("e", eval_fraction=0.0001)[1]) == 1


def test_other_files_can_be_held_out(tmp_path: Path, texts: Path) -> None:
    (tmp_path / "v.txt").write_text("Held out. Both.\n\nAnd this.", "utf-8")
    corpus = built(tmp_path / "out", texts, eval_paths=[tmp_path / "v.txt"], eval_fraction=0.5)
    assert len(corpus.split("train").documents) == 61
    assert [len(d) for d in contents(corpus.split("validation"))] == [2, 1]
    assert len(corpus.record.sources) == 2


@pytest.mark.long
def test_large_vocabularies_take_four_bytes(tmp_path: Path, texts: Path) -> None:
    definition = json.loads(trained("bert").json)
    vocabulary = definition["model"]["vocab"]
    vocabulary.update({f"extra{k}": len(vocabulary) + k for k in range(70_000)})
    content = json.dumps(definition).encode()
    big = trained("bert").__class__(content, trained("bert").info)
    tokenizer = Tokenizer.from_buffer(content)
    (tmp_path / "a.txt").write_text("One extra69999 here.", "utf-8")
    corpus = built(tmp_path / "out", tmp_path / "a.txt", tokenizer=big)
    assert corpus.record.dtype == "uint32"
    assert tokenizer.token_to_id("extra69999") in contents(corpus.split("train"))[0][0]


def test_the_cache_goes_by_contents(tmp_path: Path, texts: Path) -> None:
    family = get_family("bert")
    tokenizer = TokenizerToTrain.for_family(family, vocab_size=500)
    first = cached_corpus([texts], tokenizer)
    copy = tmp_path / "copy" / "texts.txt"
    copy.parent.mkdir()
    copy.write_bytes(texts.read_bytes())
    when = (first.path / "corpus.json").stat().st_mtime_ns
    again = cached_corpus([copy], tokenizer)
    assert again.path == first.path
    assert (again.path / "corpus.json").stat().st_mtime_ns == when
    assert (
        cached_corpus([texts], TokenizerToTrain.for_family(family, vocab_size=501)).path
        != first.path
    )
    for lowercase, strip_accents in ((True, None), (False, True)):
        normalizing = TokenizerToTrain.for_family(
            family, vocab_size=500, lowercase=lowercase, strip_accents=strip_accents
        )
        assert cached_corpus([texts], normalizing).path != first.path
    assert cached_corpus([texts], tokenizer, seed=1).path != first.path
    copy.write_text("Other text. Much shorter.\n\nBut two documents.", "utf-8")
    assert cached_corpus([copy], tokenizer).path != first.path
    assert cached_corpus([first.path], tokenizer).path == first.path


@pytest.mark.long
def test_the_packaged_corpus_needs_nothing_else() -> None:
    corpus = cached_corpus([], TokenizerToTrain.for_family(get_family("electra"), vocab_size=1000))
    assert corpus.record.vocab_size == 1000
    train, held = corpus.split("train"), corpus.split("validation")
    # the chapters of the table in its README.md
    table = (SAMPLE / "README.md").read_text("utf-8")
    chapters = [int(line.split("|")[6]) for line in table.splitlines() if ".txt` |" in line]
    assert len(train.documents) + len(held.documents) - 2 == sum(chapters) == 356
    assert train.tokens > 1_000_000
    assert held.tokens > 100_000


def test_the_packaged_corpus_has_the_files_of_its_table() -> None:
    table = (SAMPLE / "README.md").read_text("utf-8")
    rows = [line.split("|") for line in table.splitlines() if ".txt` |" in line]
    sizes = {row[1].strip(" `"): int(row[7].replace(",", "")) for row in rows}
    files = {path.name: path.stat().st_size for path in SAMPLE.glob("*.txt")}
    assert sizes == files
    assert sum(files.values()) < 5_000_000


def test_a_corpus_gives_its_tokenizer_to_another(tmp_path: Path, texts: Path) -> None:
    first = built(tmp_path / "first", texts)
    tokenizer = load_tokenizer(str(first.path))
    assert (tokenizer.json, tokenizer.info) == (first.tokenizer_json, first.record.tokenizer)


def test_a_tokenizer_that_was_exchanged_is_noticed(tmp_path: Path, texts: Path) -> None:
    corpus = built(tmp_path / "out", texts)
    with (corpus.path / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    with pytest.raises(Exception, match=r"tokenizer\.json is not the file that"):
        _ = Corpus(corpus.path).tokenizer_json
    with pytest.raises(UsageError, match="no split 'validation'"):
        corpus.split("validation")


def bytes_read() -> int:
    """Return the number of bytes that this process has read."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


@pytest.mark.by_default("False-1")
@pytest.mark.parametrize(("is_trained", "passes"), [(False, 1), (True, 2)])
def test_files_are_read_once_or_to_train_a_tokenizer_twice(
    tmp_path: Path, is_trained: bool, passes: int
) -> None:
    file = tmp_path / "a.txt"
    text = "\n\n".join(paragraphs())
    file.write_text("\n\n".join([text] * (6_000_000 // len(text))), encoding="utf-8")
    family = get_family("bert")
    options: dict[str, Any] = {"workers": 1, "eval_fraction": 0.01}
    if is_trained:
        options["tokenizer"] = TokenizerToTrain.for_family(family, vocab_size=300)
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")
    built(tmp_path / "first", tmp_path / "b.txt", **options)  # Modules are read, too.
    before = bytes_read()
    corpus = built(tmp_path / "out", file, **options)
    size = file.stat().st_size
    # Held-out documents are looked for in the first block of a megabyte.
    assert passes * size <= bytes_read() - before < (passes + 0.4) * size
    (digest,) = corpus.record.sources.values()
    assert digest.blake3 == blake3(file.read_bytes()).hexdigest()


def test_digests_are_those_of_all_kinds_of_files(tmp_path: Path) -> None:
    rows = [{"text": text} for text in paragraphs()]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "d.csv").write_text("text\n" + "\n".join(["one line"] * 50))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "e.parquet")
    (tmp_path / "f.txt").write_text("\n\n".join(paragraphs()), encoding="utf-8")
    files = sorted(tmp_path.iterdir())
    corpus = built(tmp_path / "out", *files)
    assert {name: digest.blake3 for name, digest in corpus.record.sources.items()} == {
        str(file): blake3(file.read_bytes()).hexdigest() for file in files
    }


@pytest.mark.long
@pytest.mark.parametrize("megabytes", [3, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("end", ["\n\n", " "], ids=["documents", "one line"])
def test_memory_does_not_grow_with_the_texts(tmp_path: Path, megabytes: int, end: str) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_bytes(trained("bert").json)
    text = (" ".join(paragraphs()) + end).encode()
    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(text) + 1):
            file.write(text)
    done = run_limited(
        [
            *("zoo", "corpus", "build", tmp_path / "a.txt", "-o", tmp_path / "out"),
            *("--tokenizer", tmp_path / "tokenizer", "--family", "bert", "--workers", "1"),
        ],
        seconds=7200,
    )
    small = done.returncode == 0 and done.peak_total_bytes < 1 << 30
    if megabytes == 2000:
        measured = f"peak {done.peak_total_bytes / 1e6:.0f} MB of all processes together"
        record("large-corpus", cases=1, failures=int(not small), measured=measured)
    assert small, done.stderr
    splits = Corpus(tmp_path / "out").record.splits
    assert sum(split.tokens for split in splits.values()) > megabytes * 100_000
