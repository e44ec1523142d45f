"""Keys of the Hub's ``config.json`` with one meaning in every family."""

from collections.abc import Collection, Mapping
from typing import Any

from zoo.io.file_keys import FileKey, FileKeys, Precedence, carried, honoured, refused, written_anew
from zoo.io.json import dump_json
from zoo.sentence_models.cross_encoder_files import CROSS_ENCODER_KEYS

# Settings of generation, see ``zoo.checkpoint.generation_config``.
GENERATION: Mapping[str, str] = dict.fromkeys(
    (
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_return_sequences",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "length_penalty",
        "exponential_decay_length_penalty",
        "repetition_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "bad_words_ids",
        "suppress_tokens",
        "begin_suppress_tokens",
        "remove_invalid_values",
        "forced_bos_token_id",
        "forced_eos_token_id",
    ),
    "used in generation if there is no `generation_config.json`",
)
# Keys of any Hub configuration that do not change the outputs of a forward pass, and why.
BOOKKEEPING: Mapping[str, str] = {
    "_name_or_path": "provenance",
    "_attn_implementation": "an implementation choice",
    "_attn_implementation_autoset": "an implementation choice",
    "_commit_hash": "provenance",
    "name_or_path": "provenance",
    "architectures": "the class of the checkpoint; written from the head",
    "model_type": "the family; written from it",
    "transformers_version": "provenance",
    "torch_dtype": "the dtype of the files; written from them",
    "dtype": "the dtype of the files; written from them",
    "label2id": "the inverse of id2label; written from it",
    "_num_labels": "the number of labels in id2label",
    "finetuning_task": "provenance",
    "name": "provenance",
    "language": "provenance",
    "chunk_size_feed_forward": "a memory setting, results are equal",
    "gradient_checkpointing": "a training setting",
    "output_attentions": "chooses outputs, not values",
    "output_hidden_states": "chooses outputs, not values",
    "return_dict": "chooses a container",
    "use_return_dict": "chooses a container",
    "return_dict_in_generate": "chooses a container",
    "output_scores": "chooses outputs, not values",
    "output_past": "chooses outputs, not values",
    "use_cache": "a speed setting, results are equal",
    "torchscript": "an export setting",
    "use_bfloat16": "a setting for TPUs that PyTorch models ignore",
    "tokenizer_class": "the kind of the tokenizer if `tokenizer_config.json` names none",
    "prefix": "prepended to prompts by old pipelines only",
    "eos_token_ids": "the tokenizer decides",
    "sep_token_id": "the tokenizer decides",
    "cls_token_id": "the tokenizer decides",
    "unk_token_id": "the tokenizer decides",
    "mask_token_id": "the tokenizer decides",
    "num_beam_groups": "generation only",
    "diversity_penalty": "generation only",
    **GENERATION,
    "transformers.js_config": "settings of another library",
    "attn_implementation": "an implementation choice",
    "experts_implementation": "an implementation choice",
    "tie_last_hidden_states": "chooses outputs, not values",
    "embedding_size": "the width of embeddings in families that name it in their own table",
    "task_specific_params": "defaults for old pipelines",
}
# Attributes that the Hub's library gives any configuration, whatever the family's own keys are.
COMMON: Mapping[str, str] = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "max_positions",
}
WRITTEN_ANEW = ("architectures", "model_type", "torch_dtype", "dtype", "label2id")
# Keys that change the outputs of a family which does not name them in a table of its own, with the
# values that mean "not used".
NOT_IMPLEMENTED: Mapping[str, tuple[Any, ...]] = {
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "tie_encoder_decoder": (False, None),
    "cross_attention_hidden_size": (None,),
    "per_layer_config": (None,),
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "rope_parameters": (None, {}),
    "rope_scaling": (None, {}),
    "rope_theta": (None,),
    "auto_map": (None, {}),
}

# Keys of labels, which have one meaning in every family.
LABELS: Mapping[str, str] = {
    "id2label": "the names of the outputs",
    "num_labels": "the number of outputs, if the weights do not have that of `id2label`",
    "problem_type": "the loss and the score of a classifier",
}


CONFIG_PRECEDENCE = (
    Precedence(
        "the number of outputs",
        ("the weights", "`num_labels`", "`id2label`"),
        "names of another number than `num_labels` are kept if the weights have that number. "
        "Otherwise the outputs are called `LABEL_0` and so on, with a notice, and transformers "
        "cannot open the former. `label2id` and `_num_labels` are not read",
    ),
    Precedence(
        "the dtype of the weights",
        ("the files of the weights", "`dtype`", "`torch_dtype`"),
        "nothing is rounded. transformers loads the weights in the dtype that is stated; `--dtype` "
        "does so here",
    ),
    Precedence(
        "tied weights",
        ("the weights", "`tie_word_embeddings`"),
        "a contradiction is refused, and the error says which value fits the file. transformers "
        "warns, and draws an output layer that is not there at random",
    ),
    Precedence(
        "a size, by two names",
        ("a family's own name, such as `d_model`", "the common one, such as `hidden_size`"),
        "a contradiction is refused",
    ),
    Precedence(
        "the padding token of the model",
        ("`pad_token_id` of `config.json`", "`pad_token` of the tokenizer"),
        "positions that skip padding, and decoders that read the last token, follow the former. "
        "Rows are padded by either, and outputs do not depend on it",
    ),
    Precedence(
        "the token whose state a classifier reads",
        ("`eos_token_id` of `config.json`", "`eos_token` of the tokenizer"),
        "of encoder-decoders; the tokenizer's own token has no part in it",
    ),
)


def refused_except(accepted: Collection[Any]) -> FileKey:
    """Return the entry of a key with values that are accepted."""
    return refused("values except " + " or ".join(f"`{dump_json(value)}`" for value in accepted))


def common_keys() -> FileKeys:
    """Return what becomes of each key that is not in a table of its family."""
    return {
        **{key: carried(reason) for key, reason in BOOKKEEPING.items()},
        **{key: honoured(reason) for key, reason in GENERATION.items()},
        **{key: written_anew(BOOKKEEPING[key]) for key in WRITTEN_ANEW},
        **{key: honoured(reason) for key, reason in LABELS.items()},
        **CROSS_ENCODER_KEYS,
        **{key: refused_except(accepted) for key, accepted in NOT_IMPLEMENTED.items()},
    }


def same_names(*names: str) -> dict[str, str]:
    """Return entries of ``ConfigMap.keys`` whose Hub key and field have one name."""
    return {name: name for name in names}
