"""Rows that cannot be used: listed all at once, or skipped and counted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from zoo.errors import UsageError
from zoo.overrides import override

MAX_ERRORS_SHOWN = 20  # Errors that are kept and listed. All are counted.
Item = TypeVar("Item")
Result = TypeVar("Result")


class RowError(UsageError):
    """A row that cannot be used: the message has file, line and reason."""

    def __init__(self, what: str, hint: str = "", *, location: str = "") -> None:
        super().__init__(what, hint)
        self.location = location


class InvalidRows(UsageError):
    """Rows that cannot be used, as one error; ``skippable`` if there is ``--skip-invalid``."""

    def __init__(self, errors: Sequence[RowError], count: int, *, skippable: bool = True) -> None:
        self.errors = errors
        self.count = count
        option = " with --skip-invalid" if skippable else ""
        if count == 1:
            remedy = errors[0].hint or "correct the row"
            super().__init__(errors[0].what, f"{remedy}, or leave it out{option}")
            return
        details = [str(error) for error in errors[:MAX_ERRORS_SHOWN]]
        if count > MAX_ERRORS_SHOWN:
            details.append(f"... and {count - MAX_ERRORS_SHOWN:,} more")
        super().__init__(
            f"{count:,} rows cannot be used", f"correct them, or leave them out{option}", details
        )

    def without_option(self) -> "InvalidRows":
        """Return the same error for a command that has no ``--skip-invalid``."""
        return InvalidRows(self.errors, self.count, skippable=False)


class RowProblems:
    """Collects the errors of rows; a reader adds them, and its caller decides what follows.

    As a context manager, it refuses the rows at the end, also if the block failed, perhaps because
    of them.

    Args:
        skip: whether rows are skipped. Otherwise ``require_none`` refuses them. ``None`` for
            commands that cannot skip rows.
    """

    def __init__(self, *, skip: bool | None = None) -> None:
        self.skip = skip
        self.count = 0
        self.first_errors: list[RowError] = []

    def add(self, error: RowError) -> None:
        """Count a row, and keep its error if it is one of the first."""
        self.count += 1
        if len(self.first_errors) < MAX_ERRORS_SHOWN:
            self.first_errors.append(error)

    def checked(self, items: Iterable[Item], convert: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield what a function returns for each item; collect the errors of the others."""
        for item in items:
            try:
                result = convert(item)
            except RowError as error:
                self.add(error)
                continue
            yield result

    def valid(self, items: Iterable[Item], check: Callable[[Item], object]) -> Iterator[Item]:
        """Yield the items that pass a check; collect the errors of the others."""

        def checked(item: Item) -> Item:
            check(item)
            return item

        return self.checked(items, checked)

    def require_none(self) -> None:
        """Refuse the rows that were added, unless they are skipped."""
        if self.count and not self.skip:
            raise InvalidRows(self.first_errors, self.count, skippable=self.skip is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, UsageError):
            self.require_none()


class NoProblems(RowProblems):
    """Raises the error of the first row that cannot be used."""

    @override
    def add(self, error: RowError) -> None:
        """Raise the error."""
        raise error
