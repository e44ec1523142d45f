"""Failures of runs: an error of one line, the documented exit code, and intact checkpoints."""

import shutil
from pathlib import Path

import pytest
import torch

from tests import warm
from tests.disks import small_disk
from tests.training.runs import SMALL, options, records, run_training, small, tensors, tree
from zoo.errors import UsageError, VerificationError
from zoo.training.config.overrides import parse_override, read_config_file
from zoo.training.config.schema import pretrain_config
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.run import PretrainRun
from zoo.training.setup import build_dataset, pretrain_setup
from zoo.training.state.progress import list_checkpoints
from zoo.training.trainer import Trainer

__all__ = ["small_disk"]
pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"


def refusal(*arguments: str, code: int, device: str = "cpu") -> str:
    done = warm.zoo("pretrain", "--device", device, *arguments)
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
    ("content", "code", "message"),
    [
        (b"", 4, "there is no text in"),
        (b" \n\n \n", 4, "there is no text in"),
        (b"caf\xe9 au lait\n" * 50, 3, "is not UTF-8: byte 3"),
        (b"Only a few words.\n\nAnd a few more.\n", 2, "a batch has"),
    ],
    ids=["empty", "blank", "not UTF-8", "less than a batch"],
)
def test_a_corpus_that_does_not_do(tmp_path: Path, content: bytes, code: int, message: str) -> None:
    run = tmp_path / "run"
    arguments = [FAMILY, *options(data=None), "--train", texts(tmp_path, content), "-o", str(run)]
    assert message in refusal(*arguments, code=code)
    assert not run.exists()


@pytest.mark.parametrize("name", ["train/tokens-00000.bin", "tokenizer.json", "corpus.json"])
def test_a_corpus_that_was_changed_is_refused_before_the_first_step(
    tmp_path: Path, name: str
) -> None:
    """Reordered tokens change neither the file size nor the set of ids."""
    corpus = tmp_path / "corpus"
    shutil.copytree(pretrain_setup(small(FAMILY)).corpus.path, corpus)
    content = bytearray((corpus / name).read_bytes())
    content[100:102], content[102:104] = content[102:104], content[100:102]
    (corpus / name).write_bytes(content)
    run = tmp_path / "run"
    line = refusal(FAMILY, *options(data=None), "--train", str(corpus), "-o", str(run), code=3)
    assert str(corpus / name) in line
    assert not run.exists()


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    refusal(FAMILY, "--train", str(tmp_path / "nowhere"), "-o", str(tmp_path / "run"), code=4)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("optimizer.learning_rat=1", "did you mean learning_rate"),
        ("max_step=5", "did you mean max_steps"),
        ("config.num_layer=2", "did you mean num_layers"),
        ("max_steps=many", "max_steps"),
        ("ema_decay=2", "ema_decay is 2"),
        ("seed=99999999999999999999", "seed is 99999999999999999999"),
        ("optimizer.max_grad_norm=-1", "max_grad_norm is -1"),
        ("global_batch_tokens=8", "global_batch_tokens is 8"),
        ("config.vocab_size=7", "config.vocab_size is 7"),
        ("config.max_positions=16", "the model has 16 positions"),
        ("size=huge", "has no size 'huge'"),
        ("objective=masked-lmm", "did you mean masked-lm"),
        ("objective=masked-lm", "has no head 'masked-lm'"),
        ("nonsense", "is not key=value"),
        ("vocab_size=1000000000", "vocab_size is 1000000000, and 1 to 4,000,000"),
        ("seq_len=1000000000", "seq_len is 1000000000, and 1 to 1,048,576"),
        ("global_batch_tokens=1000000000000", "global_batch_tokens is 1000000000000, and 1 to"),
        ("eval_sequences=-1", "eval_sequences is -1"),
        ("config.num_layers=1000000000", "num_layers"),
        ("config.hidden_size=1000000000", "GiB"),
        ("config.max_positions=1000000000", "parameters with these settings, which take"),
        ("config=5", "config"),
        ("data.paths=[[1]]", "paths"),
        ('data.paths=["a\\0b"]', "settings"),
        ("optimizer.learning_rate=.nan", "learning_rate"),
    ],
)
def test_a_setting_that_does_not_do(tmp_path: Path, assignment: str, message: str) -> None:
    run = tmp_path / "run"
    key = assignment.partition("=")[0]
    others = [option for option in options() if not option.startswith(f"--set={key}=")]
    line = refusal(FAMILY, *others, "--set", assignment, "-o", str(run), code=2)
    assert message in line
    assert not run.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("family: gtp", "did you mean gte or gpt"),
        ("max_steps: many", "max_steps: Expected `int`, got `str`"),
        ("size: {tiny: 1}", "size is {'tiny': 1}"),
        ("seq_len: long", "seq_len is 'long'"),
        ("objective: [1]", "objective is [1]"),
        ("optimizer: {betas: 1}", "betas"),
        ("lr_scheduler: 3", "lr_scheduler is 3, not a table"),
        ("config: {num_layers: [1]}", "num_layers"),
        ("nonsense: 1", "no setting nonsense"),
    ],
)
def test_a_file_of_settings_that_does_not_do_is_named(
    tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "settings.yaml"
    start = "" if line.startswith("family") else f"family: {FAMILY}\n"
    file.write_text(f"{start}{line}\n")
    # the corpus of the package, which is the default, takes long to tokenize
    data = ("--train", *SMALL["data"]["paths"])
    refused = refusal(str(file), *data, "-o", str(tmp_path / "run"), code=2)
    assert str(file) in refused and message in refused


def test_a_family_that_is_not_there() -> None:
    assert "gpt" in refusal("gtp", code=2)


@pytest.mark.parametrize("name", ["cudda", "mps", "cuda:99"])
def test_a_device_that_is_not_there(tmp_path: Path, name: str) -> None:
    line = refusal(FAMILY, "-o", str(tmp_path / "run"), code=2, device=name)
    assert name in line or "CUDA is not available" in line


@pytest.mark.parametrize("number", ["5e-4", "5E-04", "+5.e-4", "0.5e-3", "5.0e-4", "0.0005"])
def test_numbers_may_be_written_as_usual(tmp_path: Path, number: str) -> None:
    (tmp_path / "settings.yaml").write_text(f"family: gpt\noptimizer:\n  learning_rate: {number}\n")
    override = parse_override(f"optimizer.learning_rate={number}")
    for values in ({"family": "gpt", **override}, read_config_file(tmp_path / "settings.yaml")):
        assert pretrain_config(values, {}).optimizer.learning_rate == 0.0005
    assert parse_override("a=5e") == {"a": "5e"} and parse_override("a=12") == {"a": 12}


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert "--resume" in refusal(FAMILY, "-o", str(tmp_path / "run"), code=2)


def test_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert "is not a run" in refusal("--resume", str(tmp_path), code=4)


def test_infinity_stops_a_run_and_the_last_checkpoint_is_good(tmp_path: Path) -> None:
    """The second update overflows, which the loss shows only in the third step."""
    run = tmp_path / "run"
    steep = {"optimizer": {"learning_rate": 3e38, "max_grad_norm": None}, "save_steps": 1}
    with pytest.raises(VerificationError, match=r"step 2: .*, first in the weights embeddings"):
        run_training(run, FAMILY, **steep)
    assert list(list_checkpoints(run)) == [1]
    groups = tensors(list_checkpoints(run)[1])
    weights = groups["weights"]
    assert [name for name, weight in weights.items() if not weight.isfinite().all()] == []
    assert [record for record in records(run) if not record["loss"] < float("inf")] == []


def test_infinity_in_validation_stops_a_run(tmp_path: Path) -> None:
    """The weights are finite, but the activations overflow."""
    steep = {"optimizer": {"learning_rate": 1e20, "max_grad_norm": None}, "eval_steps": 1}
    with pytest.raises(VerificationError, match=r"step 1: .* first in the output of layers\.0"):
        run_training(tmp_path / "run", FAMILY, **steep, lr_scheduler={"warmup_steps": 0})


def test_the_layer_is_named() -> None:
    """A weight of the second block is infinite, and the error names this block."""
    setup = pretrain_setup(small(FAMILY))
    loss_module = LossModule(
        setup.objective, setup.objective.model(setup.family, setup.model_config)
    )
    rows = build_dataset(setup, "train", 4)
    feed = BatchLoader(setup.objective, rows, seed=0, global_batch_size=4, micro_batch_size=4)
    trainer = Trainer(loss_module, setup.config, DistContext(0, 1, torch.device("cpu")), feed)
    with torch.no_grad():
        loss_module.model.get_parameter("layers.1.ffn.up.bias").fill_(float("inf"))
    with pytest.raises(VerificationError, match=r"step 1: .* the weights layers\.1\.ffn\.up\.bias"):
        trainer.train_step(feed.make_batches(0))
    with torch.no_grad():
        loss_module.model.get_parameter("layers.1.ffn.up.bias").fill_(3e38)
        loss_module.model.get_parameter("layers.1.ffn.up.weight").fill_(3e38)
    with pytest.raises(VerificationError, match=r"the output of layers\.1\.ffn"):
        trainer.train_step(feed.make_batches(0))
    feed.close()


@pytest.mark.by_default("during training")
@pytest.mark.parametrize("save_steps", [3, 12], ids=["during training", "at its end"])
def test_a_full_disk_while_saving(small_disk: Path, save_steps: int) -> None:
    run = small_disk / "run"
    wide = {"config": {"hidden_size": 128, "intermediate_size": 512}}  # fills the disk
    line = refusal(FAMILY, *options(**wide, save_steps=save_steps), "-o", str(run), code=2)
    assert "No space left on device" in line
    assert "nothing was left behind" not in line
    assert f"{run} has no checkpoint yet, and its log" in line
    assert f"`zoo pretrain --resume {run}` resumes it" in line
    assert not list(run.glob("checkpoints/.*"))


@pytest.mark.long
def test_a_full_disk_while_two_processes_save(small_disk: Path) -> None:
    """The main process reports the error, also if the other one's disk is full."""
    run = small_disk / "run"
    wide = {"config": {"hidden_size": 128, "intermediate_size": 512}}
    words = ["pretrain", "--device", "cpu", FAMILY, "--fsdp", *options(**wide), "-o", run]
    done = warm.in_processes(2, *words)
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "No space left on device" in errors[0]
    assert f"{run} has no checkpoint yet" in errors[0]
    assert "Traceback" not in done.stderr
    assert not list(run.glob("checkpoints/.*"))


def test_rows_that_do_not_split_over_processes() -> None:
    with pytest.raises(UsageError, match="4 rows a step do not split into 3 processes"):
        PretrainRun(tree(FAMILY), DistContext(0, 3, torch.device("cpu")), Path("nowhere")).start()
