"""Settings of families whose attention is limited to windows, and to some global tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

import msgspec

from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.families.base import Family

AnyConfig = TypeVar("AnyConfig", bound=msgspec.Struct)

GlobalTokenRuleName: TypeAlias = Literal[
    "task", "none", "first", "question", "choice", "separators"
]
# The name of a rule, see ``zoo.nn.global_tokens.GlobalTokenRule``, or positions from 0; ``task`` is
# the rule of the model's head.
GlobalTokenChoice: TypeAlias = GlobalTokenRuleName | tuple[int, ...]


def parse_global_tokens(text: str) -> GlobalTokenChoice:
    """Return the global tokens that an option chooses: the name of a rule, or ``0,5,17``.

    Raises:
        ValueError: it is neither.
    """
    names: tuple[GlobalTokenRuleName, ...] = get_args(GlobalTokenRuleName)
    for name in names:
        if text == name:
            return name
    positions = []
    for part in text.split(","):
        if not part.strip().isdecimal():
            words = ", ".join(names)
            raise ValueError(f"{text!r} is not one of {words}, nor positions such as 0,5,17")
        positions.append(int(part))
    return tuple(positions)


def with_global_tokens(family: "Family", config: AnyConfig, text: str | None) -> AnyConfig:
    """Return a configuration with other global tokens.

    Args:
        family: the family of the model.
        config: its configuration.
        text: the name of a rule or positions, see ``parse_global_tokens``; ``None`` for those that
            it has.

    Raises:
        UsageError: the model has no global attention, or the tokens do not fit.
    """
    if text is None:
        return config
    if not hasattr(config, "global_tokens"):
        raise UsageError(
            f"--global-tokens: the attention of {family.name} has no global tokens", "leave it out"
        )
    try:
        return msgspec.structs.replace(config, global_tokens=parse_global_tokens(text))
    except ValueError as error:
        raise UsageError(f"--global-tokens: {error}") from error


def check_global_tokens(choice: GlobalTokenChoice, max_seq_len: int) -> None:
    """Check that the positions of global tokens are in a row.

    Raises:
        ValueError: a position is repeated or beyond the longest row, or there is none.
    """
    if isinstance(choice, str):
        return
    if not choice:
        raise ValueError("global_tokens names no position: use none")
    if len(choice) > max_seq_len:
        raise ValueError(
            f"global_tokens names {len(choice):,} positions, and a row has {max_seq_len:,} tokens"
        )
    if len(set(choice)) < len(choice):
        raise ValueError("global_tokens names a position twice")
    for position in choice:
        if not 0 <= position < max_seq_len:
            raise ValueError(
                f"global_tokens names position {position}, and a row has the positions 0 to "
                f"{max_seq_len - 1:,}"
            )


def check_windows(window: int | Sequence[int], layers: int) -> None:
    """Check the number of tokens of windows, without the one in the middle, of all blocks or each.

    Raises:
        ValueError: one is odd or not positive, or there are not as many as blocks.
    """
    windows = [window] if isinstance(window, int) else list(window)
    if not isinstance(window, int) and len(windows) != layers:
        raise ValueError(f"attention_window has {len(windows)} windows for {layers} blocks")
    for size in windows:
        if size < 2 or size % 2:
            raise ValueError(f"attention_window is {size}, which is not a positive even number")


def reaches(window: int | Sequence[int], layers: int) -> list[int]:
    """Return the number of tokens on each side that each block attends to."""
    windows = [window] * layers if isinstance(window, int) else window
    return [size // 2 for size in windows]
