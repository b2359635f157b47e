"""The generated parts of `service/README.md`: `python -m tests.support.documents` writes them, a test compares."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from service.domain.outcomes import build_delivery_diagram
from service.domain.webhooks import build_webhook_diagram

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "service" / "README.md"
SKIPPED = {"__pycache__", "versions"}


def build_code_map() -> str:
    """One line per module: its path and the first sentence of its docstring, folder by folder."""
    lines: list[str] = []
    for folder, modules in _list_folders(ROOT / "service"):
        lines += [f"**`{folder.relative_to(ROOT)}/`** {_summary(folder / '__init__.py')}", ""]
        lines += [f"- `{module.name}` {_summary(module)}" for module in modules]
        lines.append("")
    return "\n".join(lines).rstrip()


def build_diagrams() -> str:
    """The state machines, as Mermaid draws them, from the tables that drive the code."""
    return (
        f"A delivery:\n\n```mermaid\n{build_delivery_diagram().strip()}\n```\n\n"
        f"A webhook:\n\n```mermaid\n{build_webhook_diagram().strip()}\n```"
    )


def render(page: str) -> str:
    """The page with its generated parts made anew."""
    for name, text in (("map", build_code_map()), ("states", build_diagrams())):
        pattern = rf"(<!-- {name}: generated -->\n).*?(<!-- end of {name} -->)"
        page = re.sub(pattern, lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)
    return page


def _list_folders(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    yield root, sorted(p for p in root.glob("*.py") if p.name != "__init__.py")
    for folder in sorted(p for p in root.rglob("*") if p.is_dir() and not SKIPPED & set(p.parts)):
        modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
        if modules:
            yield folder, modules


def _summary(module: Path) -> str:
    doc = ast.get_docstring(ast.parse(module.read_text())) if module.exists() else None
    first = " ".join((doc or "").split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`\"]\.) ", first)[0]


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
