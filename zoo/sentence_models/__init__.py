"""Models of sentence-transformers and PyLate: files, and what modules compute."""

from zoo.sentence_models.colbert_files import hub_pooling_files, module_folders, read_pooling
from zoo.sentence_models.sentence_transformers_files import (
    MODULE_FILES,
    POOLING_FILES,
    backbone_folder,
    module_kinds,
)

__all__ = [
    "MODULE_FILES",
    "POOLING_FILES",
    "backbone_folder",
    "hub_pooling_files",
    "module_folders",
    "module_kinds",
    "read_pooling",
]
