"""RoBERTa in the formats of other runtimes, which count positions from 0."""

from typing import Any

from zoo.families.post_norm_runtimes import encoder_ctranslate2, encoder_from_gguf, encoder_gguf
from zoo.families.runtimes import RuntimeHeader, RuntimeModel
from zoo_roberta.config import RobertaConfig
from zoo_roberta.weights import weights


def ctranslate2(config: RobertaConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    model = weights(config, head)
    skipped = config.pad_token_id + 1  # positions of texts begin after the padding's
    return encoder_ctranslate2(config, head, model, skipped_positions=skipped)


def gguf(config: RobertaConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    return encoder_gguf(
        config,
        head,
        weights(config, head),
        architecture="bert",
        tokenizer={"pre": "gpt-2"},
        skipped_positions=config.pad_token_id + 1,
        max_tokens=config.max_seq_len,
    )


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a RoBERTa, or of an XLM-RoBERTa, by the kind of tokenizer."""
    classes = {"gpt2": ("roberta", "Roberta"), "t5": ("xlm-roberta", "XLMRoberta")}
    if header.architecture != "bert" or header.tokenizer not in classes:
        return None
    padding = header.token("padding", 1) or 0
    names = classes[header.tokenizer]
    keys = encoder_from_gguf(header, *names, skipped_positions=padding + 1)
    return {**keys, "pad_token_id": padding}
