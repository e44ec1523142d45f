"""The HTML report: self-contained, well-formed, with curves at the logged values."""

import json
import math
import random
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.training.logging.making import Page
from zoo.errors import VerificationError
from zoo.io.numbers import format_count
from zoo.report.svg import BOTTOM, LEFT, RIGHT, TOP, Axis, Series, downsample, label, line_chart
from zoo.training.logging.jsonl import METRICS_FILE, JsonlLogger
from zoo.training.logging.report import format_duration, write_report

EVIL = "<script>alert('&')</script>"


def write_run(run: Path, steps: int = 40) -> None:
    run.mkdir(exist_ok=True)
    settings = {"family": EVIL, "size": "tiny", "objective": "replaced", "max_steps": 40}
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    manifest = {"command": ["zoo", "pretrain", EVIL], "parameters": 1_234_567, "corpus": "/a/books"}
    (run / "run.json").write_text(json.dumps(manifest))
    with JsonlLogger(run) as journal:
        for step in range(1, steps + 1):
            losses = {"generator": 9 - step / 10, EVIL: 0.5}
            metrics = {"accuracy": step / 100}
            body = {"step": step, "loss": sum(losses.values()), "losses": losses}
            rates = {"learning_rate": 1e-4, "gradient_norm": 1.5, "tokens": step * 4096}
            journal.log({**body, "split": "train", "metrics": metrics, **rates})
            journal.log_performance({"step": step, "tokens_per_second": 1e4, "seconds": 90.0})
            if step % 20 == 0:
                journal.log({**body, "split": "validation", "metrics": metrics})


def test_a_finished_run(tmp_path: Path) -> None:
    write_run(tmp_path)
    page = Page(write_report(tmp_path))
    assert f"{EVIL} · tiny · replaced" in page.text
    for shown in ("finished after 40 steps", "5.5000", "164 k", "1.23 M", "1 h 0 min", "books"):
        assert shown in page.text, shown
    for title in ("Loss", "Generator", "Accuracy", "Learning rate", "Gradient norm"):
        assert title in page.text, title
    (command,) = [text for text in page.text if text.startswith("zoo pretrain '")]
    assert shlex.split(command) == ["zoo", "pretrain", EVIL]
    assert sum(tag == "figure" for tag, _ in page.seen) == 7
    rows = [attrs.get("class") for tag, attrs in page.seen if tag == "tr"]
    assert rows == [None, None, "best"]


def test_it_needs_nothing_else_and_escapes_everything(tmp_path: Path) -> None:
    write_run(tmp_path)
    path = write_report(tmp_path)
    page = Page(path)
    assert not {tag for tag, _ in page.seen} & {"script", "link", "img", "iframe", "object"}
    assert [
        (tag, attrs) for tag, attrs in page.seen if {"src", "href", "onload"} & attrs.keys()
    ] == []
    text = path.read_text("utf-8")
    assert "<script" not in text and "http" not in text and "url(" not in text
    assert "@import" not in text


def test_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_run(tmp_path, 20)
    before = write_report(tmp_path).stat().st_ino
    assert "20 of 40 steps" in Page(tmp_path / "report.html").text
    (tmp_path / METRICS_FILE).unlink()
    write_run(tmp_path, 40)
    assert write_report(tmp_path).stat().st_ino != before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.yaml",
        "metrics.jsonl",
        "performance.jsonl",
        "report.html",
        "run.json",
    ]


@pytest.mark.parametrize(
    "missing", ["config.yaml", "run.json", "metrics.jsonl", "performance.jsonl", "*"]
)
def test_sections_of_missing_files_are_omitted(tmp_path: Path, missing: str) -> None:
    write_run(tmp_path)
    for path in tmp_path.glob(missing):
        path.unlink()
    assert Page(write_report(tmp_path)).text


def test_the_first_lines_of_a_run(tmp_path: Path) -> None:
    with JsonlLogger(tmp_path) as journal:
        journal.log({"step": 0, "split": "validation", "loss": 2.0})
    assert "2.0000" in Page(write_report(tmp_path)).text


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write("x\n")
    with pytest.raises(VerificationError, match="line 43 is damaged"):
        write_report(tmp_path)


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    with JsonlLogger(tmp_path) as journal:
        for step in range(5000):
            record = {"step": step, "loss": math.sin(step), "metrics": {"accuracy": 0.5}}
            journal.log({**record, "split": "train"})
            journal.log({**record, "split": "validation"})
    path = write_report(tmp_path)
    assert path.stat().st_size < 500_000
    page = Page(path)
    assert sum(tag == "tr" for tag, _ in page.seen) <= 104
    lines = [attrs["points"] or "" for tag, attrs in page.seen if tag == "polyline"]
    assert lines and max(len(line.split()) for line in lines) <= 1000


def test_points_lie_where_their_values_are() -> None:
    figure = ElementTree.fromstring(
        line_chart(
            "a & b", "nats", [Series("train", [(0, 0.0), (50, 4.0), (100, 10.0)]), Series("x", [])]
        )
    )
    (line,) = figure.iter("polyline")
    middle = BOTTOM - 0.4 * (BOTTOM - TOP)
    expected = [(LEFT, BOTTOM), ((LEFT + RIGHT) / 2, middle), (RIGHT, TOP)]
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert points == [pytest.approx(pair, abs=0.051) for pair in expected]
    texts = [text.text for text in figure.iter("text")]
    assert texts[0] == "nats" and texts[-1] == "step"
    assert texts[1:7] == ["0", "2", "4", "6", "8", "10"]
    assert figure.find("figcaption/span/span").text == "train"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("steps", "max_steps", "expected"),
    [
        (29, 29, "finished after 29 steps (3 epochs)"),  # 3 epochs of 150 rows are 28.1 steps.
        (10, 29, "10 of 29 steps (1.07 epochs)"),
        (20, 20, "finished after 20 steps (2.13 epochs)"),  # --max-steps has priority.
    ],
)
def test_epochs_and_steps_agree(steps: int, max_steps: int, expected: str, tmp_path: Path) -> None:
    write_run(tmp_path, steps)
    settings = {"max_steps": max_steps, "num_train_epochs": 3.0, "batch_size": 16}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "run.json").write_text(json.dumps({"data": {"rows": {"train": 150, "eval": 9}}}))
    assert expected in Page(write_report(tmp_path)).text


def test_labels_of_near_phases_do_not_overlap() -> None:
    marks = [(10, "continues books"), (14, "rows of 512 tokens"), (60, "discriminator"), (64, "b")]
    chart = line_chart("loss", "nats", [Series("train", [(0, 1.0), (100, 2.0)])], marks)
    boxes = []
    for text in ElementTree.fromstring(chart).iter("text"):
        classes = text.attrib.get("class", "").split()
        if "mark" not in classes:
            continue
        across, down = float(text.attrib["x"]), float(text.attrib["y"])
        width = 6.5 * len(text.text or "")  # The style sheet has letters of 11 pixels.
        left = across - width if "end" in classes else across
        boxes.append((left, left + width, down))
    assert len(boxes) == 4
    for number, (left, right, down) in enumerate(boxes):
        for other_left, other_right, other_down in boxes[:number]:
            is_beside = right <= other_left or left >= other_right
            assert is_beside or abs(down - other_down) >= 11


def test_a_jump_of_the_loss_is_explained(tmp_path: Path) -> None:
    write_run(tmp_path)
    settings = yaml.safe_load((tmp_path / "config.yaml").read_text())
    settings["seq_len"] = 512
    settings["seq_len_warmup"] = {"fraction": 0.5, "seq_len": 128}
    settings["objective_args"] = {"generator_fraction": 0.25}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    notes = [text for text in Page(write_report(tmp_path)).text if text.startswith("From step")]
    assert notes[0].startswith("From step 20: rows have 512 tokens, and had 128 before.")
    assert notes[1].startswith("From step 10: the discriminator is trained")
    (tmp_path / METRICS_FILE).unlink()
    write_run(tmp_path, 15)  # It has not reached the longer rows.
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    notes = [text for text in Page(write_report(tmp_path)).text if text.startswith("From step")]
    assert [note.partition(":")[0] for note in notes] == ["From step 10"]


finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(finite, finite, st.integers(2, 8), st.booleans())
def test_axes_hold_their_values_at_round_steps(
    first: float, second: float, count: int, tight: bool
) -> None:
    low, high = sorted((first, second))
    axis = Axis.around(low, high, count, tight=tight)
    slack = 1e-6 * axis.step
    assert axis.low <= low + slack and high <= axis.high + slack
    power = axis.step / 10 ** math.floor(math.log10(axis.step) + 1e-9)
    assert min(abs(power - nice) for nice in (1, 2, 5)) < 1e-6
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= count + 3 or tight
    assert [tick for tick in ticks if not axis.low - slack <= tick <= axis.high + slack] == []


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0.0, 0.1, "0"),
        (0.30000000000000004, 0.1, "0.3"),
        (1.0, 0.5, "1.0"),
        (-2.5, 0.5, "\N{MINUS SIGN}2.5"),
        (1000.0, 200.0, "1,000"),
        (20_000.0, 5_000.0, "20k"),
        (250_000.0, 50_000.0, "250k"),
        (1_000_000.0, 200_000.0, "1M"),
        (1_200_000.0, 200_000.0, "1.2M"),
        (5e-4, 1e-4, "5e\N{MINUS SIGN}4"),
        (1.5e-4, 5e-5, "1.5e\N{MINUS SIGN}4"),
        (1e-4, 5e-5, "1e\N{MINUS SIGN}4"),
    ],
)
def test_labels(value: float, step: float, text: str) -> None:
    assert label(value, step) == text


def test_thinning_keeps_peaks_and_order() -> None:
    draw = random.Random(0)
    points = [(float(step), draw.gauss(0, 1)) for step in range(12_345)]
    points[777], points[9_999] = (777.0, 50.0), (9_999.0, -50.0)
    selected = downsample(points)
    assert len(selected) <= 1000 and selected == sorted(selected) and set(selected) <= set(points)
    assert {(777.0, 50.0), (9_999.0, -50.0)} <= set(selected)
    assert downsample(points[:1000]) == points[:1000]


def test_counts_and_times_as_people_write_them() -> None:
    assert [format_count(n) for n in (0, 999, 9_999, 13_548_000, 16.4e9)] == [
        "",
        "999",
        "9,999",
        "13.5 M",
        "16.4 B",
    ]
    assert [format_duration(s) for s in (4.21, 123, 3900, 180_000)] == [
        "4.2 s",
        "2 min 3 s",
        "1 h 5 min",
        "2 d 2 h",
    ]


def test_importing_it_is_cheap() -> None:
    program = (
        "import sys, zoo.training.logging.report, zoo.training.logging.progress\n"
        "import zoo.training.logging.throughput\n"
        "print(sorted({'torch', 'numpy', 'rich', 'yaml', 'jinja2'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_two_points_are_points() -> None:
    chart = line_chart("Loss", "nats", [Series("validation", [(10, 2.0), (20, 1.0)])])
    assert "<polyline" not in chart and chart.count("<circle") == 2
    chart = line_chart("Loss", "nats", [Series("validation", [(10, 2.0), (20, 1.0), (30, 1.0)])])
    assert chart.count("<polyline") == 1


def test_changes_of_stage_are_marked(tmp_path: Path) -> None:
    write_run(tmp_path)
    settings = yaml.safe_load((tmp_path / "config.yaml").read_text())
    warmup = {"seq_len": 32, "fraction": 0.25}
    settings |= {"seq_len": 128, "seq_len_warmup": warmup}
    settings["objective_args"] = {"generator_fraction": 0.5}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    page = Page(write_report(tmp_path))
    paths = [attrs for tag, attrs in page.seen if tag == "path"]
    places = [attrs["d"] for attrs in paths if attrs["class"] == "mark"]
    ten, twenty = (LEFT + part * (RIGHT - LEFT) for part in (0.25, 0.5))
    assert places[:2] == [f"M{across:.1f} {TOP}V{BOTTOM}" for across in (ten, twenty)]
    assert "rows of 128 tokens" in page.text and "discriminator" in page.text


def test_settings_are_folded(tmp_path: Path) -> None:
    write_run(tmp_path)
    tags = [tag for tag, _ in Page(write_report(tmp_path)).seen]
    assert tags.index("details") < tags.index("summary") and tags.count("details") == 1
