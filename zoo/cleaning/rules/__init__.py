"""The rules that texts are cleaned by, one file each.

A rule is a class with a name, whose fields are its settings. The built-in ones are in ``BUILT_IN``;
a plugin's is an entry point of ``zoo.api1.cleaning_rules``.
"""

from zoo.cleaning.rules.base import CleaningRule
from zoo.plugins.catalog import Catalog

MODULE = "zoo.cleaning.rules"
BUILT_IN = {
    "c4": f"{MODULE}.c4:C4",
    "c4-paragraphs": f"{MODULE}.c4:C4Paragraphs",
    "gopher-quality": f"{MODULE}.gopher:GopherQuality",
    "gopher-repetition": f"{MODULE}.gopher:GopherRepetition",
    "fineweb-quality": f"{MODULE}.fineweb:FineWebQuality",
    "language": f"{MODULE}.language:Language",
    "blocked-words": f"{MODULE}.blocked_words:BlockedWords",
    "decontaminate": f"{MODULE}.decontaminate:Decontaminate",
}
CLEANING_RULES: Catalog[CleaningRule] = Catalog(
    "cleaning_rules", f"{MODULE}.base:CleaningRule", BUILT_IN
)
