"""Screenshots to look at before a release, light and dark, on desktop and phone, in Chromium.

    python -m tools.screenshots OUT             everything below
    python -m tools.screenshots OUT PAGE...     pages that exist, such as RUN/report.html

Everything is the README, pages of the site, `zoo look` of BERT, GPT, T5 and ELMo, and reports of
pretraining, with one phase and with two, and of a fine-tuning run. BERT is the checkpoint of
`make demo`; the other models are trained for a few steps in OUT/work, and kept there.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tools import demo
from tools.browser import Browser

ROOT = Path(__file__).parents[1]
WIDTHS = {"desktop": 1280, "phone": 390}  # of a window, in pixels
PAGES = (
    "",
    "getting-started",
    "guides/sentiment",
    "notebooks/look_inside",
    "distillation",
    "pretraining",
    "commands",
    "settings",
    "results",
)
TEXTS = ("He sat on the bank of the river.", "The bank lent him money.")
STEPS = {"gpt": 150, "t5": 80, "elmo": 40}
SHORT = ("--global-batch-tokens", 1024, "--set", "eval_steps=20")
FRAMES = "document.querySelectorAll('iframe[loading=lazy]').length"
FRAME_SECONDS = 2.0  # in which a frame is drawn after it comes into the window
README = """<!doctype html><meta charset="utf-8"><title>README</title>
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark }
body { max-width: 52rem; margin: 2rem auto; font: 16px/1.5 system-ui, sans-serif }
pre { background: light-dark(#f6f8fa, #151b23); padding: 1rem; overflow: auto; border-radius: 6px }
code { font: 85% ui-monospace, monospace } img { max-width: 100% }
table { border-collapse: collapse } td, th { border: 1px solid #8888; padding: .4rem .8rem }
a { color: light-dark(#0969da, #4493f8) }
</style>"""


def main(arguments: list[str]) -> None:
    """Write the screenshots."""
    out = Path(arguments[0]).resolve()
    (out / "work").mkdir(parents=True, exist_ok=True)
    named = [Path(name) for name in arguments[1:]]
    browser = Browser()
    try:
        for page in named or chain([readme(out)], site(out), reports(out)):
            shoot(browser, page, out / name_of(page, out))
        for page in [] if named else looks(out):
            for view in "1234":
                shoot(browser, page, out / f"{page.stem}-{view}", keys=view)
    finally:
        browser.close()


def shoot(browser: Browser, page: Path, target: Path, *, keys: str = "") -> None:
    """Write the screenshots of a page, and fail if a script fails or a file is missing."""
    for device, width in WIDTHS.items():
        for scheme in ("light", "dark"):
            for _ in range(2):  # The site remembers a theme, which it reads when it is opened.
                browser.open(page, dark=scheme == "dark", width=width, mobile=device == "phone")
                browser.evaluate("localStorage.clear()")
            browser.press(*keys)
            if browser.evaluate(FRAMES):  # They are only drawn inside of the window.
                browser.resize_to_page(width, mobile=device == "phone")
                time.sleep(FRAME_SECONDS)
            browser.screenshot(target.with_name(f"{target.name}.{device}.{scheme}.png"))
            if problems := browser.problems():
                sys.exit(f"{page}: {problems}")
            page_width = browser.evaluate("document.documentElement.scrollWidth")
            if page_width > width:
                print(f"{page}: {page_width} pixels wide on a {device} of {width}")
    print(target)


def name_of(page: Path, out: Path) -> str:
    """Return the name of a page's screenshots."""
    inside = (
        page.relative_to(out / "work") if page.is_relative_to(out / "work") else Path(page.name)
    )
    return "-".join(inside.with_suffix("").parts)


def readme(out: Path) -> Path:
    """Render the README."""
    command = [sys.executable, "-m", "markdown", "-x", "tables", "-x", "fenced_code", "README.md"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    page = out / "work" / "readme.html"
    page.write_text(README + done.stdout.replace('="docs/', f'="{ROOT}/docs/'), "utf-8")
    return page


def site(out: Path) -> list[Path]:
    """Build the documentation, and return its main pages."""
    folder = out / "work" / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-d", folder], cwd=ROOT, check=True
    )
    return [folder / page / "index.html" for page in PAGES]


def model(out: Path, family: str) -> Path:
    """Return the run of a family, which is trained now if there is none."""
    run = out / "work" / family
    if not run.exists():
        demo.zoo("pretrain", family, "--max-steps", STEPS[family], *SHORT, "-q", "-o", run)
    return run


def reports(out: Path) -> Iterator[Path]:
    """Yield the reports of a pretraining and a fine-tuning run."""
    yield model(out, "gpt") / "report.html"
    phases = out / "work" / "phases"  # BERT's recipe has shorter rows first.
    if not phases.exists():
        demo.zoo("pretrain", "bert", "--max-steps", STEPS["gpt"], *SHORT, "-q", "-o", phases)
    yield phases / "report.html"
    run = out / "work" / "books"
    if not run.exists():
        table = demo.books(out / "work" / "books.csv")
        task = ("--task", "text-classification", "--epochs", 2)
        demo.zoo("finetune", demo.checkpoint(), *task, "--train", table, "-q", "-o", run)
    yield run / "report.html"


def looks(out: Path) -> Iterator[Path]:
    """Yield the pages of `zoo look`."""
    models = {"bert": demo.checkpoint()}
    models |= {family: model(out, family) / "model" for family in STEPS}
    for family, path in models.items():
        page = out / "work" / f"look-{family}.html"
        demo.zoo("look", path, *TEXTS, "-q", "-o", page)
        yield page
    page = out / "work" / "look-compared.html"
    compared = []
    for family in ("gpt", "t5"):
        compared += ["--compare", models[family]]
    demo.zoo("look", models["bert"], TEXTS[0], *compared, "-q", "-o", page)
    yield page


if __name__ == "__main__":
    main(sys.argv[1:])
