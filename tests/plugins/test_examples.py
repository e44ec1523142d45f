"""The plugins of ``examples/plugins``, installed by pip and used like built-in families."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.plugins.installed import Installed
from zoo.data.corpus_cache import SAMPLE

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
RUN = {
    "vocab_size": 400,
    "seq_len": 32,
    "global_batch_tokens": 256,
    "max_steps": 4,
    "eval_sequences": 4,
    "lr_scheduler.warmup_steps": 2,
}


@pytest.fixture(scope="module")
def bloom(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("bloom"), EXAMPLES / "bloom")


@pytest.fixture(scope="module")
def pretrained(bloom: Installed) -> Installed:
    """A run of a few steps in ``run``."""
    settings = [f"--set={name}={value}" for name, value in RUN.items()]
    data = ("--data", SAMPLE / "alice.txt", "--eval-data", SAMPLE / "looking_glass.txt")
    bloom.zoo("pretrain", "bloom", *data, *settings, "--device", "cpu", "-o", "run")
    return bloom


def test_a_decoder_is_pretrained_verified_and_generates(pretrained: Installed) -> None:
    checks = pretrained.zoo("verify", "run/model")["checks"]
    assert {check["outcome"] for check in checks} == {"ok"}
    assert "transformers" in {check["name"] for check in checks}
    (text,) = pretrained.zoo("run", "generate", "run/model", "Alice", "--max-new-tokens", "5")[
        "results"
    ]
    pretrained.zoo("convert", "run/model", "--to", "hub", "-o", "hub")
    kind: Any = transformers.BloomForCausalLM
    model, loading = kind.from_pretrained(pretrained.folder / "hub", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained.folder / "hub")
    ids = tokenizer("Alice", return_tensors="pt")["input_ids"]
    whole = model.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :]
    assert text["generated"] == tokenizer.decode(whole, skip_special_tokens=True)


@pytest.mark.long  # the graphs of decoders are the same code as those of the built-in family
def test_a_decoder_is_converted_back_exported_and_distilled(pretrained: Installed) -> None:
    pretrained.zoo("convert", "run/model", "--to", "hub", "-o", "published")
    pretrained.zoo("convert", "published", "-o", "again")
    first, second = (
        load_file(pretrained.folder / name / "model.safetensors") for name in ("run/model", "again")
    )
    assert first.keys() == second.keys()
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []
    pretrained.zoo("export", "run/model", "--onnx", "-o", "graph")
    prompts = ("Alice", "--max-new-tokens", "5")
    results = [
        pretrained.zoo("run", "generate", model, *prompts)["results"]
        for model in ("run/model", "graph")
    ]
    assert results[0] == results[1]
    distilled = ("--teacher", "run/model", "--student", "bloom", "--max-steps", "2")
    data = ("--data", SAMPLE / "alice.txt", "--eval-data", SAMPLE / "looking_glass.txt")
    settings = ("--set=seq_len=32", "--set=global_batch_tokens=256", "--set=eval_sequences=4")
    pretrained.zoo("distill", *distilled, *data, *settings, "--device", "cpu", "-o", "student")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_its_own_tests_pass(name: str, tmp_path: Path) -> None:
    plugin = Installed(tmp_path, EXAMPLES / name)
    *_, last = plugin.python("pytest", "-p", "no:cacheprovider", plugin.source / "tests").split(
        "\n"
    )[:-1]
    assert "passed" in last and "failed" not in last, last
