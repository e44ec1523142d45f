"""Configurations: what a model's shape is, and what the Hub calls it."""

from zoo.families.config.base import Activation, AnyConfig, Config, Problem
from zoo.families.config.config_map import ConfigMap, TranslatedConfig
from zoo.families.config.keys import same_names

__all__ = [
    "Activation",
    "AnyConfig",
    "Config",
    "ConfigMap",
    "Problem",
    "TranslatedConfig",
    "same_names",
]
