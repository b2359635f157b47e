"""A real Apache Kafka from Maven Central: one node in KRaft mode on loopback, with means to break it."""

import asyncio
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from service.tools.embedded import LAUNCHER
from tests.support.certs import Authority, issue
from tests.support.ports import find_free_port
from tests.support.require import require_program
from tests.support.stopping import wait_until_still

ROOT = Path(__file__).parents[2]
POM = ROOT / "tests" / "kafka" / "pom.xml"
CACHE = ROOT / ".cache" / "kafka"

JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={directory}/broker.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
{logins}
log.dirs={directory}/data
auto.create.topics.enable=true
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
controlled.shutdown.enable=false
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=250
"""

USER, PASSWORD = "webhookd", "s3cret-of-the-broker"
_LOGINS = {
    "plain": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "oauthbearer": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}


def fetch_jars(mvn: str) -> Path:
    """The directory with Kafka's jars, downloaded once per content of the pom."""
    jars = CACHE / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            partial = jars.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={partial}")
            done = subprocess.run([mvn, "-q", "-B", "-f", str(POM), *goal], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"mvn could not fetch Kafka:\n{done.stdout[-2000:]}"
            partial.rename(jars)
    return jars


class Kafka:
    """One broker, whose address and log stay the same over stops and starts."""

    def __init__(self, java: str, jars: Path, directory: Path) -> None:
        self._java = java
        self._jars = jars
        self._log = directory / "server.log"
        self._settings = directory / "server.properties"
        self.port, controller_port = find_free_port(), find_free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        guarded = {protocol: f"127.0.0.1:{find_free_port()}" for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        self.listeners = {"PLAINTEXT": self.bootstrap_servers, **guarded}
        """By security protocol. SASL knows `USER` with `PASSWORD`, and takes any token that is unsecured."""
        self.authority = Authority(directory)
        self._process: subprocess.Popen[bytes] | None = None
        leaf = issue("127.0.0.1", self.authority.root, names=("127.0.0.1",))
        (directory / "broker.pem").write_bytes(leaf.key_pem() + leaf.pem())
        self._settings.write_text(
            SETTINGS.format(
                listeners=",".join(f"{protocol}://{address}" for protocol, address in self.listeners.items()),
                logins="\n".join(
                    f"listener.name.{protocol}.{mechanism}.sasl.jaas.config={login}"
                    for protocol in ("sasl_plaintext", "sasl_ssl")
                    for mechanism, login in _LOGINS.items()
                ),
                controller_port=controller_port,
                directory=directory,
            )
        )
        self._format()

    async def start(self) -> None:
        """Return when the broker answers; nothing to do if it does already. Thaws a frozen one."""
        if self._process is None or self._process.poll() is not None:
            self._launch()
        self.thaw()
        async with asyncio.timeout(120):
            while not await self._answers():
                assert self._process is not None and self._process.poll() is None, self._log.read_text()[-4000:]
                await asyncio.sleep(0.05)

    async def stop(self, *, kill: bool = False) -> None:
        """End the broker, in order or by SIGKILL; its log stays."""
        self.thaw()
        self._signal(signal.SIGKILL if kill else signal.SIGTERM)
        await asyncio.to_thread(self._reap)

    async def restart(self, *, kill: bool = False) -> None:
        await self.stop(kill=kill)
        await self.start()

    def freeze(self) -> None:
        """Connections stay open and nothing answers, as with a broker that hangs or a network that drops packets."""
        if self._process is not None:
            self._signal(signal.SIGSTOP)
            wait_until_still(self._process.pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def build_producer_command(self, topic: str, *options: str) -> list[str]:
        """Kafka's own console producer, a client that shares no code with ours; it reads records from its input.

        With `--property parse.key=true --property parse.headers=true` a line is
        `name:value,name:value<TAB>key<TAB>value`; `--property null.marker=NULL` makes tombstones.
        """
        tool = "org.apache.kafka.tools.ConsoleProducer"
        return self._command(tool, "--bootstrap-server", self.bootstrap_servers, "--topic", topic, *options)

    async def produce(self, topic: str, lines: str, *options: str) -> None:
        """Feed `lines` to the console producer."""
        command = self.build_producer_command(topic, *options)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(lines.encode()), 120)
        assert process.returncode == 0, output.decode()

    def end(self) -> None:
        """Leave nothing behind."""
        self._signal(signal.SIGKILL)
        self._reap()

    def _command(self, main: str, *arguments: str) -> list[str]:
        return [self._java, *JVM, *LOGGING, "-cp", f"{self._jars}/*", main, *arguments]

    def _format(self) -> None:
        cluster_id = secrets.token_urlsafe(16)
        options = ("format", "--cluster-id", f"A{cluster_id[1:]}", "--config", str(self._settings))
        users = (f"--add-scram=SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512))
        command = self._command("kafka.tools.StorageTool", *options, *users)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _launch(self) -> None:
        # On this thread, which lives as long as the session: the kernel ends the broker when the thread ends.
        command = self._command("kafka.Kafka", str(self._settings))
        identity = (str(os.getpid()), str(signal.SIGKILL.value), "0", "0")
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, *identity)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*launcher, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers, request_timeout_ms=2000)
        try:
            await client.start()
            return bool((await client.describe_cluster())["brokers"])
        except (KafkaError, OSError, TimeoutError):
            return False
        finally:
            await client.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    java = require_program("java")
    server = Kafka(java, fetch_jars(require_program("mvn")), tmp_path_factory.mktemp("kafka"))
    yield server
    server.end()


@pytest.fixture
async def kafka(kafka_server: Kafka) -> AsyncIterator[Kafka]:
    """A broker that answers, whatever the test before did to it; topics and groups of other tests are still there."""
    await kafka_server.start()
    yield kafka_server
    kafka_server.thaw()
