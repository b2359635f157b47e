"""``Settings``: all fields as one frozen, checked object.

Belongs here: what turns the fields into one object, and values derived from several of them. Does not belong here: the
fields (``fields``) and where their values come from (``loading``).
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from service.config.conflicts import list_conflicts
from service.config.fields import Fields
from service.config.values import EncryptionKey, parse_encryption_keys

PREFIX = "WEBHOOKD_"


class Settings(Fields, BaseSettings):
    """All settings, checked. Made by ``loading.load_configuration``, or in tests directly from field values.

    Raises:
        pydantic.ValidationError: a value is malformed, out of range, or two do not go together.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: a ``Settings`` made in a test must not depend on the environment it runs in."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if lines := list_conflicts(self):
            raise ValueError("\n".join(lines))
        return self

    @property
    def sealing_keys(self) -> tuple[EncryptionKey, ...]:
        """``ENCRYPTION_KEYS`` parsed, the encrypting one first; empty when none is set."""
        text = self.encryption_keys.get_secret_value()
        return parse_encryption_keys(text) if text else ()
