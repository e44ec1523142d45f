"""Types of arguments and options: numbers, references, files and directories."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.errors import did_you_mean
from zoo.exporting.targets import BUILT_IN, target_names
from zoo.io.local import Use, require_local
from zoo.io.numbers import parse_float, parse_int
from zoo.io.urls import parse_url, require_recordable
from zoo.overrides import override

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class IntegerRange(click.IntRange):
    """Range of integers, written in ASCII digits; see ``zoo.io.numbers``."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and parse_int(value) is None:
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        number: int = super().convert(value, param, ctx)
        return number

    @override
    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class FiniteRange(click.FloatRange):
    """Range of finite numbers, written as ASCII decimals; see ``zoo.io.numbers``."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, str) and parse_float(value) is None:
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        number: float = super().convert(value, param, ctx)
        return number

    @override
    def _describe_range(self) -> str:
        # click writes ``x<=None`` for a range without bounds
        return "" if self.min is None and self.max is None else super()._describe_range()


class PluginChoice(click.Choice[str]):
    """Choice of a name of zoo's own or of a plugin's. Plugins are looked up on use.

    Args:
        built_in: names that need no plugin.
        list_names: returns all names, those of plugins among them.
    """

    def __init__(self, built_in: Iterable[str], list_names: Callable[[], Iterable[str]]) -> None:
        super().__init__(tuple(built_in))
        self._list_names = list_names

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.choices = self._all()
        return super().convert(value, param, ctx)

    @override
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return "; ".join(filter(None, (message, did_you_mean(value, self.choices))))

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        self.choices = self._all()
        return super().shell_complete(ctx, param, incomplete)

    def _all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.choices, *self._list_names())))


class TargetChoice(PluginChoice):
    """Choice of an export target, or of a word."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        super().__init__((*words, *BUILT_IN), target_names)


class ReferenceType(click.types.StringParamType):
    """Reference to a model, or to its family if the metavar says so; shells complete it."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if parse_url(value) is None:
            require_local(value, "model")
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete names, and directories of the working directory; otherwise any path."""
        from click.shell_completion import CompletionItem

        from zoo.hub import registry
        from zoo.hub.reference import stored_names
        from zoo.plugins import installed

        names = {*registry.entries(plugins=False), *installed(), *stored_names()}
        takes_config = ".yaml" in (param.metavar or "")
        paths = [*Path().glob("[!.]*/"), *(Path().glob("[!.]*.yaml") if takes_config else ())]
        names |= {path.name for path in paths if path.name.isprintable()}
        matching = sorted(name for name in names if name.startswith(incomplete))
        completion_type = "file" if takes_config else "dir"
        return [CompletionItem(name) for name in matching] or [
            CompletionItem(incomplete, type=completion_type)
        ]


class NamedReferenceType(ReferenceType):
    """Reference to a model, with a name of the user's before it: ``NAME=REF``."""

    @staticmethod
    def split(text: str) -> tuple[str, str]:
        """Return the name, empty if there is none, and the reference."""
        name, separator, ref = text.partition("=")
        is_named = bool(separator and name and ref) and "/" not in name
        return (name, ref) if is_named and not Path(text).exists() else ("", text)


class PathOrText(click.types.StringParamType):
    """Path of a file, or a text, which a command distinguishes; a shell completes paths."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete a file or directory."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class PathText(PathOrText):
    """Path, URL, pattern or ``NAME=FILE``, which a command reads or writes itself.

    Args:
        use: what it names.
        takes_url: whether it may be a URL.
    """

    def __init__(self, use: Use = "file", *, takes_url: bool = True) -> None:
        self.use: Use = use
        self.takes_url = takes_url

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, separator, file = value.partition("=")
        is_named = bool(separator) and ":" not in name
        path = file if is_named else value
        if not self.takes_url or parse_url(path) is None:
            require_local(path, self.use)
        return super().convert(value, param, ctx)


class LocalPath(click.Path):
    """Path, as a ``Path``; a URL, unless the command keeps the name or takes paths only.

    Args:
        use: what it names.
        file_okay: whether it may be a file.
        dir_okay: whether it may be a directory.
        takes_url: whether it may be a URL.
    """

    def __init__(
        self, use: Use, *, file_okay: bool = True, dir_okay: bool = True, takes_url: bool = True
    ) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=dir_okay)
        self.use: Use = use
        self.takes_url = takes_url

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not self.takes_url or parse_url(value) is None:
            require_local(value, self.use)
        return super().convert(value, param, ctx)


class InputFile(PathText):
    """Path of a file to read, or ``-`` for standard input, which is copied to a temporary file."""

    # The command may then read it twice. The copy has the ending of its format.

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-" or (ctx is not None and ctx.resilient_parsing):
            return super().convert(value, param, ctx)
        import shutil
        import sys

        from zoo.io.scratch import scratch_directory, writing_scratch

        assert ctx is not None, "a command converts its values"
        folder = ctx.with_resource(scratch_directory(is_only_folder=False))
        stream = sys.stdin.buffer
        head = stream.readline(1 << 20)
        path = folder / f"standard-input{_ending(head)}"
        with writing_scratch(), path.open("wb") as copy:
            copy.write(head)
            shutil.copyfileobj(stream, copy)
        return str(path)


def _ending(head: bytes) -> str:
    """Return the ending of a table or text that begins like this."""
    if head.startswith(b"PAR1"):
        return ".parquet"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return ".jsonl"
    return ".tsv" if b"\t" in head else ".csv"


class KeptFile(PathText):
    """Path of a file that a command reads again later, which standard input is not."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            self.fail("a run reads its data again when it is resumed; name a file", param, ctx)
        require_recordable(value.partition("=")[2] if "=" in value.partition(":")[0] else value)
        return super().convert(value, param, ctx)


REFERENCE = ReferenceType()
NAMED_REFERENCE = NamedReferenceType()


PATH = PathText()


class DirectoryType(LocalPath):
    """Directory to write."""

    def __init__(self, *, takes_url: bool = True) -> None:
        super().__init__("output", takes_url=takes_url)

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("the output is a directory, and - is standard output; name it", param, ctx)
        return super().convert(value, param, ctx)


class RunDirectory(LocalPath):
    """Directory of a run that is resumed: it is read and written."""

    def __init__(self) -> None:
        super().__init__("file", file_okay=False)


class OutputPath(LocalPath):
    """File or folder to write."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__("output", dir_okay=dir_okay)

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("standard output has other results; name a file", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(OutputPath):
    """File to write."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)
