"""Distillation runs: their kind, and a function for Python."""

from zoo.distill.config import build_config
from zoo.distill.setup import build_setup
from zoo.distill.stages import StagedKind

DISTILL = StagedKind("distill", build_config, build_setup)
