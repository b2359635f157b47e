"""The image's definition: what it promises, and its steps carried out as written (this machine has no container engine)."""

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import aiohttp
import pytest
import yaml

import service
from service.config import Settings
from tests.support.dockerfile import ROOT, Replay, is_in_context, read_stages
from tests.support.helm import CHART

STAGES = read_stages((ROOT / "Dockerfile").read_text())
IMAGE = STAGES[-1]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

# One worker builds, once; on a busy machine it takes a while.
pytestmark = [pytest.mark.xdist_group("image"), pytest.mark.timeout(400)]


def test_no_step_needs_a_shell():
    for stage in STAGES:
        for rest in (*stage.all("RUN"), *stage.all("ENTRYPOINT"), *stage.all("CMD")):
            assert isinstance(json.loads(rest), list)


def test_the_image_is_slim_and_of_a_python_that_the_code_knows():
    assert len(STAGES) == 2
    assert {stage.base for stage in STAGES} == {IMAGE.base}  # or the environment would find another interpreter
    version = re.fullmatch(r"python:3\.(\d+)-slim-bookworm", IMAGE.base)
    assert version and int(version[1]) >= 11
    assert not IMAGE.all("RUN")[1:]  # it installs nothing


def test_packages_are_pinned_by_hash_or_come_from_the_build():
    installs = [line for stage in STAGES for line in stage.all("RUN") if '"install"' in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or ("--no-index" in line and "--no-deps" in line)


def test_the_user_is_numeric_not_root_and_the_charts():
    user, group = map(int, IMAGE.all("USER")[-1].split(":"))
    assert user > 0 and group > 0
    assert VALUES["securityIds"] == {"runAsUser": user, "runAsGroup": group, "fsGroup": group}


def test_ports_are_the_codes_and_the_charts():
    ports = {Settings.model_fields[name].default for name in ("api_port", "ops_port")}
    assert set(map(int, IMAGE.all("EXPOSE")[0].split())) == ports == set(VALUES["ports"].values())


def test_labels_are_those_of_oci():
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in IMAGE.pairs("LABEL").items()}
    assert labels.keys() == {"title", "description", "licenses", "version", "revision", "created"}
    assert (labels["title"], labels["licenses"], labels["version"]) == ("webhookd", "Apache-2.0", service.__version__)


def test_what_is_copied_is_in_the_context_and_nothing_else_is():
    ignore = (ROOT / ".dockerignore").read_text()
    copied = {
        source for stage in STAGES for rest in stage.all("COPY") if "--from" not in rest for source in rest.split()[:-1]
    }
    assert all(is_in_context(source, ignore) for source in copied)
    assert {path.name for path in ROOT.iterdir() if is_in_context(path.name, ignore)} == {
        one.rstrip("/") for one in copied
    }


@pytest.fixture(scope="module")
def replay():
    """The finished image, below a directory; read-only, and readable for everyone."""
    directory = Path(tempfile.mkdtemp(prefix="image-"))
    replay = Replay(directory)
    replay.build(STAGES)
    for path in [directory, *directory.rglob("*")]:
        if not path.is_symlink():
            path.chmod((path.stat().st_mode | stat.S_IRGRP | stat.S_IROTH) & ~0o222 | (0o111 if path.is_dir() else 0))
    yield replay
    for path in directory.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    directory.chmod(0o755)
    shutil.rmtree(directory)


def as_user() -> list[str]:
    """Before a command: be the image's user. Root's own interpreter may lie where only root looks: reading is allowed."""
    if os.geteuid() != 0:
        return []
    user, group = IMAGE.all("USER")[-1].split(":")
    may = "dac_read_search"
    return [
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
        *(f"--inh-caps=-all,+{may}", f"--ambient-caps=+{may}", f"--bounding-set=-all,+{may}"),
    ]


def environ_of(replay, **settings):
    return replay.environ | {f"WEBHOOKD_{name.upper()}": str(value) for name, value in settings.items()}


def run(replay, *words, **settings):
    command = [*as_user(), *replay.command(IMAGE.command("ENTRYPOINT")), *words]
    result = subprocess.run(
        command, env=environ_of(replay, **settings), cwd="/", capture_output=True, text=True, timeout=180, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def list_tree(replay):
    return {path: path.lstat().st_mtime_ns for path in replay.root.rglob("*")}


def test_the_entry_point_is_the_process_itself(replay):
    (program,) = replay.command(IMAGE.command("ENTRYPOINT"))
    first = Path(program).read_bytes().split(b"\n", 1)[0]
    assert first == f"#!{replay.root}/opt/webhookd/bin/python".encode()
    assert run(replay, "--version") == f"webhookd {service.__version__}\n"


def test_the_image_holds_the_locked_packages_and_no_installer(replay):
    found = {
        path.name.partition("-")[0].lower().replace("_", "-")
        for path in replay.root.glob("opt/webhookd/lib/*/site-packages/*.dist-info")
    }
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements" / "image.txt").read_text(), flags=re.MULTILINE)
    assert "pip" not in found
    assert found - {"webhookd"} <= {name.lower().replace("_", "-").replace(".", "-") for name in locked}
    assert {"webhookd", "aiohttp", "asyncpg", "uvloop", "opentelemetry-exporter-otlp-proto-http"} <= found


def test_everything_that_is_no_code_is_in_it_too(replay):
    (package,) = replay.root.glob("opt/webhookd/lib/*/site-packages/service")
    for pattern in ("**/*.sql", "**/*.toml", "**/*.html", "**/*.js", "**/*.css"):
        here = {path.relative_to(ROOT / "service") for path in (ROOT / "service").glob(pattern)}
        assert {path.relative_to(package) for path in package.glob(pattern)} == here


async def test_the_service_runs_as_the_user_on_a_read_only_tree(replay, new_database, tmp_path):
    settings = {
        "database_url": await new_database(migrated=False),
        "operator_key": "0" * 32,
        "encryption_keys": "k1:" + "A" * 43 + "=",
        "api_host": "127.0.0.1",
        "api_port": 0,
        "ops_host": "127.0.0.1",
        "ops_port": 0,
    }
    before = list_tree(replay)
    await asyncio.to_thread(run, replay, "migrate", database_url=settings["database_url"])
    words = [*replay.command(IMAGE.command("ENTRYPOINT")), *IMAGE.command("CMD")]
    process = await asyncio.create_subprocess_exec(
        *(*as_user(), *words), env=environ_of(replay, **settings), cwd="/", stderr=subprocess.PIPE
    )
    try:
        started = await asyncio.wait_for(wait_for(process.stderr, "started"), 90)
        status = Path(f"/proc/{process.pid}/status").read_text()
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{started['ops_port']}/readyz") as answer,
        ):
            assert answer.status == 200, await answer.text()
        if os.geteuid() == 0:
            assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, flags=re.MULTILINE)
            assert re.search(r"^NoNewPrivs:\t1$", status, flags=re.MULTILINE)
        assert not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()  # no shell, no helper
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(drained(process), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert list_tree(replay) == before


async def wait_for(stream, event):
    lines = []
    async for line in stream:
        lines.append(line.decode())
        if line.startswith(b"{") and (record := json.loads(line)).get("event") == event:
            return record
    raise AssertionError(f"it ended before {event}: {''.join(lines)}")


async def drained(process):
    await process.stderr.read()
    return await process.wait()
