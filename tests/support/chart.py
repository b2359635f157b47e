"""What the chart holds that is made from something else: `python -m tests.support.chart` writes it, a test compares.

The settings in values.schema.json come from the code's fields, the table in README.md from the comments in values.yaml,
and files/ from grafana/ (Helm reads nothing outside a chart's own folder). The sizing in the page above it comes from
arithmetic.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from annotated_types import Ge, Le, MaxLen
from pydantic.fields import FieldInfo

from service.config import Settings
from service.config.loading import SECRETS
from service.config.values import AsText
from tests.support.sizing import render_sizing

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "webhookd"
GRAFANA = ROOT / "grafana"

# Set by the chart itself: ports and files have values of their own, and nothing in a pod is embedded.
OWN = {"api_port", "ops_port", "ca_file", "kafka_ca_file", "profiles_dir", "config_file", "data_dir"}
PAGE = ROOT / "helm" / "README.md"


def made_files() -> dict[Path, str]:
    """What every made file must hold."""
    return {
        CHART / "values.schema.json": render_schema(),
        CHART / "README.md": replace_between("values", (CHART / "README.md").read_text(), render_table()),
        PAGE: replace_between("sizing", PAGE.read_text(), render_sizing()),
        **{CHART / "files" / kind / path.name: path.read_text() for kind, path in list_sources()},
    }


def replace_between(what: str, page: str, text: str) -> str:
    begin, end = f"<!-- {what}: begin -->\n", f"<!-- {what}: end -->\n"
    return re.sub(f"{begin}.*{end}", lambda _: begin + text + end, page, flags=re.DOTALL)


def list_strays() -> list[Path]:
    """Copies whose source is gone."""
    made = made_files()
    copies = (path for kind in ("dashboards", "alerts") for path in (CHART / "files" / kind).glob("*.*"))
    return [path for path in copies if path not in made]


def list_sources() -> Iterator[tuple[str, Path]]:
    for kind, pattern in (("dashboards", "*.json"), ("alerts", "*.yaml")):
        for path in sorted((GRAFANA / kind).glob(pattern)):
            if not path.name.endswith((".test.yaml", "_test.yaml")):
                yield kind, path


# --- values.schema.json ---


def render_schema() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    schema["definitions"]["settings"] = build_settings_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def build_settings_schema() -> dict[str, Any]:
    names = [name for name in Settings.model_fields if name not in SECRETS | OWN]
    properties = {name.upper(): build_setting_schema(Settings.model_fields[name]) for name in names}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def build_setting_schema(field: FieldInfo) -> dict[str, Any]:
    return {"description": field.description, **build_type(field)}


def build_type(field: FieldInfo) -> dict[str, Any]:
    """The JSON type that a YAML value may have; the code judges the rest when it starts."""
    if get_origin(field.annotation) is Literal:
        return {"enum": [choice for choice in get_args(field.annotation) if choice]}
    if field.annotation in {int, float}:
        return {"type": "integer" if field.annotation is int else "number", **list_bounds(field)}
    if field.annotation is bool:
        return {"type": "boolean"}
    if field.annotation is timedelta:
        return {"type": ["string", "number"], "pattern": r"^([0-9.]+(ms|s|m|h|d|w)?)+$"}
    if get_origin(field.annotation) is tuple or AsText in field.metadata:
        return {"type": ["string", "array", "integer"], "items": {"type": ["string", "integer"]}}
    return {"type": "string", **list_bounds(field)}


def list_bounds(field: FieldInfo) -> dict[str, Any]:
    words = {Ge: ("minimum", "ge"), Le: ("maximum", "le"), MaxLen: ("maxLength", "max_length")}
    known = ((words[type(bound)], bound) for bound in field.metadata if type(bound) in words)
    return {word: getattr(bound, attribute) for (word, attribute), bound in known}


# --- the table in README.md ---


def render_table() -> str:
    """A row for every value that has a comment in values.yaml."""
    rows = [
        f"| `{'.'.join(path)}` | {show(default)} | {comment.replace('|', chr(92) + '|')} |"
        for path, default, comment in list_values()
    ]
    return "\n".join(["| value | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def list_values() -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Path, default and comment of every commented value, in the file's order."""
    text = (CHART / "values.yaml").read_text()
    yield from read_comments(yaml.compose(text, yaml.CSafeLoader), text.splitlines(), ())


def read_comments(
    node: yaml.Node, lines: list[str], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for key, value in node.value:
        here = (*path, key.value)
        comment = comment_above(lines, key.start_mark.line)
        if comment and not is_grouped(value, lines):
            yield here, yaml.safe_load(yaml.serialize(value)), comment
        elif isinstance(value, yaml.MappingNode):
            yield from read_comments(value, lines, here)


def is_grouped(value: yaml.Node, lines: list[str]) -> bool:
    """Whether the entries below have comments of their own."""
    return isinstance(value, yaml.MappingNode) and any(
        comment_above(lines, key.start_mark.line) for key, _ in value.value
    )


def comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    while number and lines[number - 1].lstrip().startswith("#"):
        number -= 1
        found.insert(0, lines[number].strip().removeprefix("#").strip())
    return " ".join(found)


def show(default: Any) -> str:
    text = json.dumps(default, ensure_ascii=False)
    return f"`{text}`" if len(text) <= 100 else "see values.yaml"


def write() -> None:
    for path, text in made_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in list_strays():
        path.unlink()


if __name__ == "__main__":
    write()
