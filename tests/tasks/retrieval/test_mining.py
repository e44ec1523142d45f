"""Hard negatives: which texts are taken, in which formats."""

import json
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests import warm
from tests.checkpoints import Make
from tests.finetuning.making import texts, write_table
from tests.inference.conftest import converted

CASES: list[dict[str, Any]] = [
    {},
    {"range_min": 2, "num_negatives": 2},
    {"range_min": 1, "range_max": 5, "num_negatives": 2},
    {"absolute_margin": 0.0005, "num_negatives": 2},
    {"relative_margin": 0.0005, "num_negatives": 2},
    {"prompt_text": "a b ", "corpus_prompt_text": "c d "},
    {"max_score": 0.9995, "min_score": 0.99, "num_negatives": 2},
]


def pairs() -> list[dict[str, str]]:
    """Return queries with a text each, and some with two."""
    anchors, others = sorted(set(texts(40, 7)))[:20], sorted(set(texts(60, 8)))[:24]
    rows = [{"text": a, "pair": b} for a, b in zip(anchors, others, strict=False)]
    return [*rows, *({"text": anchors[k], "pair": others[20 + k]} for k in range(4))]


def corpus() -> list[dict[str, str]]:
    return [{"_id": str(k), "text": text} for k, text in enumerate(sorted(set(texts(50, 9))))]


def mined(model: Path, folder: Path, *words: object, **options: Any) -> list[dict[str, Any]]:
    """Return the rows that the command writes."""
    for name, value in options.items():
        words += (f"--{name.replace('_', '-')}", value)
    source = write_table(folder / "pairs.jsonl", pairs())
    extra = write_table(folder / "corpus.jsonl", corpus())
    output = folder / "mined.jsonl"
    done = warm.zoo(
        *("mine-negatives", model, "--input", source, "--corpus", extra, "-o", output),
        *("--force", "--backend", "cpu", *words),
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in output.read_text().splitlines()]


def reference(model: Path, case: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return query, text and negatives by a sorted list for each query."""
    encoder = zoo.load(model, backend="cpu")
    candidates = dict.fromkeys(row["text"] for row in corpus())
    candidates |= dict.fromkeys(row["pair"] for row in pairs())
    found = []
    for query in dict.fromkeys(row["text"] for row in pairs()):
        own = [row["pair"] for row in pairs() if row["text"] == query]
        before, begin = case.get("prompt_text", ""), case.get("corpus_prompt_text", "")
        compared = [(before + query, begin + text) for text in candidates]
        scores = dict(zip(candidates, encoder.similarity(compared), strict=True))
        lowest = min(scores[text] for text in own)
        highest = min(
            lowest - case.get("absolute_margin", -9),
            lowest - abs(lowest) * case.get("relative_margin", -9),
            case.get("max_score", 9),
        )
        start, count = case.get("range_min", 0), case.get("num_negatives", 3)
        some = count * (10 if {"absolute_margin", "relative_margin", "max_score"} & {*case} else 1)
        last = case.get("range_max", start + some + 2)
        ranked = sorted(candidates, key=lambda t: -scores[t])[: last + 2]
        kept = [t for t in ranked if case.get("min_score", -9) <= scores[t] <= highest]
        chosen = [text for text in kept if text not in own][start:last][:count]
        found += [(query, text, chosen) for text in own]
    return found


# Both ends of the range are in another case, and the other margin as well.
SIMILAR = (1, 3)


@pytest.mark.by_default("case5")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.long if number in SIMILAR else ())
        for number, case in enumerate(CASES)
    ],
)
def test_negatives_are_the_closest_that_are_allowed(
    hub_checkpoint: Make, tmp_path: Path, case: dict[str, Any]
) -> None:
    """With margins and ranks, and for queries with two texts; `benchmarks.evaluators` compares
    all formats with sentence-transformers.
    """
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    rows = mined(model, tmp_path, output_format="labeled-list", **case)
    found = [(row["text"], row["pair"][0], row["pair"][1:]) for row in rows]
    assert sorted(found) == sorted(row for row in reference(model, case) if row[2])
    assert found


@pytest.mark.long
def test_formats_have_the_same_negatives(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    options = {"num_negatives": 2, "absolute_margin": 0}
    lists, triplets, tuples, labeled = (
        mined(model, tmp_path, "--output-scores", output_format=form, **options)
        for form in ("labeled-list", "triplet", "n-tuple", "labeled-pair")
    )
    triples = {
        (row["text"], row["pair"][0], negative, row["scores"][0], score)
        for row in lists
        for negative, score in zip(row["pair"][1:], row["scores"][1:], strict=True)
    }
    assert {(r["text"], r["pair"], r["negative"], *r["scores"]) for r in triplets} == triples
    found = {
        (r["text"], r["pair"], r[f"negative_{k}"], r["scores"][0], r["scores"][k])
        for r in tuples
        for k in (1, 2)
    }
    whole = {(r["text"], r["pair"][0]) for r in lists if len(r["pair"]) == 3}
    assert found == {triple for triple in triples if triple[:2] in whole}
    both = {(t[0], t[1], t[3]) for t in triples} | {(t[0], t[2], t[4]) for t in triples}
    assert both <= {(row["text"], row["pair"], row["score"]) for row in labeled}


@pytest.mark.long
def test_labels_and_random_negatives(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    rows = mined(model, tmp_path, output_format="labeled-list", num_negatives=2)
    assert {tuple(row["labels"]) for row in rows} == {(1, 0, 0)}
    options = {"sampling_strategy": "random", "range_max": 9, "output_format": "n-tuple"}
    drawn = [mined(model, tmp_path, seed=seed, **options) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    own = {(row["text"], row["pair"]) for row in pairs()}
    wrong = [r for r in drawn[0] for k in (1, 2, 3) if (r["text"], r[f"negative_{k}"]) in own]
    assert wrong == []


@pytest.mark.long
def test_a_cross_encoder_scores_again(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Its logits, which margin-mse learns, order and filter the closest texts."""
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    source = hub_checkpoint("BertForSequenceClassification", "scorer", num_labels=1)
    scorer = converted(source, tmp_path / "scorer-model").path
    words = ("--scorer", scorer, "--output-scores")
    options = {"output_format": "n-tuple", "num_negatives": 2, "absolute_margin": 0}
    rows = mined(model, tmp_path, *words, **options)
    loaded = zoo.load(scorer, backend="cpu")
    for row in rows[:5]:
        documents = [row["pair"], row["negative_1"], row["negative_2"]]
        results = loaded.run("classify", [(row["text"], text) for text in documents])
        assert row["scores"] == pytest.approx([r["score"] for r in results], abs=1e-4)
        assert row["scores"] == sorted(row["scores"], reverse=True)


@pytest.mark.by_default("words0")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--range-max", "2"), "there are 2 ranks for 3 negatives after the first 0; raise"),
        (("--absolute-margin", "5"), "no pair has a negative; give more texts with --corpus"),
        (("--pair", "answer"), "has no column 'answer'"),
        (("--sampling-strategy", "best"), "'best' is not one of 'top', 'random'"),
    ],
)
def test_what_does_not_fit_is_one_line(
    hub_checkpoint: Make, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    source = write_table(tmp_path / "pairs.jsonl", pairs())
    output = tmp_path / "mined.jsonl"
    done = warm.zoo("mine-negatives", model, "--input", source, "-o", output, *words)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert not output.exists()


@pytest.mark.long
def test_formulas_are_safe_in_a_spreadsheet(hub_checkpoint: Make, tmp_path: Path) -> None:
    import csv

    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    rows = [{key: f"={text}" for key, text in row.items()} for row in pairs()]
    source = write_table(tmp_path / "pairs.jsonl", rows)
    output = tmp_path / "mined.csv"
    done = warm.zoo("mine-negatives", model, "--input", source, "-o", output, "--excel-safe")
    assert done.returncode == 0, done.stderr
    with output.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert written
    for row in written:
        for cell in row.values():
            assert cell.startswith("'=")


def test_rows_that_cannot_be_used_are_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    source = write_table(tmp_path / "pairs.jsonl", [*pairs(), {"text": "a", "pair": 3}])
    done = warm.zoo("mine-negatives", model, "--input", source, "-o", tmp_path / "mined.jsonl")
    assert done.returncode == 2
    assert "pair is 3, which is not text" in done.stderr
    assert not (tmp_path / "mined.jsonl").exists()


@pytest.mark.long
def test_columns_of_any_name(hub_checkpoint: Make, tmp_path: Path) -> None:
    """And a corpus needs no ids."""
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    expected = mined(model, tmp_path, output_format="labeled-list")
    faq = [{"question": row["text"], "answer": row["pair"]} for row in pairs()]
    source = write_table(tmp_path / "faq.jsonl", faq)
    articles = []
    for row in [*corpus(), *({"text": row["pair"]} for row in pairs())]:
        articles.append({"body": row["text"], "title": "of a text", "year": 1999})
    more = write_table(tmp_path / "articles.jsonl", articles)
    output = tmp_path / "renamed.jsonl"
    words: tuple[Any, ...] = ("mine-negatives", model, "--input", source, "--corpus", more)
    words += ("--query-text", "question", "--pair", "answer", "--backend", "cpu", "-o", output)
    words += ("--output-format", "labeled-list")
    done = warm.zoo(*words, "--corpus-text", "body")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["question"], row["answer"]) for row in rows] == [
        (row["text"], row["pair"]) for row in expected
    ]
    refused = warm.zoo(*words, "--force")
    assert refused.returncode == 2
    assert (
        "columns body, title, year, and it is unclear which to read; name them with --corpus-text"
        in (" ".join(refused.stderr.split()))
    )


# -- many files ------------------------------------------------------------------------------------


@pytest.mark.long
def test_shards_have_the_negatives_of_one_run(hub_checkpoint: Make, tmp_path: Path) -> None:
    """Negatives come from the texts of all files; a query may be in two of them."""
    model = tmp_path / "model"
    converted(hub_checkpoint("BertModel"), model)
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = pairs()
    for number in range(3):
        write_table(folder / f"{number}.jsonl", rows[number * 8 : number * 8 + 8])
    words = (
        *("mine-negatives", model, "--backend", "cpu", "--num-negatives", "2"),
        *("--output-format", "n-tuple", "--input", folder),
    )
    done = warm.zoo(*words, "-o", tmp_path / "all.jsonl")
    assert done.returncode == 0, done.stderr
    expected = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    out = tmp_path / "mined"
    for shard in ("2/2", "1/2"):
        done = warm.zoo(*words, "-o", out, "--shard", shard, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {
        "total": 3,
        "written": 2,
        "skipped": 0,
        "remaining": 0,
    }
    found = []
    for path in sorted(out.glob("*.jsonl")):
        table = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(table) == 8
        found += table
    key = json.dumps
    assert sorted(map(key, found)) == sorted(map(key, expected))
    again = warm.zoo(*words, "-o", out)
    assert again.returncode == 2 and "0.jsonl exists; --resume continues" in again.stderr
    other = warm.zoo(*words, "-o", out, "--resume", "--max-score", "0.5")
    assert other.returncode == 2 and "options.max_score was not given" in other.stderr
    # Any text may be a negative of any pair: another one is another job.
    write_table(folder / "0.jsonl", [*rows[:7], {"text": "a", "pair": "b c"}])
    changed = warm.zoo(*words, "-o", out, "--resume")
    assert changed.returncode == 2 and "of another set of texts" in changed.stderr


def test_wrong_jobs_of_many_files(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = tmp_path / "model"
    converted(hub_checkpoint("BertModel"), model)
    source = tmp_path / "in"
    source.mkdir()
    write_table(source / "a.jsonl", pairs())
    words = ("mine-negatives", model, "--input", source, "--backend", "cpu")
    cases = (
        (("-o", tmp_path / "o.jsonl", "--shard", "1/2"), "--shard is for a folder"),
        (("-o", tmp_path / "out", "--shard", "2/1"), "there is no shard 2 of 1"),
        (("-o", tmp_path / "out", "--sampling-strategy", "random"), "random negatives depend"),
        (("-o", source / "out"), "is inside the input"),
    )
    for options, message in cases:
        done = warm.zoo(*words, *options)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
