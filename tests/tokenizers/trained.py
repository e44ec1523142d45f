"""Small tokenizer models of every kind, trained deterministically."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.tokenizers.texts import prose

BYTE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BRACKETS = ("[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]")
SYMBOLS = '()"-.\u2013£€'
END = "<|endoftext|>"


@cache
def byte_level(specials: tuple[str, ...] = BYTE_SPECIALS) -> tuple[str, str]:
    """Return ``vocab.json`` and ``merges.txt`` of 1,500 byte-level tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=list(specials),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(prose(3000), trainer)
    return _saved(tokenizer)


@cache
def words() -> tuple[str, str]:
    """Return ``vocab.json`` and ``merges.txt`` of 1,200 tokens, words ending in ``</w>``."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(prose(3000), trainer)
    return _saved(tokenizer)


def _saved(tokenizer: Any) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.model.save(scratch)
        vocabulary = json.loads((Path(scratch) / "vocab.json").read_text("utf-8"))
        return json.dumps(vocabulary), (Path(scratch) / "merges.txt").read_text("utf-8")


@cache
def pieces(kind: str = "unigram", **options: Any) -> bytes:
    """Return a SentencePiece model file of 700 pieces."""
    import sentencepiece

    lines = [*prose(2500), "Crème brûlée, naïve; über 2,000 señores 中文 日本語 한국어 русский"] * 2
    with tempfile.TemporaryDirectory() as scratch:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=f"{scratch}/m",
            model_type=kind,
            vocab_size=700,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
            **options,
        )
        return (Path(scratch) / "m.model").read_bytes()


def plain() -> bytes:
    """Special tokens as in fairseq: <unk>, <s> and </s>."""
    return pieces()


def padded() -> bytes:
    """Special tokens as in T5: <pad>, </s>, <unk>."""
    return pieces(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def bracketed() -> bytes:
    """Special tokens as in later encoders: [PAD], [CLS], [SEP], [UNK]."""
    names = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]"}
    return pieces(pad_id=0, bos_id=1, eos_id=2, unk_id=3, unk_piece="[UNK]", **names)


def lowercase() -> bytes:
    """Control symbols and user-defined punctuation symbols, as in the first encoders."""
    return pieces(
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        user_defined_symbols=",".join(SYMBOLS),
        normalization_rule_name="nmt_nfkc_cf",
    )
