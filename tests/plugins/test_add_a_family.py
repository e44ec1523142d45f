"""The example of docs/add-a-family.md, installed by pip and used like a built-in family.

Every command is a separate process that finds the plugin by its distribution's metadata.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.plugins.installed import Installed
from tests.training.runs import DATA

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
# The pieces of a SentencePiece model; the mark is that of a space before a word.
PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{c}" for c in "abcdefgh"), *"abx"]
SMALL: dict[str, Any] = {
    "vocab_size": len(PIECES),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "input_embedding_size": 12,
    "output_embedding_size": 40,
    "intermediate_size": 48,
    "max_position_embeddings": 200,
}
RUN = {
    "vocab_size": 400,
    "seq_len": 64,
    "seq_len_warmup": "null",
    "global_batch_tokens": 512,
    "max_steps": 6,
    "lr_scheduler.warmup_steps": 2,
}
TEXTS = ("a ba [MASK] c", "[MASK]", " ".join("abcdefgh" * 20) + " [MASK]")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("example"), EXAMPLES / "rembert")


@pytest.fixture(scope="module")
def reference(plugin: Installed) -> Any:
    """The reference library's model, saved to ``hub`` with its tokenizer, converted to ``ours``.

    All values of all tensors are random.
    """
    torch.manual_seed(0)
    kind: Any = transformers.RemBertForMaskedLM
    model = kind(transformers.RemBertConfig(**SMALL)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.save_pretrained(plugin.folder / "hub")
    vocabulary = [(piece, -float(number)) for number, piece in enumerate(PIECES)]
    # Only a tokenizer that was read from files frames texts with special tokens.
    transformers.RemBertTokenizer(vocab=vocabulary).save_pretrained(plugin.folder / "hub")
    tokenizer = transformers.RemBertTokenizer.from_pretrained(plugin.folder / "hub")
    tokenizer.save_pretrained(plugin.folder / "hub")
    plugin.zoo("convert", "hub", "-o", "ours")
    return model


def logits(model: Any, plugin: Installed, text: str) -> torch.Tensor:
    """Return the reference library's logits at the mask of a text."""
    tokenizer = transformers.RemBertTokenizer.from_pretrained(plugin.folder / "hub")
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id][0]  # type: ignore[no-any-return]


def assert_predictions(actual: list[dict[str, Any]], expected: list[torch.Tensor]) -> None:
    for result, scores in zip(actual, expected, strict=True):
        best = scores.double().softmax(0).topk(3)
        (mask,) = result["masks"]
        assert [p["token"] for p in mask["predictions"]] == [PIECES[i] for i in best.indices]
        shares = [p["score"] for p in mask["predictions"]]
        assert np.allclose(shares, best.values.numpy(), rtol=1e-4, atol=1e-7)


def test_plugin_is_listed(plugin: Installed) -> None:
    result = plugin.zoo("families")["families"]["rembert"]
    assert result["heads"].keys() == {"none", "masked-lm"}
    assert result["tasks"] == ["embed", "features", "fill-mask", "similarity"]
    health = {p["name"]: (p["distribution"], p["health"]) for p in plugin.zoo("plugins")["plugins"]}
    assert health["rembert"] == ("zoo-rembert", "ok")


def test_family_name_refers_to_the_default_checkpoint(plugin: Installed) -> None:
    result = plugin.zoo("info", "rembert")
    assert result["repo"] == "google/rembert"
    assert result["parameters"] == 575_920_384


# test_pretrained_model_equals_the_reference verifies a checkpoint of this family, too.
@pytest.mark.long
@pytest.mark.usefixtures("reference")
def test_a_checkpoint_is_verified(plugin: Installed) -> None:
    checks = {check["name"]: check["outcome"] for check in plugin.zoo("verify", "ours")["checks"]}
    assert checks.keys() >= {"digests", "mapping", "round trip", "ties", "transformers"}
    assert set(checks.values()) == {"ok"}


# test_pretrained_model_equals_the_reference has the outputs of this family.
@pytest.mark.long
def test_fill_mask_equals_the_reference(plugin: Installed, reference: Any) -> None:
    expected = [logits(reference, plugin, text) for text in TEXTS]
    plugin.zoo("export", "ours", "--onnx", "-o", "graph")
    for model in ("ours", "graph"):
        result = plugin.zoo("run", "fill-mask", model, *TEXTS, "--top-k", "3")["results"]
        assert_predictions(result, expected)


def test_embed_equals_the_reference(plugin: Installed, reference: Any) -> None:
    plugin.zoo("convert", "hub", "--head", "none", "-o", "trunk")
    (result,) = plugin.zoo("run", "embed", "trunk", "a ba f g")["results"]
    tokenizer = transformers.RemBertTokenizer.from_pretrained(plugin.folder / "hub")
    with torch.no_grad():
        hidden = reference.rembert(**tokenizer("a ba f g", return_tensors="pt"))[0]
    assert np.allclose(result["embedding"], hidden[0].mean(0).numpy(), rtol=0, atol=1e-5)


def test_hub_round_trip(plugin: Installed, reference: Any) -> None:
    plugin.zoo("convert", "ours", "--to", "hub", "-o", "back")
    kind: Any = transformers.RemBertForMaskedLM
    loaded, loading = kind.from_pretrained(plugin.folder / "back", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    before, after = reference.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert [name for name, tensor in before.items() if not torch.equal(tensor, after[name])] == []
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(plugin.folder / name) for name in ("hub", "back")
    ]
    before_ids, after_ids = (tokenizer("a ba [MASK]", "x c") for tokenizer in tokenizers)
    # The written files also ask for token types, which the model reads.
    assert {name: after_ids[name] for name in before_ids} == dict(before_ids)


def test_pretrained_model_equals_the_reference(plugin: Installed) -> None:
    settings = [f"--set={name}={value}" for name, value in RUN.items()]
    plugin.zoo("pretrain", "rembert", *DATA, *settings, "--device", "cpu", "-o", "run")
    checks = {
        check["name"]: check["outcome"] for check in plugin.zoo("verify", "run/model")["checks"]
    }
    assert set(checks.values()) == {"ok"} and "transformers" in checks
    (result,) = plugin.zoo("run", "fill-mask", "run/model", "the [MASK] sat")["results"]
    plugin.zoo("convert", "run/model", "--to", "hub", "-o", "taught")
    tokenizer = transformers.AutoTokenizer.from_pretrained(plugin.folder / "taught")
    kind: Any = transformers.RemBertForMaskedLM
    model = kind.from_pretrained(plugin.folder / "taught").eval()
    inputs = tokenizer("the [MASK] sat", return_tensors="pt")
    with torch.no_grad():
        scores = model(**inputs).logits[inputs["input_ids"] == tokenizer.mask_token_id][0]
    best = scores.double().softmax(0).max()
    assert result["masks"][0]["predictions"][0]["score"] == pytest.approx(float(best), rel=1e-4)


def test_code_of_the_page_is_that_of_the_examples() -> None:
    root = EXAMPLES.parents[1]
    files = [*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("pyproject.toml")]
    files += (root / "plugins").rglob("*.py")
    code = "\n".join(path.read_text("utf-8") for path in files)
    page = (root / "docs" / "add-a-family.md").read_text("utf-8")
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    excerpts = [part for block in blocks for part in re.split(r"(?m)^\.\.\.\n", block)]
    assert len(excerpts) > 10
    assert [part for part in excerpts if part not in code] == []
