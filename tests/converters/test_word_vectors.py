"""Files of word vectors, next to gensim and fastText."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import fasttext
import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.models.fasttext import load_facebook_vectors

import zoo
from zoo.errors import UsageError, VerificationError
from zoo_converters.fasttext_model import ngram_buckets
from zoo_converters.word_vectors import UNKNOWN_WORD, WordVectors, WordVectorsReader

WORDS = ("the", "cat", "sat", "na\u00efve", "\u65e5\u672c", "</s>", "don't", "3.5", "New_York")
WIDTH = 7
# fastText does not clear the memory of what it trains, which glibc does on request.
TRAINING = """
import sys
import fasttext
for setting in sys.argv[3:]:
    buckets, shortest, longest = map(int, setting.split(","))
    model = fasttext.train_unsupervised(
        sys.argv[1], dim=6, minCount=1, thread=1, verbose=0, epoch=2,
        bucket=buckets, minn=shortest, maxn=longest,
    )
    model.save_model(f"{sys.argv[2]}/cc.{setting}.bin")
"""


QUANTIZATION = """
import sys
import fasttext
model = fasttext.train_supervised(sys.argv[1], dim=4, thread=1, verbose=0, epoch=1)
model.quantize(input=sys.argv[1])
model.save_model(sys.argv[2])
"""


def run_fasttext(script: str, *arguments: object) -> None:
    """Train a model in a process of its own."""
    words = [sys.executable, "-c", script, *map(str, arguments)]
    subprocess.run(words, check=True, env={**os.environ, "MALLOC_PERTURB_": "255"})


@pytest.fixture(scope="module")
def vectors() -> KeyedVectors:
    """Vectors of words, as gensim holds them."""
    table = KeyedVectors(WIDTH)
    values = np.random.default_rng(1).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    table.add_vectors(list(WORDS), values)
    return table


def require_equal(path: Path, reference: KeyedVectors) -> None:
    """Check that a file has the words and the vectors of gensim, bit for bit, and unknown words."""
    with WordVectorsReader(path) as reader:
        assert reader.metadata["words"] == reference.index_to_key
        table = reader.read("embeddings")
    assert table.shape == (len(reference) + 1, reference.vector_size)
    assert table[:-1].tobytes() == reference.vectors.tobytes()
    assert not table[-1].any()


@pytest.mark.parametrize("binary", [False, True])
def test_files_of_word2vec_equal_gensim(
    vectors: KeyedVectors, tmp_path: Path, *, binary: bool
) -> None:
    path = tmp_path / "vectors.bin"
    vectors.save_word2vec_format(str(path), binary=binary)
    require_equal(path, KeyedVectors.load_word2vec_format(str(path), binary=binary))


def test_binary_files_with_line_ends_equal_those_without(
    vectors: KeyedVectors, tmp_path: Path
) -> None:
    """The original program ends each vector with a line end, and gensim does not."""
    path = tmp_path / "vectors.bin"
    content = f"{len(WORDS)} {WIDTH}\n".encode()
    for word in WORDS:
        content += word.encode() + b" " + vectors[word].tobytes() + b"\n"
    path.write_bytes(content)
    require_equal(path, vectors)


def test_files_of_glove_equal_gensim(vectors: KeyedVectors, tmp_path: Path) -> None:
    path = tmp_path / "glove.tiny.txt"
    vectors.save_word2vec_format(str(path), write_header=False)
    require_equal(path, KeyedVectors.load_word2vec_format(str(path), no_header=True))


def test_words_of_glove_may_contain_spaces(tmp_path: Path) -> None:
    """``glove.840B.300d.txt`` has such words, where gensim ends."""
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    with WordVectorsReader(path) as reader:
        assert reader.metadata["words"] == ["the", ". . .", "at name@domain.com"]
        assert reader.read("embeddings").tolist() == [[1, 2], [3, 4], [5, 6], [0, 0]]


def test_the_first_of_two_vectors_of_a_word_counts(tmp_path: Path) -> None:
    path = tmp_path / "twice.vec"
    path.write_text("3 2\na 1 2\nb 3 4\na 5 6\n")
    with WordVectorsReader(path) as reader:
        assert reader.metadata["words"] == ["a", "b"]
        assert reader.read("embeddings").tolist() == [[1, 2], [3, 4], [0, 0]]


def test_models_of_fasttext_equal_fasttext(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the na\u00efve mat\na cat and \u65e5\u672c and a mat\n" * 9)
    settings = ("97,3,6", "31,1,2", "0,0,0")  # Buckets, and lengths of n-grams.
    run_fasttext(TRAINING, texts, tmp_path, *settings)
    for setting in settings:
        path = tmp_path / f"cc.{setting}.bin"
        model = fasttext.load_model(str(path))
        with WordVectorsReader(path) as reader:
            words = reader.metadata["words"]
            table = reader.read("embeddings")
        assert words == model.words, setting
        expected = [model.get_word_vector(word) for word in words]
        np.testing.assert_allclose(
            table[:-1].astype(np.float64), expected, rtol=1e-6, atol=1e-9, err_msg=setting
        )
        if setting == "0,0,0":  # gensim does not read models without n-grams.
            continue
        reference = load_facebook_vectors(str(path))
        for number, word in enumerate(words):
            if word != "</s>":  # gensim gives it n-grams, and fastText does not.
                np.testing.assert_allclose(
                    table[number], reference[word], rtol=1e-5, atol=1e-8, err_msg=word
                )


def test_buckets_of_a_word_by_hand() -> None:
    """The n-grams of ``<ab>`` with two and three characters, hashed by FNV-1a."""

    def fnv1a(text: str) -> int:
        value = 0x811C9DC5
        for byte in text.encode():
            value = (value ^ byte) * 0x01000193 % 2**32
        return value

    ngrams = ("<a", "<ab", "ab", "ab>", "b>")
    assert ngram_buckets("ab", 2, 3, 1000) == [fnv1a(ngram) % 1000 for ngram in ngrams]


def test_the_embedding_of_a_text_is_the_mean_of_its_known_words(
    vectors: KeyedVectors, tmp_path: Path
) -> None:
    path = tmp_path / "glove.tiny.txt"
    words = [word for word in WORDS if word == word.lower()]
    lowercase = KeyedVectors(WIDTH)
    lowercase.add_vectors(words, vectors[words])
    lowercase.save_word2vec_format(str(path), write_header=False)
    zoo.convert(str(path), output=tmp_path / "model")
    model = zoo.load(str(tmp_path / "model"))
    texts = ["The cat, whatever, sat.", "na\u00efve cat " * 400, "nothing known"]
    embeddings = model.embed(texts)
    expected = (
        vectors[["the", "cat", "sat"]].mean(0),
        vectors[["na\u00efve", "cat"]].mean(0),
        np.zeros(WIDTH),
    )
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)


def test_words_with_capitals_are_matched_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "words.vec"
    path.write_text("2 1\nTurkey 1\nturkey 3\n")
    zoo.convert(str(path), output=tmp_path / "model")
    embeddings = zoo.load(str(tmp_path / "model")).embed(["Turkey", "turkey", "Turkey turkey"])
    assert np.asarray(embeddings).tolist() == [[1], [3], [2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3 2\na 1 2\nb 3 4\n", "states 3 words, and has 2"),
        (b"1 2\na 1 2\nb 3 4\n", "states 1 words, and has more"),
        (b"2 2\na 1 2\nb 3\n", "line 3: it has fewer than 2 numbers"),
        (b"2 2\na 1 2\nb 3 x\n", "line 3: could not convert"),
        (b"2 2\na 1 2\n\xff 3 4\n", "line 3: 'utf-8' codec"),
        (b"word\n", "line 1: it has no numbers"),
        (b"9999999999 2\na 1 2\n", "number of words is 9,999,999,999"),
        (b"2 2\na " + struct.pack("<2f", 1, 2) + b"b \0\0", "ends in number 2"),
        (b"1 2\na " + struct.pack("<2f", 1, 2) + b"bcd", "has more"),
        (f"1 2\n{UNKNOWN_WORD} 1 2\n".encode(), "stands for unknown words"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.vec"
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=r"broken\.vec") as raised:
        WordVectorsReader(path)
    assert message in str(raised.value)


def test_quantized_models_of_fasttext_are_refused(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    words = " ".join(f"word{number}" for number in range(300))
    texts.write_text(f"__label__a {words}\n__label__b {words}\n" * 2)
    path = tmp_path / "cc.small.bin"
    run_fasttext(QUANTIZATION, texts, path)
    with pytest.raises(UsageError, match="quantized model"):
        WordVectorsReader(path)


def test_files_are_found_by_their_names() -> None:
    vector_files = WordVectors()
    for name in (
        "glove.6B.300d.txt",
        "crawl-300d-2M.vec",
        "GoogleNews-vectors-negative300.bin",
        "cc.de.300.bin",
        "wiki.en.bin",
    ):
        assert vector_files.find(["README.md", name]) == (name,), name
    for name in ("model.bin", "pytorch_model.bin", "vocab.txt", "merges.txt", "openvino_model.bin"):
        assert vector_files.find([name]) == (), name
