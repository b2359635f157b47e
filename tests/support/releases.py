"""Earlier releases, out of the repository's own history."""

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.support.require import require_program

ROOT = Path(__file__).parents[2]


def list_releases(oldest: str) -> list[str]:
    """Tags of releases from `oldest` on, oldest first; what is committed, where there has been none yet."""
    found = {parse_version(tag): tag for tag in _git("tag", "--list", "v*").decode().split() if is_release(tag)}
    served = [found[version] for version in sorted(found) if version[:2] >= parse_version(oldest)[:2]]
    return served or ["HEAD"]


def is_release(tag: str) -> bool:
    return re.fullmatch(r"v\d+\.\d+\.\d+", tag) is not None


def parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.removeprefix("v").split("."))


def unpack(release: str, directory: Path) -> dict[str, str]:
    """Put a release's code into `directory`; with the variables that it returns, the program runs that code."""
    with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", release, "service"))) as archive:
        archive.extractall(directory, filter="data")
    return {"PYTHONPATH": str(directory)}


def _git(*arguments: str) -> bytes:
    command = [require_program("git"), "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
