"""Verification of corpora: every flipped bit is detected, and the file is named."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from tests.data.making import built, paragraphs
from zoo.data.corpus import Corpus
from zoo.data.verify import require_intact, verify_corpus
from zoo.errors import VerificationError, ZooError
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact")
    (folder / "texts.txt").write_text("\n\n".join(paragraphs()), "utf-8")
    return built(folder / "corpus", folder / "texts.txt", eval_fraction=0.2, shard_bytes=4000).path


@pytest.fixture
def corpus(intact: Path, tmp_path: Path) -> Path:
    shutil.copytree(intact, tmp_path / "corpus")
    return tmp_path / "corpus"


def outcomes(path: Path) -> dict[str, str]:
    return {check.name: check.outcome for check in verify_corpus(path)}


def assert_every_flip_is_named(corpus: Path, count: int) -> None:
    rng = random.Random(0)
    files = sorted(path for path in corpus.rglob("*") if path.is_file())
    for number in range(count):
        file = files[number % len(files)]
        content = file.read_bytes()
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        file.write_bytes(changed)
        (failed,) = [check for check in verify_corpus(corpus) if check.outcome == "failed"]
        assert str(file) in failed.detail, (file, place, bit)
        file.write_bytes(content)


def test_an_intact_corpus_passes(corpus: Path) -> None:
    assert set(outcomes(corpus).values()) == {"ok"}
    require_intact(Corpus(corpus))


def test_a_flipped_bit_is_named(corpus: Path) -> None:
    assert_every_flip_is_named(corpus, 60)


@pytest.mark.promise("bit-flip", cases=1_000)
@pytest.mark.long
def test_a_thousand_flipped_bits_are_named(corpus: Path) -> None:
    assert_every_flip_is_named(corpus, 1000)


def test_files_that_are_missing_or_added_are_named(corpus: Path) -> None:
    (corpus / "train" / "tokens-99999.bin").write_bytes(b"x")
    (failed,) = [check for check in verify_corpus(corpus) if check.outcome == "failed"]
    assert "does not list: train/tokens-99999.bin" in failed.detail
    (corpus / "train" / "tokens-99999.bin").unlink()
    (corpus / "train" / "documents.bin").unlink()
    (failed,) = [check for check in verify_corpus(corpus) if check.outcome == "failed"]
    assert "documents.bin is missing" in failed.detail


def test_a_corpus_of_an_earlier_version_has_no_digest_of_its_manifest(corpus: Path) -> None:
    record = Corpus(corpus).record
    record.digest = ""
    (corpus / "corpus.json").write_bytes(encode_json(record))
    assert set(outcomes(corpus).values()) == {"ok"}


def rewrite(corpus: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file and its digest in the manifest, as an attacker would."""
    record = Corpus(corpus).record
    content = change((corpus / name).read_bytes())
    (corpus / name).write_bytes(content)
    digest = FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
    record.splits[name.split("/")[0]].files[name] = digest
    record.digest = NO_DIGEST
    (corpus / "corpus.json").write_bytes(add_digest(encode_json(record)))


def backwards(content: bytes) -> bytes:
    return np.frombuffer(content, "<i8")[::-1].tobytes()


def negative(content: bytes) -> bytes:
    return (-np.frombuffer(content, "<i8")).tobytes()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train/sentences.bin", backwards, "ascending numbers"),
        ("train/documents.bin", negative, "ascending numbers"),
        ("train/tokens-00000.bin", lambda c: b"\xff" * len(c), "the tokenizer has 800 ids"),
        ("train/tokens-00000.bin", lambda c: c[:-2], "do not go with its counts"),
        ("train/documents.bin", lambda c: c[:-8], "do not go with its counts"),
    ],
)
def test_files_that_contradict_the_manifest_are_refused(
    corpus: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    """With valid digests, too: training would read out of bounds."""
    rewrite(corpus, name, change)
    with pytest.raises(VerificationError, match=message):
        require_intact(Corpus(corpus))
    assert "failed" in outcomes(corpus).values()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dtype": "uint16"', '"dtype": "object"'),
        ('"tokens": ', '"tokens": -'),
        ("train/tokens-00000.bin", "../tokens-00000.bin"),
        ("train/sentences.bin", "train/sentence.bin"),
        ('"vocab_size": 800', '"vocab_size": "many"'),
        ('"zoo": 1', '"zoo": 99'),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(corpus: Path, old: str, new: str) -> None:
    record = Corpus(corpus).record
    record.digest = ""
    text = encode_json(record).decode()
    assert old in text
    (corpus / "corpus.json").write_text(text.replace(old, new))
    with pytest.raises(ZooError) as caught:
        Corpus(corpus)
    assert caught.value.exit_code == 3 and str(corpus) in str(caught.value)
