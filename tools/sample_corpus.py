"""The texts of the package's small corpus, from Project Gutenberg's plain text files.

    python -m tools.sample_corpus FOLDER

FOLDER has one plain text file per book, as published, named by the book's number there, such as
``55.txt``. Writes ``zoo/data/sample``: per book one file with one paragraph per line, and a blank
line between chapters. Prints the table of its ``README.md``.

Front matter, the notices of Project Gutenberg, illustrations and footnotes are left out; marks of
emphasis are removed, and quotation marks and dashes are ASCII.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks._common import table

SAMPLE = Path(__file__).parents[1] / "zoo" / "data" / "sample"
CHAPTER_CHARS = 2500  # characters of the shortest chapter; less is a title or a table of contents
# number at Project Gutenberg -> file, author, title, year of the first edition
BOOKS = {
    55: ("wizard_of_oz", "L. Frank Baum", "The Wonderful Wizard of Oz", 1900),
    486: ("ozma_of_oz", "L. Frank Baum", "Ozma of Oz", 1907),
    420: ("dorothy", "L. Frank Baum", "Dorothy and the Wizard in Oz", 1908),
    517: ("emerald_city", "L. Frank Baum", "The Emerald City of Oz", 1910),
    113: ("secret_garden", "Frances Hodgson Burnett", "The Secret Garden", 1911),
    12: ("looking_glass", "Lewis Carroll", "Through the Looking-Glass", 1871),
    289: ("wind_in_the_willows", "Kenneth Grahame", "The Wind in the Willows", 1908),
    708: ("princess_and_goblin", "George MacDonald", "The Princess and the Goblin", 1872),
    778: ("five_children", "Edith Nesbit", "Five Children and It", 1902),
    836: ("phoenix", "Edith Nesbit", "The Phoenix and the Carpet", 1904),
    837: ("amulet", "Edith Nesbit", "The Story of the Amulet", 1906),
    1874: ("railway_children", "Edith Nesbit", "The Railway Children", 1906),
    45: ("anne_of_green_gables", "L. M. Montgomery", "Anne of Green Gables", 1908),
    1450: ("pollyanna", "Eleanor H. Porter", "Pollyanna", 1913),
    271: ("black_beauty", "Anna Sewell", "Black Beauty", 1877),
}
NOTICE = r"project gutenberg|\*END\*|END THE SMALL PRINT"
ASCII = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2014": "--",
        "\u2013": "-",
        "\u00a0": " ",
        "`": "'",
        "_": "",
        "|": "",
    }
)


def main() -> None:
    folder = Path(sys.argv[1])
    rows = []
    for number, (name, author, title, year) in BOOKS.items():
        text = (folder / f"{number}.txt").read_text(encoding="utf-8-sig")
        documents = list(chapters(text))
        content = "\n\n".join(documents) + "\n"
        (SAMPLE / f"{name}.txt").write_text(content, encoding="utf-8", newline="\n")
        counts = [str(len(documents)), f"{len(content.encode()):,}"]
        rows.append([f"`{name}.txt`", author, title, str(year), str(number), *counts])
    print(table(["file", "author", "title", "year", "number", "chapters", "bytes"], rows))


def chapters(text: str) -> Iterator[str]:
    """Yield the chapters of a book, each with one paragraph per line.

    A chapter begins with a heading, or after three or more blank lines; shorter parts are titles,
    which belong to the chapter after them, or, before the first chapter, front matter.
    """
    lines = text.translate(ASCII).splitlines()
    notices = [n for n, line in enumerate(lines) if re.search(NOTICE, line, re.IGNORECASE)]
    start = max(n for n in notices if n < len(lines) / 4)
    end = min(n for n in notices if n > len(lines) / 2)
    body = "\n".join(line.rstrip() for line in lines[start + 1 : end])
    body = re.sub(r"\[(Illustration|Footnote|Transcriber)[^\]]*\]", "", body)
    title = ""
    first = True
    for part in re.split(r"\n{4,}|\n{2,}(?=CHAPTER [IVXL\d]+\b)", body):
        lines_of_part = [" ".join(p.split()) for p in re.split(r"\n{2,}", part)]
        content = "\n".join(line for line in lines_of_part if re.search(r"\w", line))
        if len(content) < CHAPTER_CHARS:
            title += content + "\n" if content and not first else ""
            continue
        yield f"{title}{content}"
        title = ""
        first = False


if __name__ == "__main__":
    main()
