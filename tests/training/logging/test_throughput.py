"""Throughput: numbers of operations, compared with counts by hand, and time of a mock clock."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.runs import records, run_training, small
from zoo.plugins import get_family
from zoo.training.distributed.context import DistContext
from zoo.training.logging.throughput import Throughput, _peak, peak_memory, training_flops
from zoo.training.setup import pretrain_setup, train_dataloader

CPU = torch.device("cpu")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_products_of_a_small_network() -> None:
    net = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    ids = torch.arange(10)
    count = training_flops(lambda: net(ids).sum(), net.parameters())
    assert count == 6 * (4 * 8 + 8 * 3) * 10  # forward once, backward twice that
    assert [name for name, weight in net.named_parameters() if weight.grad is not None] == []


def test_the_formula_of_palm() -> None:
    """6 N + 12 L H Q T per token, N without embeddings: Chowdhery et al. 2022, appendix B."""
    family = get_family("bert")
    config = family.sizes()["tiny"]
    model: Any = family.model(config, "none")
    ids = torch.ones(2, 24, dtype=torch.int64)
    mask = torch.ones_like(ids)
    count = training_flops(lambda: model.encode(ids, mask).sum(), model.parameters())
    matrices = sum(
        p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "embeddings" not in n
    )
    pooler = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "pool" in n)
    attention = 12 * config.num_layers * config.hidden_size * 24
    assert count == 2 * 24 * (6 * (matrices - pooler) + attention)


def test_a_module_called_on_a_parameter_is_counted() -> None:
    """DeBERTa normalizes its table of relative positions."""
    table = nn.Embedding(5, 4)
    norm, out = nn.LayerNorm(4), nn.Linear(4, 3)
    table.weight.grad = kept = torch.ones(5, 4)
    weights = [*table.parameters(), *norm.parameters(), *out.parameters()]
    assert training_flops(lambda: out(norm(table.weight)).sum(), weights) == 6 * 5 * 4 * 3
    assert table.weight.grad is kept and kept.equal(torch.ones(5, 4))
    assert [weight for weight in weights[1:] if weight.grad is not None] == []


def test_time_between_steps_does_not_count_in_steps() -> None:
    clock = Clock()
    speed = Throughput(CPU, window=2, clock=clock)
    speed.reset(6.0)
    assert speed.tokens_per_second is None
    assert speed.record(0).keys() == {"step", "memory_bytes", "seconds"}
    for seconds in (100.0, 2.0, 3.0):  # the first is outside the window
        clock.now += 1000
        speed.resume()
        clock.now += seconds
        speed.step(500)
    assert speed.tokens_per_second == 200
    record = speed.record(3)
    assert record["seconds_per_step"] == 2.5
    assert record["seconds"] == 3105
    assert "mfu" not in record and speed.mfu is None  # unknown peak of the CPU
    clock.now += 7
    assert speed.record(3)["seconds"] == 7


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", None),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L40", None),
        ("Tesla T4", 65e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA B200", 2250e12),
    ],
)
def test_peaks_by_name(name: str, peak: float | None) -> None:
    assert _peak(name) == peak


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_utilisation_on_a_device_lies_between_none_and_all() -> None:
    device = torch.device("cuda", 0)
    left = torch.zeros(4096, 4096, device=device, dtype=torch.bfloat16)
    left @ left
    torch.cuda.synchronize()
    speed = Throughput(device)
    speed.reset(2.0 * 4096**2)
    for _ in range(20):
        left @ left
        torch.cuda.synchronize()
        speed.step(4096)
    assert speed.mfu is None or 0.05 < speed.mfu < 1
    assert peak_memory(device) >= 2 * 4096**2 * 2


def test_peak_memory_grows_with_allocations() -> None:
    before = peak_memory(CPU)
    held = torch.ones(80 << 20, dtype=torch.uint8)
    assert peak_memory(CPU) >= held.numel() and peak_memory(CPU) >= before


@pytest.mark.by_default("gpt")
@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("family", ["t5", "gpt"])
def test_decoder_tokens_count(tmp_path: Path, family: str) -> None:
    """Source tokens except padding, and one target token per label."""
    feed = train_dataloader(pretrain_setup(small(family)), DistContext(0, 1, CPU))
    by_hand = 0
    for batch in feed.make_batches(0):
        sources = int((batch.tensors["input_ids"] != 0).sum()) if family == "t5" else 0
        by_hand += sources + len(batch.tensors["labels"])
    feed.close()
    run = run_training(tmp_path / "run", family, max_steps=1)
    assert records(run)[0]["tokens"] == by_hand
    speed = json.loads((run / "performance.jsonl").read_text().splitlines()[0])
    assert speed["tokens_per_second"] * speed["seconds_per_step"] == pytest.approx(by_hand)
