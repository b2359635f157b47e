"""The Dockerfile as data, and its steps replayed on this machine: no container engine, but the same commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_SECONDS = 300


@dataclass
class Stage:
    """One FROM and what follows it; arguments are filled in."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for each, rest in self.steps if each == word]

    def pairs(self, word: str) -> dict[str, str]:
        """What ENV and LABEL set."""
        return dict(pair.split("=", 1) for rest in self.all(word) for pair in shlex.split(rest))

    def command(self, word: str) -> list[str]:
        """The last ENTRYPOINT or CMD. Raises ValueError for the shell form."""
        return json.loads(self.all(word)[-1])


def read_stages(text: str) -> list[Stage]:
    """All stages, in order."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for word, rest in read_steps(text):
        filled = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], rest)
        if word == "ARG":
            name, _, default = filled.partition("=")
            arguments[name] = default
        elif word == "FROM":
            stages.append(Stage(filled.split()[0]))
        else:
            stages[-1].steps.append((word, filled))
    return stages


def read_steps(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(None, 1)
            yield word, rest.strip()


def is_in_context(path: str, ignore: str) -> bool:
    """Whether .dockerignore lets `path` into the build: the last line that matches decides."""
    allowed = True
    for line in filter(None, ignore.split()):
        pattern = line.removeprefix("!").removesuffix("/")
        if pattern == "*" or path.removesuffix("/") == pattern:
            allowed = line.startswith("!")
    return allowed


class Replay:
    """The stages carried out below a directory that stands for `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self._here = root

    def build(self, stages: list[Stage]) -> None:
        """All steps of all stages. What one stage copies from another must keep its place: an environment cannot move."""
        base = self.root / "usr" / "local"
        subprocess.run([sys.executable, "-m", "venv", base], check=True, timeout=BUILD_SECONDS)
        for stage in stages:
            self.environ, self._here = {"PATH": f"{base}/bin:/usr/bin:/bin"}, self.root
            for word, rest in stage.steps:
                getattr(self, f"_{word.lower()}", lambda rest: None)(rest)

    def place(self, text: str) -> str:
        """A path of the image, wherever in an argument it stands, as one of this machine."""
        return re.sub(r"(^|[=:])(/(?:opt|wheels|usr/local|src)\b)", rf"\g<1>{self.root}\2", text)

    def command(self, words: list[str]) -> list[str]:
        return [self.place(word) for word in words]

    def _workdir(self, rest: str) -> None:
        self._here = Path(self.place(rest))
        self._here.mkdir(parents=True, exist_ok=True)

    def _env(self, rest: str) -> None:
        pairs = dict(pair.split("=", 1) for pair in shlex.split(rest))
        kept = {name: value for name, value in pairs.items() if "_NO_CACHE" not in name}  # the next replay may use it
        self.environ |= {name: self.place(value) for name, value in kept.items()}

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            assert sources[1:] == [target]
            return
        for source in sources:
            if source.endswith("/"):
                shutil.copytree(ROOT / source, self._here / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, self._here / target)

    def _run(self, rest: str) -> None:
        words = self.command(json.loads(rest))
        program = shutil.which(words[0], path=self.environ["PATH"])
        assert program, words[0]
        kept = {
            name: os.environ[name]
            for name in os.environ
            if name.startswith(("PIP_", "UV_", "SSL_")) or name.endswith("_proxy")
        }
        result = subprocess.run(
            [program, *words[1:]],
            cwd=self._here,
            env={"HOME": os.environ.get("HOME", "/"), **kept, **self.environ},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert result.returncode == 0, f"{rest}\n{result.stdout}{result.stderr}"
