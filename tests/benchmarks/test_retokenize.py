"""The benchmark of a new vocabulary runs, with the same steps for every strategy."""

import random
from pathlib import Path

import pytest

from benchmarks.retokenize import STRATEGIES, main


def text(folder: Path, words: str, seed: int) -> Path:
    rng = random.Random(seed)
    for name, count in (("train", 60), ("validation", 10)):
        (folder / name).mkdir(parents=True)
        documents = [" ".join(rng.choices(words.split(), k=40)) for _ in range(count)]
        (folder / name / "text.txt").write_text("\n\n".join(documents))
    return folder


@pytest.mark.long
def test_a_table_of_all_strategies_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = text(tmp_path / "first", "the dog and cat ran to a house in an hour", 0)
    target = text(tmp_path / "second", "der Hund und die Katze rannten zum Haus", 1)
    sizes = ["--vocab-size", "300", "--base-steps", "2", "--steps", "4", "--seq-len", "16"]
    paths = ["--source", str(source), "--target", str(target)]
    results = tmp_path / "results.jsonl"
    arguments = [*paths, *sizes, "--batch-size", "2", "--seeds", "1", "--results", str(results)]
    main(arguments)
    printed, runs = capsys.readouterr().out, results.read_text()
    main(arguments)  # all runs are known
    assert capsys.readouterr().out == printed and results.read_text() == runs
    rows = [line for line in printed.splitlines() if line.startswith("| ")][2:]
    names = [row.split("|")[1].strip() for row in rows]
    assert names == list(STRATEGIES)
    trained = dict(zip(names, (row.split("|")[5].strip() for row in rows), strict=True))
    few, everything = (
        int(trained[name].replace(",", ""))
        for name in ("carried rows, embeddings trained", "carried rows, all trained")
    )
    assert 0 < few < everything
