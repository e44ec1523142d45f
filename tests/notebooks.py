"""Cells that run in the kernel of a notebook."""

from typing import Any

import nbclient
import nbformat


class RecordingClient(nbclient.NotebookClient):  # type: ignore[misc]
    """Client that keeps the HTML that a cell shows, also what is replaced later."""

    def process_message(self, message: Any, *arguments: Any) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            self.resources.setdefault("shown", []).append(message["content"]["data"]["text/html"])
        return super().process_message(message, *arguments)


def shown_html(code: str) -> list[str]:
    """Run a cell, and return the HTML that it shows, in order."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = RecordingClient(notebook, timeout=120, kernel_name="python3")
    client.execute()
    pages: list[str] = client.resources.get("shown", [])
    return pages
