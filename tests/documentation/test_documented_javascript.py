"""The JavaScript of the documentation parses."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(
            r'```js\n(.*?)```|<script type="module">\n(.*?)</script>',
            page.read_text("utf-8"),
            re.DOTALL,
        )
    )
]
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
@pytest.mark.parametrize("parts", BLOCKS)
def test_it_parses(parts: tuple[str, str], tmp_path: Path) -> None:
    module = tmp_path / "snippet.mjs"
    module.write_text("".join(parts), "utf-8")
    done = subprocess.run([str(NODE), "--check", module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_snippets_are_found() -> None:
    assert {"README.md-0", "sentiment.md-0"} <= {block.id for block in BLOCKS}
