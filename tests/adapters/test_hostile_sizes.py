"""Adapters whose files declare more than they hold, or hold what no adapter has."""

import json
import resource
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.adapters.making import GOLDEN, base_of, write_random_adapter, zoo
from tests.checkpoints import Make
from tests.inference.conftest import converted
from zoo.adapted_models.layers import require_same_tensors
from zoo.adapters.lora import LoRA
from zoo.adapters.source_adapter import adaptable_model
from zoo.checkpoint import load_checkpoint
from zoo.errors import VerificationError, ZooError
from zoo.io.limits import MAX_ADAPTER_SIZE
from zoo.plugins import get_family

# values that no size of an adapter has
NOT_SIZES = (10**6, 2**62, 10**30, 0, -1, 2.5, "8", True, [8])
# dtypes that safetensors holds, and in which no adapter is stored
ODD_DTYPES = (
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
ODD_SHAPES = ((), (0,), (0, 32), (10**6, 0), (2**40, 0), (4,), (4, 32, 1), (3, 7))
# name -> configuration, keys with a size, and the ends of the names of the tensors
PEFT: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    # of the pooler as well, into which an update is merged while it is read
    "lora": (
        peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear"),
        ("r", "rank_pattern"),
        ("query.lora_A.weight", "query.lora_B.weight", "pooler.dense.lora_A.weight"),
    ),
    "ia3": (peft.IA3Config(task_type="SEQ_CLS"), (), (".ia3_l", "classifier.weight")),
    "prompt": (
        peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
        ("num_virtual_tokens",),
        ("prompt_embeddings", "classifier.bias"),
    ),
    "prefix": (
        peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
        ("num_virtual_tokens", "num_layers", "num_attention_heads"),
        ("prompt_embeddings",),
    ),
}


def error_of(folder: Path, base: Path, out: Path) -> str:
    """Convert an adapter, and return the error; a bug of zoo is no ``ZooError``."""
    with pytest.raises(ZooError) as caught:
        zoo("convert", folder, "--base", base, "-o", out, "--allow-pickle")
    assert not out.exists() and "\n" not in str(caught.value)
    return str(caught.value)


def with_tensors(file: Path, ending: str, change: Callable[[Tensor], Tensor]) -> None:
    """Change the tensors of a file whose names have an ending."""
    tensors = load_file(file)
    names = [name for name in tensors if name.endswith(ending)]
    assert names != []
    save_file({**tensors, **{name: change(tensors[name]) for name in names}}, file)


@pytest.mark.by_default("lora")
@pytest.mark.parametrize("name", PEFT)
def test_adapters_of_peft_are_refused_in_one_line(
    name: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    config, keys, endings = PEFT[name]
    base, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    peft.get_peft_model(model, config).save_pretrained(str(tmp_path / "theirs"))
    theirs = tmp_path / "changed"
    for key in keys:
        for value in NOT_SIZES:
            shutil.copytree(tmp_path / "theirs", theirs, dirs_exist_ok=True)
            described = json.loads((theirs / "adapter_config.json").read_text())
            described[key] = {"query": value} if key == "rank_pattern" else value
            (theirs / "adapter_config.json").write_text(json.dumps(described))
            assert "adapter_config.json" in error_of(theirs, base, tmp_path / "ours")
    changes: Iterable[tuple[str, Callable[[Tensor], Tensor]]] = [
        *((f"of the dtype {str(dtype)[6:]}", as_dtype(dtype)) for dtype in ODD_DTYPES),
        *((str(theirs), in_shape(shape)) for shape in ODD_SHAPES),
    ]
    for ending in endings:
        for message, change in changes:
            shutil.copytree(tmp_path / "theirs", theirs, dirs_exist_ok=True)
            with_tensors(theirs / "adapter_model.safetensors", ending, change)
            assert message in error_of(theirs, base, tmp_path / "ours")


def as_dtype(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda tensor: torch.ones_like(tensor).to(dtype)


def in_shape(shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda tensor: torch.zeros(shape)


@pytest.mark.by_default("shape0")
@pytest.mark.parametrize("shape", [(), (0,), (10**6, 0)])
def test_patterns_of_tensors_without_numbers(
    shape: tuple[int, ...], hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, rank_pattern={"query": 2})
    peft.get_peft_model(model, config).save_pretrained(str(tmp_path / "theirs"))
    file = tmp_path / "theirs" / "adapter_model.safetensors"
    with_tensors(file, "value.lora_A.weight", in_shape(shape))
    message = error_of(tmp_path / "theirs", base, tmp_path / "ours")
    assert f"value.lora_A.weight has the shape {shape}" in message


def test_an_adapter_that_does_not_fit_takes_no_memory() -> None:
    """A model of 110 million parameters would have an adapter of 10 GB."""
    family = get_family("bert")
    adaptable = adaptable_model(family, family.sizes()["base"], "none")
    method = LoRA(rank=MAX_ADAPTER_SIZE, target_modules=("query", "value")).resolved(adaptable)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(VerificationError, match="the tensors do not match its settings"):
        require_same_tensors(method, adaptable, {}, Path("adapter.safetensors"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # kilobytes


@pytest.mark.parametrize(
    ("method", "key"),
    [("lora", "rank"), ("prompt", "num_virtual_tokens"), ("prefix", "encoder_hidden_size")],
)
def test_records_of_adapters_are_refused_in_one_line(
    method: str, key: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, _ = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    settings = {"prefix_projection": True} if method == "prefix" else {}
    adapter = tmp_path / "adapter"
    write_random_adapter(load_checkpoint(base), adapter, method=method, **settings)
    manifest = json.loads((adapter / "zoo.json").read_text())
    for value in NOT_SIZES:
        manifest["adapter"]["settings"][key] = value
        (adapter / "zoo.json").write_text(json.dumps({**manifest, "digest": ""}))
        with pytest.raises(VerificationError, match=key) as caught:
            zoo("run", "classify", base, "a", "--adapter", adapter)
        assert str(adapter / "zoo.json") in str(caught.value)


@pytest.fixture(scope="module")
def bottleneck_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    return converted(GOLDEN / "bert-pfeiffer" / "base", folder / "bert").path


@pytest.mark.parametrize("shape", [(), (0,), (2,), (1, 1), (16, 1), (10**6, 0)])
def test_factors_of_bottlenecks_of_another_shape(
    shape: tuple[int, ...], bottleneck_base: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", theirs)
    described = json.loads((theirs / "adapter_config.json").read_text())
    described["config"]["scaling"] = "learned"
    (theirs / "adapter_config.json").write_text(json.dumps(described))
    file = theirs / "adapter.safetensors"
    tensors = load_file(file)
    for name in list(tensors):
        module, is_up, _ = name.partition(".adapter_up.weight")
        if is_up:
            tensors[f"{module}.scaling"] = torch.ones(shape)
    save_file(tensors, file)
    message = error_of(theirs, bottleneck_base, tmp_path / "ours")
    assert f"scaling has the shape {shape}" in message


@pytest.mark.parametrize("dtype", ODD_DTYPES)
def test_bottlenecks_of_another_dtype(
    dtype: torch.dtype, bottleneck_base: Path, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", tmp_path / "theirs")
    with_tensors(tmp_path / "theirs" / "adapter.safetensors", "up.weight", as_dtype(dtype))
    message = error_of(tmp_path / "theirs", bottleneck_base, tmp_path / "ours")
    assert f"is of the dtype {str(dtype)[6:]}" in message


def test_bottlenecks_in_bfloat16_are_read_as_numbers(bottleneck_base: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", theirs)
    with_tensors(theirs / "adapter.safetensors", "weight", lambda tensor: tensor.bfloat16())
    zoo("convert", theirs, "--base", bottleneck_base, "-o", tmp_path / "ours")
    expected = load_file(theirs / "adapter.safetensors")
    found = load_file(tmp_path / "ours" / "adapter.safetensors")
    for name, tensor in expected.items():
        if name.endswith("weight"):
            assert [k for k, ours in found.items() if torch.equal(ours, tensor.float())] != [], name


def test_an_extracted_adapter_has_at_most_the_rank_of_its_matrices(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, _ = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    for rank in (33, 10**6, 2**62, 10**30):
        with pytest.raises(ZooError, match=f"--rank is {rank:,}, and at most 32 is accepted"):
            zoo("adapter", "extract", base, base, "--rank", rank, "-o", tmp_path / "extracted")
    assert not (tmp_path / "extracted").exists()
