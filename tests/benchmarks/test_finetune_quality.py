"""Parts of data that the benchmark of fine-tuned models trains on."""

import json
from pathlib import Path

from benchmarks.finetune_quality import HELD_OUT_ARTICLES, TASKS, files


def test_sentences_of_words_stay_whole(tmp_path: Path) -> None:
    task = TASKS["wnut17"]
    data = tmp_path / task.train
    data.parent.mkdir()
    sentences = [f"a{n}\tO\nb{n}\tB-x\n" for n in range(9)]
    data.write_text("\t\n".join(sentences), encoding="utf-8")  # a line of white space ends one
    train, evaluation = files(task, 3, tmp_path, tmp_path)
    selected = train.read_text("utf-8").strip().split("\n\n")
    assert len(set(selected)) == 3
    assert set(selected) <= {sentence.strip() for sentence in sentences}
    assert evaluation == tmp_path / task.eval


def test_headers_stay(tmp_path: Path) -> None:
    task = TASKS["mrpc"]
    data = tmp_path / task.train
    data.parent.mkdir()
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *(f"1\t{n}\t0\ta\tb" for n in range(9))]
    data.write_text("\n".join(lines), encoding="utf-8-sig")
    train, _ = files(task, 4, tmp_path, tmp_path)
    header, *rows = train.read_text("utf-8").splitlines()
    assert header == lines[0]
    assert len(set(rows)) == 4 and set(rows) <= set(lines[1:])


def test_articles_are_held_out(tmp_path: Path) -> None:
    task = TASKS["xquad"]
    data = tmp_path / task.train
    data.parent.mkdir()
    articles = [{"title": str(n), "paragraphs": []} for n in range(HELD_OUT_ARTICLES + 2)]
    data.write_text(json.dumps({"data": articles}), encoding="utf-8")
    parts = [
        json.loads(path.read_text("utf-8"))["data"] for path in files(task, 0, tmp_path, tmp_path)
    ]
    assert parts == [articles[:2], articles[2:]]
