"""Parquet files as the library datasets writes them: lists of words, and names of classes."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.readers.tables import TEXTS, Rows, Table
from tests.fuzz.trees import json_mutation

NAMES = ("O", "B-PER", "I-PER", "B-LOC")
KEY = b"huggingface"
ODD = ("", "a" * 100_000, "\0", "\x1b[2J", "\u202e", "é", " ", "B-", "x")


class ParquetLists(Table):
    """Words with the numbers of classes, whose names are in the metadata of the schema."""

    name = "parquet-lists"
    weight = 1
    task = "token-classification"
    kinds = (".parquet",)

    def rows(self) -> Rows:
        return [
            {
                "text": text.split(),
                "label": [NAMES[(k + place) % 2] for place in range(len(text.split()))],
            }
            for k, text in enumerate(TEXTS)
        ]

    def _write(self, path: Path, rows: Rows) -> None:
        import pyarrow
        import pyarrow.parquet

        columns = {
            "text": [row["text"] for row in rows],
            "label": [[NAMES.index(tag) for tag in row["label"]] for row in rows],
        }
        feature = {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
        words = {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"}
        info = {"info": {"features": {"text": words, "label": feature}}}
        table = pyarrow.table(columns).replace_schema_metadata({KEY: json.dumps(info)})
        pyarrow.parquet.write_table(table, path)

    def mutations(self, path: Path) -> list[Mutate]:
        return [*BYTES, *[table_mutation] * (3 * len(BYTES))]

    def check(self, folder: Path) -> str:
        """Check that the rows as pyarrow reads them, as JSON lines with names, are the same."""
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(io.BytesIO((folder / "table.parquet").read_bytes()))
        rows = table.to_pylist()
        names = class_names(table.schema.metadata or {})
        for row in rows:
            for column, listed in names.items():
                if isinstance(row.get(column), list):
                    row[column] = [listed[tag] if type(tag) is int else tag for tag in row[column]]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        return self.compare(folder, content, ".jsonl")


def class_names(metadata: Any) -> dict[str, list[str]]:
    """Return the names of the classes of each column of lists."""
    if KEY not in metadata:
        return {}
    features = json.loads(metadata[KEY])["info"]["features"]
    found = {}
    for column, feature in features.items():
        inner = feature.get("feature") if isinstance(feature, dict) else None
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel":
            found[column] = list(inner["names"])
    return found


def table_mutation(data: bytes, random: Random) -> bytes:
    """Change types, values, names or metadata of a table, and write it as a sound file."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(data))
    changed = random.choice(CHANGES)(table, random)
    options: dict[str, Any] = random.choice(
        ({}, {"compression": "zstd"}, {"row_group_size": 1}, {"use_dictionary": False})
    )
    target = io.BytesIO()
    pyarrow.parquet.write_table(changed, target, **options)
    return target.getvalue()


def _change_type(table: Any, random: Random) -> Any:
    """Give a column another type that holds its values, or others."""
    import pyarrow as pa

    name = random.choice(table.column_names)
    values = table.column(name).to_pylist()
    types: dict[str, Callable[[], Any]] = {
        "strings": lambda: pa.array([json.dumps(value) for value in values]),
        "joined": lambda: pa.array([" ".join(map(str, value)) for value in values]),
        "numbers": lambda: pa.array(range(len(values)), pa.int64()),
        "large": lambda: pa.array(values, pa.large_list(_inner(values))),
        "nested": lambda: pa.array([[value] for value in values]),
        "structs": lambda: pa.array([{"a": value} for value in values]),
        "bytes": lambda: pa.array([[str(item).encode() for item in value] for value in values]),
        "dictionary": lambda: pa.array(["a"] * len(values)).dictionary_encode(),
        "nulls": lambda: pa.nulls(len(values)),
        "empty": lambda: pa.array([[]] * len(values), pa.list_(pa.string())),
        "doubles": lambda: pa.array([[0.5] * len(value) for value in values]),
        "truths": lambda: pa.array([[True] * len(value) for value in values]),
        "times": lambda: pa.array([[0] * len(value) for value in values], pa.list_(_moment())),
        "decimals": lambda: pa.array(
            [[1] * len(value) for value in values], pa.list_(pa.decimal128(5, 2))
        ),
        "unsigned": lambda: pa.array(
            [[2**64 - 1] * len(value) for value in values], pa.list_(pa.uint64())
        ),
        "map": lambda: pa.array([[("a", 1)] for _ in values], pa.map_(pa.string(), pa.int64())),
    }
    column = types[random.choice(list(types))]()
    return table.set_column(table.column_names.index(name), name, column)


def _inner(values: list[Any]) -> Any:
    import pyarrow as pa

    return pa.string() if isinstance(values[0][0], str) else pa.int64()


def _moment() -> Any:
    import pyarrow as pa

    return pa.timestamp("ns")


def _change_values(table: Any, random: Random) -> Any:
    """Change a value, a list, or the length of a list in some rows."""
    import pyarrow as pa

    name = random.choice(table.column_names)
    column = table.column(name)
    values = column.to_pylist()
    row = random.randrange(len(values))
    change = random.randrange(6)
    if change == 0:
        values[row] = None
    elif change == 1:
        values[row] = []
    elif change == 2:
        values[row] = values[row] * random.choice((2, 1000))
    elif change == 3:
        values[row] = [*values[row][:-1], None]
    else:
        place = random.randrange(len(values[row]))
        odd = (-1, -2, 4, 2**31, 2**62) if isinstance(values[row][place], int) else ODD
        values[row][place] = random.choice(odd)
    array = pa.array(values, column.type)
    return table.set_column(table.column_names.index(name), name, array)


def _change_rows(table: Any, random: Random) -> Any:
    """Remove, repeat or empty the rows."""
    import pyarrow as pa

    count = random.choice((0, 1, 2, 3))
    repeated = pa.concat_tables([table] * random.choice((2, 50)))
    return random.choice((table.slice(0, count), table.slice(count), repeated))


def _change_names(table: Any, random: Random) -> Any:
    names = list(table.column_names)
    place = random.randrange(len(names))
    change = random.randrange(4)
    if change == 0:
        return table.drop_columns([names[place]])
    if change == 1:
        return table.append_column(names[place], table.column(place))
    if change == 2:
        return table.append_column(random.choice(("id", "tokens", "tags")), table.column(place))
    names[place] = random.choice((*ODD, *table.column_names, "labels", "ner_tags", "tokens"))
    return table.rename_columns(names)


def _change_metadata(table: Any, random: Random) -> Any:
    """Change what datasets writes, as JSON or as bytes."""
    metadata = dict(table.schema.metadata)
    change = random.choice((json_mutation, json_mutation, json_mutation, random.choice(BYTES)))
    metadata[KEY] = change(metadata[KEY], random)
    if random.random() < 0.1:
        metadata = {}
    return table.replace_schema_metadata(metadata)


CHANGES: tuple[Callable[[Any, Random], Any], ...] = (
    _change_type,
    _change_type,
    _change_values,
    _change_values,
    _change_rows,
    _change_names,
    _change_metadata,
    _change_metadata,
)
READERS = (ParquetLists(),)
