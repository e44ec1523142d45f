"""Write docs/configuration-files.md: what becomes of each key of a checkpoint's files.

``python -m tools.configuration_keys`` writes the page, and ``--check`` compares it. Each table is
declared where its file is read; a new one is a line of ``sections``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zoo.checkpoint.generation_config import GENERATION_KEYS, GENERATION_PRECEDENCE
from zoo.families.base import Family
from zoo.families.config.keys import CONFIG_PRECEDENCE, common_keys
from zoo.io.file_keys import FileKeys, Precedence, refused
from zoo.plugins import get_family, installed
from zoo.sentence_models.colbert_files import METADATA_KEYS, PYLATE_KEYS
from zoo.sentence_models.cross_encoder_files import CROSS_ENCODER_PRECEDENCE
from zoo.sentence_models.module_files import (
    LOGIT_SCORE_KEYS,
    MODULE_KEYS,
    MODULE_PRECEDENCE,
    REFUSED_MODULES,
)
from zoo.sentence_models.sentence_transformers_files import (
    MODULES_KEYS,
    SENTENCE_KEYS,
    SENTENCE_PRECEDENCE,
    SETTINGS_KEYS,
)
from zoo.tokenizers.keys import (
    SPECIAL_TOKENS_MAP_KEYS,
    TOKENIZER_CONFIG_KEYS,
    TOKENIZER_JSON_KEYS,
    TOKENIZER_PRECEDENCE,
)

PAGE = Path(__file__).parents[1] / "docs" / "configuration-files.md"
INTRODUCTION = """\
# Configuration files

What `zoo convert` does with each key of the configuration files that transformers 5.23 and
sentence-transformers 6.2 read for the built-in families. `python -m tools.configuration_keys`
writes this page from the tables by which zoo reads the files.

* *honoured*: the key changes what commands compute, and `zoo convert --to hub` writes it.
* *carried*: the key does not change what commands compute. It is kept, and written back.
* *written anew*: the key describes the files, and is written from their contents.
* *refused*: some values would change what a model computes, in a way that is not implemented. The
  conversion stops with an error that names the key.

Unknown keys of `tokenizer_config.json` are carried.
"""
PRECEDENCE: tuple[Precedence, ...] = (
    *CONFIG_PRECEDENCE,
    *GENERATION_PRECEDENCE,
    *TOKENIZER_PRECEDENCE,
    *SENTENCE_PRECEDENCE,
    *MODULE_PRECEDENCE,
    *CROSS_ENCODER_PRECEDENCE,
)
STATED_TWICE = """\
## Keys that state one fact

Where they differ, the first key that is there wins, as in the library that reads the file, unless
the last column says otherwise.

| fact | keys | |
|---|---|---|
"""


class Section(NamedTuple):
    """A table of the page.

    Attributes:
        title: heading.
        keys: the table.
        intro: sentence before the table.
    """

    title: str
    keys: FileKeys
    intro: str = ""


def families() -> Iterator[Family]:
    """Yield the built-in families that have a Hub configuration, by name."""
    for name, plugin in sorted(installed().items()):
        if plugin.distribution == "plm-zoo" and name not in ("converters", "loggers"):
            yield get_family(name)


def config_sections() -> Iterator[Section]:
    """Yield the tables of ``config.json``: the keys of all families, and those of each."""
    yield Section(
        "config.json",
        common_keys(),
        "Keys of every family, except where the family's own table has the key.",
    )
    for family in families():
        for model_type in family.model_types:
            table = family.config_maps.get(model_type, family.config_map)
            yield Section(f"config.json of `{model_type}`", table.file_keys())


def sentence_sections() -> Iterator[Section]:
    """Yield the tables of the files of sentence-transformers."""
    yield Section("config_sentence_transformers.json", SETTINGS_KEYS, "Unknown keys are refused.")
    yield Section(
        "config_sentence_transformers.json of PyLate",
        PYLATE_KEYS,
        "With the keys above, which it shares. Unknown keys are refused.",
    )
    yield Section(
        "artifact.metadata",
        METADATA_KEYS,
        "Of Stanford's ColBERT, with the class `HF_ColBERT`. Unknown keys are refused.",
    )
    yield Section("modules.json", MODULES_KEYS, "Keys of each module. Unknown keys are refused.")
    yield Section(
        "sentence_bert_config.json",
        SENTENCE_KEYS,
        "Also under the names that older versions give the file. Unknown keys are refused.",
    )
    modules = {kind: refused(reason) for kind, reason in REFUSED_MODULES.items()}
    yield Section("Modules of sentence-transformers", modules, "Those that are not read, by name.")
    for kind, keys in MODULE_KEYS.items():
        yield Section(f"config.json of `{kind}`", keys, "Unknown keys are refused.")
    yield Section("config.json of `LogitScore`", LOGIT_SCORE_KEYS, "Unknown keys are refused.")


def sections() -> list[Section]:
    """Return all tables in the order of the page."""
    return [
        *config_sections(),
        Section("tokenizer_config.json", TOKENIZER_CONFIG_KEYS),
        Section(
            "special_tokens_map.json",
            SPECIAL_TOKENS_MAP_KEYS,
            "Read if `tokenizer_config.json` has no `added_tokens_decoder`, as in transformers.",
        ),
        Section("tokenizer.json", TOKENIZER_JSON_KEYS),
        *sentence_sections(),
        Section(
            "generation_config.json",
            GENERATION_KEYS,
            "Settings of generation, of heads that generate. Without the file, its honoured keys "
            "are read in `config.json`. Unknown keys are carried. `zoo run generate` and `zoo run "
            "seq2seq` take such a file as `--generation-config FILE`, where unknown keys are "
            "errors, and options win.",
        ),
    ]


def page() -> str:
    """Return the text of the page."""
    rows = [f"| {fact.fact} | {', '.join(fact.keys)} | {fact.rule} |" for fact in PRECEDENCE]
    parts = [INTRODUCTION, STATED_TWICE + "\n".join(rows) + "\n"]
    for title, keys, intro in sections():
        rows = [
            f"| `{key}` | {entry.treatment} | {entry.reason} |"
            for key, entry in sorted(keys.items())
        ]
        lines = [f"## {title}", "", *([intro, ""] if intro else [])]
        lines += ["| key | | reason |", "|---|---|---|", *rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write or check the page."""
    if "--check" in sys.argv[1:]:
        if PAGE.read_text("utf-8") != page():
            sys.exit(f"{PAGE} is out of date: run `python -m tools.configuration_keys`")
        return
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
