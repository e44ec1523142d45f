"""Configurations: what a model's shape is, and what the Hub calls it."""

from zoo.config.hub import ConfigMap, Translation
from zoo.config.keys import alike
from zoo.config.record import Activation, AnyConfig, Config, Problem

__all__ = ["Activation", "AnyConfig", "Config", "ConfigMap", "Problem", "Translation", "alike"]
