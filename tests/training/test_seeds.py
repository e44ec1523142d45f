"""Runs over several seeds: equal to single runs, resumed as a whole, and compared."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.training.runs import assert_same, lines, options, run_training, start, tree, wait_until
from zoo.cli.training.compare import command as compare
from zoo.cli.training.pretrain import command as pretrain
from zoo.errors import SourceError, UsageError
from zoo.training.compare import find_runs, group_runs
from zoo.training.distributed.context import DistContext
from zoo.training.logging.report import write_report
from zoo.training.run import PretrainRun
from zoo.training.seeds import resume_seeds, train_seeds

pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    """Three runs with the seeds 5, 6 and 7."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        path = tmp_path_factory.mktemp("seeds") / "runs"
        train_seeds(PretrainRun(tree(FAMILY), DistContext.initialize("cpu"), path, {"seed": 5}), 3)
        return path


def test_each_run_is_that_of_its_seed_alone(runs: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in runs.iterdir()) == [
        "seed-5",
        "seed-6",
        "seed-7",
        "seeds.json",
    ]
    assert_same(run_training(tmp_path / "run", FAMILY, seed=6), runs / "seed-6")


@pytest.mark.long
def test_the_comparison_has_median_and_range(runs: Path, tmp_path: Path) -> None:
    other = run_training(tmp_path / "other", FAMILY, optimizer={"learning_rate": 1e-4})
    last = [
        json.loads((runs / name / "metrics.jsonl").read_text().splitlines()[-1])["loss"]
        for name in ("seed-5", "seed-6", "seed-7")
    ]
    figure = tmp_path / "losses.svg"
    done = CliRunner().invoke(
        compare, [str(runs), str(other), "--figures", str(figure), "--json"], catch_exceptions=False
    )
    first, second = json.loads(done.stdout)["groups"]
    assert first["name"] == "runs"
    assert len(first["runs"]) == 3
    assert first["metrics"]["loss"] == {
        "median": sorted(last)[1],
        "lowest": min(last),
        "highest": max(last),
    }
    assert second["changes"] == ["optimizer.learning_rate: 0.004 and 0.0001"]
    assert b"<svg" in figure.read_bytes()[:1000]
    table = CliRunner().invoke(compare, [str(runs), str(other)], catch_exceptions=False).stdout
    header, seeds, loss, *_ = (line.split() for line in table.splitlines())
    assert header == ["causal-lm", "runs", "other"]
    assert seeds == ["seeds", "3", "1"] and loss[0] == "loss"
    assert f"{sorted(last)[1]:.4g} ({min(last):.4g} to {max(last):.4g})" in table


def test_curves_are_at_the_steps_of_all_runs(runs: Path) -> None:
    (group,) = group_runs(find_runs([runs]))
    curve = group.curve()
    assert [step for step, *_ in curve] == [4, 8, 12]
    for _, middle, low, high in curve:
        assert low <= middle <= high


@pytest.mark.long
def test_a_killed_process_goes_on_with_all_seeds(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "again"
    process = start(FAMILY, *options(), "--seeds", "3", "--seed", "5", "-o", str(path))
    wait_until(lambda: lines(path / "seed-6") >= 4, process)
    process.kill()
    process.communicate()
    assert not (path / "seed-7").exists()
    resume_seeds(PretrainRun({}, DistContext.initialize("cpu")), path)
    for name in ("seed-5", "seed-6", "seed-7"):
        assert_same(path / name, runs / name)


def test_a_run_that_was_killed_after_its_model_was_written_is_finished(
    runs: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(runs, tmp_path / "again", symlinks=True)
    for suffix in ("", ".lock"):
        (path / "seed-5" / f".report.html.zoo-0123abcd{suffix}").touch()
    (path / "seed-5" / "final.json").unlink()
    resume_seeds(PretrainRun({}, DistContext.initialize("cpu")), path)
    assert [*path.rglob("*.zoo-*")] == []
    finals = [(each / "seed-5" / "final.json").read_bytes() for each in (runs, path)]
    assert finals[0] == finals[1]


def test_settings_that_cannot_be_used_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        train_seeds(
            PretrainRun(
                tree(FAMILY, config={"max_positions": 2}),
                DistContext.initialize("cpu"),
                tmp_path / "runs",
            ),
            2,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_resume_with_other_settings_is_refused(runs: Path) -> None:
    done = CliRunner().invoke(pretrain, ["--resume", str(runs), "--max-steps", "3"])
    assert isinstance(done.exception, UsageError)
    assert "uses the settings of its runs" in str(done.exception)


def test_a_resume_takes_no_other_directory_and_no_seeds(runs: Path, tmp_path: Path) -> None:
    run = runs / "seed-5"
    done = CliRunner().invoke(pretrain, ["--resume", str(run), "-o", str(tmp_path / "other")])
    assert isinstance(done.exception, UsageError)
    assert "continues in that directory; leave -o out" in str(done.exception)
    done = CliRunner().invoke(pretrain, ["--resume", str(run), "--seeds", "2"])
    assert isinstance(done.exception, UsageError)
    assert "is a single run; leave --seeds out" in str(done.exception)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not a run"):
        find_runs([tmp_path])
    (tmp_path / "config.yaml").write_text("family: gpt\n")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="has no evaluation yet"):
        group_runs(find_runs([tmp_path]))


def write_run(path: Path, config: dict[str, Any], loss: float, kind: str = "pretrain") -> Path:
    """Write the files of a run that a comparison reads."""
    path.mkdir()
    (path / "config.yaml").write_text(json.dumps({"family": "bert", **config}))
    (path / "run.json").write_text(json.dumps({"kind": kind}))
    record = {"step": 1, "split": "validation", "loss": loss, "losses": {}, "metrics": {}}
    (path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    return path


def test_losses_of_different_objectives_are_rows_or_tables_of_their_own(tmp_path: Path) -> None:
    distilled = {"objective": "masked-lm", "terms": {}}
    paths = [
        write_run(tmp_path / "a", {"objective": "masked-lm"}, 4.67),
        write_run(tmp_path / "b", distilled, 39.22, "distill"),
        write_run(tmp_path / "c", {"task": "sentence-embedding", "task_args": {"loss": "x"}}, 1.5),
    ]
    shown = CliRunner().invoke(compare, list(map(str, paths)), catch_exceptions=False).stdout
    pretrained, _, tuned = shown.partition("sentence-embedding")
    cells = [re.split("  +", line) for line in pretrained.splitlines()]
    assert cells[:3] == [
        ["masked-lm", "a", "b"],
        ["loss (masked-lm)", "4.67"],
        ["loss (masked-lm, distillation)", "39.22"],
    ]
    assert [line.split() for line in tuned.splitlines()][:2] == [["c"], ["loss", "1.5"]]
    write_run(tmp_path / "d", {"objective": "masked-lm", "seq_len": 64}, 4.9)
    alike = CliRunner().invoke(compare, [str(paths[0]), str(tmp_path / "d")]).stdout.splitlines()
    assert [line.split() for line in alike[:2]] == [
        ["masked-lm", "a", "d"],
        ["loss", "4.67", "4.9"],
    ]
    assert alike[-2:] == ["d differs from a in", "  seq_len: None and 64"]


def test_each_task_has_its_table_and_its_panel_of_the_figure(tmp_path: Path) -> None:
    """Metrics and losses of one name are other quantities."""
    paths = []
    for name, task, value in (
        ("a", "text-classification", 0.91),
        ("b", "token-classification", 0.97),
    ):
        paths.append(str(write_run(tmp_path / name, {"task": task}, 0.5, "finetune")))
        record = {"step": 1, "split": "validation", "loss": 0.5, "losses": {}}
        record["metrics"] = {"accuracy": value}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    figure = tmp_path / "figure.svg"
    shown = (
        CliRunner()
        .invoke(compare, [*paths, "--figures", str(figure)], catch_exceptions=False)
        .stdout
    )
    tables = [[line.split() for line in part.splitlines()] for part in shown.split("\n\n")]
    assert tables[0][:3] == [["text-classification", "a"], ["loss", "0.5"], ["accuracy", "0.91"]]
    assert tables[1][:3] == [["token-classification", "b"], ["loss", "0.5"], ["accuracy", "0.97"]]
    drawn = figure.read_text()
    assert drawn.count("<g transform") == 2
    assert "text-classification: validation loss" in drawn
    assert "token-classification: validation loss" in drawn


def test_many_runs_are_compared_in_tables_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"a-run-with-a-long-name-{number}" for number in range(6)]
    paths = [str(write_run(tmp_path / n, {"objective": "masked-lm"}, 4.0)) for n in names]
    for path, size in zip(paths, range(6), strict=True):
        (Path(path) / "config.yaml").write_text(
            json.dumps({"family": "bert", "objective": "masked-lm", "hidden_size": size})
        )
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(compare, paths, catch_exceptions=False).stdout.splitlines()
    headers = [line.split() for line in shown if line.startswith("masked-lm")]
    assert [name for header in headers for name in header[1:]] == names
    assert [line for line in shown if len(line) > 80] == []


def test_the_report_has_the_metric_that_selects_the_best_evaluation(tmp_path: Path) -> None:
    settings = {"metric_for_best_model": "accuracy", "greater_is_better": True}
    run = write_run(tmp_path / "a", {"task": "text-classification", **settings}, 0.5, "finetune")
    record = {"step": 1, "split": "validation", "loss": 0.5, "losses": {}}
    (run / "metrics.jsonl").write_text(
        json.dumps({**record, "metrics": {"accuracy": 0.875}}) + "\n"
    )
    page = re.sub(r"<[^>]+>|\s+", " ", write_report(run).read_text())
    assert re.search(r"accuracy +0\.8750 +the best, at step 1", page), page


def test_the_command_that_resumes_a_run_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", {"task": "text-classification"}, 1.0, "finetune")
    (path / "metrics.jsonl").unlink()
    with pytest.raises(UsageError, match="zoo finetune --resume"):
        group_runs([path])
    with pytest.raises(SourceError, match=r"`zoo pretrain`, `zoo finetune` or `zoo distill`"):
        find_runs([tmp_path / "none"])


def test_curves_without_common_steps_are_not_drawn(tmp_path: Path) -> None:
    paths = [str(write_run(tmp_path / f"s{seed}", {"seed": seed}, 1.0)) for seed in (1, 2)]
    second = tmp_path / "s2" / "metrics.jsonl"
    second.write_text(second.read_text().replace('"step": 1', '"step": 2'))
    done = CliRunner().invoke(compare, [*paths, "--figures", str(tmp_path / "figure.svg")])
    assert isinstance(done.exception, UsageError)
    assert "different seeds have no evaluations at the same steps" in str(done.exception)


def test_a_figure_that_is_not_svg_is_refused(runs: Path) -> None:
    done = CliRunner().invoke(compare, [str(runs), "--figures", "figure.png"])
    assert isinstance(done.exception, UsageError)
    assert "figure.png: figures are written as SVG" in str(done.exception)
