"""Reading and writing of the files of sentence-transformers."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.tokenizers.directories import Content, real, write
from zoo.errors import SourceError, VerificationError
from zoo.tokenizers import POOLING_FILES, SourceFiles, hub_pooling_files, read_pooling
from zoo.tokenizers.pooling import MODES, Pooling

FOLDERS = {
    "Transformer": "",
    "Pooling": "1_Pooling",
    "Normalize": "2_Normalize",
    "Dense": "2_Dense",
}


def modules(*kinds: str, package: str = "sentence_transformers.models") -> list[Any]:
    return [
        {"idx": i, "name": str(i), "path": FOLDERS[kind], "type": f"{package}.{kind}"}
        for i, kind in enumerate(kinds)
    ]


def read(directory: Path, config: Any, **more: Content) -> Pooling | None:
    files: dict[str, Content] = {"modules.json": modules("Transformer", "Pooling")}
    files |= {"1_Pooling/config.json": config}
    files |= {name.replace("__", "/") + ".json": value for name, value in more.items()}
    return read_pooling(SourceFiles(write(directory, files)))


def test_the_published_encoder() -> None:
    pooling = read_pooling(SourceFiles(real()))
    assert pooling == Pooling(mode="mean", normalize=True, max_tokens=256, lowercase=False)


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
        ({"modules": modules("Transformer", "Pooling", "Dense")}, "Transformer, Pooling, Dense"),
        ({"modules": modules("Transformer")}, "modules.json: Transformer: "),
        ({"modules": modules("Transformer", "Normalize", "Pooling")}, "Normalize, Pooling"),
        ({"modules": []}, "modules.json: no modules"),
        ({"modules": {}}, "modules.json is not a list"),
        ({"modules": [{"type": "Pooling"}]}, "modules.json: .* no type and path"),
        ({"modules": [7]}, "modules.json is not a list"),
        ({"1_Pooling__config": []}, "config.json is not a JSON object"),
        ({"1_Pooling__config": {"pooling_mode": "median"}}, "'median' is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": 7}}, "7 is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": [["cls"]]}}, "is not implemented"),
        ({"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "cls and mean at once"),
        (
            {
                "1_Pooling__config": {
                    "pooling_mode_cls_token": True,
                    "pooling_mode_max_tokens": True,
                }
            },
            "1_Pooling/config.json: cls and max at once are not implemented",
        ),
        (
            {"1_Pooling__config": {"pooling_mode_cls_token": "yes"}},
            "pooling_mode_cls_token = 'yes'",
        ),
        ({"sentence_bert_config": {"max_seq_length": "many"}}, "max_seq_length = 'many'"),
        ({"sentence_bert_config": {"max_seq_length": 0}}, "max_seq_length = 0"),
        ({"sentence_bert_config": {"do_lower_case": 1}}, "do_lower_case = 1"),
        (
            {
                "config_sentence_transformers": {
                    "prompts": {"query": "query: "},
                    "default_prompt_name": "query",
                }
            },
            "default_prompt_name = 'query' is not implemented",
        ),
    ],
)
def test_unsupported_options_are_refused(
    tmp_path: Path, files: dict[str, Any], message: str
) -> None:
    config = files.pop("1_Pooling__config", {})
    with pytest.raises(VerificationError, match=message) as caught:
        read(tmp_path, config, **files)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_unused_prompts_are_ignored(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": None}
    assert read(tmp_path, {}, config_sentence_transformers=prompts) == Pooling()


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
