"""Rerankers that are causal language models, against sentence-transformers, with tiny weights."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.closeness import assert_same
from tests.finetuning.making import write_table
from tests.hub.hub_server import Hub
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.test_decoders import PAD, SHAPE, write_model, write_tokenizer
from zoo import evaluate
from zoo.api import load
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir

QUERY = "retrieve a web page"
DOCUMENTS = [
    "the cat",
    "the cat sat on the mat, and a web search query",
    "x",
    "the mat the mat the mat the mat the mat of relevant passages " * 4,
]
FLAT = """\
{%- set instruction = messages | selectattr("role", "eq", "system") | map(attribute="content") \
| first | default("Judge.", true) -%}
<Instruct>: {{ instruction }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ (messages | selectattr("role", "eq", "document") | first).content }}<|endoftext|>
{% if add_generation_prompt %}
answer:
{%- endif %}
"""
STRUCTURED = """\
{% for message in messages -%}
{{ message.role }}: {{ message.content[0].text }}
{% endfor %}
answer:"""
# name -> chat template, false token, activation, arguments of the library's transformer
LAYOUTS: dict[str, tuple[str | None, int | None, Any, dict[str, Any]]] = {
    "two texts": (None, 7, torch.nn.Sigmoid(), {}),
    "one token": (None, None, torch.nn.Identity(), {}),
    "flat": (
        FLAT,
        7,
        torch.nn.Identity(),
        {"processing_kwargs": {"chat_template": {"add_generation_prompt": True}}},
    ),
    "structured": (STRUCTURED, 7, torch.nn.Tanh(), {}),
}


def write_reranker(folder: Path, name: str) -> Any:
    """Write a reranker in the layout of the library, which is returned."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    template, false_token, activation, options = LAYOUTS[name]
    config = transformers.Qwen3Config(**SHAPE, num_hidden_layers=2, num_key_value_heads=2)
    write_model(folder / "base", transformers.Qwen3ForCausalLM(config))
    write_tokenizer(folder / "base", padding_side="left", pad=PAD)
    if template is not None:
        (folder / "base" / "chat_template.jinja").write_text(template, "utf-8")
    base = Transformer(
        str(folder / "base"), transformer_task="text-generation", max_seq_length=100, **options
    )
    theirs = CrossEncoder(
        modules=[base, LogitScore(5, false_token)],
        prompts={"other": "find the mat "},
        activation_fn=activation,
        device="cpu",
    )
    theirs.save(str(folder / "hub"), create_model_card=False)
    return theirs


@pytest.fixture(scope="module", params=LAYOUTS)
def reranker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path]:
    """The library's model, and a folder with its files in ``hub`` and ours in ``model``."""
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("reranker")
    theirs = write_reranker(folder, request.param)
    converted(folder / "hub", folder / "model")
    return theirs, folder


def scores_of(folder: Path, documents: list[str], **options: Any) -> list[float]:
    """Return the scores of documents in their order."""
    ranked = load(str(folder), backend="cpu").rerank(QUERY, documents, **options)
    by_number = {row["corpus_id"]: row["score"] for row in ranked}
    return [by_number[number] for number in range(len(documents))]


@pytest.mark.by_default("two texts-plain", "one token-prompt", "structured-plain")
@pytest.mark.filterwarnings("ignore:.*longer than 100 tokens")
@pytest.mark.parametrize("options", [{}, {"prompt_name": "other"}], ids=["plain", "prompt"])
def test_scores_are_the_library_s(reranker: tuple[Any, Path], options: dict[str, Any]) -> None:
    """In a batch of mixed lengths, one of them cut, and alone."""
    theirs, folder = reranker
    pairs = [(QUERY, document) for document in DOCUMENTS]
    expected = theirs.predict(pairs, **options)
    assert np.ptp(expected) > 1e-3, "scores to tell apart"
    with pytest.raises(UsageError, match="generates text, and does not score texts in windows"):
        load(str(folder / "model"), backend="cpu").rerank(QUERY, DOCUMENTS, doc_stride=1)
    together = scores_of(folder / "model", DOCUMENTS, **options)
    np.testing.assert_allclose(together, expected, atol=1e-5)
    for document, score in zip(DOCUMENTS, expected, strict=True):
        alone = scores_of(folder / "model", [document], **options)
        np.testing.assert_allclose(alone, [score], atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*longer than 100 tokens")
def test_files_come_back(reranker: tuple[Any, Path], tmp_path: Path) -> None:
    """The library scores pairs as before, and weights are equal bit for bit."""
    from safetensors.torch import load_file
    from sentence_transformers import CrossEncoder

    theirs, folder = reranker
    hub = tmp_path / "hub"
    convert(CheckpointDir(folder / "model", "model"), hub, to="hub")
    weights = load_file(hub / "model.safetensors")
    expected_weights = load_file(folder / "hub" / "model.safetensors")
    assert weights.keys() == expected_weights.keys()
    for name, tensor in expected_weights.items():
        assert torch.equal(weights[name], tensor), name
    for name in ("1_LogitScore/config.json", "sentence_bert_config.json"):
        written = json.loads((hub / name).read_text("utf-8"))
        assert written == json.loads((folder / "hub" / name).read_text("utf-8")), name
    pairs = [(QUERY, document) for document in DOCUMENTS]
    again = CrossEncoder(str(hub), device="cpu")
    assert_same(again.predict(pairs), theirs.predict(pairs))
    assert again.prompts == theirs.prompts


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a reranker with a chat template, in the layout of the library."""
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("flat")
    write_reranker(folder, "flat")
    return folder


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (FLAT + "{{ strftime_now('%Y') }}", "it reads strftime_now"),
        (FLAT + "{{ messages | tojson }}", "tojson"),
        (FLAT + "{{ dict(a=1) }}", "it reads dict"),
        ("{% if %}", "Expected an expression"),
        ("{{ messages[0].content }}", "does not show the messages of the roles"),
        ("{{ raise_exception('no roles') }}", "no roles"),
    ],
)
def test_templates_that_are_not_reproduced_are_refused(
    flat: Path, tmp_path: Path, template: str, reason: str
) -> None:
    hub = tmp_path / "hub"
    shutil.copytree(flat / "hub", hub)
    (hub / "chat_template.jinja").write_text(template, "utf-8")
    with pytest.raises(VerificationError, match=reason) as error:
        converted(hub, tmp_path / "model")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("1_LogitScore/config.json", {"true_token_id": 310}, "token 310, and the model has 310"),
        ("1_LogitScore/config.json", {"true_token_id": None}, "true_token_id"),
        ("1_LogitScore/config.json", {"module_input_name": "x"}, "module_input_name = 'x'"),
        ("1_LogitScore/config.json", {"temperature": 2}, "temperature"),
        ("sentence_bert_config.json", {"modality_config": {"image": {}}}, "modality_config"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {}}}, "processing_kwargs"),
        ("config_sentence_transformers.json", {"activation_fn": "torch.exp"}, "torch.exp"),
    ],
)
def test_files_that_are_not_implemented_are_refused(
    flat: Path, tmp_path: Path, file: str, change: dict[str, Any], reason: str
) -> None:
    hub = tmp_path / "hub"
    shutil.copytree(flat / "hub", hub)
    content = json.loads((hub / file).read_text("utf-8"))
    (hub / file).write_text(json.dumps({**content, **change}), "utf-8")
    with pytest.raises(VerificationError, match=reason):
        converted(hub, tmp_path / "model")


def test_a_language_model_without_a_score_does_not_rerank(flat: Path, tmp_path: Path) -> None:
    """It has no tokens to compare, and its embeddings belong to another head."""
    converted(flat / "base", tmp_path / "model")
    with pytest.raises(UsageError, match="and not rerank"):
        load(str(tmp_path / "model"), backend="cpu").rerank(QUERY, DOCUMENTS)


def test_evaluation_ranks_by_the_logits(flat: Path, tmp_path: Path) -> None:
    """In the order of the library's scores, for each text as the relevant one."""
    from sentence_transformers import CrossEncoder

    converted(flat / "hub", tmp_path / "model")
    documents = DOCUMENTS[:3]
    theirs = CrossEncoder(str(flat / "hub"), device="cpu")
    scores = theirs.predict([(QUERY, document) for document in documents])
    for number in range(len(documents)):
        rows = []
        for other, document in enumerate(documents):
            rows.append({"text": QUERY, "pair": document, "label": int(other == number)})
        table = write_table(tmp_path / f"{number}.jsonl", rows)
        result = evaluate(tmp_path / "model", task="reranker", eval=table, pair="pair")
        rank = 1 + int((scores > scores[number]).sum())
        assert result.metrics["mrr_at_10"] == pytest.approx(1 / rank)


PAIR_TEMPLATE = (
    '<Query>: {{ (messages | selectattr("role", "eq", "query") | first).content }} '
    '<Document>: {{ (messages | selectattr("role", "eq", "document") | first).content }} answer:'
)


@pytest.mark.long
def test_a_registry_entry_makes_a_reranker_of_a_language_model(hub: Hub, tmp_path: Path) -> None:
    """Scores of a repository without the library's files are the formula's of its card."""
    folder = tmp_path / "plain"
    config = transformers.Qwen3Config(**SHAPE, num_hidden_layers=2, num_key_value_heads=2)
    write_model(folder, transformers.Qwen3ForCausalLM(config))
    write_tokenizer(folder, padding_side="left", pad=PAD)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.add("someone/plain-reranker", files)
    reranker = {"true_token_id": 5, "false_token_id": 7, "chat_template": PAIR_TEMPLATE}
    entry = {"family": "llama", "repo": "someone/plain-reranker", "reranker": reranker}
    home = Path(os.environ["ZOO_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "registry.yaml").write_text(json.dumps({"my-reranker": entry}), "utf-8")

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder).double()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    expected = []
    for document in DOCUMENTS[:3]:
        text = f"<Query>: {QUERY} <Document>: {document} answer:"
        with torch.no_grad():
            # As in the card, the tokenizer adds nothing to the text of the template.
            inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
            logits = model(**inputs).logits[0, -1]
        expected.append(torch.sigmoid(logits[5] - logits[7]).item())

    ours = load("my-reranker", backend="cpu", dtype="float64")
    scores = {row["corpus_id"]: row["score"] for row in ours.rerank(QUERY, DOCUMENTS[:3])}
    # The library rounds the angles of positions to float32 before it computes in float64.
    assert [scores[number] for number in range(3)] == pytest.approx(expected, abs=1e-7)
    convert(CheckpointDir(ours.checkpoint.path, "model"), tmp_path / "hub", to="hub")
    settings = json.loads((tmp_path / "hub/tokenizer_config.json").read_text("utf-8"))
    assert settings["chat_template"] == PAIR_TEMPLATE
    score_config = json.loads((tmp_path / "hub/1_LogitScore/config.json").read_text("utf-8"))
    assert (score_config["true_token_id"], score_config["false_token_id"]) == (5, 7)
