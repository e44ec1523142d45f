"""URLs where a path of this machine is expected."""

from pathlib import Path

import pytest

from zoo.errors import UsageError
from zoo.io.local import Use, require_local


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "/a/b",
        "./a:b/c",
        "~/a",
        "C:/a",
        "org/name",
        "a:b",
        "",
        "glue/cola",
        "dir/s3://b",
        "a b:",
    ],
)
def test_paths_and_names_pass(path: str) -> None:
    require_local(path, "file")
    require_local(Path(path), "output")
    assert "://" not in path.partition("/")[0]


URLS = [
    ("s3://b/o.jsonl", "output", "upload the result"),
    ("gs://b/o", "file", "download it"),
    ("hf://datasets/org/name/a.csv", "file", "download it"),
    ("HTTPS://host/model", "model", "organisation/name"),
    ("https://huggingface.co/org/name", "model", "give the name org/name"),
    ("https://huggingface.co/org/name/tree/main", "model", "give the name org/name"),
    ("file:///data/a.jsonl", "file", "give the path /data/a.jsonl"),
    ("abfs+x.y://container/a", "output", "upload the result"),
]


@pytest.mark.parametrize(("url", "use", "remedy"), URLS)
def test_a_url_is_refused_as_text_and_as_a_path(url: str, use: Use, remedy: str) -> None:
    for path in (url, Path(url)):
        with pytest.raises(UsageError) as error:
            require_local(path, use)
        assert remedy in error.value.hint or isinstance(path, Path)
        assert error.value.what.startswith(f"{path} is a URL")


def test_the_message_has_neither_password_nor_signature() -> None:
    url = "https://user:hunter2@host/a.jsonl?X-Signature=secret#secret"
    for path in (url, Path(url)):
        with pytest.raises(UsageError) as error:
            require_local(path, "file")
        assert "hunter2" not in str(error.value) and "secret" not in str(error.value)
        assert "host/a.jsonl" in str(error.value)
