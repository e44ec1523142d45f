"""Tiny models of every kind that is served, written by transformers and sentence-transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.checkpoints import SMALL, VOCABULARY
from tests.tokenizers.trained import END, byte_level

LABELS = ("red", "green", "blue")
PROMPTS = {"query": "a b ", "document": "c d "}


def write_models(folder: Path, packaged: Path) -> None:
    """Write a directory for each model, in the Hub's layout.

    They are ``minilm`` (the real encoder), ``prompted`` (an encoder with prompts), ``sparse``,
    ``reranker``, ``classifier`` and ``decoder``.

    Args:
        folder: where the directories are written.
        packaged: directory of the real encoder.
    """
    import torch

    shutil.copytree(packaged, folder / "minilm")
    torch.manual_seed(0)
    write_prompted(folder / "prompted")
    write_sparse(folder / "sparse")
    write_reranker(folder / "reranker")
    write_classifier(folder / "classifier")
    write_decoder(folder / "decoder")


def write_bert(path: Path, architecture: str, **changes: Any) -> Path:
    """Write a BERT with a vocabulary of letters."""
    import transformers

    model_class = getattr(transformers, architecture)
    model_class(transformers.BertConfig(**{**SMALL, **changes})).eval().save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return path


def write_prompted(path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    source = write_bert(path.with_name("prompted-source"), "BertModel")
    modules = [Transformer(str(source)), Pooling(32), Normalize()]
    model = SentenceTransformer(modules=modules, prompts=PROMPTS, device="cpu")
    model.save(str(path), create_model_card=False)


def write_sparse(path: Path) -> None:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    source = write_bert(path.with_name("sparse-source"), "BertForMaskedLM", initializer_range=0.3)
    encoder = Transformer(str(source), transformer_task="fill-mask")
    model = SparseEncoder(modules=[encoder, SpladePooling("max", "relu")], device="cpu")
    model.eval().save(str(path), create_model_card=False)


def write_reranker(path: Path) -> None:
    from sentence_transformers import CrossEncoder

    source = write_bert(
        path.with_name("reranker-source"),
        "BertForSequenceClassification",
        num_labels=1,
        initializer_range=0.3,
    )
    CrossEncoder(str(source), device="cpu").save_pretrained(str(path), create_model_card=False)


def write_classifier(path: Path) -> None:
    id2label = dict(enumerate(LABELS))
    label2id = {label: number for number, label in id2label.items()}
    write_bert(
        path,
        "BertForSequenceClassification",
        id2label=id2label,
        label2id=label2id,
        initializer_range=0.3,
    )


def write_adapter(path: Path, models: Path) -> None:
    """Write a LoRA adapter of the classifier in peft's layout."""
    import peft
    import torch
    import transformers

    torch.manual_seed(1)
    network = transformers.BertForSequenceClassification.from_pretrained(models / "classifier")
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=["query", "value"], init_lora_weights=False
    )
    peft.get_peft_model(network, config).save_pretrained(str(path))


def write_decoder(path: Path) -> None:
    import transformers

    vocabulary, merges = byte_level((END,))
    config = transformers.GPT2Config(
        vocab_size=len(json.loads(vocabulary)),
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.3,
    )
    transformers.GPT2LMHeadModel(config).eval().save_pretrained(path)
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
