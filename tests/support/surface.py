"""The public surface of the admin API as a short description, and what a change of it breaks for its users.

``python -m tests.support.surface`` writes ``surface.json`` anew: after growing it, so that what is new is kept too, or
knowingly, with a line in the changelog, after a change that breaks clients.

Belongs here: paths, methods, parameters, fields, types, words, statuses and problem codes. Does not belong here: texts,
examples and bounds, which may change.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from service.api.openapi import build_document
from service.api.operations import OPERATIONS
from service.domain.deliveries import CallRefused

FILE = Path(__file__).with_name("surface.json")
SERVICE = Path(__file__).parents[2] / "service"
RAISERS = {"Problem", "Refused", "rule_broken"}
Json = dict[str, Any]
Fields = dict[str, Json]


def build_surface() -> Json:
    """Describe the surface as it is now."""
    document = build_document(OPERATIONS)
    calls = {
        f"{method.upper()} {path}": _describe(call, document)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    }
    return {"calls": calls, "codes": sorted(_list_codes())}


def _describe(call: Json, document: Json) -> Json:
    bodies = call.get("requestBody", {"content": {}})
    return {
        "parameters": {
            f"{each['in']} {each['name']}": {**_describe_field(each["schema"], document), **_required(each["required"])}
            for each in call["parameters"]
        },
        "body": bodies.get("required", False),
        "media": sorted(bodies["content"]),
        "request": next((_flatten(body["schema"], document) for body in bodies["content"].values()), {}),
        "answers": {
            status: _flatten(answer["content"]["application/json"]["schema"], document)
            if "application/json" in answer.get("content", {})
            else {}
            for status, answer in call["responses"].items()
        },
    }


def _flatten(schema: Json, document: Json, prefix: str = "") -> Fields:
    """Every field below a schema by its path: ``data[].webhook_id``."""
    found: Fields = {}
    for each in _list_variants(schema, document):
        if each.get("type") == "array":
            found.update(_flatten(each.get("items", {}), document, prefix + "[]"))
        for name, field in each.get("properties", {}).items():
            path = f"{prefix}.{name}".lstrip(".")
            found[path] = {**_describe_field(field, document), **_required(name in each.get("required", ()))}
            found.update(_flatten(field, document, path))
    return found


def _describe_field(field: Json, document: Json) -> Json:
    variants = list(_list_variants(field, document))
    types = {one for each in variants for one in _list_types(each)}
    words = {word for each in variants for word in each.get("enum", [each["const"]] if "const" in each else [])}
    return {"types": sorted(types), **({"words": sorted(words)} if words else {})}


def _list_types(schema: Json) -> list[str]:
    kind = schema.get("type", "string" if "enum" in schema or "const" in schema else "any")
    return kind if isinstance(kind, list) else [kind]


def _required(required: bool) -> Json:
    return {"required": True} if required else {}


def _list_variants(schema: Json, document: Json) -> Iterator[Json]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" not in schema:
        yield schema
    for each in schema.get("anyOf", ()):
        yield from _list_variants(each, document)


def _list_codes() -> set[str]:
    """The machine codes of problems: the second argument wherever one is raised, and the refusals of a delivery."""
    calls = (
        node
        for folder in ("api", "store")
        for path in (SERVICE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISERS
    )
    given = (call.args[1] for call in calls if len(call.args) > 1)
    literal = {str(each.value) for each in given if isinstance(each, ast.Constant)}
    return {word for word in literal if re.fullmatch(r"[a-z]+(_[a-z]+)*", word)} | {
        refusal.value for refusal in CallRefused
    }


def find_breaks(before: Json, now: Json) -> list[str]:
    """What clients of ``before`` would miss or trip over: a line each. Growing breaks nothing."""
    lost = [f"problem code {code}: gone" for code in before["codes"] if code not in now["codes"]]
    for name, call in before["calls"].items():
        lost += [f"{name}: {text}" for text in _compare(call, now["calls"].get(name))]
    return lost


def _compare(before: Json, now: Json | None) -> Iterator[str]:
    if now is None:
        yield "gone"
        return
    if now["body"] and not before["body"]:
        yield "the body is required"
    yield from (f"media type {media}: gone" for media in before["media"] if media not in now["media"])
    yield from _compare_sent("parameter", before["parameters"], now["parameters"])
    yield from _compare_sent("request field", before["request"], now["request"])
    for status, fields in before["answers"].items():
        if status not in now["answers"]:
            yield f"status {status}: gone"
        else:
            yield from _compare_shown(status, fields, now["answers"][status])


def _compare_sent(what: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
    """What clients send: nothing that was taken may be refused."""
    for name, field in before.items():
        if name not in now:
            yield f"{what} {name}: gone"
            continue
        yield from (f"{what} {name}: {kind} is not taken" for kind in _minus(field, now[name], "types"))
        if "words" in now[name]:
            yield from (f"{what} {name}: {word!r} is not taken" for word in _minus(field, now[name], "words"))
            if "words" not in field:
                yield f"{what} {name}: only some words are taken"
    for name, field in now.items():
        parent = name.rpartition(".")[0].removesuffix("[]")
        if field.get("required") and not before.get(name, {}).get("required") and (not parent or parent in before):
            yield f"{what} {name}: is required"


def _compare_shown(status: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
    """What clients read: everything is still there, of no other type."""
    for name, field in before.items():
        if name not in now:
            yield f"{status}, field {name}: gone"
        elif now[name]["types"] != field["types"]:
            yield f"{status}, field {name}: was {field['types']}, is {now[name]['types']}"
        elif field.get("required") and not now[name].get("required"):
            yield f"{status}, field {name}: may be absent"
        else:
            yield from (f"{status}, field {name}: {word!r} is gone" for word in _minus(field, now[name], "words"))


def _minus(before: Json, now: Json, name: str) -> list[str]:
    return [each for each in before.get(name, ()) if each not in now.get(name, before.get(name, ()))]


def render(surface: Json) -> str:
    """The description as text, a line a field, so that a diff reads well."""
    text = json.dumps(surface, indent=1, sort_keys=True)
    for pattern in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):
        text = re.sub(pattern, lambda match: _on_one_line(match[0]), text)
    return text + "\n"


def _on_one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text) if '": {' not in text and len(text) < 600 else text


if __name__ == "__main__":
    FILE.write_text(render(build_surface()))
