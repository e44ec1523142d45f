"""What goes wrong in a run is one line with the documented exit code, and nothing is lost."""

from pathlib import Path

import pytest
import torch

from tests.disks import small_disk
from tests.training.runs import finish, options, records, small, train, tree
from zoo.errors import UsageError, VerificationError
from zoo.training.feed import Feed
from zoo.training.job import corpus_rows, prepare
from zoo.training.lesson import Lesson
from zoo.training.loop import Trainer
from zoo.training.ranks import Ranks
from zoo.training.start import begin
from zoo.training.state import checkpoints, load

__all__ = ["small_disk"]
pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"


def refusal(*arguments: str, code: int) -> str:
    done = finish(*arguments)
    assert done.returncode == code, done.stderr
    assert not done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr and last.startswith("error: ")
    return last


def texts(folder: Path, content: bytes) -> str:
    path = folder / "text.txt"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", 4, "there is no text in"),
        (b" \n\n \n", 4, "there is no text in"),
        (b"caf\xe9 au lait\n" * 50, 3, "is not UTF-8: byte 3"),
        (b"Only a few words.\n\nAnd a few more.\n", 2, "a batch has"),
    ],
    ids=["empty", "blank", "not UTF-8", "less than a batch"],
)
def test_a_corpus_that_does_not_do(tmp_path: Path, content: bytes, code: int, said: str) -> None:
    run = tmp_path / "run"
    arguments = [FAMILY, *options(), "--data", texts(tmp_path, content), "-o", str(run)]
    assert said in refusal(*arguments, code=code)
    assert not run.exists()


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    refusal(FAMILY, "--data", str(tmp_path / "nowhere"), "-o", str(tmp_path / "run"), code=4)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("optimizer.learning_rat=1", "did you mean learning_rate"),
        ("step=5", "did you mean steps"),
        ("config.num_layer=2", "did you mean num_layers"),
        ("steps=many", "steps"),
        ("optimizer.clip=-1", "clip is -1"),
        ("batch_tokens=8", "batch_tokens is 8"),
        ("config.vocab_size=7", "config.vocab_size is 7"),
        ("config.max_positions=16", "the model has 16 positions"),
        ("size=huge", "has no size 'huge'"),
        ("objective=masked-lmm", "did you mean masked-lm"),
        ("objective=masked-lm", "has no head 'masked-lm'"),
        ("nonsense", "is not key=value"),
    ],
)
def test_a_setting_that_does_not_do(tmp_path: Path, assignment: str, said: str) -> None:
    run = tmp_path / "run"
    line = refusal(FAMILY, *options(), "--set", assignment, "-o", str(run), code=2)
    assert said in line
    assert not run.exists()


def test_a_family_that_is_not_there() -> None:
    assert "gpt" in refusal("gtp", code=2)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert "--resume" in refusal(FAMILY, "-o", str(tmp_path / "run"), code=2)


def test_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert "is not a run" in refusal("--resume", str(tmp_path), code=4)


def test_infinity_stops_a_run_and_the_last_checkpoint_is_good(tmp_path: Path) -> None:
    run = tmp_path / "run"
    steep = {"optimizer": {"learning_rate": 1e38, "clip": None}, "save_every": 1}
    with pytest.raises(VerificationError, match=r"step \d+: not a finite number, first in the "):
        train(run, FAMILY, **steep)
    kept = checkpoints(run)
    assert kept
    _, groups = load(list(kept.values())[-1])
    assert all(record["loss"] < float("inf") for record in records(run))
    assert groups["weights"]


def test_the_layer_is_named() -> None:
    """A weight of the second block is set to infinity, and its block is the first to show it."""
    job = prepare(small(FAMILY))
    lesson = Lesson(job.objective, job.objective.learner(job.family, job.config))
    rows = corpus_rows(job, "train", 4)
    feed = Feed(job.objective, rows, seed=0, per_step=4, per_micro=4)
    trainer = Trainer(lesson, job.settings, Ranks(0, 1, torch.device("cpu")), feed.micros)
    with torch.no_grad():
        lesson.learner.get_parameter("layers.1.ffn.up.bias").fill_(float("inf"))
    with pytest.raises(VerificationError, match=r"step 1: .* the weights layers\.1\.ffn\.up\.bias"):
        trainer.update(feed.make(0))
    with torch.no_grad():
        lesson.learner.get_parameter("layers.1.ffn.up.bias").fill_(3e38)
        lesson.learner.get_parameter("layers.1.ffn.up.weight").fill_(3e38)
    with pytest.raises(VerificationError, match=r"the output of layers\.1\.ffn"):
        trainer.update(feed.make(0))
    feed.close()


def test_a_full_disk_while_saving(small_disk: Path) -> None:
    run = small_disk / "run"
    line = refusal(FAMILY, *options(), "-o", str(run), code=2)
    assert "No space left on device" in line
    assert not list(run.glob("checkpoints/.*"))


def test_rows_that_do_not_split_over_processes() -> None:
    with pytest.raises(UsageError, match="4 rows a step do not split into 3 processes"):
        begin(tree(FAMILY), {}, Path("nowhere"), Ranks(0, 3, torch.device("cpu")))
