"""From a method and a raw path to an operation.

Belongs here: matching percent-encoded segments, so that a name may hold ``%2F``. Does not belong here: the table of
operations (``operations``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service.api.calls import Operation
from service.api.names import decode_segment
from service.api.problems import Problem

_ORIGIN = re.compile(r"https?://[^/]*", re.IGNORECASE)


@dataclass(slots=True)
class _Node:
    """One segment of the tree of paths."""

    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: tuple[str, _Node] | None = None
    operations: dict[str, Operation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """An operation and the decoded names from its path."""

    operation: Operation
    path: Mapping[str, str]


class Routes:
    """A tree of path segments; fixed words go before names."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        node = self._root
        for segment in operation.path.split("/")[1:]:
            if segment.startswith("{"):
                node.variable = node.variable or (segment[1:-1], _Node())
                node = node.variable[1]
            else:
                node = node.fixed.setdefault(segment, _Node())
        node.operations[operation.method] = operation

    def match(self, method: str, raw_path: str) -> Match:
        """Find the operation. Raises Problem: 404, or 405 with ``Allow``."""
        node, names = self._root, []
        for segment in _origin_form(raw_path).split("/")[1:]:
            following = node.fixed.get(segment)
            if following is None:
                if node.variable is None or not segment:
                    raise Problem(404, "no_such_path", "There is nothing at this path.")
                name, following = node.variable
                names.append((name, decode_segment(segment)))
            node = following
        return Match(self._choose(node, method), dict(names))

    def _choose(self, node: _Node, method: str) -> Operation:
        if not node.operations:
            raise Problem(404, "no_such_path", "There is nothing at this path.")
        operation = node.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            allow = ", ".join(sorted({*node.operations, *(["HEAD"] if "GET" in node.operations else [])}))
            raise Problem(405, "method_not_allowed", f"This path takes {allow}.", headers={"Allow": allow})
        return operation


def _origin_form(target: str) -> str:
    """Return the path of a request target; a server takes the absolute form, too (RFC 9112, section 3.2.2)."""
    path = target.partition("?")[0]
    return path if path.startswith("/") else _ORIGIN.sub("", path, count=1)
