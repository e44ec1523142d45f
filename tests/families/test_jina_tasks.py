"""The first release of Jina Embeddings v3 with its tasks, and the rerankers of the same code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints import VOCABULARY, Make
from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.families import flash_formula, parity
from tests.families.reference import SMALL_SIZES
from tests.warm import zoo
from zoo.api import load
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conformance.hf_reference import hub_state
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records
from zoo_jina import Jina
from zoo_jina.config import JinaConfig

JINA = Jina()
FLASH = JinaConfig(
    **SMALL_SIZES, model_type="xlm_roberta_flash", pad_token_id=0, rope_theta=10_000.0
)
TASKS = ("retrieval.query", "retrieval.passage", "separation")
WITH_TASKS = replace(FLASH, tasks=TASKS, type_vocab_size=4)
RERANKER = replace(FLASH, positions="absolute", pad_token_id=1, labels=("LABEL_0",))
PROMPTS = {"retrieval.query": "a b ", "retrieval.passage": "c ", "separation": ""}
TEXTS = ["d e f", "j", "a b c d e f g h i"]
CHANGES: list[dict[str, Any]] = [
    {},
    {"task_rank": 1, "task_alpha": 3.0},
    {"num_heads": 4, "rope_theta": 90.0},
    {"tasks": ("one",), "type_vocab_size": 2, "num_layers": 1},
    {"task_rank": 5, "layer_norm_eps": 0.1, "intermediate_size": 24},
]


def hub_tensors(model: torch.nn.Module, config: JinaConfig, head: str) -> dict[str, Tensor]:
    """Return the tensors of a model by their published names, which have gradients."""
    tensors = {}
    for name, tensor in hub_state(JINA.weights(config, head), model.state_dict()).items():
        prefixed = name if head != "none" else f"roberta.{name}"
        tensors[prefixed] = tensor.detach().clone().requires_grad_()
    return tensors


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_outputs_and_gradients_follow_the_released_formula(changes: dict[str, Any]) -> None:
    config = replace(WITH_TASKS, **changes)
    model = parity.random_model(JINA, config, "none")
    hub = hub_tensors(model, config, "none")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, config.vocab_size, (4, 9), generator=generator)
    lengths = [9, 4, 1, 6]
    types = torch.tensor([1, 0, len(config.tasks), 1])
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    outputs = model(ids, mask, types[:, None].expand(4, 9))
    loss = torch.zeros((), dtype=torch.float64)
    expected_loss = torch.zeros((), dtype=torch.float64)
    for row, (length, number) in enumerate(zip(lengths, types.tolist(), strict=True)):
        task = number - 1 if number else None
        hidden = flash_formula.encode(config, hub, ids[row, :length], task)
        pooler_output = flash_formula.pooled(config, hub, hidden, task)
        ours = outputs["last_hidden_state"][row, :length]
        assert (ours - hidden).abs().max() <= 1e-9
        assert (outputs["pooler_output"][row] - pooler_output).abs().max() <= 1e-9
        loss = loss + ours.square().mean() + outputs["pooler_output"][row].sum()
        expected_loss = expected_loss + hidden.square().mean() + pooler_output.sum()
    torch.autograd.backward([loss, expected_loss])
    for entry in JINA.weights(config, "none").entries():
        gradient = model.get_parameter(entry.target).grad
        (source,) = entry.sources
        expected = hub[source if source in hub else f"roberta.{source}"].grad
        assert gradient is not None, entry.target
        assert expected is not None, source
        assert (gradient - expected).abs().max() <= 1e-9, entry.target


def test_without_types_no_task_is_selected() -> None:
    model = parity.random_model(JINA, WITH_TASKS, "none")
    ids = torch.arange(1, 8)[None]
    zeros = model(ids, None, torch.zeros_like(ids))["last_hidden_state"]
    assert (model(ids)["last_hidden_state"] - zeros).abs().max() <= 1e-12


def write_published(folder: Path, **changes: Any) -> dict[str, Tensor]:
    """Write a small model in the layout of the first release; return its tensors."""
    config = replace(WITH_TASKS, vocab_size=len(VOCABULARY), max_positions=40, **changes)
    model = parity.random_model(JINA, config, "none").float()
    tensors = {}
    for name, tensor in hub_tensors(model, config, "none").items():
        tensors[name] = tensor.detach().contiguous()
    code = "jinaai/xlm-roberta-flash-implementation--"
    hub = {
        "_name_or_path": "jinaai/jina-embeddings-v3",
        "architectures": ["XLMRobertaModel"],
        "attention_probs_dropout_prob": 0.1,
        "auto_map": {
            "AutoConfig": f"{code}configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModel": f"{code}modeling_lora.XLMRobertaLoRA",
        },
        "bos_token_id": 0,
        "classifier_dropout": None,
        "emb_pooler": "mean",
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "layer_norm_eps": config.layer_norm_eps,
        "load_trained_adapters": True,
        "lora_adaptations": list(TASKS),
        "lora_alpha": 1,
        "lora_dropout_p": 0.0,
        "lora_main_params_trainable": False,
        "lora_rank": 4,
        "matryoshka_dimensions": [8, 16],
        "max_position_embeddings": 40,
        "model_type": "xlm-roberta",
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "output_past": True,
        "pad_token_id": 0,
        "position_embedding_type": "rotary",
        "rotary_emb_base": 10000.0,
        "task_instructions": PROMPTS,
        "torch_dtype": "float32",
        "truncate_dim": None,
        "type_vocab_size": 1,
        "use_cache": True,
        "use_flash_attn": True,
        "use_reentrant": True,
        "vocab_size": len(VOCABULARY),
    }
    modules = [
        {"idx": 0, "name": "transformer", "path": "", "type": "custom_st.Transformer"},
        {"idx": 1, "name": "pooler", "path": "1_Pooling"},
        {"idx": 2, "name": "normalizer", "path": "2_Normalize"},
    ]
    modules[0]["kwargs"] = ["task"]
    modules[1]["type"] = "sentence_transformers.models.Pooling"
    modules[2]["type"] = "sentence_transformers.models.Normalize"
    files: dict[str, Any] = {
        "config.json": hub,
        "modules.json": modules,
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {
            "prompts": PROMPTS,
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    (folder / "1_Pooling").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def converted(folder: Path, target: Path) -> Checkpoint:
    convert(CheckpointDir(folder, str(folder)), target)
    return load_checkpoint(target)


def test_published_files_are_converted_both_ways(tmp_path: Path) -> None:
    tensors = write_published(tmp_path / "hub")
    checkpoint = converted(tmp_path / "hub", tmp_path / "ours")
    assert (checkpoint.family.name, checkpoint.head_name) == ("jina", "none")
    assert checkpoint.manifest.round_trip == "exact"
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    written = load_file(tmp_path / "back" / "model.safetensors")
    if not any(name.startswith("roberta.") for name in written):
        written = {f"roberta.{name}": tensor for name, tensor in written.items()}
    assert written.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(written[name], tensor), name
    for file in ("config.json", "modules.json"):
        before = json.loads((tmp_path / "hub" / file).read_text())
        after = json.loads((tmp_path / "back" / file).read_text())
        if file == "modules.json":
            assert {key: after[0][key] for key in ("type", "kwargs")} == {
                key: before[0][key] for key in ("type", "kwargs")
            }
        else:
            del before["torch_dtype"]  # It is written as the dtype of the file.
            assert {key: after[key] for key in before} == before


def reference_vector(folder: Path, tensors: dict[str, Tensor], ids: list[int], task: Any) -> Any:
    """Return the normalized mean of the tokens by the released formula, in float64."""
    config = replace(WITH_TASKS, vocab_size=len(VOCABULARY), max_positions=40)
    hub = {name: tensor.double() for name, tensor in tensors.items()}
    hidden = flash_formula.encode(config, hub, torch.tensor(ids), task)
    return torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy()


def test_a_prompt_selects_its_task(tmp_path: Path) -> None:
    tensors = write_published(tmp_path / "hub")
    checkpoint = converted(tmp_path / "hub", tmp_path / "ours")
    model = load(str(checkpoint.path), backend="cpu", dtype="float64")

    def expected(texts: list[str], prompt: str | None) -> Any:
        task = None if prompt is None else TASKS.index(prompt)
        vectors = []
        for text in texts:
            encoded = model.tokenizer.encode([PROMPTS.get(prompt or "", "") + text], max_tokens=40)[
                0
            ]
            vectors.append(reference_vector(tmp_path / "hub", tensors, encoded.ids, task))
        return np.stack(vectors)

    for prompt in (None, *TASKS):
        ours = model.embed(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(ours, expected(TEXTS, prompt), atol=1e-9)
    # In retrieval, queries and texts have their own tasks.
    similarities = expected(["a"], "retrieval.query") @ expected(TEXTS, "retrieval.passage").T
    for result in model.rerank("a", TEXTS):
        assert result["score"] == pytest.approx(similarities[0, result["corpus_id"]], abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("options", [(), pytest.param(("--pooled",), marks=pytest.mark.long)])
def test_a_graph_has_all_tasks(tmp_path: Path, options: tuple[str, ...]) -> None:
    write_published(tmp_path / "hub", num_layers=1)  # a trace of three takes three times as long
    checkpoint = converted(tmp_path / "hub", tmp_path / "ours")
    export = tmp_path / "graph"
    result = zoo("export", checkpoint.path, "--onnx", *options, "-o", export)
    assert result.returncode == 0, result.stderr
    model = load(str(checkpoint.path), backend="cpu")
    graph = load(str(export))
    for prompt in (None, *TASKS):
        task = Embed(graph.checkpoint, graph.session, graph.tokenizer, prompt_name=prompt)
        vectors = task.vectors(as_records(TEXTS))
        np.testing.assert_allclose(vectors, model.embed(TEXTS, prompt_name=prompt), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "alibi"}, "position_embedding_type"),
        ({"load_trained_adapters": False}, "load_trained_adapters = False"),
        ({"type_vocab_size": 2}, "type_vocab_size = 2"),
        ({"lora_adaptations": ["a", "a"]}, "lora_adaptations = "),
        ({"lora_rank": 0}, "lora_rank = 0"),
        ({"truncate_dim": 8}, "truncate_dim"),
        ({"lora_adaptations": ["a"]}, "word_embeddings"),
    ],
)
def test_what_is_not_computed_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_published(tmp_path / "hub")
    file = tmp_path / "hub" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(VerificationError, match=message):
        converted(tmp_path / "hub", tmp_path / "ours")


def test_code_that_selects_a_task_is_refused_for_other_models(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = hub_checkpoint("BertModel")
    write_published(tmp_path / "hub")
    for name in ("modules.json", "1_Pooling"):
        (tmp_path / "hub" / name).rename(source / name)
    with pytest.raises(VerificationError, match=r"custom_st.Transformer is not implemented"):
        converted(source, tmp_path / "ours")


# Rerankers: learned positions, and a classifier


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_heads": 4}, {"layer_norm_eps": 0.1}, {"pad_token_id": 3}, {"num_layers": 1}],
    ids=str,
)
def test_a_reranker_follows_the_released_formula(changes: dict[str, Any]) -> None:
    config = replace(RERANKER, **changes)
    model = parity.random_model(JINA, config, "sequence-classification")
    hub = hub_tensors(model, config, "sequence-classification")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, config.vocab_size, (3, 9), generator=generator)
    lengths = [9, 4, 1]
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    ids = ids.masked_fill(mask == 0, int(config.pad_token_id or 0))
    logits = model(ids, mask)["logits"]
    expected = []
    for row, length in enumerate(lengths):
        hidden = flash_formula.encode(config, hub, ids[row, :length], None)
        expected.append(flash_formula.scores(hub, hidden))
    reference = torch.stack(expected)
    assert (logits - reference).abs().max() <= 1e-9
    torch.autograd.backward([logits.square().sum(), reference.square().sum()])
    for entry in JINA.weights(config, "sequence-classification").entries():
        gradient = model.get_parameter(entry.target).grad
        (source,) = entry.sources
        expected_gradient = hub[source].grad
        assert gradient is not None, entry.target
        assert expected_gradient is not None, source
        assert (gradient - expected_gradient).abs().max() <= 1e-9, entry.target


def test_a_published_reranker_is_converted_both_ways(tmp_path: Path) -> None:
    config = replace(RERANKER, vocab_size=len(VOCABULARY), max_positions=40)
    model = parity.random_model(JINA, config, "sequence-classification").float()
    tensors = {}
    for name, tensor in hub_tensors(model, config, "sequence-classification").items():
        tensors[name] = tensor.detach().contiguous()
    folder = tmp_path / "hub"
    folder.mkdir()
    hub = {
        "architectures": ["XLMRobertaForSequenceClassification"],
        "auto_map": {
            "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModelForSequenceClassification": (
                "modeling_xlm_roberta.XLMRobertaForSequenceClassification"
            ),
        },
        "hidden_act": "gelu",
        "hidden_size": config.hidden_size,
        "id2label": {"0": "LABEL_0"},
        "intermediate_size": config.intermediate_size,
        "label2id": {"LABEL_0": 0},
        "layer_norm_eps": config.layer_norm_eps,
        "max_position_embeddings": 40,
        "model_type": "xlm-roberta",
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "pad_token_id": 1,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "use_flash_attn": True,
        "vocab_size": len(VOCABULARY),
    }
    (folder / "config.json").write_text(json.dumps(hub))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = converted(folder, tmp_path / "ours")
    assert checkpoint.head_name == "sequence-classification"
    assert checkpoint.onnx_spec.limits == {"tokens": 38}
    ours = load(str(checkpoint.path), backend="cpu")
    assert [result["corpus_id"] for result in ours.rerank("a b", TEXTS)]
    convert(CheckpointDir(checkpoint.path, "ours"), tmp_path / "back", to="hub")
    written = load_file(tmp_path / "back" / "model.safetensors")
    assert written.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(written[name], tensor), name
    after = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {key: after[key] for key in hub} == hub
