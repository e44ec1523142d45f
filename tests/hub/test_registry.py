"""The registry: strict decoding, user entries, and parameter counts."""

from pathlib import Path

import pytest

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub import registry
from zoo.hub.reference import resolve
from zoo.hub.select_files import config_files, files_to_download
from zoo.hub.source import locate_or_download
from zoo.plugins import get_family
from zoo.tokenizers.source_files import VOCABULARIES

WITHOUT_VOCABULARY = (
    *("byt5-small", "byt5-base"),  # their tokens are bytes
)
ROW = """
family: bert
repo: someone/something
head: none
parameters: 1
size: tiny
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    return path


def entry(**changes: str) -> str:
    lines = dict(line.split(": ") for line in ROW.strip().splitlines()) | changes
    return "mine:\n" + "".join(f"  {key}: {value}\n" for key, value in lines.items())


def test_an_unknown_key_names_file_entry_and_field(tmp_path: Path) -> None:
    path = write(tmp_path, entry(licnce="mit"))
    with pytest.raises(VerificationError, match=r"registry\.yaml: mine: .*licnce"):
        registry.read_registry(path)


def test_a_wrong_type_names_file_entry_and_field(tmp_path: Path) -> None:
    path = write(tmp_path, entry(parameters="many"))
    with pytest.raises(VerificationError, match=r"registry\.yaml: mine: parameters: .*int"):
        registry.read_registry(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (entry(revision='"a\\nerror: b"'), "mine: revision: .*regex"),
        (entry(page='"\\e[2J"', repo="~"), "mine: page: .*regex"),
        (entry(family="a" * 2000), "mine: family: .*length <= 1000"),
        ('"a\\nb": {family: bert, repo: a/b}', r"'a\\nb' cannot be a name"),
        ("[" * 50_000, "nesting of YAML is"),
        ("mine: !!python/name:os.system", "tags"),
        ("mine: 1", "mine: .*object"),
        (entry(licence="mit", licence_source="a card"), "mine: licence_source: .*regex"),
        (entry(licence_source="https://a.b/c"), "mine: licence_source is the page of no licence"),
        ("- mine", "not a map of names"),
    ],
    ids=lambda value: str(value[:25]),
)
def test_a_hostile_registry_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(VerificationError, match=message) as refused:
        registry.read_registry(path)
    assert str(refused.value).startswith(str(path))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "mine:\n  family: bert\n")
    with pytest.raises(VerificationError, match=r"mine: .*repo"):
        registry.read_registry(path)


def test_entry_without_repository_names_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    write(tmp_path, "mine: {family: bert, page: 'https://example.org/mine'}\n")
    with pytest.raises(SourceError, match=r"mine is not on the Hub") as caught:
        locate_or_download(resolve("mine"))
    assert "https://example.org/mine" in str(caught.value)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="given twice"):
        registry.read_registry(write(tmp_path, entry() + entry()))


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "a: [1, 2\n", "\tx: 1"])
def test_other_shapes_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(VerificationError):
        registry.read_registry(write(tmp_path, text))


def test_yaml_runs_no_code(tmp_path: Path) -> None:
    text = "mine: !!python/object/apply:os.system ['touch owned']\n"
    with pytest.raises(VerificationError):
        registry.read_registry(write(tmp_path, text))


def test_user_registry_adds_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    write(tmp_path, entry())
    assert resolve("mine").repo == "someone/something"
    assert "bert-base-uncased" in registry.entries()


def test_family_and_repository_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    write(tmp_path, "mine: {family: bert, repo: someone/something}\n")
    reference = resolve("mine")
    assert (reference.kind, reference.repo) == ("registry", "someone/something")


def test_user_registry_cannot_replace_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    write(tmp_path, entry().replace("mine:", "bert-base-uncased:"))
    with pytest.raises(VerificationError, match="already in the built-in registry"):
        registry.entries()


def test_parameters_match_the_size() -> None:
    for name, row in registry.builtin().items():
        family = get_family(row.family)
        config = registry.entry_config(name, row)
        assert row.head is not None and row.head in family.heads(), name
        assert family.weights(config, row.head).parameters() == row.parameters, name


def test_entries_list_the_files_of_a_conversion() -> None:
    """Conversion reads all listed files, among them a configuration, weights and, except for
    character models, a vocabulary; licence and citation are set.
    """
    for name, row in registry.builtin().items():
        location = row.repo or str(row.page)
        wanted = files_to_download(row.files, location, allow_pickle=True)
        assert set(wanted) == set(row.files), name
        # a module of sentence-transformers may have no configuration, and its files in a folder
        assert config_files(row.files) or "modules.json" in row.files, name
        present = {file.rpartition("/")[2] for file in row.files}
        by_words = get_family(row.family).text_tokenizer(registry.entry_config(name, row)) is None
        if by_words and name not in WITHOUT_VOCABULARY:
            assert [known for known in VOCABULARIES if set(known) <= present], name
        assert row.licence and row.citation, name


def test_order_of_resolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert resolve("bert").name == "bert-base-uncased"
    assert resolve("someone/else").kind == "hub"
    assert resolve("bert-base-cased").kind == "registry"
    stored = tmp_path / "home" / "models" / "bert-base-cased"
    stored.mkdir(parents=True)
    (stored / "zoo.json").write_text("{}")
    assert resolve("bert-base-cased").kind == "store"
    assert resolve("bert-base-cased", revision="v2").kind == "registry"
    (tmp_path / "bert-base-cased").mkdir()
    assert resolve("bert-base-cased").kind == "path"


@pytest.mark.parametrize("text", ["./nothing", "/no/such/place", "~/nothing-here"])
def test_missing_path_is_not_resolved_as_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        resolve(text)


@pytest.mark.parametrize("text", ["../nowhere", "", "a/../b", "x/y/z"])
def test_names_cannot_leave_the_store(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    with pytest.raises(UsageError):
        resolve(text)


def test_errors_name_the_user_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    (tmp_path / "registry.yaml").write_text("mine: {family: gpt, page: x, size: huge}")
    with pytest.raises(VerificationError, match=r"registry\.yaml: mine: gpt has no size 'huge'"):
        registry.entry_config("mine", registry.entries()["mine"])
