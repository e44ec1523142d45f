"""Adapters of peft with resized rows of embeddings, for families with decoders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.adapters.making import ids_of, randomize, zoo
from tests.checkpoints import Make, byte_level_roberta, shrink
from tests.inference.conftest import converted
from tests.tokenizers.trained import END, byte_level, padded
from zoo.conversion.cache import resolve_checkpoint
from zoo.inference.load_model import load_model

BIAS = "final_logits_bias"  # a buffer, which adapters do not hold
TEXT = "a zyxwv of it"  # the base cuts the added word


def gpt2(make: Make, architecture: str) -> Path:
    vocabulary, merges = byte_level((END,))
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    path = make(architecture, tokenizer=False, vocab_size=1500, num_labels=3, **ids)
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return path


def t5(make: Make, architecture: str) -> Path:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "vocab_size": 810}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    path = make(architecture, tokenizer=False, num_labels=3, **sizes, **ids)
    (path / "spiece.model").write_bytes(padded())
    return path


def bart(make: Make, architecture: str) -> Path:
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
    path = byte_level_roberta(
        make, architecture, num_labels=3, decoder_start_token_id=2, forced_eos_token_id=2, **sizes
    )
    tensors = load_file(path / "model.safetensors")
    if BIAS in tensors:
        tensors[BIAS] = torch.randn(tensors[BIAS].shape, generator=torch.Generator().manual_seed(5))
        save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


FAMILIES: dict[str, tuple[Callable[[Make, str], Path], Any, list[str]]] = {
    "GPT2LMHeadModel": (gpt2, transformers.GPT2TokenizerFast, ["c_attn"]),
    "GPT2ForSequenceClassification": (gpt2, transformers.GPT2TokenizerFast, ["c_attn"]),
    "T5ForConditionalGeneration": (t5, transformers.T5TokenizerFast, ["q", "v"]),
    "BartForConditionalGeneration": (bart, transformers.BartTokenizerFast, ["q_proj", "v_proj"]),
    "BartForSequenceClassification": (bart, transformers.BartTokenizerFast, ["q_proj", "v_proj"]),
}


def logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    model.eval()
    with torch.no_grad():
        outputs: Any = model(**inputs)
    result: Tensor = outputs["logits"]
    return result


# The rows belong to the embeddings, which the other heads of a family read as well.
SIMILAR = ("GPT2ForSequenceClassification", "BartForSequenceClassification")


@pytest.mark.long
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(name, marks=pytest.mark.long if name in SIMILAR else ()) for name in FAMILIES],
)
def test_rows_of_an_added_word_are_read_as_in_peft(
    architecture: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    make, tokenizer_class, targets = FAMILIES[architecture]
    source = make(hub_checkpoint, architecture)
    shrink(source / "model.safetensors", 0.2)
    converted(source, tmp_path / "base")
    tokenizer = tokenizer_class.from_pretrained(source)
    tokenizer.add_tokens(["zyxwv"])
    model = getattr(transformers, architecture).from_pretrained(source)
    torch.manual_seed(0)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    task = "SEQ_CLS" if architecture.endswith("ForSequenceClassification") else None
    config = peft.LoraConfig(r=2, target_modules=targets, task_type=task)
    adapted: Any = peft.get_peft_model(model, config)
    randomize(adapted)
    adapted.save_pretrained(str(tmp_path / "theirs"))
    tokenizer.save_pretrained(str(tmp_path / "theirs"))
    inputs = dict(tokenizer([TEXT], return_tensors="pt"))
    inputs.pop("token_type_ids", None)
    if architecture.endswith("ForConditionalGeneration"):
        start = torch.full((1, 1), model.config.decoder_start_token_id)
        inputs["decoder_input_ids"] = torch.cat([start, inputs["input_ids"][:, :-1]], 1)
    expected = logits(adapted, inputs)
    zoo("convert", tmp_path / "theirs", "--base", tmp_path / "base", "-o", tmp_path / "ours")
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    zoo("convert", tmp_path / "hub", "--base", tmp_path / "base", "-o", tmp_path / "back")
    zoo("adapter", "merge", tmp_path / "ours", "-o", tmp_path / "merged")
    for name in ("ours", "back", "merged"):
        checkpoint = resolve_checkpoint(str(tmp_path / name))
        assert ids_of(checkpoint, TEXT) == inputs["input_ids"][0].tolist()
        torch.testing.assert_close(
            logits(load_model(checkpoint), inputs), expected, atol=1e-4, rtol=1e-4
        )
    base = getattr(transformers, architecture).from_pretrained(source)
    base.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    stated = peft.PeftConfig.from_pretrained(str(tmp_path / "hub"))
    if stated.task_type == "SEQ_2_SEQ_LM":
        stated.task_type = None  # peft's class calls a method that transformers 5 removed
    again = peft.PeftModel.from_pretrained(base, tmp_path / "hub", config=stated)
    torch.testing.assert_close(logits(again, inputs), expected, atol=1e-4, rtol=1e-4)
