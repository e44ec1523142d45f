"""Small folders of STS, SentEval, CoLA and BEIR, with names and columns as published.

Texts are of letters that the vocabulary of small models has. Their classes and scores depend on the
letters, so that classifiers learn something, and still are wrong at times.
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

LETTERS = "abcdefghij"
STS_PARTS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
CLASS_FILES = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
QUESTIONS = ("ABBR:exp", "DESC:manner", "ENTY:animal", "HUM:ind", "LOC:city", "NUM:date")
PROBING = {
    "sentence_length": ("0", "1", "2"),
    "word_content": ("alpha", "beta", "gamma", "delta"),
    "tree_depth": ("5", "6", "7"),
    "top_constituents": ("NP_VP_.", "PP_NP_VP_."),
    "bigram_shift": ("I", "O"),
    "past_present": ("PAST", "PRES"),
    "subj_number": ("NN", "NNS"),
    "obj_number": ("NN", "NNS"),
    "odd_man_out": ("C", "O"),
    "coordination_inversion": ("I", "O"),
}
PHENOMENA = ("Simple", "Question", "Adjunct")


def write(path: Path, lines: Sequence[str], encoding: str = "utf-8") -> None:
    """Write lines to a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


def make_text(rng: random.Random, index: int, classes: int) -> str:
    """Return a text in which the letters of a class are more frequent."""
    weights = [3 if number % classes == index else 1 for number in range(len(LETTERS))]
    return " ".join(rng.choices(LETTERS, weights, k=rng.randint(2, 9)))


def make_pair(rng: random.Random) -> tuple[str, str, float]:
    """Return two texts and the share of letters that they have in common, with some noise."""
    first = make_text(rng, 0, 1)
    kept = [letter for letter in first.split() if rng.random() < 0.6]
    second = " ".join([*kept, *rng.choices(LETTERS, k=rng.randint(1, 4))])
    shared = len(kept) / len(first.split())
    return first, second, round(min(5.0, max(0.0, 5 * shared + rng.gauss(0, 1))), 3)


def make_sts(folder: Path, count: int = 8) -> Path:
    """Write SentEval's folder of STS and SICK; return it."""
    for year, parts in STS_PARTS.items():
        for part in parts:
            rng = random.Random(f"{year} {part}")
            pairs = [make_pair(rng) for _ in range(count + len(part))]
            rows = [f"{first}\t{second}" for first, second, _ in pairs]
            scores = [str(score) for _, _, score in pairs]
            scores[2] = ""  # A pair without a score.
            directory = folder / "STS" / f"{year}-en-test"
            prefix = "STS2016" if part == "plagiarism" else "STS"
            if prefix == "STS2016":
                rows = [f"{row}\tsource A\tsource B" for row in rows]
            write(directory / f"{prefix}.input.{part}.txt", rows)
            write(directory / f"{prefix}.gs.{part}.txt", scores)
    rng = random.Random("benchmark")
    rows = []
    for number in range(3 * count):
        first, second, score = make_pair(rng)
        source = "\tlicence" if number % 5 == 0 else ""
        rows.append(f"main-news\tMSRpar\t2012test\t{number}\t{score}\t{first}\t{second}{source}")
    write(folder / "STS" / "STSBenchmark" / "sts-test.csv", rows)
    rows = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
    for number in range(3 * count):
        first, second, score = make_pair(rng)
        rows.append(f"{number}\t{first}\t{second}\t{score}\tNEUTRAL")
    write(folder / "SICK" / "SICK_test_annotated.txt", rows)
    return folder


def make_senteval(folder: Path, count: int = 12) -> Path:
    """Write SentEval's folder of transfer tasks, ``downstream``; return the folder above it."""
    downstream = folder / "downstream"
    for name, files in CLASS_FILES.items():
        rng = random.Random(name)
        for index, file in enumerate(files):
            texts = [make_text(rng, index, 2) for _ in range(count + index)]
            texts[0] += " \xe9\xad"  # Bytes that are not UTF-8.
            write(downstream / name / file, texts, "latin-1")
    for split in ("train", "dev", "test"):
        rng = random.Random(split)
        rows = [f"{make_text(rng, number % 2, 2)}\t{number % 2}" for number in range(4 * count)]
        write(downstream / "SST" / "binary" / f"sentiment-{split}", rows)
    for file, rows_of_class in (("train_5500.label", count), ("TREC_10.label", count // 2)):
        rng = random.Random(file)
        rows = []
        for number in range(rows_of_class * len(QUESTIONS)):
            index = number % len(QUESTIONS)
            rows.append(f"{QUESTIONS[index]} {make_text(rng, index, len(QUESTIONS))}")
        write(downstream / "TREC" / file, [*rows, "DESC:def a \xf0 b"], "latin-1")
    for split in ("train", "test"):
        rng = random.Random(f"mrpc {split}")
        rows = ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(3 * count):
            first, second, score = make_pair(rng)
            rows.append(f"{int(score > 3)}\t{number}\t{number}\t{first}\t{second}")
        write(downstream / "MRPC" / f"msr_paraphrase_{split}.txt", rows)
    return folder


def make_probing(folder: Path, count: int = 8) -> Path:
    """Write SentEval's folder of probing tasks; return it."""
    for name, labels in PROBING.items():
        rng = random.Random(name)
        rows = []
        for split, size in (("tr", 2 * count), ("va", count), ("te", count)):
            for number in range(size * len(labels)):
                index = number % len(labels)
                text = make_text(rng, index, len(labels))
                more = "\tmore" if name == "word_content" else ""
                rows.append(f"{split}\t{labels[index]}{more}\t{text}")
        write(folder / "probing" / f"{name}.txt", rows)
    return folder


def make_cola(folder: Path, count: int = 40) -> Path:
    """Write CoLA's public files, and the annotated development set; return the folder."""
    annotated = []
    for file, size in (
        ("in_domain_train", 2 * count),
        ("in_domain_dev", count),
        ("out_of_domain_dev", count),
    ):
        rng = random.Random(file)
        rows = []
        for number in range(size):
            # As in the corpus, most sentences are acceptable.
            label = int(rng.random() < 0.7)
            sentence = f"{make_text(rng, label, 2)} {LETTERS[number % 10]} {LETTERS[number // 10]}"
            rows.append(f"gj04\t{label}\t{'' if label else '*'}\t{sentence}")
            if file != "in_domain_train" and number % 2 == 0:
                flags = "\t".join(rng.choice("01") for _ in PHENOMENA)
                annotated.append(f"in\tgj04\t{label}\t{sentence}\t{flags}")
        write(folder / "raw" / f"{file}.tsv", rows)
    header = "\t".join(("Domain", "Source", "Label", "Sentence", *PHENOMENA))
    name = "CoLA_grammatical_annotations_major_features.tsv"
    write(folder / "raw" / name, [header, *annotated])
    return folder


def make_beir(
    folder: Path, names: Sequence[str], *, texts: int = 30, queries: int = 8
) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Write folders in BEIR's layout; return the relevance of each, query -> text -> grade.

    Queries of ``arguana`` are texts of its corpus, with the same ids.
    """
    relevance = {}
    for name in names:
        rng = random.Random(name)
        corpus = {f"d{number}": make_text(rng, 0, 1) for number in range(texts)}
        prefix = "d" if name == "arguana" else "q"
        judged: dict[str, dict[str, int]] = {}
        query_texts = {}
        for number in range(queries):
            query = f"{prefix}{number}"
            query_texts[query] = corpus[query] if prefix == "d" else make_text(rng, 0, 1)
            others = [text for text in corpus if text != query]
            judged[query] = {text: rng.choice((1, 2)) for text in rng.sample(others, 3)}
        rows = [
            json.dumps({"_id": key, "title": "", "text": text, "metadata": {}})
            for key, text in corpus.items()
        ]
        write(folder / name / "corpus.jsonl", rows)
        rows = [json.dumps({"_id": key, "text": text}) for key, text in query_texts.items()]
        write(folder / name / "queries.jsonl", rows)
        rows = ["query-id\tcorpus-id\tscore"]
        for query, grades in judged.items():
            rows += [f"{query}\t{text}\t{grade}" for text, grade in grades.items()]
        write(folder / name / "qrels" / "test.tsv", rows)
        relevance[name] = judged
    return relevance
