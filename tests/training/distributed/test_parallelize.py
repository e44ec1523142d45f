"""Options of DDP and FSDP: what they compute equals one process, and what they communicate."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode

from tests import warm
from tests.training.cases import dry
from tests.training.making import HERE
from tests.training.runs import NO_DROPOUT, cut, finish, options, records, small
from zoo.errors import UsageError
from zoo.overrides import override
from zoo.training.config.schema import FSDPConfig, TrainConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import transformer_blocks
from zoo.training.loss_module import LossModule
from zoo.training.run import require_divisible
from zoo.training.setup import build_dataset, pretrain_setup
from zoo.training.state.progress import list_checkpoints
from zoo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "bert"
STEPS = 2
ROUNDED_STEPS = 3  # sums of bfloat16 round alike in the first two
ROWS = 8
# Name -> settings of a run in several processes.
CASES: Mapping[str, Mapping[str, Any]] = {
    "copied": {},
    "copied, recomputed": {"gradient_checkpointing": True},
    "sharded": {"fsdp": True},
    "kept": {"fsdp": True, "fsdp_config": {"reshard_after_forward": False}},
    "prefetched": {"fsdp": True, "fsdp_config": {"forward_prefetch": 1, "backward_prefetch": 2}},
    "recomputed": {"fsdp": True, "gradient_checkpointing": True},
    "averaged": {"fsdp": True, "ema_decay": 0.9},
    "together": {
        "fsdp": True,
        "fsdp_config": {"forward_prefetch": 1, "backward_prefetch": 2},
        "gradient_checkpointing": True,
        "ema_decay": 0.9,
    },
}
# The last one has the options of most others.
BY_DEFAULT = ("copied", "kept", "together")
HYBRID: Mapping[str, Mapping[str, Any]] = {
    "hybrid": {"fsdp": True, "fsdp_config": {"dp_replicate_size": 2}},
    "hybrid, kept": {
        "fsdp": True,
        "fsdp_config": {"dp_replicate_size": 2, "reshard_after_forward": False},
    },
}
ROUNDED: Mapping[str, Mapping[str, Any]] = {
    "rounded": {"fsdp": True, "precision": "bfloat16", "fsdp_config": {"param_dtype": "bfloat16"}},
    "rounded sums": {
        "fsdp": True,
        "precision": "bfloat16",
        "fsdp_config": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"},
    },
}


class CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts collective operations by name; torch's ``CommDebugMode`` fails with DDP."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        namespace, _, name = func.name().partition("::")
        if namespace == "c10d":
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def settings(family: str, changes: Mapping[str, Any]) -> TrainConfig:
    return dry(small(family, **changes))


def train(config: TrainConfig, dist: DistContext, dtype: torch.dtype) -> dict[str, Any]:
    """Train a few steps, and evaluate after each.

    Returns:
        ``losses`` of the steps, ``evaluations``, and the numbers of ``collectives`` of the second
        step by name.
    """
    if dist.world_size == 1:
        config = replace(config, fsdp=False, fsdp_config=None)
    setup = pretrain_setup(config)
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config).to(dtype)
    loss_module = LossModule(setup.objective, model)
    feed = BatchLoader(
        setup.objective,
        build_dataset(setup, "train", ROWS),
        seed=0,
        global_batch_size=ROWS,
        micro_batch_size=1,
        rank=dist.rank,
        world_size=dist.world_size,
    )
    trainer = Trainer(loss_module, config, dist, feed, setup.eval_batches(dist))
    reduced_buckets = count_buckets(trainer.parallel_module)
    result: dict[str, Any] = {"losses": [], "evaluations": [], "collectives": {}}
    weights = setup.objective.loss_weights
    steps = ROUNDED_STEPS if config.precision == "bfloat16" else STEPS
    for step in range(steps):
        reduced_buckets.clear()
        with CollectiveCounter() as counter:
            trainer.train_step(feed.make_batches(step))
        result["collectives"] = counter.counts
        result["losses"].append(trainer.train_metrics.compute_and_reset(weights)["loss"])
        result["evaluations"].append(trainer.evaluate(trainer.eval_batches)["loss"])
    result["collectives"]["buckets"] = len(reduced_buckets)
    result["micro_batches"] = len(feed.micro_batches)
    result["blocks"] = len(list(transformer_blocks(loss_module)))
    feed.close()
    return result


def count_buckets(module: torch.nn.Module) -> list[int]:
    """Return a list that gets an entry whenever DDP averages a bucket of gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    reduced_buckets: list[int] = []

    def hook(group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        reduced_buckets.append(bucket.index())
        return allreduce_hook(group, bucket)

    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        module.register_comm_hook(None, hook)
    return reduced_buckets


def main(arguments: Sequence[str]) -> None:
    """Train a family with the settings of each case, given as JSON, and write the results."""
    output, family, dtype, cases = arguments
    dist = DistContext.initialize("cpu")
    results = {}
    for name, changes in json.loads(cases).items():
        results[name] = train(settings(family, changes), dist, getattr(torch, dtype))
    if dist.is_main_process:
        Path(output).write_text(json.dumps(results))
    dist.destroy()


def train_in_processes(
    count: int,
    path: Path,
    cases: Mapping[str, Mapping[str, Any]],
    *,
    family: str = FAMILY,
    dtype: str = "float64",
) -> dict[str, dict[str, Any]]:
    output = path / "results.json"
    done = warm.in_processes(count, output, family, dtype, json.dumps(cases), module=__name__)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, dict[str, Any]] = json.loads(output.read_text())
    return results


def assert_equals_one_process(
    results: Mapping[str, Mapping[str, Any]], cases: Mapping[str, Mapping[str, Any]]
) -> None:
    for name, result in results.items():
        expected = train(settings(FAMILY, cases[name]), HERE, torch.float64)
        for key in ("losses", "evaluations"):
            assert result[key] == pytest.approx(expected[key], abs=1e-6), (name, key)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(BY_DEFAULT, id="few"),
        pytest.param(tuple(CASES), id="all", marks=pytest.mark.long),
    ],
)
def test_two_processes_compute_and_communicate_as_documented(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    cases = {name: CASES[name] for name in names}
    results = train_in_processes(2, tmp_path, cases)
    assert_equals_one_process(results, cases)
    for name, result in results.items():
        blocks = result["blocks"]
        micro_batches = result["micro_batches"]
        collectives = result["collectives"]
        assert micro_batches == 4
        if not cases[name].get("fsdp"):
            # Gradients are averaged once a step, whatever the number of micro-batches.
            assert 1 <= collectives["buckets"] <= 2, name
            continue
        if name == "kept":
            assert collectives["_allgather_base_"] == blocks + 1, "once a step"
        else:
            # The weights outside of the blocks stay until the backward pass.
            assert collectives["_allgather_base_"] == micro_batches * (2 * blocks + 1), name
        assert collectives["_reduce_scatter_base_"] == blocks + 1, name


@pytest.mark.long
def test_a_run_that_one_process_began_goes_on_in_two(tmp_path: Path) -> None:
    """Checkpoints of one process have full tensors, which two processes shard."""
    words = ["gpt", *options(max_steps=6, save_total_limit=2, config=NO_DROPOUT, ema_decay=0.5)]
    one_process, run = tmp_path / "one", tmp_path / "run"
    assert finish(*words, "-o", str(one_process)).returncode == 0
    done = warm.in_processes(1, "pretrain", "--device", "cpu", *words, "--fsdp", "-o", run)
    assert done.returncode == 0, done.stderr
    cut(run, 3)
    done = warm.in_processes(2, "pretrain", "--resume", run, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    expected = [record["loss"] for record in records(one_process)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", HYBRID)
def test_four_processes_in_two_groups_equal_one(tmp_path: Path, name: str) -> None:
    cases = {name: HYBRID[name]}
    assert_equals_one_process(train_in_processes(4, tmp_path, cases), cases)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_hybrid_run_is_resharded_at_another_number_of_processes(
    tmp_path: Path, processes: int
) -> None:
    """Of two processes, each has all weights."""
    words = ["gpt", *options(max_steps=6, save_total_limit=2, config=NO_DROPOUT)]
    one_process, run = tmp_path / "one", tmp_path / "run"
    assert finish(*words, "-o", str(one_process)).returncode == 0
    hybrid = ["--fsdp", "--set", "fsdp_config.dp_replicate_size=2"]
    done = warm.in_processes(4, "pretrain", "--device", "cpu", *words, *hybrid, "-o", run)
    assert done.returncode == 0, done.stderr
    assert "FSDP2-wrapped" not in done.stderr
    cut(run, 3)
    assert (list_checkpoints(run)[3] / "optimizer-shards").is_dir()
    done = warm.in_processes(processes, "pretrain", "--resume", run, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    expected = [record["loss"] for record in records(one_process)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("family", [FAMILY, pytest.param("electra", marks=pytest.mark.long)])
def test_weights_in_bfloat16_train_as_autocast_does(tmp_path: Path, family: str) -> None:
    """Of ELECTRA, the first micro-batches do not run all blocks."""
    cases = {"autocast": {"precision": "bfloat16"}, **ROUNDED}
    results = train_in_processes(2, tmp_path, cases, family=family, dtype="float32")
    for name in ROUNDED:
        assert results[name]["losses"] != results["autocast"]["losses"]
        assert results[name]["losses"] == pytest.approx(results["autocast"]["losses"], rel=5e-3)
    assert results["rounded"]["losses"] != results["rounded sums"]["losses"]


def test_recomputed_blocks_have_the_same_gradients_and_keep_less() -> None:
    """What is kept for the backward pass is the input of each block."""
    gradients: dict[bool, dict[str, torch.Tensor]] = {}
    kept_bytes: dict[bool, int] = {}
    for recomputes in (False, True):
        config = small(FAMILY, gradient_checkpointing=recomputes)  # With dropout.
        setup = pretrain_setup(config)
        torch.manual_seed(0)
        loss_module = LossModule(
            setup.objective, setup.objective.model(setup.family, setup.model_config)
        )
        rows = build_dataset(setup, "train", ROWS)
        feed = BatchLoader(
            setup.objective, rows, seed=0, global_batch_size=ROWS, micro_batch_size=ROWS
        )
        trainer = Trainer(loss_module, config, HERE, feed)
        storages: dict[int, int] = {}

        def keep(tensor: torch.Tensor, storages: dict[int, int] = storages) -> torch.Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        loss_module.train()
        (batch,) = feed.make_batches(0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = trainer._forward(0, batch)
        trainer.total_loss(output, batch.counts).backward()  # type: ignore[no-untyped-call]
        kept_bytes[recomputes] = sum(storages.values())
        gradients[recomputes] = {}
        for name, parameter in loss_module.named_parameters():
            if parameter.grad is not None:
                gradients[recomputes][name] = parameter.grad
        feed.close()
    assert gradients[True].keys() == gradients[False].keys()
    for name, gradient in gradients[False].items():
        assert torch.equal(gradients[True][name], gradient), name
    assert kept_bytes[True] < 0.7 * kept_bytes[False], kept_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fsdp_config.forward_prefetch": 1}, "fsdp_config is set, and needs fsdp"),
        (
            {"fsdp": True, "fsdp_config.param_dtype": "bfloat16"},
            "fsdp_config.param_dtype is bfloat16, and precision is auto: it needs bfloat16",
        ),
        (
            {"fsdp": True, "fsdp_config.reduce_dtype": "bfloat16"},
            "reduce_dtype is bfloat16, which needs param_dtype bfloat16",
        ),
        ({"fsdp": True, "fsdp_config.dp_replicate_size": 0}, "dp_replicate_size is 0"),
        ({"fsdp": True, "fsdp_config.forward_prefech": 1}, "forward_prefetch"),
    ],
)
def test_settings_that_do_not_go_together(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    words = options() + [f"--set={name}={json.dumps(value)}" for name, value in changes.items()]
    done = finish(FAMILY, *words, "-o", str(tmp_path / "run"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "run").exists()


def test_groups_that_do_not_divide_the_processes() -> None:
    config = replace(small(FAMILY), fsdp=True, fsdp_config=FSDPConfig(dp_replicate_size=3))
    with pytest.raises(UsageError, match="4 processes do not split into 3 groups"):
        require_divisible(config, DistContext(0, 4, torch.device("cpu")))
    require_divisible(config, HERE)
