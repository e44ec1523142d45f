"""The plugins of ``examples/plugins``, installed by pip and used like built-in families."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests import warm
from tests.plugins.installed import Installed
from tests.training.runs import DATA

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


def pretrain(plugin: Installed, family: str, **changes: Any) -> Installed:
    """Write a run of a few steps to ``run``."""
    settings = [f"--set={name}={value}" for name, value in {**RUN, **changes}.items()]
    plugin.zoo("pretrain", family, *DATA, *settings, "--device", "cpu", "-o", "run")
    return plugin


def verify_all(plugin: Installed) -> None:
    checks = plugin.zoo("verify", "run/model")["checks"]
    assert {check["outcome"] for check in checks} == {"ok"}
    assert "transformers" in {check["name"] for check in checks}


@pytest.fixture(scope="module")
def pretrained(bloom: Installed) -> Installed:
    return pretrain(bloom, "bloom")


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("xlnet")
    return pretrain(Installed(folder, EXAMPLES / "xlnet"), "xlnet")


def test_a_decoder_is_pretrained_verified_and_generates(pretrained: Installed) -> None:
    verify_all(pretrained)
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


def convert_back(plugin: Installed) -> None:
    """Convert to the Hub's layout in ``published``, and back bit for bit."""
    plugin.zoo("convert", "run/model", "--to", "hub", "-o", "published")
    plugin.zoo("convert", "published", "-o", "again")
    first, second = (
        load_file(plugin.folder / name / "model.safetensors") for name in ("run/model", "again")
    )
    assert first.keys() == second.keys()
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []


def distill(plugin: Installed, family: str) -> None:
    distilled = ("--teacher", "run/model", "--student", family, "--max-steps", "2")
    settings = ("--set=seq_len=32", "--set=global_batch_tokens=256", "--set=eval_sequences=4")
    plugin.zoo("distill", *distilled, *DATA, *settings, "--device", "cpu", "-o", "student")


@pytest.mark.long  # the graphs of decoders are the same code as those of the built-in family
def test_a_decoder_is_converted_back_exported_and_distilled(pretrained: Installed) -> None:
    convert_back(pretrained)
    pretrained.zoo("export", "run/model", "--onnx", "-o", "graph")
    prompts = ("Alice", "--max-new-tokens", "5")
    results = [
        pretrained.zoo("run", "generate", model, *prompts)["results"]
        for model in ("run/model", "graph")
    ]
    assert results[0] == results[1]
    distill(pretrained, "bloom")


def test_an_encoder_with_an_objective_of_its_own_fills_masks(xlnet: Installed) -> None:
    """Predictions are those of the reference's query stream, at the end of a padded row."""
    verify_all(xlnet)
    convert_back(xlnet)
    texts = ("Alice was <mask>", "the <mask> sat on the mat and was very late")
    tokenizer = transformers.AutoTokenizer.from_pretrained(xlnet.folder / "published")
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    assert ids[:, -1].tolist() == [tokenizer.cls_token_id] * 2 and not mask[0, 0]
    is_mask, tokens = ids == tokenizer.mask_token_id, ids.shape[1]
    kind: Any = transformers.XLNetLMHeadModel
    model, loading = kind.from_pretrained(xlnet.folder / "published", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    with torch.no_grad():
        logits = model.eval()(
            **inputs,
            perm_mask=is_mask[:, None].expand(-1, tokens, -1).float(),
            target_mapping=torch.eye(tokens).expand(2, -1, -1),
        ).logits
    expected = logits[is_mask].softmax(-1).topk(3)
    results = xlnet.zoo("run", "fill-mask", "run/model", *texts, "--top-k", "3")["results"]
    for result, scores in zip(results, expected.values, strict=True):
        (place,) = result["masks"]
        actual = [prediction["score"] for prediction in place["predictions"]]
        assert actual == pytest.approx(scores.tolist(), rel=1e-4)


def test_an_encoder_with_memory_generates(xlnet: Installed) -> None:
    """The tokens of the reference, with its default, a memory."""
    xlnet.zoo("convert", "run/model", "--to", "hub", "-o", "generating")
    texts = ("Alice was beginning to", "said the")
    tokenizer = transformers.AutoTokenizer.from_pretrained(xlnet.folder / "generating")
    kind: Any = transformers.XLNetLMHeadModel
    model = kind.from_pretrained(xlnet.folder / "generating").eval()
    expected = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        whole = model.generate(ids, max_new_tokens=6, do_sample=False)[0]
        expected.append(tokenizer.decode(whole, skip_special_tokens=True))
    results = xlnet.zoo("run", "generate", "run/model", *texts, "--max-new-tokens", "6")["results"]
    assert [result["text"] + result["generated"] for result in results] == expected


@pytest.mark.long  # the commands are those of the built-in families
def test_an_encoder_with_memory_is_resumed_exported_and_distilled(xlnet: Installed) -> None:
    xlnet.zoo("check", "resume", "xlnet", *DATA, *(f"--set={k}={v}" for k, v in RUN.items()))
    xlnet.zoo("export", "run/model", "--onnx", "-o", "graph")
    text = ("the <mask> sat", "--top-k", "3")
    results = [
        xlnet.zoo("run", "fill-mask", model, *text)["results"][0]["masks"][0]["predictions"]
        for model in ("run/model", "graph")
    ]
    first, second = ([p["score"] for p in predictions] for predictions in results)
    assert first == pytest.approx(second, rel=1e-4)
    refused = warm.zoo("run", "generate", "graph", "the", cwd=xlnet.folder, **xlnet.environment)
    assert refused.returncode == 2 and "generate with the model that it was" in refused.stderr
    distill(xlnet, "xlnet")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_its_own_tests_pass(name: str, tmp_path: Path) -> None:
    plugin = Installed(tmp_path, EXAMPLES / name)
    *_, last = plugin.python("pytest", "-p", "no:cacheprovider", plugin.source / "tests").split(
        "\n"
    )[:-1]
    assert "passed" in last and "failed" not in last, last
