"""How Kafka is reached, as settings for the client."""

import ssl

import pytest
import trustme

from service.ingest.broker import BrokerUnavailable, Consumer, KafkaOptions, build_connection_settings


def build(**changes):
    return KafkaOptions(bootstrap_servers=("a:1", "b:2"), topics=("t",), **changes)


async def test_plaintext():
    settings = await build_connection_settings(build())
    assert settings["bootstrap_servers"] == ["a:1", "b:2"]
    assert settings["security_protocol"] == "PLAINTEXT"
    assert not {"ssl_context", "sasl_mechanism"} & settings.keys()


async def test_tls_trusts_the_file_only(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = await build_connection_settings(build(security_protocol="SSL", ca_file=tmp_path / "ca.pem"))
    context = settings["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_passwords_are_asked_for_at_each_connect(protocol, mechanism):
    passwords = iter(["old", "new"])
    options = build(
        security_protocol=protocol, sasl_mechanism=mechanism, sasl_username="u", sasl_password=lambda: next(passwords)
    )
    assert "old" not in repr(options)
    for expected in ("old", "new"):
        settings = await build_connection_settings(options)
        assert settings["sasl_mechanism"] == mechanism
        assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("u", expected)
        assert ("ssl_context" in settings) == (protocol == "SASL_SSL")


async def test_tokens_are_asked_for_at_each_use():
    tokens = iter(["one", "two"])
    options = build(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token=lambda: next(tokens))
    provider = (await build_connection_settings(options))["sasl_oauth_token_provider"]
    assert [await provider.token(), await provider.token()] == ["one", "two"]


async def test_a_ca_file_that_is_gone_is_an_outage(tmp_path):
    consumer = Consumer(build(security_protocol="SSL", ca_file=tmp_path / "gone.pem"))
    with pytest.raises(BrokerUnavailable):
        await consumer.open()
    await consumer.close(1)
