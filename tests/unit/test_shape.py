"""The code keeps the shape that CONTRIBUTING.md asks for: methods that read as a table of contents, names that say."""

import ast
import statistics
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "service"
FILES = sorted(SERVICE.rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "core"}


def test_functions_are_short():
    sizes = {name: size for path in FILES for name, size in measure_functions(path).items()}
    long = sorted(name for name, size in sizes.items() if size > 40)
    assert statistics.median(sizes.values()) <= 10
    assert sum(size <= 30 for size in sizes.values()) >= 0.9 * len(sizes), by_size(sizes, 30)
    assert len(long) <= 0.04 * len(sizes), by_size(sizes, 40)


def test_files_are_short():
    sizes = {str(path.relative_to(SERVICE)): len(code_lines(parse(path))) for path in FILES}
    assert max(sizes.values()) <= 400, by_size(sizes, 400)


def test_names_say_something():
    modules = [*SERVICE.rglob("*.py"), *(path for path in SERVICE.rglob("*") if path.is_dir())]
    assert not [str(path) for path in modules if path.stem.strip("_") in FORBIDDEN_NAMES]


def test_size_leaves_docstrings_comments_and_blank_lines_out():
    source = 'def f():\n    """Two\n    lines."""\n    # why\n\n    x = (\n        1\n    )\n    return x\n'
    (function,) = ast.parse(source).body
    assert len(code_lines(function)) == 5


def measure_functions(path: Path) -> dict[str, int]:
    """Lines of every function and method in `path`, nested ones counted by themselves and in what holds them."""
    functions = (node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {
        f"{path.relative_to(SERVICE)}:{node.lineno} {node.name}": len(code_lines(node)) - len(node.decorator_list)
        for node in functions
    }


def code_lines(node: ast.AST) -> set[int]:
    """Numbers of the lines that hold code: no docstrings, no comments, no blank lines."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        id(holder.body[0].value)
        for holder in ast.walk(node)
        if isinstance(holder, documented) and holder.body and is_string(holder.body[0])
    }
    return {
        line
        for each in ast.walk(node)
        if hasattr(each, "lineno")
        and id(each) not in docstrings
        and not (is_string(each) and id(each.value) in docstrings)
        for line in spanned(each)
    }


def spanned(node: ast.AST) -> set[int]:
    """A statement with a body counts by its ends and what is inside, an expression by every line it covers."""
    if isinstance(node, ast.expr | ast.Constant) or not hasattr(node, "body"):
        return set(range(node.lineno, node.end_lineno + 1))
    return {node.lineno}


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def by_size(sizes: dict[str, int], limit: int) -> str:
    over = sorted(((size, name) for name, size in sizes.items() if size > limit), reverse=True)
    return f"{len(over)} of {len(sizes)} above {limit} lines: " + ", ".join(f"{name} ({size})" for size, name in over)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
