"""P11: many host names over TLS, at a rate.

Belongs here: a name server, an nginx with a certificate for all names, and one webhook for each.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.bench.memory import issue_certificate
from tests.bench.metering import read_cpu
from tests.bench.queue import fill, opened_queue, register
from tests.bench.reporting import Figure
from tests.bench.stage import ADDRESS, BenchError, Nginx, Stage, find_nginx, running_nginx
from tests.support.delivering import Queue
from tests.support.dns import serve_names
from tests.support.ports import find_free_port

DOMAIN = "bench-hosts.test"


async def measure_tls(stage: Stage) -> list[Figure]:
    """P11."""
    rate, hosts = stage.scale.rates[-1], stage.scale.hosts
    stage.tell(f"P11: {hosts} host names")
    names = [f"h{number}.{DOMAIN}" for number in range(hosts)]
    ca_file, certificate, key = issue_certificate(_make_folder(stage), f"*.{DOMAIN}")
    port, database = find_free_port(), await stage.new_database()
    async with (
        running_nginx(find_nginx(), _make_folder(stage), (port, certificate, key)) as nginx,
        serve_names(**dict.fromkeys(names, (ADDRESS,))) as resolver,
        opened_queue(database) as queue,
        stage.service(database, "deliver", dns_servers=resolver.address, ca_file=ca_file) as service,
    ):
        keys = await register(queue, [f"https://{name}:{port}/hook" for name in names], hosts)
        await fill(queue.connection, keys, "warm", hosts)
        await _wait(stage, nginx, queue, hosts)
        count = int(rate * stage.scale.seconds)
        before, started = read_cpu(service.pid), time.monotonic()
        await fill(queue.connection, keys, "paced", count, spread=1.0 / rate)
        await _wait(stage, nginx, queue, hosts + count)
        cpu, seconds = read_cpu(service.pid) - before, time.monotonic() - started
    cores = cpu / count * rate
    raw = f"{cpu / count * 1e6:.0f} µs a delivery; {count / seconds:,.0f}/s came of {rate}/s"
    return [Figure("P11", cores, 1, f"cores@{rate}/s", raw)]


def _make_folder(stage: Stage) -> Path:
    folder = stage.directory / stage.new_name("tls")
    folder.mkdir()
    return folder


async def _wait(stage: Stage, nginx: Nginx, queue: Queue, count: int) -> None:
    deadline = time.monotonic() + stage.scale.patience
    while await nginx.count(stage.http) < count or await queue.count("deliveries"):
        if time.monotonic() > deadline:
            errors = await queue.connection.fetch("SELECT last_error, count(*) FROM deliveries GROUP BY 1 LIMIT 5")
            raise BenchError(f"deliveries over TLS did not come: {[dict(row) for row in errors]}")
        await asyncio.sleep(0.1)
