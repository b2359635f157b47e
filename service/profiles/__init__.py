"""Reads source profiles: the four that ship with the service, then those of the operator's directory.

Belongs here: finding and parsing ``*.toml``. Does not belong here: what a profile may say (``service.domain.profiles``).
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from service.domain.profiles import Profile, ProfileSet, build_profile_set, parse_profile

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIPPED: Final = Path(__file__).parent


def load_profiles(directories: Iterable[Path] = ()) -> ProfileSet:
    """The shipped profiles and those of ``directories``; a later one replaces an earlier one of the same name.

    Blocking file reads: call it at start. Raises ValueError with one line per problem, each led by its file.
    """
    profiles: list[Profile] = []
    problems: list[str] = []
    for path in (path for directory in (SHIPPED, *directories) for path in sorted(directory.glob("*.toml"))):
        try:
            profiles.append(load_profile(path))
        except (OSError, ValueError) as error:
            problems += [f"{path}: {line}" for line in str(error).splitlines()]
    if problems:
        raise ValueError("\n".join(problems))
    return build_profile_set(profiles)


def load_profile(path: Path) -> Profile:
    """One profile file. Raises ValueError (bad TOML, bad UTF-8, refused content) or OSError."""
    return parse_profile(tomllib.loads(path.read_text("utf-8")))
