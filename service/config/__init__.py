"""Settings: read once at the start, checked, refused with one clear line each.

Belongs here: the names other modules use. Only the composition root and the command line import them.
"""

from __future__ import annotations

from service.config.durations import format_duration, parse_duration
from service.config.loading import EMBEDDED, MIGRATE, SERVE, ConfigError, Configuration, load_configuration
from service.config.reference import Row, describe, render_reference
from service.config.schema import Settings
from service.config.secrets import SecretReload, SecretSource, UnusableSecretError
from service.config.values import EncryptionKey, parse_encryption_keys

__all__ = [
    "EMBEDDED",
    "MIGRATE",
    "SERVE",
    "ConfigError",
    "Configuration",
    "EncryptionKey",
    "Row",
    "SecretReload",
    "SecretSource",
    "Settings",
    "UnusableSecretError",
    "describe",
    "format_duration",
    "load_configuration",
    "parse_duration",
    "parse_encryption_keys",
    "render_reference",
]
