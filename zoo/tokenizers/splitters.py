"""The splitters of texts that a checkpoint's tokenizer may have."""

from typing import TypeAlias

from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.fastbpe import FastBpe, read_fastbpe
from zoo.tokenizers.moses_bpe import MosesBpe
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.words.jieba import JiebaWords
from zoo.tokenizers.words.mecab import MecabWords, read_mecab

AnySplitter: TypeAlias = MecabWords | JiebaWords | MosesBpe | FastBpe


def read_splitter(files: SourceFiles) -> AnySplitter | None:
    """Return the splitter that the files of a tokenizer describe, whatever their class.

    Raises:
        VerificationError: a key has a value that is not implemented.
    """
    settings = TokenizerFilesConfig.read(files)
    return read_fastbpe(files, settings) or read_mecab(settings)
