"""Names of tensors and of the modules around them."""

from collections.abc import Collection, Sequence


def inside(name: str, part: str) -> bool:
    """Return whether a tensor belongs to a module, or is the part itself."""
    return name == part or name.startswith(f"{part}.")


def outermost_parts(names: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the outermost modules around parameters that hold none of the others."""

    # A parameter whose every module holds one of the others is named itself.
    def part(name: str) -> str:
        pieces = name.split(".")
        around = (".".join(pieces[:size]) for size in range(1, len(pieces)))
        return next((p for p in around if not any(inside(n, p) for n in others)), name)

    return list(dict.fromkeys(map(part, names)))
