"""Tokenizers of multilingual models, which put a token of the language at each text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import VerificationError, did_you_mean
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, SourceFiles
from zoo.tokenizers.template import Template

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SRC_LANG = "src_lang"


@dataclass(frozen=True)
class LanguageCodes:
    """The languages that a multilingual tokenizer knows.

    Attributes:
        tokens: name of a language, as ``src_lang`` of ``tokenizer_config.json`` has it -> token.
        default: name of the language of texts where the file names none.
        leads: the language is before a text, as in mBART-50; otherwise after its end, as in mBART.
    """

    tokens: Mapping[str, str]
    default: str
    leads: bool

    @property
    def roles(self) -> dict[str, str]:
        """The tokens as special tokens without a role."""
        return {token: token for token in self.tokens.values()}

    def template(self, files: SourceFiles) -> Template:
        """Return the template of texts in the language that the files name.

        Raises:
            VerificationError: it is not one of the languages.
        """
        name = files.json_if_any(TOKENIZER_CONFIG).get(SRC_LANG) or self.default
        if name not in self.tokens:
            raise VerificationError(
                f"{files.path(TOKENIZER_CONFIG)}: {SRC_LANG} = {name!r:.100} is not a language of "
                "the tokenizer",
                did_you_mean(str(name), list(self.tokens)),
            )
        token = self.tokens[name]
        around = f"{token} {{}} eos" if self.leads else f"{{}} eos {token}"
        return Template(around.format("$A"), around.format("$A $B"))

    def put_at_texts(
        self, tokenizer: "Tokenizer", files: SourceFiles, roles: Mapping[str, str]
    ) -> None:
        """Give a tokenizer the template of the files, as the Hub's class does.

        It replaces a template of ``tokenizer.json``, unless the files name a class that uses that
        file as it is.

        Args:
            tokenizer: the tokenizer, which is changed.
            files: files of the tokenizer.
            roles: role -> special token.
        """
        settings = TokenizerFilesConfig.read(files)
        if settings.is_generic and tokenizer.post_processor is not None:
            return
        names = {**roles, **self.roles}
        tokenizer.post_processor = self.template(files).build(tokenizer, names, settings.origin)
