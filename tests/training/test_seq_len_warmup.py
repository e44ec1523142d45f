"""Sequence-length warm-up, a function of the step, also in resumed runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.training.runs import assert_resumes_from, records, run_training, small, tree
from zoo.errors import UsageError
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import pretrain_config
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import eval_batches, pretrain_setup, train_dataloader

pytestmark = pytest.mark.usefixtures("shared_home")
HERE = DistContext(0, 1, torch.device("cpu"))
SHORT: dict[str, Any] = {
    "seq_len_warmup": {"seq_len": 32, "fraction": 0.5, "keep": "rows"},
    "max_steps": 8,
    "save_steps": 1,
}
SWITCH = 4


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(
            tmp_path_factory.mktemp("short") / "run", "bert", save_total_limit=9, **SHORT
        )


@pytest.mark.long
@pytest.mark.parametrize(
    "left", [SWITCH, *(pytest.param(SWITCH + k, marks=pytest.mark.long) for k in (-1, 1))]
)
def test_resume_is_exact_around_the_switch_of_lengths(
    unbroken: Path, tmp_path: Path, left: int
) -> None:
    assert_resumes_from(unbroken, tmp_path, left)


def test_rows_stay_as_many_and_are_as_long_as_the_step_says() -> None:
    config = small("bert", **SHORT)
    assert (config.global_batch_size, config.seq_len_warmup_steps) == (4, SWITCH)
    setup = pretrain_setup(config)
    feed, late = (
        train_dataloader(setup, HERE),
        train_dataloader(setup, HERE, completed_steps=SWITCH),
    )
    assert late.warmup_loader is None  # not created after the warm-up
    seen = set()
    for step in range(8):
        batches = feed.batches(step)
        length = 32 if step < SWITCH else 64
        # 128 tokens per micro-batch: four short rows, or two long ones
        assert [b.tensors["input_ids"].shape for b in batches] == (
            [(4, 32)] if length == 32 else [(2, 64)] * 2
        )
        assert [b for b in batches if not b.tokens <= b.rows * length] == []
        assert [b for b in batches if not int(b.tensors["position_ids"].max()) < length] == []
        if step >= SWITCH:
            for first, second in zip(batches, late.make_batches(step), strict=True):
                for name, tensor in first.tensors.items():
                    assert torch.equal(tensor, second.tensors[name])
            seen |= {feed.index(step, place) for place in range(4)}
    assert len(seen) == 4 * (8 - SWITCH)  # each row once per epoch
    assert {b.tensors["input_ids"].shape[1] for b in eval_batches(setup, HERE)} == {64}
    feed.close()
    late.close()


def assert_resumes_around_the_switch(folder: Path, family: str, changes: dict[str, Any]) -> None:
    """Train a run, and again from its checkpoints before and at the switch."""
    unbroken = run_training(folder / "unbroken", family, **changes)
    assert_resumes_from(unbroken, folder, SWITCH - 1, SWITCH)


def test_short_rows_of_as_many_tokens_are_more_rows(tmp_path: Path) -> None:
    warmup = {"seq_len": 32, "fraction": 0.5, "keep": "tokens"}
    changes = {**SHORT, "seq_len_warmup": warmup, "save_total_limit": 9}
    config = small("bert", **changes)
    assert (config.batch_size(32), config.batch_size(64)) == (8, 4)
    feed = train_dataloader(pretrain_setup(config), HERE)
    shapes = [[b.tensors["input_ids"].shape for b in feed.make_batches(step)] for step in (3, 4)]
    feed.close()
    assert shapes == [[(4, 32)] * 2, [(2, 64)] * 2]  # micro-batches of 128 tokens
    assert_resumes_around_the_switch(tmp_path, "bert", changes)


WHOLE_TEXT = {"objective": "mask-tokens", "objective_args": {"noise_density": 0.3}}


@pytest.mark.long
def test_short_rows_of_another_objective(tmp_path: Path) -> None:
    """Targets are the whole text, without sentinels, until the switch; the run resumes exactly."""
    changes = deep_merge(SHORT, {"seq_len_warmup": WHOLE_TEXT, "save_total_limit": 9})
    setup = pretrain_setup(small("t5", **changes))
    feed = train_dataloader(setup, HERE)
    first = setup.model_config.vocab_size - 100  # the sentinels are the last ids
    with_sentinels = [
        [bool((batch.tensors["labels"] >= first).any()) for batch in feed.make_batches(step)]
        for step in (0, SWITCH - 1, SWITCH)
    ]
    feed.close()
    assert [set(values) for values in with_sentinels] == [{False}, {False}, {True}]
    assert_resumes_around_the_switch(tmp_path, "t5", changes)


def test_another_objective_has_no_objective_of_the_recipe_before_it() -> None:
    recipe, other, overridden = (
        pretrain_config({"family": "t5"}, changes).seq_len_warmup
        for changes in (
            {},
            {"objective": "prefix-lm"},
            {"objective": "prefix-lm", "seq_len_warmup": {"objective": "deshuffling"}},
        )
    )
    assert recipe is not None and recipe.objective == "mask-tokens"
    assert other == replace(recipe, objective=None)
    assert overridden == replace(recipe, objective="deshuffling")


def test_shorter_rows_of_both_kinds_keep_the_other_settings_of_the_recipe() -> None:
    recipe, shorter, short = (
        pretrain_config({"family": "t5"}, changes).seq_len_warmup
        for changes in (
            {},
            {"seq_len": 32, "seq_len_warmup": {"seq_len": 16}},
            {"seq_len": 32},
        )
    )
    assert recipe is not None and shorter == replace(recipe, seq_len=16)
    assert short is None, "the full rows are as short as the first ones of the recipe"
    with pytest.raises(UsageError, match=r"seq_len_warmup\.seq_len is 32, not below 32"):
        pretrain_config({"family": "t5"}, {"seq_len": 32, "seq_len_warmup": {"fraction": 0.5}})


@pytest.mark.long
def test_tokens_are_those_that_are_not_padding(unbroken: Path) -> None:
    """Counts exclude padding at both lengths; the learning rate is independent of the switch."""
    feed = train_dataloader(pretrain_setup(small("bert", **SHORT)), HERE)
    total, plain = 0, records(unbroken)
    for step, record in enumerate(plain):
        total += sum(int((b.tensors["document_ids"] > 0).sum()) for b in feed.make_batches(step))
        assert record["tokens"] == total
    feed.close()
    rates = [record["learning_rate"] for record in plain]
    assert rates[2:] == sorted(rates[2:], reverse=True) and len(set(rates[2:])) == 6
    speed = [json.loads(line) for line in (unbroken / "performance.jsonl").read_text().splitlines()]
    assert [record["step"] for record in speed] == list(range(1, 9))
    config = json.loads((unbroken / "model" / "config.json").read_text())
    assert config["config"]["max_positions"] >= 64


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"seq_len_warmup": {"seq_len": 64}}, "seq_len_warmup.seq_len is 64, not below 64"),
        (
            "bert",
            {"seq_len_warmup": {"seq_len": 32, "fraction": 1.0}},
            "seq_len_warmup.fraction is 1.0",
        ),
        (
            "bert",
            {"seq_len_warmup": {"zzz": 32}},
            r"no setting seq_len_warmup\.zzz; there are seq_len, fraction",
        ),
        ("elmo", {"seq_len_warmup": {"seq_len": 10}}, "have one length"),
        (
            "electra",
            {"seq_len_warmup": {"seq_len": 32, "objective": "masked-lm"}},
            "masked-lm has another model than replaced-token-detection",
        ),
        (
            "t5",
            {"seq_len_warmup": {"seq_len": 32, "objective": "mask-token"}},
            "mask-tokens",
        ),
    ],
)
def test_invalid_values_are_errors(
    tmp_path: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        PretrainRun(tree(family, **changes), HERE, tmp_path / "run").start()


PHASES: dict[str, Any] = {
    "seq_len_warmup": {
        "seq_len": 32,
        "fraction": 0.5,
        "keep": "tokens",
        "learning_rate": 0.02,
        "config": {"global_rope_theta": 4.0},
    },
    "optimizer": {"name": "stable-adamw", "learning_rate": 0.01},
    "lr_scheduler": {
        "name": "warmup-stable-decay",
        "warmup_steps": 2,
        "min_lr_ratio": 0.0,
        "decay_fraction": 0.25,
    },
    "max_steps": 8,
    "save_steps": 1,
    "logging_steps": 1,
    "save_total_limit": 9,
}


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(tmp_path_factory.mktemp("phases") / "run", "modernbert", **PHASES)


@pytest.mark.long
@pytest.mark.parametrize(
    "left", [SWITCH, *(pytest.param(k, marks=pytest.mark.long) for k in (SWITCH - 1, 5, 6, 7))]
)
def test_resume_is_exact_around_stable_long_and_decaying_phases(
    phases: Path, tmp_path: Path, left: int
) -> None:
    """Within each of the phases, of 4, 2 and 2 steps, and between them."""
    assert_resumes_from(phases, tmp_path, left)


def test_phases_have_their_rates(phases: Path) -> None:
    """A warm-up and a stable phase, one with longer rows, and a decay by 1 - sqrt."""
    rates = [record["learning_rate"] for record in records(phases)]
    decay = 0.01 * (1 - 0.5**0.5)
    assert rates == pytest.approx([0.0, 0.01, 0.02, 0.02, 0.01, 0.01, 0.01, decay])


@pytest.mark.long
def test_short_rows_have_a_configuration_of_their_own(phases: Path, tmp_path: Path) -> None:
    """Losses differ in the first phase from its second step on, and the model has the last base."""
    warmup = {**PHASES["seq_len_warmup"], "config": {}}
    other = run_training(tmp_path / "run", "modernbert", **{**PHASES, "seq_len_warmup": warmup})
    first, second = ([record["loss"] for record in records(run)] for run in (phases, other))
    assert [step for step in range(SWITCH) if first[step] == second[step]] == []
    written = [json.loads((run / "model" / "config.json").read_text()) for run in (phases, other)]
    assert written[0] == written[1]
    assert written[0]["config"]["global_rope_theta"] == 160_000.0


@pytest.mark.parametrize(
    ("family", "field", "message"),
    [
        ("modernbert", {"hidden_size": 4}, "hidden_size cannot differ.*global_rope_theta"),
        ("modernbert", {"local_rope_theta": "wide"}, "local_rope_theta"),
        ("bert", {"hidden_size": 4}, "fields of bert that can: none"),
    ],
)
def test_other_fields_do_not_differ(family: str, field: dict[str, Any], message: str) -> None:
    changes = deep_merge(SHORT, {"seq_len_warmup": {"config": field}})
    with pytest.raises(UsageError) as error:
        pretrain_setup(small(family, **changes))
    assert re.search(message, str(error.value)), error.value
