"""Growth of encoders whose published layout is not that of a class of transformers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import save_file

import zoo
from tests.families import parity
from tests.families.reference import SMALL_SIZES
from tests.in_process import exit_code
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import hub_state
from zoo.errors import UsageError
from zoo.families.positions import rope_types
from zoo_gte import Gte
from zoo_gte.config import GteConfig
from zoo_jina import Jina
from zoo_jina.config import JinaConfig
from zoo_nomic import Nomic
from zoo_nomic.config import NomicConfig

GTE = Gte()
JINA = Jina()
NOMIC = Nomic()
OLD = 64  # Tokens of a source.
LONG = 160  # Tokens of a grown model.
FACTOR = LONG / OLD
SIZES = {**SMALL_SIZES, "max_positions": OLD}
NEW = GteConfig(**SIZES, model_type="new", ntk_factor=8.0, rope_theta=500.0, pooler=False)
FLASH = JinaConfig(**SIZES, model_type="xlm_roberta_flash", pad_token_id=0)
TASKS = replace(FLASH, tasks=("one", "two"), type_vocab_size=3)
V2 = JinaConfig(**{**SIZES, "num_heads": 6}, model_type="jina_bert", pad_token_id=0)
PLAIN = NomicConfig(**SIZES, pooler=False)
PUBLISHED_CODE = {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}


def write(family: Any, config: Any, folder: Path, head: str = "none", **keys: Any) -> Path:
    """Write a model with random weights in the published layout."""
    folder.mkdir()
    state = hub_state(
        family.weights(config, head), parity.random_model(family, config, head).state_dict()
    )
    save_file(
        {name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors"
    )
    hub = {**family.to_hub(config), "architectures": [family.architecture(config, head)], **keys}
    (folder / "config.json").write_text(json.dumps(hub))
    return folder


def frequencies(checkpoint: Any, tokens: int) -> torch.Tensor:
    """Return the angles of position 1 of a checkpoint's model for rows of some tokens."""
    model: Any = checkpoint.family.model(checkpoint.config, "none")
    rotation = model.rotary(torch.arange(tokens)[None])
    angles: torch.Tensor = torch.atan2(
        rotation.sin[0, 0, 1].double(), rotation.cos[0, 0, 1].double()
    )
    return angles


def ntk_frequencies(base: float, width: int, factor: float) -> torch.Tensor:
    """Return frequencies with the NTK scaling of GTE's published code, in float64."""
    exponents = torch.arange(0, width, 2).double() / width
    scaled: torch.Tensor = (base * factor) ** -exponents / factor ** (2 / width)
    return scaled


@pytest.mark.parametrize("scaling", ["linear", "dynamic", "yarn"])
def test_scaled_frequencies_of_gte_are_scaled_again(tmp_path: Path, scaling: Any) -> None:
    source = write(GTE, NEW, tmp_path / "source")
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, rope_scaling=scaling)
    checkpoint = load_checkpoint(tmp_path / "model")
    assert checkpoint.family.max_seq_len(checkpoint.config) == LONG
    width = NEW.head_size
    before = ntk_frequencies(500.0, width, 8.0)
    if scaling == "linear":
        expected = before / FACTOR
    elif scaling == "dynamic":
        stretch = FACTOR * LONG / OLD - (FACTOR - 1)
        exponents = torch.arange(0, width, 2).double() / width
        expected = before * stretch ** (-exponents * width / (width - 2))
    else:
        # A pair stays if it turns 32 times within the old positions, and is divided if it turns
        # once. By turns as a function of the pair's number, between is where they are passed.
        base = 500.0 * 8.0
        numbers = torch.arange(width // 2).double()

        def pair_of(turns: float) -> float:
            ratio = OLD / (turns * 2 * math.pi * 8.0 ** (2 / width))
            return width / 2 * math.log(ratio) / math.log(base)

        first = max(math.floor(pair_of(32)), 0)
        last = math.ceil(pair_of(1))
        kept = 1 - ((numbers - first) / (last - first)).clamp(0, 1)
        expected = before * kept + before / FACTOR * (1 - kept)
        at_last = before[last] * OLD / (2 * math.pi)
        assert at_last <= 1 < before[last - 1] * OLD / (2 * math.pi)
    assert torch.allclose(frequencies(checkpoint, LONG), expected, rtol=1e-5, atol=1e-9)
    account = checkpoint.manifest.account["grown_positions"]
    assert (account["method"], account["old_max_seq_len"]) == (scaling, OLD)


@pytest.mark.parametrize(
    ("family", "config", "scaling"),
    [
        (GTE, NEW, "linear"),
        (JINA, FLASH, "yarn"),
        pytest.param(JINA, TASKS, "dynamic", marks=pytest.mark.long),
        (NOMIC, replace(PLAIN, model_type="nomic_bert_moe", activation="gelu"), "yarn"),
    ],
)
def test_a_layout_without_scaling_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: Any, config: Any, scaling: str
) -> None:
    source = write(family, config, tmp_path / "source")
    options = ["--max-seq-len", str(LONG), "--rope-scaling", scaling]
    output = tmp_path / "hub"
    code = exit_code(["convert", str(source), "-o", str(output), "--to", "hub", *options])
    error = capsys.readouterr().err
    (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
    assert code == 2 and "the Hub's layout cannot hold" in line and scaling in line
    assert not output.exists()
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, rope_scaling=scaling)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot hold"):
        zoo.convert(tmp_path / "model", output=output, to="hub")
    zoo.convert(tmp_path / "model", output=tmp_path / "again")
    grown_config: Any = load_checkpoint(tmp_path / "again").config
    assert grown_config.rope_type == scaling


@pytest.mark.parametrize("config", [FLASH, TASKS])
def test_linear_scaling_of_jina_divides_all_frequencies(tmp_path: Path, config: Any) -> None:
    source = write(JINA, config, tmp_path / "source")
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, rope_scaling="linear")
    width = config.head_size
    expected = config.rope_theta ** -(torch.arange(0, width, 2).double() / width) / FACTOR
    actual = frequencies(load_checkpoint(tmp_path / "model"), LONG)
    assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-9)


def test_positions_of_jinabert_do_not_grow(tmp_path: Path) -> None:
    source = write(JINA, V2, tmp_path / "source")
    with pytest.raises(UsageError, match="do not grow"):
        zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG)
    assert rope_types(FLASH) and not rope_types(V2)
    assert not rope_types(replace(FLASH, positions="absolute"))
    with pytest.raises(ValueError, match="not rotations"):
        replace(V2, rope_type="linear", rope_factor=2.0)


def test_the_published_code_of_nomic_reads_dynamic_scaling(tmp_path: Path) -> None:
    source = write(NOMIC, PLAIN, tmp_path / "source", auto_map=PUBLISHED_CODE)
    hub = tmp_path / "hub"
    with pytest.raises(UsageError, match="no rotary frequencies with the rope_type yarn"):
        zoo.convert(source, output=hub, to="hub", max_seq_len=LONG)
    zoo.convert(source, output=hub, to="hub", max_seq_len=LONG, rope_scaling="dynamic")
    written = json.loads((hub / "config.json").read_text())
    assert written["rotary_scaling_factor"] == FACTOR
    assert written["max_trained_positions"] == OLD
    zoo.convert(hub, output=tmp_path / "model")
    checkpoint = load_checkpoint(tmp_path / "model")
    assert checkpoint.family.max_seq_len(checkpoint.config) == LONG
    width = PLAIN.head_size
    base = 1000.0 * (FACTOR * LONG / OLD - (FACTOR - 1)) ** (width / (width - 2))
    expected = base ** -(torch.arange(0, width, 2).double() / width)
    assert torch.allclose(frequencies(checkpoint, LONG), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("scaling", ["linear", "dynamic"])
def test_a_nomic_that_was_limited_to_its_trained_positions_grows(
    tmp_path: Path, scaling: Any
) -> None:
    limited = replace(
        PLAIN, max_positions=4 * OLD, rotary_scaling_factor=2.0, max_trained_positions=OLD
    )
    source = write(NOMIC, limited, tmp_path / "source")
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, rope_scaling=scaling)
    config: Any = load_checkpoint(tmp_path / "model").config
    assert NOMIC.max_seq_len(config) == LONG
    assert config.rotary_scaling_factor is None  # The scaling replaces it.
    assert config.max_positions == (OLD if scaling == "dynamic" else LONG)
