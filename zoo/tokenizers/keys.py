"""What becomes of each key of the configuration files of a tokenizer."""

# Keys that are in no table, such as other libraries' keys, are carried.

from collections.abc import Mapping
from typing import Any

from zoo.io.file_keys import FileKeys, Precedence, carried, honoured, refused, written_anew

IGNORED = "transformers 5 ignores it"
SPECIAL = "a special token, by its role"
OPTION = "an option of `tokenizer.json`, with which it is written"
PROVENANCE = "provenance"

TOKENIZER_CONFIG_KEYS: FileKeys = {
    **{
        f"{role}_token": honoured(SPECIAL)
        for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
    },
    "added_tokens_decoder": honoured("added tokens, with which `tokenizer.json` is written"),
    "extra_special_tokens": honoured("special tokens without a role"),
    "additional_special_tokens": honoured("an older name of `extra_special_tokens`"),
    "model_specific_special_tokens": honoured("special tokens without a role"),
    "model_max_length": honoured("texts are cut at this length, or at the model's if it is lower"),
    "max_len": honoured("an older name of `model_max_length`"),
    "truncation_side": honoured("side on which texts are cut; windows over a text cover all of it"),
    "split_special_tokens": honoured("special tokens in a text are split like other text"),
    "model_input_names": honoured("without `token_type_ids`, both texts of a pair are of type 0"),
    "padding_side": carried("outputs do not depend on padding"),
    "do_lower_case": honoured(OPTION),
    "strip_accents": honoured(OPTION),
    "tokenize_chinese_chars": honoured(OPTION),
    "keep_accents": honoured(OPTION),
    "add_prefix_space": honoured(f"{OPTION}; for SentencePiece, `false` is refused"),
    "trim_offsets": honoured(OPTION),
    "add_bos_token": honoured("without `tokenizer.json`, whose template has precedence"),
    "add_eos_token": honoured("without `tokenizer.json`, whose template has precedence"),
    "extra_ids": honoured("number of sentinel tokens, without `tokenizer.json`"),
    "src_lang": honoured(
        "the language code around texts, without `tokenizer.json`; or the language by whose rules "
        "Moses' scripts split texts"
    ),
    "source_lang": carried("the languages of a pair, which texts do not have"),
    "target_lang": carried("the languages of a pair, which texts do not have"),
    "separate_vocabs": honoured("targets have a vocabulary of their own, `target_vocab.json`"),
    "language_codes": honoured("the list of languages whose codes follow the vocabulary"),
    "num_madeup_words": carried("rows of the embeddings that no text uses"),
    "offset": refused("other than 103, the first id of the pieces of the file"),
    "mask_token_sent": carried("the token of missing sentences is one of the vocabulary"),
    "tgt_lang": carried("a target begins with the language that generation forces"),
    "clean_up_tokenization_spaces": honoured(
        "a step of the decoder of `tokenizer.json`; not for BPE, as in transformers 5"
    ),
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": honoured(
        "`clean_up_tokenization_spaces`, for BPE"
    ),
    "tokenizer_class": written_anew(
        "`PreTrainedTokenizerFast`, which applies no options to `tokenizer.json`; the class of the "
        "source decides how its files are read"
    ),
    "split_by_punct": refused("`true`"),
    "word_tokenizer_type": honoured("`basic`, or `mecab`, which the extra `japanese` runs"),
    "subword_tokenizer_type": honoured("`wordpiece`, or with MeCab `character`"),
    "normalization": honoured("with `bpe.codes`, texts are normalized as tweets"),
    "mecab_kwargs": honoured("`mecab_dic` and `normalize_text`; other options are refused"),
    "do_word_tokenize": refused("`false`, with MeCab"),
    "do_subword_tokenize": refused("`false`, with MeCab"),
    "sudachi_kwargs": carried("of a splitter that is refused"),
    "jumanpp_kwargs": carried("of a splitter that is refused"),
    "auto_map": refused("a tokenizer with code of its own, which is not run"),
    "init_inputs": refused("arguments of a tokenizer with code of its own"),
    "fix_mistral_regex": refused("`true`"),
    "do_lowercase": honoured("texts are lower-cased before Moses' scripts split them"),
    "do_lowercase_and_remove_accent": honoured("the words that Moses' scripts split, by default"),
    "lang2id": carried("numbers of the languages, which texts do not have"),
    "id2lang": carried("names of the languages, which texts do not have"),
    "never_split": carried(IGNORED),
    "do_basic_tokenize": carried(IGNORED),
    "remove_space": carried(IGNORED),
    "errors": carried(IGNORED),
    "legacy": carried(IGNORED),
    "sp_model_kwargs": carried(IGNORED),
    "vocab_type": carried(IGNORED),
    "unk_id": carried("the unknown token has its id in the vocabulary"),
    "verbose": carried("a setting of logs"),
    "chat_template": carried("chats are not implemented; `chat_template.jinja` has precedence"),
    "response_template": carried("chats are not implemented"),
    "response_schema": carried(IGNORED),
    "chat_control_tokens": carried("chats are not implemented"),
    "pad_token_type_id": carried("outputs do not depend on padding"),
    "pad_to_multiple_of": carried("outputs do not depend on padding"),
    "max_length": carried("an argument of calls, which transformers does not take from the file"),
    "stride": carried("an argument of calls, which transformers does not take from the file"),
    "truncation_strategy": carried(
        "an argument of calls, which transformers does not take from the file"
    ),
    **{
        key: carried("tokens and files are read from the directory itself")
        for key in (
            "vocab",
            "merges",
            "vocab_file",
            "merges_file",
            "source_spm",
            "target_spm",
            "target_vocab_file",
            "spm_file",
            "tokenizer_file",
            "special_tokens_map_file",
            "tokenizer_object",
            "gguf_file",
            "post_processor",
            "tokenizer_truncation",
            "tokenizer_padding",
            "_json_truncation",
            "_json_padding",
            "_spm_precompiled_charsmap",
        )
    },
    **{
        key: carried(PROVENANCE)
        for key in (
            "name_or_path",
            "processor_class",
            "backend",
            "files_loaded",
            "is_local",
            "local_files_only",
            "slow_tokenizer_class",
            "from_slow",
            "use_fast",
            "device_map",
        )
    },
}
TOKENIZER_PRECEDENCE = (
    Precedence(
        "a special token",
        (
            "`special_tokens_map.json`",
            "`tokenizer_config.json`",
        ),
        "the first is not read where `tokenizer_config.json` has `added_tokens_decoder`",
    ),
    Precedence(
        "the kind of a tokenizer",
        (
            "`tokenizer_class` of `tokenizer_config.json`",
            "`tokenizer_class` of `config.json`",
            "`model_type` of `config.json`",
        ),
        "a model may have the tokenizer of another family, with its normalizer, template and "
        "special tokens. `tokenizer.json` keeps its normalizer where no key names its kind",
    ),
)
SPECIAL_TOKENS_MAP_KEYS: FileKeys = {
    key: entry
    for key, entry in TOKENIZER_CONFIG_KEYS.items()
    if key.endswith(("_token", "_special_tokens")) and not key.startswith("add_")
}
_LIBRARY = "read by the tokenizers library"
TOKENIZER_JSON_KEYS: FileKeys = {
    "version": honoured(_LIBRARY),
    "truncation": honoured(
        "`direction` is the default of `truncation_side`; the rest is carried: each run has its own"
    ),
    "padding": honoured(
        "`pad_token` is the default of that in `tokenizer_config.json`; the rest is carried"
    ),
    **{
        key: honoured(_LIBRARY)
        for key in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    },
    "model.dropout": refused("values except `null` and `0.0`, which make ids a matter of chance"),
    **{
        f"model.{key}": honoured(_LIBRARY)
        for key in (
            "type",
            "vocab",
            "merges",
            "unk_token",
            "unk_id",
            "continuing_subword_prefix",
            "end_of_word_suffix",
            "max_input_chars_per_word",
            "fuse_unk",
            "byte_fallback",
            "ignore_merges",
        )
    },
}
# keys whose values are in ``tokenizer.json`` or in a field of ``TokenizerInfo``
FIELDS = (
    "added_tokens_decoder",
    "model_max_length",
    "max_len",
    "truncation_side",
    "split_special_tokens",
    "model_input_names",
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
)
# values that mean "not used", of keys that are refused for every kind of tokenizer
NOT_USED: Mapping[str, tuple[Any, ...]] = {
    "auto_map": (None, {}, []),
    "init_inputs": (None, []),
    "fix_mistral_regex": (None, False),
}
