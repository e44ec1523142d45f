"""Names of tensors and of the modules around them."""

from collections.abc import Collection, Sequence


def inside(name: str, part: str) -> bool:
    """Return whether a tensor belongs to a module, or is the part itself."""
    return name == part or name.startswith(f"{part}.")


def outermost_parts(names: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the outermost modules around parameters that hold none of the others.

    A parameter whose every module holds one of the others is named itself.
    """
    parts = [_outermost_part(name, others) for name in names]
    return list(dict.fromkeys(parts))


def _outermost_part(name: str, others: Collection[str]) -> str:
    pieces = name.split(".")
    for size in range(1, len(pieces)):
        module = ".".join(pieces[:size])
        if not any(inside(other, module) for other in others):
            return module
    return name
