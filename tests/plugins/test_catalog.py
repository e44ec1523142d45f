"""Adapters, optimizers and losses of embeddings from a plugin: each a file and an entry point."""

import json
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import zoo
from tests import warm
from tests.checkpoints import hub_checkpoint
from tests.finetuning.conftest import Pretrained, pretrained
from tests.finetuning.making import (
    finetune,
    labelled,
    reference_losses,
    settings,
    texts,
    training_losses,
    write_table,
)
from tests.plugins.laying import find_again
from tests.plugins.making import EXAMPLES
from zoo.adapters import ADAPTERS
from zoo.errors import PluginError, UsageError
from zoo.objectives.base import Batch
from zoo.training.optim.optimizers import OPTIMIZERS

__all__ = ["hub_checkpoint", "pretrained"]  # fixtures

TOOLBOX = EXAMPLES / "toolbox" / "zoo_toolbox"
MODULES = ("key_factors", "median_error", "momentum", "power_loss")
ENTRY_POINTS = """
[zoo.api1]
parts = zoo_parts

[zoo.api1.adapters]
key-factors = zoo_parts.key_factors:KeyFactors

[zoo.api1.optimizers]
momentum = zoo_parts.momentum:Momentum

[zoo.api1.embedding_losses]
power = zoo_parts.power_loss:PowerLoss

[zoo.api1.metrics]
median_error = zoo_parts.median_error:MEDIAN_ERROR
"""


def lay_out(folder: Path, entry_points: str = ENTRY_POINTS) -> None:
    """Write the distribution ``zoo-parts``."""
    info = folder / "zoo_parts-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-parts\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    package = folder / "zoo_parts"
    package.mkdir()
    (package / "__init__.py").touch()
    for module in MODULES:
        shutil.copy(TOOLBOX / f"{module}.py", package)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plugin on the path of this process."""
    site = tmp_path / "site"
    site.mkdir()
    lay_out(site)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(site)
    find_again()
    yield
    find_again()
    for module in [name for name in sys.modules if name.partition(".")[0] == "zoo_parts"]:
        del sys.modules[module]


NAMES: dict[str, Any] = {"num_labels": 2, "id2label": {0: "no", 1: "yes"}}


@pytest.mark.long
@pytest.mark.usefixtures("parts")
def test_an_optimizer_trains(pretrained: Pretrained, tmp_path: Path) -> None:
    """The losses are those of torch's SGD with the momentum that is set."""
    model, source = pretrained("BertForSequenceClassification", **NAMES)
    optimizer = {"name": "momentum", "learning_rate": 0.1, "args": {"momentum": 0.5}}
    tree = settings(model, labelled(tmp_path / "t.tsv"), optimizer=optimizer)
    run = finetune(tmp_path / "run", tree)
    reference: Any = transformers.BertForSequenceClassification.from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        tensors = dict(batch.tensors)
        labels = tensors.pop("labels")
        logits = reference(**tensors).logits
        return F.cross_entropy(logits, labels, reduction="sum"), batch.rows

    def make_sgd(module: nn.Module, lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), lr=lr, momentum=0.5)

    expected = reference_losses(run, reference, batch_loss, make_sgd)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
@pytest.mark.usefixtures("parts")
def test_an_adapter_trains(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"), adapter={"method": "key-factors"})
    run = finetune(tmp_path / "run", tree)
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    expected = {"method": "key-factors", "target_modules": ["key"], "feedforward_modules": []}
    assert manifest["adapter"]["settings"] == expected
    tensors = load_file(run / "model" / "adapter.safetensors")
    factors = {name: tensor for name, tensor in tensors.items() if "ia3_l" in name}
    assert len(factors) == 2, "one vector for the keys of each layer"
    unchanged = [name for name, tensor in factors.items() if (tensor == 1).all()]
    assert unchanged == []


@pytest.mark.usefixtures("parts")
def test_a_loss_of_embeddings_trains(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained("BertModel")
    pairs = zip(texts(40), texts(40, seed=1), strict=True)
    rows = [{"text": first, "second": second, "score": 0.25} for first, second in pairs]
    tree = settings(
        model,
        write_table(tmp_path / "t.tsv", rows),
        task="sentence-embedding",
        data={"pair": "second", "label": "score"},
        task_args={"loss": "power", "exponent": 3.0},
    )
    run = finetune(tmp_path / "run", tree)
    reference: Any = transformers.BertModel.from_pretrained(source, add_pooling_layer=False)

    def mean_of_tokens(batch: Batch, end: str) -> Tensor:
        ids = batch.tensors[f"input_ids{end}"]
        mask = batch.tensors.get(f"attention_mask{end}", torch.ones_like(ids))
        hidden = reference(input_ids=ids, attention_mask=mask).last_hidden_state
        mean: Tensor = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return mean

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        cosines = F.cosine_similarity(mean_of_tokens(batch, ""), mean_of_tokens(batch, "_1"))
        return ((cosines - 0.25).abs() ** 3).sum(), batch.rows

    assert training_losses(run) == pytest.approx(
        reference_losses(run, reference, batch_loss), abs=1e-5
    )


@pytest.mark.usefixtures("parts")
def test_a_metric_selects_the_checkpoint_and_is_evaluated(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """It is the median of the errors in the predictions, of a run and of ``zoo.evaluate``."""
    model, _ = pretrained("BertForSequenceClassification", num_labels=1)
    rows = [{"text": text, "label": float(n % 7)} for n, text in enumerate(texts(24))]
    table = write_table(tmp_path / "t.tsv", rows)
    tree = settings(
        model,
        table,
        task="regression",
        data={"eval": [str(table)]},
        metric_for_best_model="median_error",
    )
    run = finetune(tmp_path / "run", tree)
    history = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    values = [line["metrics"]["median_error"] for line in history if line["split"] != "train"]
    meta = json.loads((run / "model" / "zoo.json").read_text())["training"]
    assert meta["metrics"]["median_error"] == min(values) and len(values) > 1

    predictions: list[Any] = []
    result = zoo.evaluate(
        run / "model",
        task="regression",
        eval=table,
        metric=["median_error"],
        record=False,
        on_prediction=predictions.append,
    )
    errors = [abs(row["prediction"] - row["label"]) for row in predictions]
    assert result.metrics["median_error"] == pytest.approx(statistics.median(errors))
    assert result.metrics["median_error"] == pytest.approx(min(values), abs=1e-4)
    low, high = result.details["intervals"]["median_error"]
    assert low <= result.metrics["median_error"] <= high and low < high


@pytest.mark.usefixtures("parts")
def test_names_of_plugins_are_in_messages() -> None:
    assert OPTIMIZERS.names()[-1] == "momentum"
    assert OPTIMIZERS.from_plugin("momentum") and not OPTIMIZERS.from_plugin("adamw")
    with pytest.raises(
        UsageError, match="no adapter is called 'key-factor'; did you mean key-factors"
    ):
        ADAPTERS.find("key-factor")


def test_a_class_of_another_kind_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    adapters = "[zoo.api1.adapters]\npower = zoo_parts.power_loss:PowerLoss\n"
    lay_out(tmp_path, f"[zoo.api1]\nparts = zoo_parts\n{adapters}")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    with pytest.raises(PluginError, match=r"loss:PowerLoss is not a subclass of AdapterMethod"):
        ADAPTERS.find("power")
    find_again()


def test_checks_know_every_kind(tmp_path: Path) -> None:
    lay_out(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path), "ZOO_HOME": str(tmp_path / "home")}
    assert warm.check_plugin("parts", tmp_path, **environment) == []
    done = warm.zoo("plugins", "info", "parts", "--json", cwd=tmp_path, **environment)
    (report,) = json.loads(done.stdout)["plugins"]
    assert report["provides"] == {
        "metrics": ["median_error"],
        "embedding_losses": ["power"],
        "adapters": ["key-factors"],
        "optimizers": ["momentum"],
    }


@pytest.mark.parametrize(
    ("entry_points", "warning"),
    [
        (
            "[zoo.api1]\nparts = zoo_parts\n[zoo.api1.optimisers]\nmomentum = zoo_parts:M\n",
            "zoo-parts 1.2: nothing reads the entry points zoo.api1.optimisers (momentum); "
            "did you mean zoo.api1.optimizers",
        ),
        (
            "[zoo.api1.optimizers]\nmomentum = zoo_parts:M\n",
            "zoo-parts 1.2: the entry points zoo.api1.optimizers (momentum) are not read",
        ),
    ],
)
def test_entry_points_that_nothing_reads_are_named(
    tmp_path: Path, entry_points: str, warning: str
) -> None:
    lay_out(tmp_path, entry_points)
    environment = {"PYTHONPATH": str(tmp_path), "ZOO_HOME": str(tmp_path / "home")}
    done = warm.zoo("plugins", "--json", cwd=tmp_path, **environment)
    (text,) = json.loads(done.stdout)["warnings"]
    assert done.returncode == 0 and warning in text
    assert f"warning: {warning}" in done.stderr
