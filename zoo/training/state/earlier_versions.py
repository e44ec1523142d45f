"""Settings that earlier versions decided for a run and did not record."""

from pathlib import Path

from zoo.plugins import get_family
from zoo.training.config.overrides import ConfigDict, deep_merge, read_config_file
from zoo.training.state.run_manifest import SETTINGS


def read_run_settings(run: Path) -> ConfigDict:
    """Return the settings of a run that has begun, from its directory."""
    return with_unrecorded_settings(read_config_file(run / SETTINGS))


def with_unrecorded_settings(settings: ConfigDict) -> ConfigDict:
    """Return the settings of a run, with the normalization of a tokenizer that it trained.

    Tokenizers lower-cased texts and removed accents where the family's published models do.
    """
    data = settings.get("data")
    if "task" in settings or not isinstance(data, dict) or "lowercase" in data:
        return settings
    if settings.get("init_from") is not None or data.get("tokenizer") not in (None, "train"):
        return settings
    specs = list(get_family(settings["family"]).new_tokenizers.values())
    if not specs or not specs[0].normalizes:
        return settings
    lowercase = specs[0].lowercase
    strip_accents = lowercase or specs[0].strip_accents
    return deep_merge(settings, {"data": {"lowercase": lowercase, "strip_accents": strip_accents}})
