"""Prompts and prefixes: peft opens ours, and we open its, with the same outputs."""

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

import zoo as zoo_api
from tests.adapters.making import FAMILIES, base_of, randomize, zoo
from tests.checkpoints import VOCABULARY, Make
from tests.inference.conftest import converted
from zoo.adapted_models.registry import parse_adapter
from zoo.adapted_models.targets import AdaptableModel
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.inference.load_model import load_model

TOKENS = 3
TASK_TYPES = {
    "SequenceClassification": "SEQ_CLS",
    "TokenClassification": "TOKEN_CLS",
    "QuestionAnswering": "QUESTION_ANS",
    "LMHeadModel": "CAUSAL_LM",
    "ConditionalGeneration": "SEQ_2_SEQ_LM",
    "Model": "FEATURE_EXTRACTION",
}
# with the numbers of layers, heads and widths that peft does not find
SIZES = {"DistilBert": {"token_dim": 32, "num_layers": 2, "num_attention_heads": 4}}
EMBEDDING_SIZE = {"Albert": 16, "Electra": 16}
PROMPTS = (
    *("AlbertForQuestionAnswering", "BartForConditionalGeneration", "BertModel"),
    *("BertForSequenceClassification", "DebertaForTokenClassification"),
    *("DebertaV2ForSequenceClassification", "DistilBertForSequenceClassification"),
    *("ElectraForSequenceClassification", "GPT2LMHeadModel", "ModernBertForTokenClassification"),
    *("OpenAIGPTForSequenceClassification", "RobertaForTokenClassification"),
    *("T5ForConditionalGeneration", "T5ForTokenClassification"),
)
PREFIXES = (
    *("BartForConditionalGeneration", "BertForSequenceClassification", "BertModel"),
    *("ElectraForTokenClassification", "GPT2ForSequenceClassification", "GPT2LMHeadModel"),
    *("RobertaForQuestionAnswering", "T5ForConditionalGeneration"),
)
# One for each way to read the rows before a text: with a token for the whole text at its begin or
# its end, with relative positions, with a generator, and in two stacks.
MECHANISMS = (
    *("BertForSequenceClassification", "DebertaV2ForSequenceClassification"),
    *("GPT2ForSequenceClassification", "GPT2LMHeadModel", "OpenAIGPTForSequenceClassification"),
    *("BartForConditionalGeneration", "T5ForConditionalGeneration"),
)
READS_LAST = ("GPT2ForSequenceClassification", "OpenAIGPTForSequenceClassification")
TARGET = torch.tensor([[0, 5, 9, 6], [0, 8, 7, 7]])


def family_of(architecture: str) -> str:
    kinds = ("LMHeadModel", "Model")
    name = next((k for k in kinds if architecture.endswith(k)), None)
    return architecture.removesuffix(name) if name else architecture.partition("For")[0]


def inputs_of(architecture: str) -> dict[str, Tensor]:
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 8, 3, 1 if "Roberta" in architecture else 0]])
    given = {"input_ids": ids, "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 1, 0]])}
    if architecture in READS_LAST:  # without ids, the library reads the last position
        given = {name: tensor[:1] for name, tensor in given.items()}
    if architecture.endswith("ConditionalGeneration"):
        given["decoder_input_ids"] = TARGET
    return given


def outputs(model: nn.Module, architecture: str, *, skip: int = 0) -> list[Tensor]:
    """Return the outputs of a model, of tokens without the first ones."""
    model.eval()
    with torch.no_grad():
        found = model(**inputs_of(architecture))
    names = ("start_logits", "end_logits", "logits", "last_hidden_state")
    mask = inputs_of(architecture)["attention_mask"][..., None]
    of_tokens = "SequenceClassification" not in architecture and "Conditional" not in architecture
    if not of_tokens:
        return [found["logits"]]
    pooled = [found["pooler_output"]] if "pooler_output" in found else []
    rows = [found[name][:, skip:].reshape(*mask.shape[:2], -1) for name in names if name in found]
    return [*pooled, *(row * mask for row in rows)]  # without padding


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def adapted_by_peft(architecture: str, method: str, source: Path, **changes: Any) -> Any:
    family = family_of(architecture)
    settings: dict[str, Any] = {
        "task_type": next(t for end, t in TASK_TYPES.items() if architecture.endswith(end)),
        "num_virtual_tokens": TOKENS,
        **SIZES.get(family, {}),
        **changes,
    }
    if method == "prompt" and family in EMBEDDING_SIZE:
        settings["token_dim"] = EMBEDDING_SIZE[family]
    kind = peft.PromptTuningConfig if method == "prompt" else peft.PrefixTuningConfig
    base = getattr(transformers, architecture).from_pretrained(source)
    model: Any = peft.get_peft_model(base, kind(**settings))
    randomize(model)
    return model


@pytest.mark.by_default("prompt-BertForSequenceClassification")
@pytest.mark.parametrize(
    ("method", "architecture"),
    [
        *(
            pytest.param("prompt", name, marks=() if name in MECHANISMS else pytest.mark.long)
            for name in PROMPTS
        ),
        *(
            pytest.param("prefix", name, marks=() if name in MECHANISMS else pytest.mark.long)
            for name in PREFIXES
        ),
    ],
)
def test_each_library_opens_the_others(
    method: str,
    architecture: str,
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = getattr(transformers, architecture)
    if architecture.endswith("ConditionalGeneration"):  # peft 0.21 looks for a method of version 4
        name = "_prepare_encoder_decoder_kwargs_for_generation"
        monkeypatch.setattr(kind, name, None, raising=False)
    changes = FAMILIES.get(f"{family_of(architecture)}ForSequenceClassification", {})
    labels = {"num_labels": 2} if "QuestionAnswering" in architecture else {}
    if "Bart" in architecture:
        changes = {**changes, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    base, source = base_of(hub_checkpoint, architecture, tmp_path, **changes, **labels)
    theirs = adapted_by_peft(architecture, method, source)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    skip = TOKENS if method == "prompt" else 0
    expected = outputs(theirs, architecture, skip=skip)
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
    model = load_model(resolve_checkpoint(str(tmp_path / "ours")))
    assert_same(outputs(model, architecture), expected)
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "back")
    opened = peft.PeftModel.from_pretrained(kind.from_pretrained(source), tmp_path / "back")
    assert_same(outputs(opened, architecture, skip=skip), expected)


def with_adapter(base: Path, method: str) -> nn.Module:
    checkpoint = resolve_checkpoint(str(base))
    model = load_model(checkpoint)
    family, config, head = checkpoint.family, checkpoint.config, checkpoint.head_name
    adaptable = AdaptableModel.from_model(model, family, config, head)
    torch.manual_seed(2)
    parse_adapter({"method": method, "num_virtual_tokens": TOKENS}).add_to(model, adaptable)
    return model.eval()


@pytest.mark.by_default("GPT2LMHeadModel")
@pytest.mark.parametrize("method", ["prompt", "prefix"])
@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])
@torch.inference_mode()
def test_steps_of_generation_equal_whole_texts(
    architecture: str, method: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    """With a cache, and with rows of different lengths, padded where the model has padding."""
    changes = FAMILIES.get(f"{family_of(architecture)}ForSequenceClassification", {})
    base, _ = base_of(hub_checkpoint, architecture, tmp_path, **changes)
    model: Any = with_adapter(base, method)
    causal = architecture == "GPT2LMHeadModel"
    ids = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 6] if causal else [9, 6, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    first, state = model.prefill(inputs, 4)
    second = model.step(torch.tensor([4, 7]), state)
    third = model.step(torch.tensor([8, 5]), state)
    for row, (token, other) in enumerate([(4, 8), (7, 5)]):
        text = ids[row][ids[row] != 0][None]
        for count, found in enumerate((first, second, third)):
            new = torch.tensor([[token, other][:count]], dtype=torch.int64)
            if causal:
                whole = model(torch.cat([text, new], 1))["logits"]
            else:
                start = torch.zeros(1, 1, dtype=torch.int64)
                whole = model(text, decoder_input_ids=torch.cat([start, new], 1))["logits"]
            torch.testing.assert_close(found[row], whole[0, -1], atol=1e-5, rtol=1e-5)


def convert_with_tokenizer(hub_checkpoint: Make, method: str, tmp_path: Path) -> Path:
    """Convert a classifier with a prompt of peft, and return its directory."""
    _, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    (source / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    converted(source, tmp_path / "with-tokenizer")
    theirs = adapted_by_peft("BertForSequenceClassification", method, source)
    theirs.save_pretrained(str(tmp_path / method))
    ours = tmp_path / f"ours-{method}"
    zoo("convert", tmp_path / method, "--base", tmp_path / "with-tokenizer", "-o", ours)
    return ours


@pytest.mark.by_default("prompt")
@pytest.mark.parametrize("method", ["prompt", "prefix"])
def test_texts_leave_room_for_virtual_tokens(
    method: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Of a model with 40 positions, three belong to the prompt: longer texts are cut."""
    model = zoo_api.load(convert_with_tokenizer(hub_checkpoint, method, tmp_path))
    (long,) = model.classify(["a " * 60])
    (cut,) = model.classify(["a " * 35])
    assert long["scores"] == cut["scores"]


@pytest.mark.long
def test_texts_leave_room_for_virtual_tokens_in_a_graph(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    ours = convert_with_tokenizer(hub_checkpoint, "prompt", tmp_path)
    zoo("export", ours, "-o", tmp_path / "graph")
    (expected,) = zoo_api.load(ours).classify(["a " * 60])
    (found,) = zoo_api.load(tmp_path / "graph").classify(["a " * 60])
    assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def damaged(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_files_that_do_not_fit_are_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    base, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    theirs = adapted_by_peft("BertForSequenceClassification", "prefix", source)

    def message(kind: type[ZooError], **changes: Any) -> str:
        theirs.save_pretrained(str(tmp_path / "theirs"))
        damaged(tmp_path / "theirs", **changes)
        with pytest.raises(kind) as error:
            zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
        assert not (tmp_path / "ours").exists()
        return str(error.value)

    assert "has 3 layers" in message(VerificationError, num_layers=3)
    assert "num_attention_heads is 2, not 4" in message(VerificationError, num_attention_heads=2)
    assert "has room for at most 3" in message(VerificationError, num_virtual_tokens=4)
    assert "do not match its settings" in message(VerificationError, num_virtual_tokens=2)
    assert "num_virtual_tokens" in message(VerificationError, num_virtual_tokens="x")
    assert "layer_replication is" in message(UsageError, layer_replication=[[0, 1]])
    save_file({"base_model.x": torch.zeros(1)}, tmp_path / "theirs" / "adapter_model.safetensors")
    damaged(tmp_path / "theirs", layer_replication=None)
    with pytest.raises(VerificationError, match="has no matrix prompt_embeddings"):
        zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")


def of_a_decoder(method: str, hub_checkpoint: Make, folder: Path) -> None:
    """Convert an adapter of a decoder, which peft wrote."""
    base, source = base_of(hub_checkpoint, "GPT2LMHeadModel", folder)
    adapted_by_peft("GPT2LMHeadModel", method, source).save_pretrained(str(folder / method))
    zoo("convert", folder / method, "--base", base, "-o", folder / f"ours-{method}")


@pytest.mark.long
def test_a_graph_that_generates_has_a_prefix(hub_checkpoint: Make, tmp_path: Path) -> None:
    """It equals torch, which the export compares."""
    of_a_decoder("prefix", hub_checkpoint, tmp_path)
    zoo("export", tmp_path / "ours-prefix", "-o", tmp_path / "graph")
    assert (tmp_path / "graph" / "zoo.json").exists()


@pytest.mark.long
def test_a_graph_that_generates_takes_no_prompt(hub_checkpoint: Make, tmp_path: Path) -> None:
    of_a_decoder("prompt", hub_checkpoint, tmp_path)
    with pytest.raises(UsageError, match="has no place for the prompt"):
        zoo("export", tmp_path / "ours-prompt", "-o", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
