"""All readers, by name."""

from collections.abc import Mapping
from functools import cache

from tests.fuzz.reader import Reader


@cache
def all_readers() -> Mapping[str, Reader]:
    from tests.fuzz.readers import (
        adapters,
        configs,
        encoders,
        models,
        parquet,
        retrieval,
        runs,
        runtimes,
        shared,
        suites,
        tables,
        texts,
        tokenizers,
        weights,
    )

    modules = (
        weights,
        configs,
        tokenizers,
        models,
        parquet,
        retrieval,
        texts,
        runs,
        runtimes,
        tables,
        shared,
        suites,
        adapters,
        encoders,
    )
    return {reader.name: reader for module in modules for reader in module.READERS}
