"""Configurations of models, and their translation to and from the Hub's keys."""

from zoo.families.config.base import Activation, AnyConfig, Config, Problem
from zoo.families.config.config_map import ConfigMap, TranslatedConfig, default_labels
from zoo.families.config.keys import same_names
from zoo.families.config.transformer import TransformerConfig

__all__ = [
    "Activation",
    "AnyConfig",
    "Config",
    "ConfigMap",
    "Problem",
    "TransformerConfig",
    "TranslatedConfig",
    "default_labels",
    "same_names",
]
