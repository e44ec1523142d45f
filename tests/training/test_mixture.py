"""Runs on several sources: rows, losses of each, kills, other numbers of processes, bad input."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from blake3 import blake3
from click.testing import CliRunner
from msgspec import UNSET
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tests import warm
from tests.training.cases import dry, marked_cases
from tests.training.runs import (
    BOOKS,
    SMALL,
    assert_resumes_from,
    assert_same,
    cut,
    finish_in_two_processes,
    records,
    width_of,
)
from zoo.cli.models.info import command as info
from zoo.cli.training.pretrain import command as pretrain
from zoo.data.build import CorpusSpec, build
from zoo.data.order import EpochOrder
from zoo.data.rng import generator
from zoo.data.tokenizer import TokenizerToTrain
from zoo.errors import SourceError, UsageError
from zoo.inspection.examples import show_examples
from zoo.objectives.base import SOURCE_IDS, Batch
from zoo.plugins import get_family
from zoo.training.checks import check_resume
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import TrainConfig, pretrain_config
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.mixed_dataset import MixedDataset
from zoo.training.run import PretrainRun
from zoo.training.setup import PretrainSetup, build_dataset, pretrain_setup
from zoo.training.state.run_manifest import read_manifest
from zoo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_home")
HERE = DistContext(0, 1, torch.device("cpu"))
ALICE = str(BOOKS / "alice.txt")
GLASS = str(BOOKS / "looking_glass.txt")
SOURCES: dict[str, Any] = {
    "alice": {"paths": [ALICE], "eval_paths": [GLASS], "weight": 0.75},
    "glass": {"paths": [GLASS], "eval_paths": [ALICE], "weight": 0.25},
}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
STATEFUL = ("bidirectional-lm", "permutation-lm")


def tree(family: str, **changes: Any) -> dict[str, Any]:
    """Return the small settings with two sources."""
    settings = {name: value for name, value in SMALL.items() if name != "data"}
    base = {"family": family, "config": width_of(family), "data": {"sources": SOURCES}}
    return deep_merge(settings, base, changes)


def small(family: str, **changes: Any) -> TrainConfig:
    return pretrain_config(tree(family, **changes), {})


def train(path: Path, **changes: Any) -> Path:
    PretrainRun(tree("gpt", **changes), HERE, path).start()
    return path


def loaders(setup: PretrainSetup, world_size: int) -> list[BatchLoader]:
    contexts = [DistContext(rank, world_size, HERE.device) for rank in range(world_size)]
    return [setup.train_dataloader(context) for context in contexts]


def step_digest(batches: list[Batch]) -> str:
    """Return a digest of the token ids of the rows of a step."""
    ids = torch.cat([batch.tensors["input_ids"] for batch in batches])
    return blake3(ids.numpy().tobytes()).hexdigest()


def test_all_processes_together_read_the_rows_of_one() -> None:
    """Digests of the token ids of each step, with 1, 2 and 4 processes, begun at any step.

    The rows are those of a loop over the sources, each of which counts its own rows.
    """
    setup = pretrain_setup(small("gpt"))
    one = loaders(setup, 1)[0]
    expected = [step_digest(one.make_batches(step)) for step in range(12)]
    assert len(set(expected)) == 12
    for world_size in (2, 4):
        processes = loaders(setup, world_size)
        for step in (11, 3, 7, 0):  # as after kills
            batches = [batch for loader in processes for batch in loader.make_batches(step)]
            assert step_digest(batches) == expected[step]
            counted: dict[str, int] = {}
            for batch in batches:
                for name, part in batch.sources.items():
                    counted[name] = counted.get(name, 0) + part.rows
            assert counted == {"alice": 3, "glass": 1}
    dataset = one.dataset
    assert isinstance(dataset, MixedDataset)
    order = setup.row_order(dataset, setup.objective)
    naive = []
    for step in range(12):
        rows = []
        for place in range(4):
            index = order[4 * step + place]
            name = "alice" if index < dataset.sizes["alice"] else "glass"
            row = index - (0 if name == "alice" else dataset.sizes["alice"])
            split = setup.sources[name].split("train")
            rows_of_source = setup.objective.dataset(split, setup.config.seed)
            example = rows_of_source.example(row, generator(0, "train", step, place))
            rows.append(example.arrays["input_ids"])
        naive.append(blake3(np.stack(rows).tobytes()).hexdigest())
    assert naive == expected


def test_shorter_rows_of_a_warmup_are_mixed_alike() -> None:
    """Both stages have exact shares, and a curriculum changes them inside of either."""
    warmup = {"seq_len": 32, "fraction": 0.5, "keep": "rows"}
    curriculum = [
        {"step": 4, "weights": {"alice": 0.5, "glass": 0.5}},
        {"step": 10, "weights": {"alice": 0.0, "glass": 1.0}},
    ]
    config = small("gpt", seq_len_warmup=warmup, data={"curriculum": curriculum}, max_steps=16)
    loader = pretrain_setup(config).train_dataloader(HERE)
    shares = []
    for step in range(16):
        batches = loader.make_batches(step)
        length = 32 if step < 8 else 64
        assert {batch.tensors["input_ids"].shape[1] for batch in batches} == {length}
        shares.append(sum(batch.sources["alice"].rows for batch in batches) / 4)
    assert shares == [0.75] * 4 + [0.5] * 6 + [0.0] * 6


def source_losses(
    trainer: Trainer, batch: Batch, dataset: MixedDataset, loader: BatchLoader
) -> dict[str, dict[str, float]]:
    """Return the losses of each source by a batch of only its rows."""
    losses: dict[str, dict[str, float]] = {}
    module = trainer.loss_module
    for name in dataset.datasets:
        number = list(dataset.datasets).index(name)
        places = []
        for place, source in enumerate(batch.tensors[SOURCE_IDS].tolist()):
            if source == number:
                places.append(place)
        part = loader.make_batch(0, places)
        assert part.rows == batch.sources[name].rows
        tensors = {key: value for key, value in part.tensors.items() if key != SOURCE_IDS}
        output = module(tensors)
        losses[name] = {
            term: total.item() / part.counts[term] for term, total in output.sums.items()
        }
    return losses


@pytest.mark.by_default("bert-masked-lm+next-sentence", "gpt", "t5-span-corruption")
@pytest.mark.parametrize(("family", "objective"), list(marked_cases()))
def test_losses_of_each_source(family: str, objective: str) -> None:
    """Of each objective: they equal those of batches of one source, and add up to the total."""
    if objective in STATEFUL:
        with pytest.raises(UsageError, match="cannot be mixed"):
            pretrain_setup(small(family, objective=objective))
        return
    setup = pretrain_setup(dry(small(family, objective=objective)))
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config).double()
    dataset = build_dataset(setup, "train", 4)
    order = setup.row_order(dataset, setup.objective)
    loader = BatchLoader(
        setup.objective, dataset, seed=0, global_batch_size=4, micro_batch_size=4, order=order
    )
    trainer = Trainer(LossModule(setup.objective, model), setup.config, HERE, loader)
    batches = loader.make_batches(0)
    (batch,) = batches
    expected = source_losses(trainer, batch, dataset, loader)
    sums = trainer.forward_backward(batches)
    loader.close()
    weights = trainer.loss_weights
    record = sums.compute(weights)
    parts = record["sources"]
    assert {name: part["share"] for name, part in parts.items()} == {"alice": 0.75, "glass": 0.25}
    for name, part in parts.items():
        assert part["losses"] == pytest.approx(expected[name], rel=1e-6)
        total = sum(weights[term] * expected[name][term] for term in weights)
        assert part["loss"] == pytest.approx(total, rel=1e-6)
    for term in weights:
        mean = 0.0
        for name, part in parts.items():
            mean += part["losses"][term] * batch.sources[name].counts[term] / batch.counts[term]
        assert record["losses"][term] == pytest.approx(mean, rel=1e-6)
    # The total is the one without losses of sources, to the bit.
    tensors = {name: tensor for name, tensor in batch.tensors.items() if name != SOURCE_IDS}
    plain = trainer.loss_module(tensors)
    mixed = trainer.loss_module(batch.tensors)
    assert {name: total.item() for name, total in plain.sums.items()} == {
        name: total.item() for name, total in mixed.sums.items()
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    """A run of 12 steps on both sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return train(tmp_path_factory.mktemp("mixture") / "run")


def test_the_log_has_shares_and_losses_of_each_source(run: Path) -> None:
    """The validation loss is the sum of those of the sources, weighted by their shares."""
    for record in records(run):
        assert {n: part["share"] for n, part in record["sources"].items()} == {
            "alice": 0.75,
            "glass": 0.25,
        }
    for record in records(run, "validation"):
        alice, glass = (record["sources"][name]["loss"] for name in SOURCES)
        assert alice != glass
        assert record["loss"] == pytest.approx(0.75 * alice + 0.25 * glass, rel=1e-12)
    manifest = read_manifest(run)
    assert manifest.sources is not None
    assert manifest.mixture is not None
    assert list(manifest.sources) == ["alice", "glass"]
    (stage,) = manifest.mixture
    assert (stage.step, stage.rows, stage.counts) == (0, 0, {"alice": 3, "glass": 1})
    trained = json.loads((run / "model" / "zoo.json").read_bytes())["training"]["sources"]
    assert {name: source["share"] for name, source in trained.items()} == {
        "alice": 0.75,
        "glass": 0.25,
    }
    done = CliRunner().invoke(info, [str(run)])
    table = [line.split() for line in done.output.splitlines()]
    assert [row[1] for row in table if row[:1] == ["alice"]] == ["75.00%"]
    assert "validation loss of each source" in (run / "report.html").read_text().lower()


def test_a_resumed_run_ends_like_an_unbroken_one(run: Path, tmp_path: Path) -> None:
    assert_resumes_from(run, tmp_path, 9)


@pytest.mark.long
def test_a_killed_run_ends_like_an_unbroken_one() -> None:
    """Killed with SIGKILL at random times, and resumed: all files and tensors are equal."""
    changes = {"max_steps": 60, "logging_steps": 1, "eval_steps": 20, "save_steps": 5}
    check = check_resume(tree("gpt", **changes), kills=2, device="cpu")
    assert check.steps == 60


@pytest.mark.long
def test_another_number_of_processes_reads_the_same_rows(run: Path, tmp_path: Path) -> None:
    """A run of one process is resumed with two: losses and shares of each source are equal."""
    changes: dict[str, Any] = {"config": NO_DROPOUT, "max_steps": 6, "eval_steps": 3}
    one = train(tmp_path / "one", **changes)
    two = tmp_path / "two"
    copy_run(one, two, 3)
    finish_in_two_processes("pretrain", "--resume", str(two))
    for split in ("train", "validation"):
        pairs = zip(records(one, split), records(two, split), strict=True)
        for expected, record in pairs:
            assert record["loss"] == pytest.approx(expected["loss"], abs=1e-5)
            for name, part in record["sources"].items():
                expected_part = expected["sources"][name]
                assert part.get("share") == expected_part.get("share")
                assert part["loss"] == pytest.approx(expected_part["loss"], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("option", ["", "--fsdp"])
def test_four_processes_read_the_same_rows(option: str, tmp_path: Path) -> None:
    """Weights are equal to 1e-5 after a run of four processes, with DDP and with FSDP."""
    changes: dict[str, Any] = {"config": NO_DROPOUT, "max_steps": 6, "eval_steps": 3}
    # The gradient of a bias of keys is 0 but for rounding, which Adam would scale up.
    changes["optimizer"] = {"eps": 1e-4}
    one = train(tmp_path / "one", **changes)
    words = ["pretrain", "gpt", *command_options(**changes), "-o", str(tmp_path / "four")]
    done = warm.in_processes(4, *words, *option.split(), "--device", "cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    pairs = zip(records(one), records(tmp_path / "four"), strict=True)
    for expected, record in pairs:
        assert record["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        assert record["sources"]["alice"]["share"] == 0.75
    assert_close_weights(one, tmp_path / "four")


def command_options(**changes: Any) -> list[str]:
    """Return the settings of ``tree`` as options of the command line."""
    settings = tree("gpt", **changes)
    del settings["family"]
    return [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]


def assert_close_weights(first: Path, second: Path) -> None:
    weights = load_file(first / "model" / "model.safetensors")
    others = load_file(second / "model" / "model.safetensors")
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=0, atol=1e-5)


def copy_run(run: Path, target: Path, step: int) -> None:
    """Copy a run as it was when the checkpoint of a step was its last."""
    shutil.copytree(run, target)
    cut(target, step)


# A run that continues another one.

CONSTANT: dict[str, Any] = {
    "lr_scheduler": {"name": "constant", "warmup_steps": 0, "min_lr_ratio": 0.0}
}


def go_on(parent: Path, path: Path, **given: Any) -> Path:
    PretrainRun({}, HERE, path, given).continue_from(parent)
    return path


@pytest.mark.long
def test_a_continued_run_ends_like_one_of_all_steps(tmp_path: Path) -> None:
    """With the same weights, and with weights that a curriculum would have set at that step."""
    parent = train(tmp_path / "parent", max_steps=8, **CONSTANT)
    longer = go_on(parent, tmp_path / "longer", max_steps=12)
    ignored = ("run.json", "report.html", "checkpoints/step-0000000?/*")
    assert_same(train(tmp_path / "all", max_steps=12, **CONSTANT), longer, ignore=ignored)
    weights = {"alice": 0.5, "glass": 0.5}
    planned = [{"step": 8, "weights": weights}]
    expected = train(tmp_path / "planned", max_steps=12, data={"curriculum": planned}, **CONSTANT)
    sources = {name: {"weight": weight} for name, weight in weights.items()}
    changed = go_on(parent, tmp_path / "changed", max_steps=12, data={"sources": sources})
    assert records(changed) == records(expected)
    assert records(changed, "validation")[-1] == records(expected, "validation")[-1]
    stages = read_manifest(changed).mixture
    assert stages == read_manifest(expected).mixture
    assert stages is not None
    assert [(stage.step, stage.rows, stage.counts) for stage in stages] == [
        (0, 0, {"alice": 3, "glass": 1}),
        (8, 32, {"alice": 1, "glass": 1}),
    ]


@pytest.mark.long
def test_a_source_is_added_where_a_run_continues(tmp_path: Path) -> None:
    """The manifest says from which step, the tokenizer stays, and positions of the others too."""
    parent = train(tmp_path / "parent", max_steps=4, **CONSTANT)
    poem = tmp_path / "poem.txt"
    poem.write_text("".join(f"line {n} of the poem\n\n" for n in range(400)))
    sources = {
        "alice": {"weight": 0.25},
        "glass": {"weight": 0.25},
        "poem": {"paths": [str(poem)], "weight": 0.5},
    }
    child = go_on(
        parent,
        tmp_path / "child",
        max_steps=10,
        data={"sources": sources},
        global_batch_tokens=512,
    )
    manifest = read_manifest(child)
    assert manifest.mixture is not None
    assert [(stage.step, stage.rows, stage.counts) for stage in manifest.mixture] == [
        (0, 0, {"alice": 3, "glass": 1}),
        (4, 16, {"alice": 1, "glass": 1, "poem": 2}),
    ]
    assert (child / "tokenizer.json").read_bytes() == (parent / "tokenizer.json").read_bytes()
    shares = [record["sources"]["poem"]["share"] for record in records(child)[4:]]
    assert shares == [0.5] * 6
    setup = pretrain_setup(
        pretrain_config(yaml.safe_load((child / "config.yaml").read_text()), {}),
        resumed=(child, manifest),
    )
    loader = setup.train_dataloader(HERE)
    loader.start_at(4, 16)
    dataset = loader.dataset
    assert isinstance(dataset, MixedDataset)
    # The next row of each source is the one after those that the parent has read.
    order = EpochOrder("keyed", dataset.sizes["alice"], 0, "alice")
    indices = [loader.index(4, place) for place in range(8)]
    rows_of_alice = [index for index in indices if dataset.source_number(index) == 0]
    assert rows_of_alice == [order[12], order[13]]
    # A killed child goes on alike.
    assert_resumes_from(child, tmp_path / "again", 9)
    # A grandchild keeps the history, and may leave a source out.
    grandchild = go_on(
        child,
        tmp_path / "grandchild",
        max_steps=12,
        data={"sources": {"poem": {"weight": 0.0}, "alice": {"weight": 0.75}}},
    )
    stages = read_manifest(grandchild).mixture
    assert stages is not None
    assert [(stage.step, stage.rows) for stage in stages] == [(0, 0), (4, 16), (10, 64)]


@pytest.mark.long
def test_moved_sources_are_named_when_a_run_is_resumed(tmp_path: Path) -> None:
    text = Path(ALICE).read_text()
    here = tmp_path / "here.txt"
    here.write_text(text)
    sources = {"alice": {"paths": [str(here)]}}
    whole = train(tmp_path / "whole", max_steps=6, data={"sources": sources})
    stopped = tmp_path / "stopped"
    copy_run(whole, stopped, 3)
    here.rename(tmp_path / "there.txt")
    words = ["--resume", str(stopped), "--device", "cpu"]
    done = CliRunner().invoke(pretrain, words)
    assert isinstance(done.exception, SourceError)
    assert done.exception.hint == f"if {here} has moved, name it by --train alice=PATH"
    done = CliRunner().invoke(pretrain, [*words, "--train", f"alice={tmp_path / 'there.txt'}"])
    assert done.exception is None, done.output
    assert (stopped / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


# The plan, and bad input.


def test_the_plan_says_how_often_each_source_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning of many passes; the numbers are worked by hand."""
    setup = pretrain_setup(small("gpt", max_steps=400))
    tokens = {name: corpus.record.splits["train"].tokens for name, corpus in setup.sources.items()}
    read = 400 * 256
    passes = {"alice": 0.75 * read / tokens["alice"], "glass": 0.25 * read / tokens["glass"]}
    assert setup.source_passes(400) == pytest.approx(passes)
    plan = setup.plan()
    for name, share in (("alice", "75.00%"), ("glass", "25.00%")):
        line = f"{share} of the tokens, {passes[name]:.3g} passes over {tokens[name]:,} tokens"
        assert plan[f"source {name}"].startswith(line)
    assert passes["alice"] > 4 > 0.25
    (warning, other) = setup.warnings()
    assert warning.startswith(f"the run reads the source alice {passes['alice']:,.3g} times")
    assert "glass" in other


def test_epochs_and_temperature_follow_from_sizes() -> None:
    """Of the mixture of a run; ``--epochs 1`` then makes the passes that are set."""
    sources = {name: {**source, "weight": UNSET} for name, source in SOURCES.items()}
    for source in sources.values():
        del source["weight"]
    by_epochs = deep_merge(sources, {"alice": {"epochs": 1}, "glass": {"epochs": 3}})
    values = tree("gpt")
    values["data"] = {"sources": by_epochs, "mixing": "epochs"}
    setup = pretrain_setup(pretrain_config(values, {}))
    ratio = setup.source_passes(12)
    assert ratio["glass"] / ratio["alice"] == pytest.approx(3, rel=2e-3)
    values["data"] = {"sources": sources, "mixing": "temperature", "temperature": 2.0}
    setup = pretrain_setup(pretrain_config(values, {}))
    sizes = [corpus.record.splits["train"].tokens for corpus in setup.sources.values()]
    expected = sizes[0] ** 0.5 / (sizes[0] ** 0.5 + sizes[1] ** 0.5)
    assert setup.source_shares()["alice"] == pytest.approx(expected, abs=1e-4)
    values["data"] = {"sources": sources}  # In proportion to the sizes.
    setup = pretrain_setup(pretrain_config(values, {}))
    # Its tokenizer is trained on texts with other shares.
    sizes = [corpus.record.splits["train"].tokens for corpus in setup.sources.values()]
    assert setup.source_shares()["alice"] == pytest.approx(sizes[0] / sum(sizes), abs=1e-4)


BAD_INPUT = {
    "sum": (
        ["--weight", "alice=0.5", "--weight", "glass=0.4"],
        "data.sources: the weights of alice, glass add up to 0.9, and not to 1; in these "
        "proportions, they are alice=0.5556, glass=0.4444",
    ),
    "missing": (
        ["--weight", "alice=0.5"],
        "data.sources: alice has a weight, and glass has none; --weight glass=SHARE, so that all "
        "add up to 1",
    ),
    "unknown": (
        ["--weight", "alice=0.5", "--weight", "glas=0.5"],
        "the source glas has no training text; did you mean glass?",
    ),
    "twice": (["--weight", "alice=0.5", "--weight", "alice=0.5"], "--weight alice is given twice"),
    "number": (["--weight", "alice"], "--weight 'alice' is not the weight of a source"),
    "unnamed": (
        ["--train", ALICE],
        f"{ALICE} has no name, and data.sources names alice, glass; give each path a name: "
        "--train NAME=PATH, --eval NAME=PATH",
    ),
    "epochs": (
        ["--set", "data.sources.alice.epochs=2"],
        "data.sources.alice.epochs is set, and data.mixing is tokens; --set data.mixing=epochs",
    ),
    "temperature": (
        ["--set", "data.temperature=2"],
        "data.temperature is set, and data.mixing is tokens; --set data.mixing=temperature",
    ),
    "curriculum": (
        ["--set", "data.curriculum=[{step: 3, weights: {alice: 0.5, web: 0.5}}]"],
        "data.curriculum, step 3: there is no source web; there are alice, glass",
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line(name: str, tmp_path: Path) -> None:
    words, message = BAD_INPUT[name]
    named = ["--train", f"alice={ALICE}", "--train", f"glass={GLASS}"]
    done = CliRunner().invoke(pretrain, ["gpt", *named, *words, "-o", str(tmp_path / "run")])
    assert isinstance(done.exception, UsageError)
    error = done.exception
    assert f"{error.what}; {error.hint}".startswith(message)
    assert not (tmp_path / "run").exists()


def test_weights_need_names(tmp_path: Path) -> None:
    words = ["gpt", "--train", ALICE, "--weight", "alice=1", "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(pretrain, words)
    assert isinstance(done.exception, UsageError)
    assert "has no name" in done.exception.what


def test_different_tokenizers_and_empty_sources_are_refused(tmp_path: Path) -> None:
    small_corpus = tmp_path / "small"
    large_corpus = tmp_path / "large"
    for path, size in ((small_corpus, 300), (large_corpus, 400)):
        tokenizer = TokenizerToTrain.for_family(get_family("gpt"), vocab_size=size)
        build(CorpusSpec([ALICE], tokenizer, eval_fraction=0.1), path)
    values = tree("gpt")
    values["data"] = {
        "sources": {"a": {"paths": [str(small_corpus)]}, "b": {"paths": [str(large_corpus)]}}
    }
    with pytest.raises(UsageError) as caught:
        pretrain_setup(pretrain_config(values, {}))
    assert caught.value.what.startswith("the sources a and b have different tokenizers")
    assert f"--tokenizer {small_corpus}" in caught.value.hint
    # A built corpus decides the tokenizer of a source of text.
    values["data"] = {"sources": {"a": {"paths": [str(small_corpus)]}, "text": {"paths": [GLASS]}}}
    setup = pretrain_setup(pretrain_config(values, {}))
    assert setup.sources["text"].record.vocab_size == setup.sources["a"].record.vocab_size
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    values["data"] = {"sources": {"a": {"paths": [GLASS]}, "none": {"paths": [str(empty)]}}}
    with pytest.raises(SourceError, match="no text"):
        pretrain_setup(pretrain_config(values, {}))


def test_examples_show_the_first_rows_of_the_mixture() -> None:
    setup = pretrain_setup(small("gpt"))
    sources = [example.source for example in show_examples(setup, 4)]
    assert sorted(sources) == ["alice", "alice", "alice", "glass"]


def test_a_trained_tokenizer_has_the_shares_of_the_run(tmp_path: Path) -> None:
    """The source with most of the weight has most of the words, though it is the smaller one."""
    words = {"large": [f"lo{letter}" for letter in "abcdefghij"], "small": ["zuqu", "vuxu", "wuyu"]}
    counts = {"large": 4000, "small": 400}
    sources: dict[str, Any] = {}
    for name, count in counts.items():
        file = tmp_path / f"{name}.txt"
        lines = [" ".join(words[name] * 3) for _ in range(count)]
        file.write_text("\n\n".join(lines))
        sources[name] = {"paths": [str(file)], "eval_paths": [str(file)]}
    values = tree("bert", vocab_size=56)
    kept = {}
    for weight in (0.02, 0.95):
        weights = {"large": {"weight": 1 - weight}, "small": {"weight": weight}}
        values["data"] = {"sources": deep_merge(sources, weights)}
        tokenizer = pretrain_setup(pretrain_config(values, {})).tokenizer
        vocabulary = Tokenizer.from_buffer(tokenizer.json).get_vocab()
        kept[weight] = [word for word in words["small"] if word in vocabulary]
    assert kept[0.95] == words["small"]
    assert len(kept[0.02]) < 3
