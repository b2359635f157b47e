"""Where settings come from: the environment, files named by ``*_FILE``, and one TOML file, in this order.

Belongs here: collecting raw values, refusing unknown names, and turning every refusal into one line that names the
setting and holds no value. This is the one place that reads ``os.environ``. Does not belong here: fields and rules.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from service.config.durations import format_duration
from service.config.schema import PREFIX, Settings
from service.config.secrets import SecretSource, UnusableSecretError, read_secret
from service.config.tracing import NO_TRACING, Tracing, read_tracing

Origin = Literal["env", "file", "toml", "default"]

SECRETS = frozenset(name for name, field in Settings.model_fields.items() if field.annotation is SecretStr)
SERVE = ("database_url", "encryption_keys", "operator_key")
EMBEDDED = ("operator_key",)
MIGRATE = ("database_url",)

_SERVICE_LINK = re.compile(r"WEBHOOKD_.*(?<=_)(?:SERVICE_|PORT_[0-9]+_).*")
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")
_WHY_NEEDED = {
    "database_url": "is not set; webhookd keeps everything in PostgreSQL (postgresql://user:password@host:5432/name)",
    "encryption_keys": "is not set; make one with: echo k1:$(openssl rand -base64 32)",
    "operator_key": "is not set; make one with: openssl rand -hex 32",
}


class ConfigError(Exception):
    """The start is refused. ``lines`` hold one problem each, ``WEBHOOKD_NAME: what is wrong``, and never a value."""

    def __init__(self, lines: Collection[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True)
class Configuration:
    """Checked settings, where each came from, and the secrets as sources that follow their files."""

    settings: Settings
    origins: Mapping[str, Origin]
    secrets: Mapping[str, SecretSource]
    tracing: Tracing = NO_TRACING

    def secret(self, name: str) -> SecretSource:
        """The source of one secret by field name, such as ``kafka_sasl_password``."""
        return self.secrets[name]

    def database_url(self) -> str:
        """The database's address in force, as its file has it now."""
        return self.secret("database_url").get()

    def listen_url(self) -> str:
        """The address for LISTEN in force: ``DATABASE_LISTEN_URL``, or ``DATABASE_URL``."""
        return self.secret("database_listen_url").get() or self.database_url()

    def masks(self) -> set[str]:
        """Every text that must not appear in a log: for ``Redactor.register``."""
        return {mask for source in self.secrets.values() for mask in source.masks()} | self.tracing.masks


def load_configuration(environ: Mapping[str, str] | None = None, *, needs: Collection[str] = SERVE) -> Configuration:
    """Settings from ``environ`` (default: the process's) and the files that it names.

    ``needs`` are the fields that the command cannot do without (``SERVE``, ``EMBEDDED``, ``MIGRATE`` or none). An empty
    variable counts as unset. Reads files: not for use inside the event loop.

    Raises:
        ConfigError: something is unknown, malformed, out of range, unsafe or missing; all of it, a line each.
    """
    environ = os.environ if environ is None else environ  # noqa: TID251 - the one place that reads the environment
    given = {name: value for name, value in environ.items() if _is_ours(name, value)}
    document = _read_toml(given.get(f"{PREFIX}CONFIG_FILE"))
    problems = [*_unknown_names(given), *_unknown_keys(document)]
    raw, origins, files = _collect(given, document, problems)
    settings = _validate(raw, problems)
    if settings is None or problems:
        raise ConfigError(problems)
    if missing := [f"{_env_name(name)}: {_WHY_NEEDED[name]}" for name in needs if not raw.get(name)]:
        raise ConfigError(missing)
    return Configuration(settings, origins, _secret_sources(settings, raw, files), read_tracing(environ))


def _is_ours(name: str, value: str) -> bool:
    if not name.startswith(PREFIX) or not value.strip():
        return False
    if name.endswith("_PORT") and _SERVICE_ADDRESS.match(value):
        return False  # what Kubernetes injects for a Service called webhookd or webhookd-…
    return not _SERVICE_LINK.fullmatch(name)


def _env_name(field: str) -> str:
    return PREFIX + field.upper()


def _known_names() -> list[str]:
    return [*map(_env_name, Settings.model_fields), *(f"{_env_name(name)}_FILE" for name in sorted(SECRETS))]


def _unknown_names(given: Mapping[str, str]) -> Iterator[str]:
    known = _known_names()
    for name in sorted(set(given) - set(known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        yield f"{_printable(name)}: is not a setting" + (f"; {near[0]} is" if near else "")


def _unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    known = {name.removeprefix(PREFIX).lower() for name in _known_names()} - {"config_file"}
    for key in sorted(set(document) - known):
        near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.8)
        yield f"{PREFIX}CONFIG_FILE: {_printable(key)} is not a setting" + (f"; {near[0]} is" if near else "")


def _printable(name: str) -> str:
    return name.encode("unicode_escape").decode("ascii")[:80]


def _read_toml(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{PREFIX}CONFIG_FILE: cannot be read ({error.strerror})"]) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        where = re.search(r"\(at line \d+, column \d+\)", str(error))
        raise ConfigError([f"{PREFIX}CONFIG_FILE: is not TOML {where[0] if where else ''}".rstrip()]) from None


def _collect(
    given: Mapping[str, str], document: Mapping[str, Any], problems: list[str]
) -> tuple[dict[str, Any], dict[str, Origin], dict[str, Path]]:
    raw: dict[str, Any] = {}
    origins: dict[str, Origin] = dict.fromkeys(Settings.model_fields, "default")
    files: dict[str, Path] = {}
    for name in Settings.model_fields:
        in_environment, in_document = given.get(_env_name(name)), document.get(name)
        path = _secret_path(name, given, document) if name in SECRETS else None
        if in_environment is not None:
            raw[name], origins[name] = in_environment, "env"
        elif path is not None:
            files[name], origins[name] = path, "file"
        elif in_document is not None:
            raw[name], origins[name] = in_document, "toml"
        if in_environment is not None and f"{_env_name(name)}_FILE" in given:
            problems.append(f"{_env_name(name)}: and {_env_name(name)}_FILE are both set; keep one")
    for name, path in files.items():
        try:
            raw[name] = read_secret(path)
        except UnusableSecretError as error:
            problems.append(f"{_env_name(name)}_FILE: {error}")
    return raw, origins, files


def _secret_path(name: str, given: Mapping[str, str], document: Mapping[str, Any]) -> Path | None:
    path = given.get(f"{_env_name(name)}_FILE") or document.get(f"{name}_file")
    return Path(str(path)) if path else None


def _validate(raw: Mapping[str, Any], problems: list[str]) -> Settings | None:
    try:
        return Settings(**raw)
    except ValidationError as error:
        first_of_each = {
            detail["loc"][:1]: detail for detail in reversed(error.errors(include_url=False, include_input=False))
        }
        for detail in reversed(first_of_each.values()):
            problems.extend(_lines_of(detail))
        return None


def _lines_of(detail: ErrorDetails) -> list[str]:
    message = _words_for(detail)
    if not detail["loc"]:
        return message.split("\n")
    name = str(detail["loc"][0])
    return [f"{_env_name(name)}: {message}"]


def _words_for(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "greater_than_equal":
        return f"must be at least {_bound(context['ge'])}"
    if detail["type"] == "less_than_equal":
        return f"must be at most {_bound(context['le'])}"
    if detail["type"] == "value_error":
        return str(context["error"])
    return detail["msg"].replace("Input should", "should").replace("String should", "should")


def _bound(value: object) -> str:
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _secret_sources(settings: Settings, raw: dict[str, Any], files: Mapping[str, Path]) -> dict[str, SecretSource]:
    def acceptable(name: str, text: str) -> str | None:
        problems: list[str] = []
        _validate({**raw, name: text}, problems)
        return problems[0] if problems else None

    return {
        name: SecretSource(name, getattr(settings, name).get_secret_value(), files.get(name), acceptable)
        for name in sorted(SECRETS)
    }
