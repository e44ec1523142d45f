"""Settings of tokenizer files are honoured as in transformers, or kept for the way back."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import (
    CONFIG,
    TOKENIZER,
    Content,
    cased,
    flags,
    stored,
    write,
)
from tests.tokenizers.making import assert_equal
from tests.tokenizers.texts import prose
from tests.tokenizers.trained import END, byte_level, lowercase, padded, plain
from zoo.errors import VerificationError
from zoo.plugins import family_of_model_type
from zoo.tokenizers import (
    SourceFiles,
    TextTokenizer,
    check_vocabulary,
    hub_tokenizer_files,
    tokenizer_info,
)
from zoo.tokenizers.keys import TOKENIZER_CONFIG_KEYS

PIECES = {"xlm-roberta": "sentencepiece.bpe.model", "t5": "spiece.model", "albert": "spiece.model"}
BYTES = dict(zip(("vocab.json", "merges.txt"), byte_level(), strict=True))
VOCABULARIES: dict[str, Callable[[], dict[str, Content]]] = {
    "bert": lambda: {"vocab.txt": cased()},
    "roberta": lambda: {**BYTES},
    "gpt2": lambda: dict(zip(BYTES, byte_level((END,)), strict=True)),
    "xlm-roberta": lambda: {PIECES["xlm-roberta"]: plain()},
    "t5": lambda: {PIECES["t5"]: padded()},
    "albert": lambda: {PIECES["albert"]: lowercase()},
}


def source(folder: Path, model_type: str, *, config: Mapping[str, Any], **more: Content) -> Path:
    """Write the tokenizer files of a model; keywords are further files, with ``_`` for a dot."""
    files = {name.replace("_json", ".json"): content for name, content in more.items()}
    vocabulary = {} if TOKENIZER in files else VOCABULARIES[model_type]()
    model = {"config.json": {"model_type": model_type}}
    return write(folder, {**model, **vocabulary, **files, CONFIG: dict(config)})


def ours(directory: Path) -> TextTokenizer:
    files = SourceFiles(directory)
    family = family_of_model_type(files.json("config.json")["model_type"])
    assert family is not None
    tokenizer = family.tokenizer(files)
    return TextTokenizer(tokenizer, tokenizer_info(files, tokenizer, family.special_tokens))


def theirs(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


def back(tokenizer: TextTokenizer, folder: Path, model_type: str) -> Path:
    """Write the files of a tokenizer in the Hub's layout."""
    files = hub_tokenizer_files(tokenizer._tokenizer.to_str().encode(), tokenizer.info)
    return write(folder, {"config.json": {"model_type": model_type}, **files})


def config_of(directory: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((directory / CONFIG).read_text("utf-8"))
    return value


@pytest.mark.by_default("bert", "t5", "gpt2")
@pytest.mark.parametrize("model_type", VOCABULARIES)
def test_texts_and_pairs_are_cut_on_the_side_of_the_files(model_type: str, tmp_path: Path) -> None:
    stated = {"truncation_side": "left", "model_max_length": 24}
    directory = source(tmp_path / "a", model_type, config=stated)
    tokenizer, other = both = ours(directory), theirs(directory)
    # transformers and sentencepiece split some numbers and quotes differently
    lines = [" ".join(re.findall("[A-Za-z.]+", line)) for line in prose(60)]
    pairs = list(zip(lines, [*lines[25:], *lines[:25]], strict=True))
    assert tokenizer.max_tokens == other.model_max_length == 24
    for limit in (5, 8, 13, 24):
        assert_equal(both, lines, limit)
        assert_equal(both, pairs, limit + 3)
    whole, cut = (tokenizer.encode(lines, max_tokens=limit) for limit in (None, 8))
    assert sum(text.truncated for text in cut) > 200
    assert [c.n + c.truncated for c in cut] == [w.n for w in whole]

    again = back(tokenizer, tmp_path / "b", model_type)
    assert ours(again).info == tokenizer.info
    assert_equal((tokenizer, theirs(again)), pairs, 20)


def test_prompts_lose_their_beginning(tmp_path: Path) -> None:
    directory = source(tmp_path, "t5", config={"truncation_side": "left"})
    (whole,) = ours(directory).encode_prompts(["one two three four five"], max_tokens=None)
    (cut,) = ours(directory).encode_prompts(["one two three four five"], max_tokens=3)
    assert cut.ids == whole.ids[-3:] and cut.truncated == len(whole.ids) - 3


def test_a_side_that_is_none_is_refused(tmp_path: Path) -> None:
    directory = source(tmp_path, "bert", config={"truncation_side": "middle"})
    with pytest.raises(VerificationError, match=r"truncation_side = 'middle'; only 'left' and"):
        ours(directory)


def sections(direction: str) -> tuple[dict[str, Any], dict[str, Any]]:
    truncation = {"max_length": 9, "stride": 0, "strategy": "LongestFirst", "direction": direction}
    padding = {"strategy": {"Fixed": 12}, "direction": "Left", "pad_to_multiple_of": None}
    return truncation, {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}


@pytest.mark.parametrize("side", [{}, {"truncation_side": "right"}])
def test_truncation_and_padding_of_tokenizer_json(side: dict[str, str], tmp_path: Path) -> None:
    truncation, padding = sections("Left")
    content = stored(lambda value: value.update(truncation=truncation, padding=padding))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    directory = source(tmp_path / "a", "bert", config={**kind, **side}, tokenizer_json=content)
    tokenizer, other = ours(directory), theirs(directory)
    assert tokenizer.info.truncation_side == other.truncation_side == ("right" if side else "left")
    assert tokenizer.info.special["pad"] == other.pad_token == "[PAD]"
    lines = prose(50)
    assert_equal((tokenizer, other), lines, 9)

    again = back(tokenizer, tmp_path / "b", "bert")
    written = json.loads((again / TOKENIZER).read_text("utf-8"))
    assert (written["truncation"], written["padding"]) == (truncation, padding)
    assert theirs(again).padding_side == other.padding_side == "left"
    assert ours(again).info == tokenizer.info


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("padding", {**sections("Left")[1], "strategy": {"Fixed": 3_000_000_000}}),
        ("padding", {**sections("Left")[1], "direction": "Up"}),
        ("truncation", {**sections("Left")[0], "max_length": "nine"}),
    ],
)
def test_malformed_sections_are_refused(section: str, value: Any, tmp_path: Path) -> None:
    content = stored(lambda definition: definition.update({section: value}))
    directory = source(tmp_path, "bert", config={}, tokenizer_json=content)
    with pytest.raises(VerificationError, match=rf"tokenizer\.json: .*\$\.{section}"):
        ours(directory)


@pytest.mark.by_default("bert", "t5", "gpt2")
@pytest.mark.parametrize("model_type", VOCABULARIES)
def test_special_tokens_in_a_text_are_split_if_the_files_say_so(
    model_type: str, tmp_path: Path
) -> None:
    for split in (True, False):
        folder = tmp_path / str(split)
        directory = source(folder, model_type, config={"split_special_tokens": split})
        if model_type in PIECES:  # a piece of control in a model file never matches text
            theirs(directory).save_pretrained(directory)
            (directory / PIECES[model_type]).unlink()
            write(directory, {CONFIG: {"split_special_tokens": split}})
        tokenizer, other = ours(directory), theirs(directory)
        # the mask of transformers 4 and of pretraining takes the space before it
        tokens = [token for role, token in tokenizer.info.special.items() if role != "mask"]
        texts = [f"the {token} cat" for token in tokens]
        wanted = other(texts)["input_ids"]
        assert [text.ids for text in tokenizer.encode(texts, max_tokens=None)] == wanted
        again = ours(back(tokenizer, folder / "back", model_type))
        assert [text.ids for text in again.encode(texts, max_tokens=None)] == wanted


@pytest.mark.parametrize("model_type", ["bert", "albert"])
def test_a_model_without_token_types(model_type: str, tmp_path: Path) -> None:
    names = ["input_ids", "attention_mask"]
    tokenizer = ours(source(tmp_path / "a", model_type, config={"model_input_names": names}))
    (text,) = tokenizer.encode([("the cat", "sat")], max_tokens=None)
    assert set(text.type_ids) == {0} and len(text.type_ids) == text.n
    typed = ours(source(tmp_path / "c", model_type, config={}))
    assert set(typed.encode([("the cat", "sat")], max_tokens=None)[0].type_ids) == {0, 1}
    again = back(tokenizer, tmp_path / "b", model_type)
    assert config_of(again)["model_input_names"] == names == [*theirs(again)("the cat", "sat")]


@pytest.mark.parametrize("insists", [False, True])
def test_clean_up_is_not_for_bpe_unless_the_files_insist(insists: bool, tmp_path: Path) -> None:
    name = "clean_up_tokenization_spaces"
    config = {name: True, f"{name}_for_bpe_even_though_it_will_corrupt_output": insists}
    directory = source(tmp_path / "a", "gpt2", config=config)
    tokenizer, other = ours(directory), theirs(directory)
    text = "the cat , on the mat . it is n't"
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    cleaned = "the cat, on the mat. it isn't"
    assert tokenizer.decode(encoded.ids) == other.decode(encoded.ids)
    assert tokenizer.decode(encoded.ids) == (cleaned if insists else text)
    again = back(tokenizer, tmp_path / "b", "gpt2")
    assert theirs(again).decode(encoded.ids) == tokenizer.decode(encoded.ids)


@pytest.mark.parametrize("flag", ["add_bos_token", "add_eos_token"])
def test_the_template_of_tokenizer_json_has_precedence(flag: str, tmp_path: Path) -> None:
    first = source(tmp_path / "a", "gpt2", config={})
    theirs(first).save_pretrained(tmp_path / "b")
    write(tmp_path / "b", {"config.json": {"model_type": "gpt2"}, CONFIG: {flag: True}})
    assert_equal((ours(tmp_path / "b"), theirs(tmp_path / "b")), prose(50))
    assert ours(tmp_path / "b").encode(["a"], max_tokens=None)[0].n == 1


CARRIED = {
    "errors": "ignore",
    "never_split": ["hello"],
    "legacy": False,
    "sp_model_kwargs": {"nbest_size": 1},
    "chat_template": "{{ messages }}",
    "padding_side": "left",
    "pad_to_multiple_of": 8,
    "add_prefix_space": True,
    "image_token": "[unused1]",
    "some_other_library": {"of": [1, 2.5, None]},
}


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "t5"])
def test_other_keys_are_written_back(model_type: str, tmp_path: Path) -> None:
    token = {"bert": "[MASK]", "gpt2": END, "t5": "</s>"}[model_type]
    config = CARRIED | {"image_token": token}
    tokenizer = ours(source(tmp_path / "a", model_type, config=config))
    again = back(tokenizer, tmp_path / "b", model_type)
    assert {key: config_of(again).get(key) for key in config} == config
    assert ours(again).info == tokenizer.info
    other = theirs(again)
    assert (other.padding_side, other.image_token) == ("left", token)
    assert other.chat_template == CARRIED["chat_template"]


def test_every_key_of_the_table_is_kept_or_declared(tmp_path: Path) -> None:
    """A key that is neither carried nor written from the contents would be lost."""
    table = {key: entry.treatment for key, entry in TOKENIZER_CONFIG_KEYS.items()}
    refused = {key for key, treatment in table.items() if treatment == "refused"}
    needed = {"do_lower_case": True, "tokenize_chinese_chars": True, "split_special_tokens": True}
    values: dict[str, Any] = dict.fromkeys(set(table) - refused) | needed
    values |= {"added_tokens_decoder": {}, "truncation_side": "left", "model_max_length": 9}
    directory = source(tmp_path / "a", "bert", config=values)
    again = config_of(back(ours(directory), tmp_path / "b", "bert"))
    lost = sorted(set(values) - set(again))
    # their values are in tokenizer.json, or in another key
    assert lost == [
        "added_tokens_decoder",
        "bos_token",
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        "eos_token",
        "max_len",
    ]


def test_special_tokens_keep_their_flags(tmp_path: Path) -> None:
    """Extra special tokens, of either file and with any flags, give the same ids afterwards."""
    count = len(cased().splitlines())
    added = {
        "<ent>": {"content": "<ent>", **flags(lstrip=True, rstrip=True, special=True)},
        "<kind>": {"content": "<kind>", **flags(special=True)},
        "Word": {"content": "Word", **flags(single_word=True, normalized=True)},
    }
    decoder = {str(count + k): token for k, token in enumerate(added.values())}
    as_token = {"__type": "AddedToken", **added["<ent>"]}
    stated: dict[str, dict[str, Any]] = {
        "decoder": {"added_tokens_decoder": decoder, "extra_special_tokens": ["<ent>", "<kind>"]},
        "older": {"added_tokens_decoder": decoder, "additional_special_tokens": ["<ent>"]},
        "named": {"added_tokens_decoder": decoder, "extra_special_tokens": {"an_ent": "<ent>"}},
        "token": {"extra_special_tokens": [as_token, "<kind>"]},
    }
    texts = ["the  <ent>  cat<kind> sat", "Word Words <kind>on", "word Word <ent>"]
    for name, config in stated.items():
        directory = source(tmp_path / name, "bert", config=config)
        tokenizer, other = ours(directory), theirs(directory)
        assert_equal((tokenizer, other), texts)
        again = theirs(back(tokenizer, tmp_path / f"{name} back", "bert"))
        assert_equal((tokenizer, again), texts)
        assert set(again.all_special_tokens) == set(other.all_special_tokens)
    assert again.extra_special_tokens == ["<ent>", "<kind>"]


def test_extra_tokens_of_the_special_tokens_map(tmp_path: Path) -> None:
    ent = {"content": "<ent>", **flags(lstrip=True)}
    named = {"additional_special_tokens": [ent, "<kind>"], "image_token": "<kind>"}
    directory = source(tmp_path / "a", "bert", config={}, special_tokens_map_json=named)
    tokenizer = ours(directory)
    again = theirs(back(tokenizer, tmp_path / "b", "bert"))
    assert_equal((tokenizer, again), ["the  <ent> cat<kind> sat"])
    assert again.extra_special_tokens == ["<ent>", "<kind>"] and again.image_token == "<kind>"


def test_chat_templates_in_files_of_their_own(tmp_path: Path) -> None:
    directory = source(tmp_path / "a", "gpt2", config={"chat_template": "void"})
    write(directory, {"chat_template.jinja": "{{ messages[0] }}"})
    again = theirs(back(ours(directory), tmp_path / "b", "gpt2"))
    assert again.chat_template == theirs(directory).chat_template == "{{ messages[0] }}"
    write(directory, {"additional_chat_templates/tool.jinja": "{{ tools }}"})
    again = theirs(back(ours(directory), tmp_path / "c", "gpt2"))
    assert again.chat_template == theirs(directory).chat_template
    assert again.chat_template["tool"] == "{{ tools }}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto_map", {"AutoTokenizer": ["tokenization.Mine", None]}),
        ("init_inputs", ["a"]),
        ("fix_mistral_regex", True),
    ],
)
def test_tokenizers_of_other_code_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    directory = source(tmp_path, "bert", config={key: value})
    with pytest.raises(VerificationError, match=rf"{CONFIG}: {key} = .* is not implemented"):
        ours(directory)


@pytest.mark.parametrize("end", ["\n", "\n\n\n", "\r\n \n\t\n"])
def test_blank_lines_at_the_end_of_a_vocabulary(end: str, tmp_path: Path) -> None:
    text = cased() + end
    directory = write(
        tmp_path, {"vocab.txt": text, "config.json": {"model_type": "bert"}, CONFIG: {}}
    )
    assert_equal((ours(directory), theirs(directory)), prose(100))
    check_vocabulary(ours(directory)._tokenizer, len(cased().splitlines()), "here")


def test_tokens_without_a_row_are_named(tmp_path: Path) -> None:
    config = {"extra_special_tokens": ["<ent>", "<kind>"]}
    backend = ours(source(tmp_path, "bert", config=config))._tokenizer
    rows = len(cased().splitlines())
    check_vocabulary(backend, rows + 2, "here")
    with pytest.raises(VerificationError) as error:
        check_vocabulary(backend, rows + 1, "here")
    assert str(error.value.what) == (
        f"here: no row of the model's token embedding, which has {rows + 1:,}, is for '<kind>' "
        f"(id {rows + 1})"
    )
    assert f"resize_token_embeddings({rows + 2})" in str(error.value)
    with pytest.raises(VerificationError, match=r"'<ent>' \(id \d+\), '<kind>' \(id \d+\); add"):
        check_vocabulary(backend, rows, "here")
    with pytest.raises(VerificationError, match=r", 5 more; tokenizer and weights belong to"):
        check_vocabulary(backend, rows - 8, "here")
