"""Secrets that may live in files and change while the process runs.

Belongs here: reading a secret's file, following it, keeping the last usable value. Does not belong here: which settings
are secret (``fields``) and masking them in logs (``service.logs``, wired by the composition root).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

MOST_BYTES = 65_536
EVERY = timedelta(seconds=10)


class UnusableSecretError(Exception):
    """A secret's file cannot be read, is empty or too long, or holds what the setting refuses. Never holds the text."""


def read_secret(path: Path) -> str:
    """The file's text without the line ends after it. Blocks.

    Raises:
        UnusableSecretError: with the reason, without the text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise UnusableSecretError(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UnusableSecretError("is not text (UTF-8)") from None
    if not text or len(content) > MOST_BYTES:
        raise UnusableSecretError("is empty" if not text else f"is longer than {MOST_BYTES} bytes")
    return text


class SecretSource:
    """One secret: ``get`` is the current value and does no I/O; ``refresh`` follows the file, if there is one."""

    def __init__(
        self, name: str, value: str, path: Path | None = None, refuse: Callable[[str, str], str | None] | None = None
    ) -> None:
        """``refuse(name, text)`` gives the reason why a new text cannot be used, or None."""
        self.name = name
        self.path = path
        self._value = value
        self._refuse = refuse

    def __repr__(self) -> str:
        """Name and file, not the value."""
        return f"SecretSource({self.name!r}, path={self.path})"

    def get(self) -> str:
        """The current value; empty when the setting is not set."""
        return self._value

    def refresh(self) -> bool:
        """Read the file again; True when the value changed. Blocks: call it in a thread.

        Kubernetes swaps mounted Secrets by a symbolic link, so the content is compared, not time stamps.

        Raises:
            UnusableSecretError: the new content cannot be used; the old value stays.
        """
        if self.path is None:
            return False
        text = read_secret(self.path)
        if text == self._value:
            return False
        if self._refuse is not None and (reason := self._refuse(self.name, text)):
            raise UnusableSecretError(reason)
        self._value = text
        return True

    def masks(self) -> set[str]:
        """What must not appear in a log because of this secret: its text, and the parts of it that are secret too."""
        if "://" in self._value:
            return _url_masks(self._value)
        if self.name == "encryption_keys":
            return {part.strip().partition(":")[2] for part in self._value.split(",")} - {""}
        return {self._value} - {""}


def _url_masks(url: str) -> set[str]:
    masks = {url}
    with suppress(ValueError):
        password = urlsplit(url).password or ""
        masks |= {password, unquote(password)} - {""}
    return masks


class SecretReload:
    """The worker that re-reads secrets' files and tells who uses them."""

    name = "secret_reload"

    def __init__(
        self,
        sources: Iterable[SecretSource],
        on_change: Callable[[SecretSource], Awaitable[None]],
        on_problem: Callable[[SecretSource, str], None],
        every: timedelta = EVERY,
    ) -> None:
        """``on_change`` is called on the loop after a value changed, ``on_problem`` once for each new reason."""
        self._sources = [source for source in sources if source.path is not None]
        self._on_change = on_change
        self._on_problem = on_problem
        self._every = every.total_seconds()
        self._problems: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look every ten seconds until ``stop`` is set."""
        while not stop.is_set():
            await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._every)

    async def look(self) -> None:
        """One round over all files."""
        for source in self._sources:
            try:
                changed = await asyncio.to_thread(source.refresh)
            except UnusableSecretError as error:
                self._tell(source, str(error))
                continue
            self._problems.pop(source.name, None)
            if changed:
                await self._on_change(source)

    def _tell(self, source: SecretSource, reason: str) -> None:
        if self._problems.get(source.name) != reason:
            self._problems[source.name] = reason
            self._on_problem(source, reason)
