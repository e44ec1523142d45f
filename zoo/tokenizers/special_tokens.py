"""Special tokens by role, from the files of a checkpoint or the defaults of a family."""

from collections.abc import Mapping
from dataclasses import replace

from zoo.tokenizers.config_files import AddedTokenSpec, TokenizerFilesConfig, parse_special_token


def tokens_by_role(settings: TokenizerFilesConfig, roles: Mapping[str, str]) -> dict[str, str]:
    """Return role -> token."""
    return {**roles, **{role: token.content for role, token in settings.role_tokens.items()}}


def usual_tokens(roles: Mapping[str, str], mask_takes_space: bool) -> list[AddedTokenSpec]:
    """Return the special tokens of a family without duplicates."""
    # A mask token that takes a space includes the space before it
    tokens = [parse_special_token(token, role) for role, token in roles.items()]
    unique = {token.content: token for token in tokens}
    mask = unique.get(roles.get("mask", ""))
    if mask and mask_takes_space:
        unique[mask.content] = _spaced(mask)
    return list(unique.values())


def with_spaced_mask(
    settings: TokenizerFilesConfig, roles: Mapping[str, str]
) -> TokenizerFilesConfig:
    """Make the mask token include the space before it, unless the files define this."""
    name = tokens_by_role(settings, roles).get("mask")

    def spaced(token: AddedTokenSpec) -> AddedTokenSpec:
        silent = token.content == name and "lstrip" not in token.flags
        return _spaced(token) if silent else token

    return replace(
        settings,
        role_tokens={role: spaced(token) for role, token in settings.role_tokens.items()},
        added_tokens=tuple(spaced(token) for token in settings.added_tokens),
    )


def _spaced(token: AddedTokenSpec) -> AddedTokenSpec:
    return replace(token, flags={**token.flags, "lstrip": True})
