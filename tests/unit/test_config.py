"""Settings: what is read from where, what is refused and how, and that no refusal repeats a secret."""

from __future__ import annotations

import asyncio
import base64
import re
import runpy
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.config import (
    EMBEDDED,
    MIGRATE,
    ConfigError,
    EncryptionKey,
    SecretReload,
    SecretSource,
    Settings,
    UnusableSecretError,
    describe,
    format_duration,
    load_configuration,
    parse_duration,
    parse_encryption_keys,
    render_reference,
)
from service.tools.config_table import run_config

KEY = base64.b64encode(bytes(range(32))).decode()
CANARY = "canary-7f31-do-not-print"
NEEDED = {
    "WEBHOOKD_DATABASE_URL": "postgresql://webhookd:pw@db:5432/webhookd",
    "WEBHOOKD_ENCRYPTION_KEYS": f"k1:{KEY}",
    "WEBHOOKD_OPERATOR_KEY": "operator-key-of-32-characters-ok",
}
_NAMES = """
DATABASE_URL DATABASE_LISTEN_URL DATABASE_POOL_SIZE KAFKA_BOOTSTRAP_SERVERS KAFKA_TOPICS KAFKA_GROUP_ID KAFKA_DLQ_TOPIC
KAFKA_SECURITY_PROTOCOL KAFKA_SASL_MECHANISM KAFKA_SASL_USERNAME KAFKA_SASL_PASSWORD KAFKA_SASL_TOKEN KAFKA_CA_FILE
OPERATIONAL_TOPIC NOTIFY_MAX_AGE PROFILES_DIR API_HOST API_PORT OPS_HOST OPS_PORT OPERATOR_KEY ENCRYPTION_KEYS
RETRY_SCHEDULE RETRY_JITTER REQUEST_TIMEOUT CONNECT_TIMEOUT LEASE LEASE_MARGIN DRAIN_TIMEOUT MAX_IN_FLIGHT
MAX_IN_FLIGHT_PER_WEBHOOK ALLOW_HTTP EGRESS_ALLOW EGRESS_DENY EGRESS_PORTS NAT64_PREFIXES DNS_SERVERS CA_FILE
EGRESS_PROXY USER_AGENT MAX_WEBHOOKS_PER_TENANT LIMIT_READS LIMIT_WRITES LIMIT_TESTS BATCH_SETTLE_SECONDS CANCEL_GRACE
MAX_BODY_BYTES DISABLE_AFTER RETENTION_ATTEMPTS RETENTION_MESSAGES RETENTION_STATE DATA_DIR LOG_LEVEL LOG_FORMAT
LOG_SUCCESS_SAMPLE CONFIG_FILE
"""
SPEC_SETTINGS = _NAMES.split()


def load(**given_values: str):
    return load_configuration({**NEEDED, **{f"WEBHOOKD_{name}": value for name, value in given_values.items()}})


def refusal(**given_values: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load(**given_values)
    return refused.value.lines


def test_every_setting_of_the_specification_exists_and_no_other():
    assert sorted(name.upper() for name in Settings.model_fields) == sorted(SPEC_SETTINGS)


def test_defaults_are_those_of_the_specification():
    settings = load().settings
    assert settings.kafka_topics == ("extraction.jobs",)
    assert (settings.kafka_group_id, settings.api_port, settings.ops_port) == ("webhookd", 8080, 9090)
    assert [format_duration(step) for step in settings.retry_schedule] == [
        *("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h")
    ]
    assert (settings.retry_jitter, settings.log_success_sample) == (0.2, 0)
    assert (settings.max_in_flight, settings.max_in_flight_per_webhook) == (2000, 10)
    assert (settings.max_webhooks_per_tenant, settings.limit_reads, settings.limit_writes) == (1000, 120, 600)
    assert settings.limit_tests == 5
    seconds = {
        name: getattr(settings, name).total_seconds()
        for name in (
            *("request_timeout", "connect_timeout", "lease", "lease_margin", "drain_timeout"),
            *("batch_settle_seconds", "cancel_grace"),
        )
    }
    assert list(seconds.values()) == [15, 5, 60, 10, 25, 2, 5]
    days = [
        getattr(settings, name).days
        for name in ("notify_max_age", "disable_after", "retention_attempts", "retention_messages", "retention_state")
    ]
    assert days == [1, 5, 30, 90, 400]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86400),
        ("5s", 5),
        ("15", 15),
        ("400d", 34_560_000),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("0.5", 0.5),
        (" 2W ", 1_209_600),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "-5s", "5x", "1h30", "१०s", "1e9", "999999999w999999999w", "4000d", "nan", True, None, "٥"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=3660)))
def test_a_formatted_duration_reads_back(duration):
    assert parse_duration(format_duration(duration)) == duration


def test_lists_and_choices():
    settings = load(
        KAFKA_BOOTSTRAP_SERVERS="a:9092, [::1]:9093,",
        KAFKA_TOPICS="one,two",
        DNS_SERVERS="10.0.0.2, 10.0.0.2:5353,[::1]:53,::1",
        EGRESS_PORTS="8443,9000-9010",
        LOG_LEVEL="WARNING",
        KAFKA_SECURITY_PROTOCOL="ssl",
        ALLOW_HTTP="true",
    ).settings
    assert settings.kafka_bootstrap_servers == ("a:9092", "[::1]:9093")
    assert settings.kafka_topics == ("one", "two")
    assert len(settings.dns_servers) == 4
    assert (settings.egress_ports, settings.log_level, settings.kafka_security_protocol) == (
        "8443,9000-9010",
        "warning",
        "SSL",
    )
    assert settings.allow_http is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("DATABASE_URL", bad) for bad in (f"mysql://u:{CANARY}@h/d", f"postgresql://u:{CANARY}@h:port/d", f"{CANARY} x", f"postgresql://u:{CANARY}@[h/d")),
        *(("DATABASE_URL", f"postgresql://u:{bad}") for bad in (f"1?{CANARY}@h/d", f"1#{CANARY}@h/d", f"p@h/d?port={CANARY}", f"p@h/d?sslmode={CANARY}", f"p@h/d?target_session_attrs={CANARY}")),
        *(("DATABASE_LISTEN_URL", bad) for bad in (CANARY, f"http://{CANARY}")),
        *(("ENCRYPTION_KEYS", bad) for bad in (CANARY, f"{CANARY}:{KEY[:-5]}", f"k1:{KEY},k1:{KEY}", f"k1:{KEY},", f"k 1:{KEY}", f"k1:{KEY} {CANARY}")),
        *(("OPERATOR_KEY", bad) for bad in ("short", f"{CANARY} with space", "ключ-оператора-42")),
        *(("EGRESS_PROXY", bad) for bad in (f"https://u:{CANARY}@h:1", f"http://{CANARY}", f"http://h:1/{CANARY}", f"http://h:99999/{CANARY}", CANARY)),
        *(("KAFKA_BOOTSTRAP_SERVERS", bad) for bad in ("broker", "b:0", "b:70000", f"u:{CANARY}@b:1")),
        *(("KAFKA_TOPICS", bad) for bad in ("a b", "..", "ä", ",")),
        *(("RETRY_SCHEDULE", bad) for bad in ("5s,x", "0s", "31d", "1500ms", "5s,2.5s", ",".join(["1s"] * 31), ",")),
        *(("NAT64_PREFIXES", bad) for bad in ("64:ff9b::/95", "10.0.0.0/8")),
        *(("DNS_SERVERS", bad) for bad in ("dns.example", "10.0.0.2:0", "10.0.0.2:x", "[::1")),
        *(("EGRESS_ALLOW", bad) for bad in ("=host", "10.0.0.1/8", "h:99999")),
        ("EGRESS_PORTS", "0"),
        ("USER_AGENT", "a\r\nb"),
        ("API_HOST", "a b"),
        ("API_PORT", "65536"),
        ("DATABASE_POOL_SIZE", "1"),
        ("REQUEST_TIMEOUT", "31s"),
        ("LOG_FORMAT", "xml"),
        ("ALLOW_HTTP", "perhaps"),
        ("CA_FILE", "/nowhere/ca.pem"),
        ("PROFILES_DIR", "/nowhere"),
        ("LOG_SUCCESS_SAMPLE", "1.1"),
    ],
)  # fmt: skip
def test_a_malformed_value_is_one_line_that_names_the_setting(name, value):
    lines = refusal(**{name: value})
    assert len(lines) == 1
    assert lines[0].startswith(f"WEBHOOKD_{name}: ")
    assert "\n" not in lines[0]
    assert CANARY not in lines[0]
    assert KEY[:20] not in lines[0]


def test_bounds_are_told_in_the_words_of_the_setting():
    assert refusal(REQUEST_TIMEOUT="31s") == ("WEBHOOKD_REQUEST_TIMEOUT: must be at most 30 seconds",)
    assert refusal(API_PORT="-1") == ("WEBHOOKD_API_PORT: must be at least 0",)


def test_all_problems_are_told_at_once():
    assert len(refusal(API_PORT="x", LOG_FORMAT="y", NO_SUCH="1")) == 3


def test_unknown_names_are_refused_with_the_nearest_known_one():
    assert refusal(LEESE=CANARY) == ("WEBHOOKD_LEESE: is not a setting; WEBHOOKD_LEASE is",)
    assert refusal(**{"QWERTZ\x1b": CANARY}) == ("WEBHOOKD_QWERTZ\\x1b: is not a setting",)


def test_what_kubernetes_injects_for_services_is_not_ours():
    environ = {
        **NEEDED,
        "WEBHOOKD_PORT": "tcp://10.96.0.7:8080",
        "WEBHOOKD_API_PORT": "tcp://10.96.0.7:8080",
        "WEBHOOKD_OPS_PORT": "tcp://10.96.0.8:9090",
        "WEBHOOKD_SERVICE_HOST": "10.96.0.7",
        "WEBHOOKD_SERVICE_PORT_HTTP": "8080",
        "WEBHOOKD_API_SERVICE_PORT": "8080",
        "WEBHOOKD_PORT_8080_TCP": "tcp://10.96.0.7:8080",
        "WEBHOOKD_OPS_PORT_9090_TCP_ADDR": "10.96.0.8",
        "WEBHOOKD_DATA_PORT_53_UDP_PROTO": "udp",
    }
    configuration = load_configuration(environ)
    assert (configuration.settings.api_port, configuration.settings.ops_port) == (8080, 9090)
    assert configuration.origins["api_port"] == "default"


def test_an_empty_variable_counts_as_unset():
    configuration = load(API_PORT="", KAFKA_TOPICS=" ", CA_FILE="")
    assert configuration.settings.api_port == 8080
    assert set(configuration.origins.values()) == {"env", "default"}


@pytest.mark.parametrize("name", ["DATABASE_URL", "ENCRYPTION_KEYS", "OPERATOR_KEY"])
def test_f73_what_serve_cannot_do_without(name):
    environ = {key: value for key, value in NEEDED.items() if key != f"WEBHOOKD_{name}"}
    with pytest.raises(ConfigError, match=f"^WEBHOOKD_{name}: is not set"):
        load_configuration(environ)


def test_other_commands_need_less():
    assert load_configuration({}, needs=()).settings.sealing_keys == ()
    assert load_configuration({"WEBHOOKD_DATABASE_URL": "postgresql:///d?host=/run"}, needs=MIGRATE)
    assert load_configuration({"WEBHOOKD_OPERATOR_KEY": "long-enough"}, needs=EMBEDDED)


def test_f51_a_lease_shorter_than_the_longest_timeout_and_its_margin_stops_the_start():
    (line,) = refusal(LEASE="20s", REQUEST_TIMEOUT="30s")
    assert line.startswith("WEBHOOKD_LEASE: 20s is shorter than")
    assert "WEBHOOKD_LEASE_MARGIN" in line
    assert refusal(LEASE="39s")
    assert load(LEASE="40s")
    assert load(LEASE="31s", LEASE_MARGIN="1s")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "KAFKA_SASL_MECHANISM"),
        ({"KAFKA_SASL_MECHANISM": "PLAIN"}, "KAFKA_SASL_MECHANISM"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}, "KAFKA_SASL_TOKEN"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "u"}, "KAFKA_SASL_PASSWORD"),
        ({"KAFKA_DLQ_TOPIC": "extraction.jobs", "KAFKA_BOOTSTRAP_SERVERS": "b:1"}, "KAFKA_DLQ_TOPIC"),
        ({"OPERATIONAL_TOPIC": "ops"}, "OPERATIONAL_TOPIC"),
        ({"OPS_PORT": "8080"}, "OPS_PORT"),
    ],
)  # fmt: skip
def test_unsafe_combinations(values, named):
    (line,) = refusal(**values)
    assert line.startswith(f"WEBHOOKD_{named}: ")


def test_sasl_that_is_complete():
    login = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_USERNAME": "u", "KAFKA_SASL_PASSWORD": "p"}
    assert load(**login, KAFKA_SASL_MECHANISM="scram-sha-512").settings.kafka_sasl_mechanism == "SCRAM-SHA-512"
    assert load(KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT", KAFKA_SASL_MECHANISM="OAUTHBEARER", KAFKA_SASL_TOKEN="t")


def test_settings_made_directly_do_not_depend_on_the_environment(monkeypatch):
    monkeypatch.setenv("WEBHOOKD_API_PORT", "1")
    monkeypatch.setenv("API_PORT", "1")
    assert Settings().api_port == 8080
    with pytest.raises(ValidationError):
        Settings(no_such=1)
    with pytest.raises(ValidationError):
        Settings().api_port = 2


def test_the_process_environment_is_the_default_source(monkeypatch):
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WEBHOOKD_API_PORT", "8181")
    assert load_configuration().settings.api_port == 8181


def test_toml_is_below_the_environment(tmp_path):
    file = tmp_path / "webhookd.toml"
    file.write_text(
        'api_port = 1\nops_port = 2\nkafka_topics = ["a", "b"]\negress_allow = ["*.example:8443"]\nlease = 90\n'
    )
    configuration = load(CONFIG_FILE=str(file), API_PORT="3")
    settings = configuration.settings
    assert (settings.api_port, settings.ops_port, settings.kafka_topics) == (3, 2, ("a", "b"))
    assert (settings.egress_allow, settings.lease) == ("*.example:8443", timedelta(seconds=90))
    assert (configuration.origins["api_port"], configuration.origins["ops_port"]) == ("env", "toml")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"api_port = ", "is not TOML"),
        (f'operator_key = "{CANARY}'.encode(), "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"[database]\nurl = 1", "database is not a setting"),
        (b"api_prot = 1", "api_prot is not a setting; api_port is"),
        (b'config_file = "x"', "config_file is not a setting"),
    ],
)
def test_toml_that_cannot_be_used(tmp_path, content, told):
    file = tmp_path / "webhookd.toml"
    file.write_bytes(content)
    (line,) = refusal(CONFIG_FILE=str(file))
    assert line.startswith(f"WEBHOOKD_CONFIG_FILE: {told}")
    assert CANARY not in line


def test_a_toml_file_that_is_not_there():
    assert refusal(CONFIG_FILE="/nowhere") == ("WEBHOOKD_CONFIG_FILE: cannot be read (No such file or directory)",)


def secret_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "secret"
    file.write_text(text)
    return file


def load_from_file(file: Path):
    environ = {key: value for key, value in NEEDED.items() if key != "WEBHOOKD_OPERATOR_KEY"}
    return load_configuration({**environ, "WEBHOOKD_OPERATOR_KEY_FILE": str(file)})


def test_a_secret_from_a_file_follows_it(tmp_path):
    file = secret_file(tmp_path, "first-operator-key\n")
    configuration = load_from_file(file)
    source = configuration.secret("operator_key")
    assert configuration.origins["operator_key"] == "file"
    assert configuration.settings.operator_key.get_secret_value() == source.get() == "first-operator-key"
    assert source.refresh() is False
    file.write_text("other-operator-key\r\n")
    assert source.refresh() is True
    assert source.get() == "other-operator-key"


def test_a_secret_file_may_be_named_in_toml(tmp_path):
    toml = tmp_path / "webhookd.toml"
    toml.write_text(f'operator_key_file = "{secret_file(tmp_path, "from-a-file")}"')
    environ = {key: value for key, value in NEEDED.items() if key != "WEBHOOKD_OPERATOR_KEY"}
    configuration = load_configuration({**environ, "WEBHOOKD_CONFIG_FILE": str(toml)})
    assert configuration.secret("operator_key").get() == "from-a-file"


@pytest.mark.parametrize("content", ["", "\n", "x" * 70_000, "short", f"{CANARY} with space"])
def test_a_new_secret_that_cannot_be_used_leaves_the_old_one(tmp_path, content):
    file = secret_file(tmp_path, "first-operator-key")
    source = load_from_file(file).secret("operator_key")
    file.write_text(content)
    with pytest.raises(UnusableSecretError) as refused:
        source.refresh()
    assert source.get() == "first-operator-key"
    assert CANARY not in str(refused.value)


def test_secret_files_that_cannot_be_used_stop_the_start(tmp_path):
    for file in (tmp_path / "missing", secret_file(tmp_path, "")):
        with pytest.raises(ConfigError, match=r"^WEBHOOKD_OPERATOR_KEY_FILE: "):
            load_from_file(file)
    (tmp_path / "secret").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ConfigError, match="is not text"):
        load_from_file(tmp_path / "secret")


def test_a_secret_and_its_file_are_one_too_many(tmp_path):
    assert refusal(OPERATOR_KEY_FILE=str(secret_file(tmp_path, "another-key"))) == (
        "WEBHOOKD_OPERATOR_KEY: and WEBHOOKD_OPERATOR_KEY_FILE are both set; keep one",
    )


def test_a_source_without_a_file_never_changes():
    source = load().secret("operator_key")
    assert source.refresh() is False
    assert NEEDED["WEBHOOKD_OPERATOR_KEY"] not in repr(source)


def test_what_a_log_must_mask():
    configuration = load(DATABASE_URL="postgresql://u:p%40ss@h/d")
    assert configuration.secret("database_url").masks() == {"postgresql://u:p%40ss@h/d", "p%40ss", "p@ss"}
    assert configuration.secret("encryption_keys").masks() == {KEY}
    assert configuration.secret("kafka_sasl_password").masks() == set()
    assert configuration.secret("operator_key").masks() == {NEEDED["WEBHOOKD_OPERATOR_KEY"]}
    assert configuration.masks() > {"p@ss", KEY, NEEDED["WEBHOOKD_OPERATOR_KEY"]}


async def test_the_reload_worker_tells_changes_and_each_problem_once(tmp_path):
    file = secret_file(tmp_path, "one")
    source = SecretSource("kafka_sasl_password", "one", file)
    changes, problems = [], []

    async def changed(which):
        changes.append(which)

    reload = SecretReload([source, SecretSource("fixed", "x")], changed, lambda *told: problems.append(told))
    await reload.look()
    assert not changes
    file.write_text("two")
    await reload.look()
    assert changes == [source]
    file.unlink()
    await reload.look()
    await reload.look()
    assert problems == [(source, "cannot be read (No such file or directory)")]
    file.write_text("three")
    await reload.look()
    assert source.get() == "three"


async def test_the_reload_worker_ends_when_asked(tmp_path):
    stop = asyncio.Event()
    source = SecretSource("a", "one", secret_file(tmp_path, "two"))

    async def changed(_):
        stop.set()

    reload = SecretReload([source], changed, lambda *_: None, every=timedelta(0))
    await asyncio.wait_for(reload.run(stop), 60)
    assert source.get() == "two"


def test_encryption_keys():
    other = base64.b64encode(b"\x07" * 32).decode()
    keys = parse_encryption_keys(f"k2:{other}, k1:{KEY}")
    assert keys == (EncryptionKey("k2", b"\x07" * 32), EncryptionKey("k1", bytes(range(32))))
    assert repr(keys[0]) == "EncryptionKey('k2')"
    assert load(ENCRYPTION_KEYS=f"k2:{other},k1:{KEY}").settings.sealing_keys == keys


def test_the_listen_address_is_the_database_unless_given():
    assert load().listen_url() == NEEDED["WEBHOOKD_DATABASE_URL"]
    direct = "postgresql://u:p@direct/d"
    assert load(DATABASE_LISTEN_URL=direct).listen_url() == direct


def test_the_data_directory_may_be_in_the_home_directory():
    assert load().settings.data_dir == Path.home() / ".local/share/webhookd"
    assert load(DATA_DIR="~/x").settings.data_dir == Path.home() / "x"


def test_rows_mask_secrets_and_cover_every_setting():
    rows = {row.name.removeprefix("WEBHOOKD_"): row for row in describe(load(API_PORT="81", CA_FILE=__file__))}
    assert sorted(rows) == sorted(SPEC_SETTINGS)
    assert (rows["API_PORT"].value, rows["API_PORT"].source, rows["API_PORT"].default) == ("81", "env", "8080")
    assert rows["OPERATOR_KEY"].value == rows["DATABASE_URL"].value == "********"
    assert rows["KAFKA_SASL_TOKEN"].value == ""
    assert rows["CA_FILE"].value == __file__
    assert all(row.range and row.meaning.endswith(".") for row in rows.values())


def test_the_reference_in_the_tree_is_the_generated_one():
    tree = Path(__file__).parents[2] / "service" / "SETTINGS.md"
    assert tree.read_text(encoding="utf-8") == render_reference(), "run: python -m service.config > service/SETTINGS.md"
    named = re.findall(r"^\| `WEBHOOKD_(\w+)`", render_reference(), re.MULTILINE)
    assert sorted(named) == sorted(SPEC_SETTINGS)


def test_the_reference_is_printed_by_the_package(capsys):
    runpy.run_module("service.config", run_name="__main__")
    assert capsys.readouterr().out == render_reference()


def test_the_config_command_prints_no_secret(monkeypatch, capsys):
    for name, value in {**NEEDED, "WEBHOOKD_KAFKA_SASL_USERNAME": "u\x1b[31m"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", f"postgresql://u:{CANARY}@h/d")
    monkeypatch.setenv("COLUMNS", "250")
    assert run_config() == 0
    printed = capsys.readouterr()
    assert "WEBHOOKD_LEASE_MARGIN" in printed.out
    assert "u\\x1b[31m" in printed.out
    assert not {CANARY, KEY, NEEDED["WEBHOOKD_OPERATOR_KEY"]} & set(printed.out.split())
    assert CANARY not in printed.out + printed.err


def test_the_config_command_tells_problems_on_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", f"mysql://u:{CANARY}@h/d")
    assert run_config() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("WEBHOOKD_DATABASE_URL: ")
    assert printed.err.count("\n") == 1
    assert CANARY not in printed.err
