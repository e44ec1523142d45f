"""Reading and writing of the files of sentence-transformers."""

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.tokenizers.directories import Content, real, write
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.file_keys import Treatment
from zoo.sentence_models import POOLING_FILES, hub_pooling_files, read_pooling
from zoo.sentence_models.module_files import MODES, MODULE_KEYS
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import (
    ACCEPTED_VALUES,
    MODULES_KEYS,
    SENTENCE_KEYS,
    SETTINGS_KEYS,
)
from zoo.tokenizers import SourceFiles

FOLDERS = {
    "Transformer": "",
    "Pooling": "1_Pooling",
    "Normalize": "2_Normalize",
    "Dense": "2_Dense",
    "LSTM": "2_LSTM",
}


def modules(*kinds: str, package: str = "sentence_transformers.models") -> list[Any]:
    return [
        {"idx": i, "name": str(i), "path": FOLDERS[kind], "type": f"{package}.{kind}"}
        for i, kind in enumerate(kinds)
    ]


def with_kwargs(names: list[str]) -> list[Any]:
    """Return a list of modules, the first of which reads arguments of an input."""
    first, *others = modules("Transformer", "Pooling")
    return [{**first, "kwargs": names}, *others]


def read(directory: Path, config: Any, **more: Content) -> Pooling | None:
    files: dict[str, Content] = {"modules.json": modules("Transformer", "Pooling")}
    files |= {"1_Pooling/config.json": config}
    files |= {name.replace("__", "/") + ".json": value for name, value in more.items()}
    return read_pooling(SourceFiles(write(directory, files)))


def test_the_published_encoder() -> None:
    pooling = read_pooling(SourceFiles(real()))
    stated = json.loads((real() / "config_sentence_transformers.json").read_text())
    extra = {"config_sentence_transformers.json": {"__version__": stated["__version__"]}}
    assert pooling == Pooling(mode="mean", normalize=True, max_tokens=256, extra=extra)


def test_checkpoint_without_pooling(tmp_path: Path) -> None:
    assert read_pooling(SourceFiles(tmp_path)) is None


def test_every_mode_has_a_flag() -> None:
    annotation = Pooling.__annotations__["mode"]
    assert set(MODES.values()) == set(get_args(annotation))


@pytest.mark.parametrize(("key", "mode"), MODES.items())
def test_modes(tmp_path: Path, key: str, mode: str) -> None:
    switches = {name: name == key for name in MODES}
    of_old = {"word_embedding_dimension": 8, **switches}
    assert read(tmp_path, of_old) == Pooling(mode=mode)  # type: ignore[arg-type]
    of_late = {"embedding_dimension": 8, "pooling_mode": mode, "include_prompt": True}
    assert read(tmp_path, of_late) == Pooling(mode=mode)  # type: ignore[arg-type]


def test_default_mode_is_mean(tmp_path: Path) -> None:
    assert read(tmp_path, {"word_embedding_dimension": 8}) == Pooling(mode="mean")


def test_text_options(tmp_path: Path) -> None:
    text = {"max_seq_length": 99, "do_lower_case": True}
    pooling = read(tmp_path, {"pooling_mode": "cls"}, sentence_bert_config=text)
    assert pooling == Pooling(mode="cls", max_tokens=99, lowercase=True)
    assert read(tmp_path, {}, sentence_bert_config={"max_seq_length": None}) == Pooling()


def test_module_paths_of_newer_versions(tmp_path: Path) -> None:
    kinds = ("Transformer", "Pooling", "Normalize")
    listed = modules(*kinds, package="sentence_transformers.base.modules")
    assert read(tmp_path, {}, modules=listed) == Pooling(normalize=True)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"modules": modules("Transformer", "Pooling", "LSTM")},
            "modules.json: LSTM .* is not impl",
        ),
        ({"modules": modules("Transformer")}, "modules.json: no module after .* vector of a text"),
        ({"modules": modules("Transformer", "Normalize")}, "modules.json: Normalize after the"),
        ({"modules": modules("Pooling")}, "modules.json: Pooling .* as the first module"),
        ({"modules": []}, "modules.json: no modules"),
        ({"modules": {}}, "modules.json is not a list"),
        ({"modules": [{"type": "Pooling"}]}, "modules.json: .* no type and path"),
        ({"modules": [7]}, "modules.json is not a list"),
        ({"1_Pooling__config": []}, "config.json is not a JSON object"),
        ({"1_Pooling__config": {"pooling_mode": "median"}}, "'median' is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": 7}}, "7 is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": [["cls"]]}}, "is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": []}}, "is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": ["cls", "median"]}}, "is not implemented"),
        (
            {"1_Pooling__config": {"pooling_mode_cls_token": "yes"}},
            "pooling_mode_cls_token = 'yes'",
        ),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "max_seq_length = 'many'"),
        ({"sentence_bert_config": {"max_seq_length": 0}}, "max_seq_length = 0"),
        ({"sentence_bert_config": {"do_lower_case": 1}}, "do_lower_case = 1"),
        ({"1_Pooling__config": {"include_prompt": 0}}, "include_prompt = 0 is neither"),
        (
            {"1_Pooling__config": {"layers": 2}},
            "1_Pooling/config.json: the key 'layers' is unknown",
        ),
        ({"sentence_bert_config": {"query_length": -9}}, "query_length = -9 is not a positive"),
        ({"sentence_bert_config": {"query_expansion": {"strategy": "max"}}}, "query_expansion: "),
        ({"sentence_bert_config": {"tokenizer_args": {"lower": 1}}}, "tokenizer_args = "),
        ({"sentence_bert_config": {"transformer_task": "text-generation"}}, "generation' is not"),
        ({"sentence_bert_config": {"transformer_task": ["fill-mask"]}}, "mask'. is not impl"),
        (
            {
                "sentence_bert_config": {
                    "transformer_task": "fill-mask",
                    "modality_config": {
                        "text": {"method": "forward", "method_output_name": "last_hidden_state"}
                    },
                }
            },
            "modality_config = ",
        ),
        ({"sentence_bert_config": {"modality_config": {"image": {}}}}, "modality_config = "),
        ({"sentence_bert_config": {"tokenizer_name_or_path": "x"}}, "tokenizer_name_or_path"),
        ({"sentence_bert_config": {"new": None}}, "sentence_bert_config.json: the key 'new' is"),
        ({"modules": with_kwargs(["task"])}, r"modules.json: kwargs = \['task'\] is not"),
        (
            {"modules": modules("Transformer", "Pooling", package="custom")},
            "custom.Transformer is not implemented",
        ),
        *[
            ({"config_sentence_transformers": settings}, message)
            for settings, message in (
                ({"default_prompt_name": "passage"}, "default_prompt_name = 'passage' is not one"),
                ({"default_prompt_name": 7}, "default_prompt_name = 7 is not one"),
                ({"prompts": ["query: "]}, "prompts = .* are not names and texts"),
                ({"prompts": {"query": 7}}, "prompts = .* are not names and texts"),
                ({"similarity_fn_name": "maxsim"}, "similarity_fn_name = 'maxsim' is not"),
                ({"truncate_dim": 0}, "truncate_dim = 0 is not a positive number"),
                ({"max_active_dims": 0, "model_type": "SparseEncoder"}, "max_active_dims = 0 is"),
                ({"model_type": "Colbert"}, "model_type = 'Colbert' is not implemented"),
                ({"query_prefix": "[Q]"}, r"query_prefix = '\[Q\]' is not implemented"),
                ({"temperature": 2}, "the key 'temperature' is unknown"),
            )
        ],
    ],
)
def test_unsupported_options_are_refused(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    config = files.pop("1_Pooling__config", {})
    with pytest.raises(VerificationError, match=message) as caught:
        read(tmp_path, config, **files)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_prompts_similarity_and_dimensions(tmp_path: Path) -> None:
    """The files that sentence-transformers 6.2 writes."""
    version = {"sentence_transformers": "6.2.0", "transformers": "5.23.0"}
    settings = {
        "__version__": version,
        "default_prompt_name": "query",
        "model_type": "SentenceTransformer",
        "prompts": {"document": None, "passage": "text: ", "query": "who: "},
        "similarity_fn_name": "dot",
        "truncate_dim": 16,
    }
    reads = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    sentence = {
        "transformer_task": "feature-extraction",
        "modality_config": reads,
        "module_output_name": "token_embeddings",
    }
    names = dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding")
    pooling = read(
        tmp_path,
        {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": False},
        modules=modules("Transformer", "Pooling", "Normalize"),
        **{"2_Normalize__config": names},
        config_sentence_transformers=settings,
        sentence_bert_config=sentence,
    )
    assert pooling == Pooling(
        mode="cls",
        normalize=True,
        include_prompt=False,
        prompts={"document": "", "passage": "text: ", "query": "who: "},
        default_prompt_name="query",
        similarity_fn_name="dot",
        truncate_dim=16,
        extra={
            "config_sentence_transformers.json": {
                "__version__": version,
                "model_type": "SentenceTransformer",
            },
            "sentence_bert_config.json": sentence,
        },
    )
    written = SourceFiles(write(tmp_path / "back", hub_pooling_files(pooling, 32)))
    assert read_pooling(written) == pooling
    back = written.json("config_sentence_transformers.json")
    assert back == {**settings, "prompts": pooling.prompts}
    assert written.json("sentence_bert_config.json").items() >= sentence.items()


def test_an_implicit_prompt_may_be_the_default(tmp_path: Path) -> None:
    """Sentence-transformers gives every model the prompts ``query`` and ``document``, empty."""
    settings: Content = {
        "prompts": {},
        "default_prompt_name": "query",
        "similarity_fn_name": None,
    }
    pooling = read(tmp_path, {}, config_sentence_transformers=settings)
    assert pooling == Pooling(default_prompt_name="query")
    assert pooling.prompt() == ""


def test_the_prompts_of_retrieval() -> None:
    pooling = Pooling(prompts={"query": "q ", "document": "", "passage": "p ", "corpus": "c "})
    assert (pooling.query_prompt(), pooling.document_prompt()) == ("q ", "p ")
    pooling = Pooling(prompts={"web": "w "}, default_prompt_name="web")
    assert (pooling.query_prompt(), pooling.document_prompt(), pooling.prompt()) == ("", "", "w ")


def test_an_unknown_prompt_names_the_nearest() -> None:
    pooling = Pooling(prompts={"query": "q ", "passage": "p "})
    with pytest.raises(UsageError) as caught:
        pooling.prompt("qury")
    message = str(caught.value)
    assert "no prompt 'qury': its prompts are query, passage" in message
    assert "did you mean query" in message and "\n" not in message
    with pytest.raises(UsageError, match="no prompt 'query': it has none"):
        Pooling().prompt("query")


def test_every_key_of_a_module_has_a_reason() -> None:
    tables = (SETTINGS_KEYS, MODULES_KEYS, SENTENCE_KEYS, *MODULE_KEYS.values())
    assert [key for table in tables for key, entry in table.items() if not entry.reason] == []
    refused = {k for t in tables for k, e in t.items() if e.treatment is Treatment.REFUSED}
    assert ACCEPTED_VALUES.keys() - refused == set(), "values are accepted of refused keys only"


def test_a_folder_outside_is_refused(tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling")
    listed[1]["path"] = "../elsewhere"
    with pytest.raises(VerificationError, match="outside of its directory"):
        read(tmp_path, {}, modules=listed)


def test_a_folder_that_is_missing_is_a_missing_source(tmp_path: Path) -> None:
    write(tmp_path, {"modules.json": modules("Transformer", "Pooling")})
    with pytest.raises(SourceError, match=r"1_Pooling/config.json: No such file"):
        read_pooling(SourceFiles(tmp_path))


@pytest.mark.parametrize("mode", MODES.values())
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("max_tokens", "lowercase"), [(None, False), (128, True)])
def test_write_and_read(
    tmp_path: Path, mode: Any, normalize: bool, max_tokens: int | None, lowercase: bool
) -> None:
    pooling = Pooling(mode=mode, normalize=normalize, max_tokens=max_tokens, lowercase=lowercase)
    files = hub_pooling_files(pooling, 384)
    for name in files:
        assert [pattern for pattern in POOLING_FILES if fnmatch(name, pattern)], name
    assert read_pooling(SourceFiles(write(tmp_path, files))) == pooling


def test_written_files_equal_the_published_ones(tmp_path: Path) -> None:
    pooling = Pooling(mode="mean", normalize=True, max_tokens=256)
    written, published = SourceFiles(write(tmp_path, hub_pooling_files(pooling, 384))), real()
    for name in ("modules.json", "sentence_bert_config.json"):
        assert written.parse(name) == SourceFiles(published).parse(name)
    config = SourceFiles(published).json("1_Pooling/config.json")
    assert written.json("1_Pooling/config.json").items() >= config.items()


def test_maximum_length_in_a_file_with_an_old_name(tmp_path: Path) -> None:
    pooling = read(tmp_path, {"pooling_mode": "cls"}, sentence_other_config={"max_seq_length": 99})
    assert pooling == Pooling(mode="cls", max_tokens=99)
    write(tmp_path, {"sentence_more_config.json": {"max_seq_length": 7}})
    with pytest.raises(VerificationError, match=r"sentence_more_config.json and sentence_other"):
        read_pooling(SourceFiles(tmp_path))
