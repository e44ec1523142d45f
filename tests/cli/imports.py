"""Which modules a command imports, in a process of its own."""

import json
import subprocess
import sys


def modules_after(*arguments: str) -> set[str]:
    """Return the names of the modules that a command imports."""
    program = (
        "import sys, atexit, json\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['zoo', *{arguments!r}]\n"
        "from zoo.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))
