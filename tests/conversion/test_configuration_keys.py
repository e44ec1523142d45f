"""docs/configuration-files.md has every key that the installed libraries read for our families."""

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tools.configuration_keys import PAGE, families, page, sections
from tools.sentence_transformers_keys import installed_keys
from zoo.checkpoint.generation_config import GENERATION_KEYS
from zoo.families.base import Family
from zoo.families.config.keys import common_keys
from zoo.plugins import get_family
from zoo.sentence_models.module_files import MODULE_KEYS
from zoo.sentence_models.sentence_transformers_files import (
    MODULES_KEYS,
    SENTENCE_KEYS,
    SETTINGS_KEYS,
)
from zoo.tokenizers.keys import (
    SPECIAL_TOKENS_MAP_KEYS,
    TOKENIZER_CONFIG_KEYS,
    TOKENIZER_JSON_KEYS,
)

ROOT = Path(__file__).parents[2]
# ELMo, LSTMs and model2vec are read from other libraries' files, and the Hub has no class for them.
REMOTE_CODE = (
    "jina_bert",
    "new",
    "xlm_roberta_flash",
    "nomic_bert_moe",
)  # model types of published code, not of transformers
MODEL_TYPES = [
    (family, name)
    for family in families()
    if family.config_files[0] == "config.json" and family.name not in ("lstm", "model2vec")
    for name in family.model_types
    if name not in REMOTE_CODE
]


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tools.configuration_keys`"
    titles = [section.title for section in sections()]
    assert len(titles) == len(set(titles)) and len(titles) >= 15


def taken(function: Callable[..., object], name: str = "kwargs") -> Iterator[str]:
    """Yield the constant keys that a function looks up in a dictionary."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        key: ast.expr | None = None
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=read), attr="pop" | "get" | "setdefault"),
                args=[first, *_],
            ) if read == name:
                key = first
            case ast.Subscript(value=ast.Name(id=read), slice=first) if read == name:
                key = first
            case ast.Compare(
                left=first, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=read)]
            ) if read == name:
                key = first
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def lacking(known: set[str], table: Mapping[str, object]) -> list[str]:
    """Return the keys that a table lacks."""
    return sorted(set(known) - set(table))


def read_by_models(config: type) -> set[str]:
    """Return the keys that the classes of a configuration's models read."""
    folder = Path(inspect.getfile(config)).parent
    text = "".join(path.read_text("utf-8") for path in folder.glob("modeling_*.py"))
    direct = re.findall(r"\bconfig\.([a-z]\w*)\b(?!\()", text)
    return {*direct, *re.findall(r'attr\((?:self\.)?config, "(\w+)"', text)}


@pytest.mark.parametrize(("family", "model_type"), MODEL_TYPES, ids=[t for _, t in MODEL_TYPES])
def test_keys_of_config_json(family: Family, model_type: str) -> None:
    import transformers
    from transformers import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind: Any = getattr(transformers, CONFIG_MAPPING_NAMES[model_type])
    known = {field.name for field in dataclasses.fields(kind)} | {*kind.attribute_map}
    known |= {*taken(PreTrainedConfig.__post_init__)} | {*taken(kind.__post_init__)}
    known |= {*PreTrainedConfig().to_dict()} | {*kind().to_dict()}
    known |= {*read_by_models(kind)}
    assert {"hidden_size", "id2label", "torch_dtype", "output_attentions"} <= known
    own = family.config_maps.get(model_type, family.config_map).file_keys()
    assert lacking(known, {**common_keys(), **own}) == []


def test_keys_of_static_embeddings() -> None:
    from model2vec.types import StaticModelConfig

    own = get_family("model2vec").config_map.file_keys()
    assert lacking({*StaticModelConfig.__annotations__}, {**common_keys(), **own}) == []


def tokenizer_classes() -> dict[str, Any]:
    import transformers
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    names = {
        TOKENIZER_MAPPING_NAMES[name] for _, name in MODEL_TYPES if name in TOKENIZER_MAPPING_NAMES
    }
    assert len(names) > 6
    return {name: getattr(transformers, name) for name in sorted(names)}


def test_keys_of_tokenizer_config_json() -> None:
    from transformers import PreTrainedTokenizerBase
    from transformers.tokenization_utils_tokenizers import TokenizersBackend

    known = {*PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES}
    for kind in (PreTrainedTokenizerBase, TokenizersBackend, *tokenizer_classes().values()):
        parameters = inspect.signature(kind.__init__).parameters.values()
        known |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        known |= {*taken(kind.__init__)}
    known |= {*taken(PreTrainedTokenizerBase._from_pretrained, "init_kwargs")}
    known |= {*taken(PreTrainedTokenizerBase.save_pretrained, "tokenizer_config")}
    known |= {*taken(TokenizersBackend.convert_to_native_format, "local_kwargs")}
    assert {"do_lower_case", "truncation_side", "chat_template", "extra_ids"} <= known
    known -= {"self", "key", "tokenizer"}  # the last is popped from arguments of a call
    assert lacking(known, TOKENIZER_CONFIG_KEYS) == []


def test_keys_of_special_tokens_map_json() -> None:
    from transformers import PreTrainedTokenizerBase

    known = {*PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES, "extra_special_tokens"}
    assert lacking(known, SPECIAL_TOKENS_MAP_KEYS) == []


def test_keys_of_tokenizer_json() -> None:
    from tokenizers import Tokenizer, models

    kinds: list[Any] = [
        models.WordPiece({"a": 0}, unk_token="a"),
        models.BPE({"a": 0}, []),
        models.Unigram([("a", 0.0)], 0),
        models.WordLevel({"a": 0}, unk_token="a"),
    ]
    for model in kinds:
        stored = json.loads(Tokenizer(model).to_str())
        known = {*stored} - {"model"} | {f"model.{key}" for key in stored["model"]}
        assert lacking(known, TOKENIZER_JSON_KEYS) == []


def test_keys_of_sentence_transformers() -> None:
    """Of the installed release; in an environment without it, the recorded keys of 6.2.0."""
    record = json.loads((ROOT / "tests/fixtures/sentence_transformers_keys.json").read_text())
    files = installed_keys() if util.find_spec("sentence_transformers") else record["files"]
    tables = {
        "config_sentence_transformers.json": SETTINGS_KEYS,
        "modules.json": MODULES_KEYS,
        "sentence_bert_config.json": SENTENCE_KEYS,
        **MODULE_KEYS,
    }
    assert record["sentence-transformers"] == "6.2.0" and [*files] == [*record["files"]] == [
        *tables
    ]
    for file, table in tables.items():
        assert lacking(set(files[file]), table) == [], file


def test_generation_config_keys_are_on_the_page() -> None:
    """Attributes of a new configuration, and the keys that its ``__init__`` takes."""
    from transformers import GenerationConfig

    kind: Any = GenerationConfig
    known = {*vars(kind()), *taken(kind.__init__)}
    assert {"repetition_penalty", "forced_eos_token_id", "num_beams"} <= known
    assert lacking(known, GENERATION_KEYS) == []
