"""Models of sentence-transformers, and runs that train them."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from tests.checkpoints import Make
from tests.finetuning.making import HERE, settings, setup_of, texts, write_table
from zoo.api import Model
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.objectives.base import Batch
from zoo.sentence_models.pooling import Pooling
from zoo.training.build import build_model

TOKENS = "token_embeddings"


def modules_of(name: str) -> list[Any]:
    """Return the modules after the backbone, with random weights."""
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

    torch.manual_seed(3)
    made: dict[str, Callable[[], list[Any]]] = {
        "two dense": lambda: [
            Pooling(32, "mean"),
            Dense(32, 16),
            Dense(16, 8, bias=False, activation_function=torch.nn.GELU()),
            Normalize(),
        ],
        "several modes": lambda: [
            Pooling(32, ("cls", "max", "weightedmean"), include_prompt=False),
            Dense(96, 12, activation_function=torch.nn.SiLU(), use_residual=True),
        ],
        "residual, norm": lambda: [
            Pooling(32, "lasttoken"),
            Dense(32, 32, activation_function=torch.nn.ELU(), use_residual=True),
            LayerNorm(32),
            Dropout(0.3),
        ],
        "dense tokens": lambda: [
            Dense(32, 6, activation_function=torch.nn.Softplus(), module_input_name=TOKENS),
            Normalize(module_input_name=TOKENS),
            Pooling(6, "mean_sqrt_len_tokens"),
            Dense(6, 6, activation_function=torch.nn.LeakyReLU()),
            Dense(6, 6, activation_function=torch.nn.Sigmoid()),
            Dense(6, 6, activation_function=torch.nn.ReLU()),
        ],
        "normalized first": lambda: [Normalize(), Pooling(32, "cls")],
    }
    listed = made[name]()
    for module in listed:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter)
    return listed


def save(source: Path, target: Path, listed: list[Any], **settings: Any) -> Any:
    """Write a model of the library, and return it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

    encoder = Transformer(str(source), max_seq_length=8)
    model = SentenceTransformer(modules=[encoder, *listed], device="cpu", **settings)
    model.save(str(target), create_model_card=False)
    return model.eval()


def back(ours: Path, target: Path) -> Path:
    """Convert a model back to the Hub's layout."""
    convert(CheckpointDir(ours, str(ours)), target, to="hub")
    return target


@pytest.fixture
def source(hub_checkpoint: Make, tmp_path: Path) -> Path:
    save(hub_checkpoint("BertModel"), tmp_path / "hub", modules_of("two dense"))
    return tmp_path / "hub"


TASK = "sentence-embedding"


def table(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Write anchors, texts with a letter exchanged, other texts, scores and classes."""
    rng, rows = random.Random(seed), []
    anchors, others = texts(count, seed), texts(count, seed + 100)
    for k, (anchor, other) in enumerate(zip(anchors, others, strict=True)):
        letters = anchor.split()
        rng.shuffle(letters)
        same = " ".join(letters)
        rows.append(
            {
                "text": anchor,
                "pair": same if k % 3 else other,
                "other": other,
                "score": rng.random() * (1 if k % 3 else 0.2),
                "class": "xyz"[k % 3],
            }
        )
    return write_table(path, rows)


def tree_of(model: Path | str, train: Path, loss: str, **changes: Any) -> dict[str, Any]:
    label = {"cosent": "score", "cosine": "score", "softmax": "class"}.get(loss)
    data: dict[str, Any] = {"pair": "pair", **({"label": label} if label else {})}
    if loss in ("multiple-negatives", "triplet"):
        data["negatives"] = ["other"]
    arguments = {"loss": loss, **changes.pop("task_args", {})}
    tree = settings(model, train, task=TASK, data={**data, **changes.pop("data", {})}, **changes)
    return {**tree, "task_args": arguments}


def library_encoder(source: Path) -> Any:
    """Return sentence-transformers' encoder of a checkpoint, with the mean of its tokens."""
    library = pytest.importorskip("sentence_transformers")
    base = pytest.importorskip("sentence_transformers.base.modules")
    poolings = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    encoder = base.Transformer(str(source))
    pooling = poolings.Pooling(encoder.get_embedding_dimension(), pooling_mode="mean")
    return library.SentenceTransformer(modules=[encoder, pooling], device="cpu").double().train()


def features(batch: Batch, columns: int) -> list[dict[str, Tensor]]:
    """Return the columns of a batch as sentence-transformers takes them."""
    found = []
    for k in range(columns):
        end = f"_{k}" if k else ""
        ids = batch.tensors[f"input_ids{end}"]
        mask = batch.tensors.get(f"attention_mask{end}", torch.ones_like(ids))
        found.append({"input_ids": ids, "attention_mask": mask})
    return found


def trained_module(setup: Any) -> nn.Module:
    """Return the module as a run begins with it, in float64."""
    module = build_model(setup).module.train()
    setup.load_pretrained(module)
    setup.prepare_model(module)
    return module.double()


@contextmanager
def float64() -> Iterator[None]:
    """Compute the library's losses in float64, which convert scores by ``Tensor.float``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def wide(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors whose floating point numbers are in float64."""
    return {k: t.double() if t.is_floating_point() else t for k, t in tensors.items()}


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """Assert that losses or gradients in float64 are equal."""
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=0)


def setup_and_batch(run: Path) -> tuple[Any, Batch]:
    setup = setup_of(run)
    loader = setup.train_dataloader(HERE)
    batch = loader.make_batches(0)[0]
    loader.close()
    return setup, batch


def pooled(model: Model, pooling: Pooling | None) -> Model:
    """Return a copy of a model with another pooling configuration."""
    described = msgspec.structs.replace(model.checkpoint.model, pooling=pooling)
    return Model(replace(model.checkpoint, model=described), model.session)
