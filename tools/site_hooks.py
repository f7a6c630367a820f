"""Hooks of the site: a link to a file outside docs/ has no page there, so its text stays and the link goes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(```.*?```)", re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page's text with links that leave docs/ replaced by their text; code blocks stay as they are."""
    docs = Path(config["docs_dir"]).resolve()
    here = Path(page.file.abs_src_path).parent

    def inside(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", target) or (here / path).resolve().is_relative_to(docs):
            return match.group(0)
        return text

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(inside, part) for part in parts)
