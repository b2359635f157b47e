"""The URL policy: every block with its neighbours just outside, every spelling, every exception an operator can make."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain import egress
from service.domain.addresses import METADATA, PUBLIC_V6, SPECIAL_V4, SPECIAL_V6, embedded_addresses, find_special
from service.domain.egress import EgressPolicy, parse_entries, parse_nat64_prefixes, parse_policy, parse_ports
from service.domain.targets import MAX_URL_LENGTH, SENTENCES, Refusal, Target, judge_address, parse_host, parse_url
from service.sender.names import ascii_host

STRICT = EgressPolicy()


def reason(text: str, policy: EgressPolicy = STRICT, tenant: str = "") -> str | None:
    parsed = parse_url(text, policy, tenant)
    return parsed.reason if isinstance(parsed, Refusal) else None


def target(text: str, policy: EgressPolicy = STRICT) -> Target:
    parsed = parse_url(text, policy)
    assert isinstance(parsed, Target), parsed
    return parsed


def address_reason(
    text: str, policy: EgressPolicy = STRICT, host: str = "hooks.example", port: int = 443
) -> str | None:
    refusal = judge_address(ip_address(text), policy, host, port, "")
    return refusal.reason if refusal else None


@pytest.mark.parametrize(
    ("first", "last", "word"),
    [
        ("0.0.0.0", "0.255.255.255", "unspecified_address"),
        ("10.0.0.0", "10.255.255.255", "private_address"),
        ("100.64.0.0", "100.127.255.255", "shared_address"),
        ("127.0.0.0", "127.255.255.255", "loopback_address"),
        ("169.254.0.0", "169.254.255.255", "link_local_address"),
        ("172.16.0.0", "172.31.255.255", "private_address"),
        ("192.0.0.0", "192.0.0.255", "reserved_address"),
        ("192.0.2.0", "192.0.2.255", "documentation_address"),
        ("192.31.196.0", "192.31.196.255", "reserved_address"),
        ("192.52.193.0", "192.52.193.255", "reserved_address"),
        ("192.88.99.0", "192.88.99.255", "translated_address"),
        ("192.168.0.0", "192.168.255.255", "private_address"),
        ("192.175.48.0", "192.175.48.255", "reserved_address"),
        ("198.18.0.0", "198.19.255.255", "benchmark_address"),
        ("198.51.100.0", "198.51.100.255", "documentation_address"),
        ("203.0.113.0", "203.0.113.255", "documentation_address"),
        ("224.0.0.0", "239.255.255.255", "multicast_address"),
        ("240.0.0.0", "255.255.255.255", "reserved_address"),
    ],
)
def test_an_ipv4_block_is_refused_from_end_to_end_and_its_neighbours_are_not(first, last, word):
    assert address_reason(first) == address_reason(last) == word
    below, above = int(IPv4Address(first)) - 1, int(IPv4Address(last)) + 1
    for number in (below, above):
        if 0 <= number < 2**32:
            neighbour = IPv4Address(number)
            blocks = [block for block, _ in SPECIAL_V4 if neighbour in block]
            assert address_reason(str(neighbour)) is None or blocks


def test_every_line_of_the_ipv4_table_is_tested_above():
    assert len(SPECIAL_V4) == 18


@pytest.mark.parametrize(
    "public",
    [
        "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
        "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
        "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8",
        "2000::1", "2001:200::1", "2001:db7:ffff::1", "2001:db9::1", "2003::1", "2606:4700::1111", "2620:4f:7fff::1",
        "2620:4f:8001::1", "3ffd:ffff::1", "3fff:1000::1", "2a00::5eff:0:1", "3fef:ffff:ffff::1",
    ],
)  # fmt: skip
def test_what_is_public_is_allowed(public):
    assert address_reason(public) is None
    shown = f"[{public}]" if ":" in public else public
    assert target(f"https://{shown}/").literal == ip_address(public)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("::", "unspecified_address"),
        ("::1", "loopback_address"),
        ("::2", "translated_address"),
        ("::127.0.0.1", "translated_address"),
        ("::ffff:8.8.8.8", "translated_address"),
        ("::ffff:127.0.0.1", "translated_address"),
        ("::ffff:0:127.0.0.1", "translated_address"),
        ("64:ff9b::8.8.8.8", "translated_address"),
        ("64:ff9b:1::a00:1", "translated_address"),
        ("64:ff9b:2::1", "reserved_address"),
        ("100::1", "reserved_address"),
        ("1fff:ffff::1", "reserved_address"),
        ("2001::1", "translated_address"),
        ("2001:0:ffff::1", "translated_address"),
        ("2001:1::1", "reserved_address"),
        ("2001:2::1", "reserved_address"),
        ("2001:20::1", "reserved_address"),
        ("2001:1ff:ffff::1", "reserved_address"),
        ("2001:db8::1", "documentation_address"),
        ("2001:db8:ffff:ffff::1", "documentation_address"),
        ("2002:7f00:1::", "translated_address"),
        ("2002:808:808::1", "translated_address"),
        ("2620:4f:8000::1", "reserved_address"),
        ("2a00:1450::200:5efe:10.0.0.1", "translated_address"),
        ("2a00:1450::5efe:8.8.8.8", "translated_address"),
        ("3ffe::1", "reserved_address"),
        ("3fff::1", "documentation_address"),
        ("3fff:fff::1", "documentation_address"),
        ("4000::1", "reserved_address"),
        ("5f00::1", "reserved_address"),
        ("fbff::1", "reserved_address"),
        ("fc00::1", "private_address"),
        ("fdff::1", "private_address"),
        ("fe80::1", "link_local_address"),
        ("febf::1", "link_local_address"),
        ("fec0::1", "private_address"),
        ("feff::1", "private_address"),
        ("ff02::1", "multicast_address"),
    ],
)
def test_f63_f64_ipv6_that_is_not_public_is_refused_in_every_form(text, word):
    assert address_reason(text) == word
    assert reason(f"https://[{text}]/") == word


@pytest.mark.parametrize("address", sorted(METADATA, key=str))
def test_f68_metadata_stays_closed_unless_named_exactly(address):
    text = str(address)
    around = "0.0.0.0/0 ::/0 * [::/0] 169.254.0.0/16 fd00::/8"
    assert address_reason(text, parse_policy(allow=around)) == "metadata_address"
    assert address_reason(text, parse_policy(allow=f"{around} {text}")) is None
    assert address_reason(text, parse_policy(allow=text, deny=text)) == "denied_address"
    assert address_reason(text) == "metadata_address"


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:169.254.169.254", "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2a00:1450::5efe:a9fe:a9fe", "2001:0:a9fe:a9fe::1",
        "2001:0:1:1:0:0:5601:5601",
    ],
)  # fmt: skip
def test_f64_metadata_in_another_spelling_stays_closed_too(text):
    assert address_reason(text, parse_policy(allow="::/0")) == "metadata_address"
    assert IPv4Address("169.254.169.254") in set(embedded_addresses(ip_address(text)))


def test_other_link_local_addresses_can_be_opened_by_their_block():
    assert address_reason("169.254.7.7", parse_policy(allow="169.254.0.0/16")) is None


@pytest.mark.parametrize(
    ("prefix", "inside"),
    [
        # RFC 6052 2.4, with 192.0.2.33 replaced by 8.8.8.8 and 10.0.0.1
        ("2001:db8::/32", ("2001:db8:808:808::", "2001:db8:a00:1::")),
        ("2001:db8:100::/40", ("2001:db8:108:808:8::", "2001:db8:10a:0:1::")),
        ("2001:db8:122::/48", ("2001:db8:122:808:8:800::", "2001:db8:122:a00:0:100::")),
        ("2001:db8:122:300::/56", ("2001:db8:122:308:8:808::", "2001:db8:122:30a:0:1::")),
        ("2001:db8:122:344::/64", ("2001:db8:122:344:8:808:800::", "2001:db8:122:344:a:0:100::")),
        ("2001:db8:122:344::/96", ("2001:db8:122:344::808:808", "2001:db8:122:344::a00:1")),
        ("64:ff9b::/96", ("64:ff9b::808:808", "64:ff9b::a00:1")),
    ],
)
def test_the_ipv4_address_under_an_operators_nat64_prefix_is_judged(prefix, inside):
    policy = parse_policy(nat64_prefixes=prefix)
    public, private = inside
    assert address_reason(public, policy) is None
    assert address_reason(private, policy) == "private_address"
    assert address_reason(public) is not None
    assert address_reason(private, parse_policy(nat64_prefixes=prefix, allow="10.0.0.0/8")) is None
    assert address_reason(public, parse_policy(nat64_prefixes=prefix, deny="8.8.8.8")) == "denied_address"
    metadata = IPv6Address(int(IPv6Network("64:ff9b::/96").network_address) + int(IPv4Address("169.254.169.254")))
    assert address_reason(str(metadata), policy) == "metadata_address"


def test_f64_f68_metadata_under_an_operators_nat64_prefix_is_not_opened_by_its_block():
    policy = parse_policy(nat64_prefixes="2001:db8:122:344::/96", allow="169.254.0.0/16")
    assert address_reason("2001:db8:122:344::a9fe:a9fe", policy) == "metadata_address"
    assert address_reason("2001:db8:122:344::a9fe:1", policy) is None


@pytest.mark.parametrize(
    ("text", "host", "port", "path", "origin"),
    [
        ("https://example.com", "example.com", 443, b"/", "https://example.com:443"),
        ("HTTPS://Example.COM/", "example.com", 443, b"/", "https://example.com:443"),
        ("https://example.com:443/a", "example.com", 443, b"/a", "https://example.com:443"),
        ("https://example.com:/a", "example.com", 443, b"/a", "https://example.com:443"),
        ("https://example.com./a", "example.com", 443, b"/a", "https://example.com:443"),
        ("https://example.com?q=1&r=%20", "example.com", 443, b"/?q=1&r=%20", "https://example.com:443"),
        ("https://my_hooks.example.com/a//b/../c", "my_hooks.example.com", 443, b"/a//b/../c", None),
        ("https://_dmarc.x.museum/", "_dmarc.x.museum", 443, b"/", None),
        ("https://hooks.newtld-xyz/", "hooks.newtld-xyz", 443, b"/", None),
        ("https://münchen.example/ü?ö", "xn--mnchen-3ya.example", 443, b"/%C3%BC?%C3%B6", None),
        ("https://straße.example/", "xn--strae-oqa.example", 443, b"/", None),
        ('https://example.com/{a}|"b"<c>^`', "example.com", 443, b"/%7Ba%7D%7C%22b%22%3Cc%3E%5E%60", None),
        ("https://8.8.8.8/x", "8.8.8.8", 443, b"/x", "https://8.8.8.8:443"),
        ("https://[2606:4700:0:0::1111]/x", "2606:4700::1111", 443, b"/x", "https://[2606:4700::1111]:443"),
        ("https://1e100.net/", "1e100.net", 443, b"/", None),
        ("https://xn--nxasmq6b.example/", "xn--nxasmq6b.example", 443, b"/", None),
        ("https://r3---sn-x.example/", "r3---sn-x.example", 443, b"/", None),
    ],
)  # fmt: skip
def test_f61_a_public_url_is_accepted_as_it_will_be_dialled(text, host, port, path, origin):
    policy = EgressPolicy(to_ascii=ascii_host)
    parsed = target(text, policy)
    assert (parsed.host, parsed.port, parsed.path) == (host, port, path)
    assert origin in {None, parsed.origin}
    assert parsed.tls


def test_f61_long_paths_and_ports_from_the_settings():
    assert target("https://example.com/" + "a" * 4000).path == b"/" + b"a" * 4000
    policy = parse_policy(ports="8443, 9000-9010")
    assert target("https://example.com:8443/", policy).origin == "https://example.com:8443"
    assert target("https://example.com:9010/", policy).head == b"POST / HTTP/1.1\r\nhost: example.com:9010\r\n"
    assert reason("https://example.com:9011/", policy) == "port"
    assert reason("https://example.com:8443/") == "port"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not_a_url"),
        ("example.com", "not_a_url"),
        ("//example.com/", "not_a_url"),
        ("https:example.com", "not_a_url"),
        ("https:///path", "not_a_url"),
        ("https://:443/", "not_a_url"),
        ("http://example.com/", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://example.com/", "scheme"),
        ("https://user@example.com/", "userinfo"),
        ("https://user:pw@example.com/", "userinfo"),
        ("https://@example.com/", "userinfo"),
        ("https://@[::1]/", "userinfo"),
        ("https://example.com@10.0.0.1/", "userinfo"),
        ("https://example.com/#a", "fragment"),
        ("https://example.com#@evil", "fragment"),
        ("https://example.com/a b", "forbidden_character"),
        (" https://example.com/", "forbidden_character"),
        ("https://example.com/\n", "forbidden_character"),
        ("https://example.com/\r\nx: y", "forbidden_character"),
        ("https://exam\tple.com/", "forbidden_character"),
        ("https://example.com\\@10.0.0.1/", "forbidden_character"),
        ("https://example.com/\x00", "forbidden_character"),
        ("https://example.com/\x7f", "forbidden_character"),
        ("https://example.com/\u2028", "forbidden_character"),
        ("https://example.com/\u3000", "forbidden_character"),
        ("https://example.com/\ud800", "forbidden_character"),
        ("https://example.com:0/", "port_syntax"),
        ("https://example.com:65536/", "port_syntax"),
        ("https://example.com:-1/", "port_syntax"),
        ("https://example.com:+443/", "port_syntax"),
        ("https://example.com:4 43/", "forbidden_character"),
        ("https://example.com:٤٤٣/", "port_syntax"),
        ("https://example.com:443:443/", "host_syntax"),
        ("https://example.com:80/", "port"),
        ("https://example.com:22/", "port"),
        ("https://exa%6dple.com/", "host_syntax"),
        ("https://exam!ple.com/", "host_syntax"),
        ("https://example..com/", "host_syntax"),
        ("https://.example.com/", "host_syntax"),
        ("https://example.com../", "host_syntax"),
        ("https://./", "host_syntax"),
        ("https://" + "a" * 64 + ".com/", "host_syntax"),
        ("https://" + "a." * 130 + "com/", "host_syntax"),
        ("https://[::1/", "host_syntax"),
        ("https://[::1]x/", "host_syntax"),
        ("https://[fe80::1%25eth0]/", "host_syntax"),
        ("https://[fe80::1%eth0]/", "host_syntax"),
        ("https://[v1.fe]/", "host_syntax"),
        ("https://[8.8.8.8]/", "host_syntax"),
        ("https://xn--\u00fc.\ufffd/", "host_idna"),
        ("https://localhost/", "local_name"),
        ("https://LOCALHOST./", "local_name"),
        ("https://intranet/", "local_name"),
        ("https://a.localhost/", "local_name"),
        ("https://printer.local/", "local_name"),
        ("https://metadata.google.internal/", "local_name"),
        ("https://api.default.svc/", "local_name"),
        ("https://kubernetes.default.svc.cluster.local/", "local_name"),
        ("https://nas.lan/", "local_name"),
        ("https://nas.home.arpa/", "local_name"),
        ("https://ｌｏｃａｌｈｏｓｔ/", "local_name"),
        ("https://home.arpa/", "local_name"),
        ("https://cluster.local./", "local_name"),
        ("https://169.254.169.254./", "numeric_host"),
        ("https://127.0.0.1.%2e/", "host_syntax"),
        ("https://example.com\u200b.evil.example/", "forbidden_character"),
        ("https://[::ffff:7f00:1%25]/", "host_syntax"),
        ("https://[::127.0.0.1]@example.com/", "userinfo"),
        ("https://example.com:443@10.0.0.1/", "userinfo"),
        ("https://example.com;@10.0.0.1/", "userinfo"),
        ("https://10.0.0.1;example.com/", "host_syntax"),
        ("https://10.0.0.1,example.com/", "host_syntax"),
        ("https://10.0.0.1\t.example.com/", "forbidden_character"),
        ("https:///10.0.0.1/", "not_a_url"),
        ("https:10.0.0.1/", "not_a_url"),
        ("https:/\\10.0.0.1/", "forbidden_character"),
        ("//10.0.0.1/", "not_a_url"),
        ("gopher://10.0.0.1/", "scheme"),
        ("https+unix://%2frun%2fx.sock/", "scheme"),
        ("HTTP://example.com/", "scheme"),
        ("https://0/", "numeric_host"),
        ("https://0x7f000001/", "numeric_host"),
        ("https://0177.0.0.1/", "numeric_host"),
        ("https://127.1/", "numeric_host"),
        ("https://1.1.1.1.1/", "numeric_host"),
        ("https://foo.0x7f/", "numeric_host"),
    ],
)
def test_a_url_that_is_refused_for_its_form(text, word):
    parsed = parse_url(text, STRICT)
    assert isinstance(parsed, Refusal)
    assert parsed == (word, SENTENCES[word], True)


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1.",
        "1.2.3.4.5", "256.1.1.1", "1.2.3", "0x", "foo.123", "foo.0x7f", "8.8.8.8.", "00000010.0.0.1",
    ],
)  # fmt: skip
def test_f62_numeric_spellings_other_than_the_dotted_quad_are_refused(host):
    assert reason(f"https://{host}/") == "numeric_host"


@pytest.mark.parametrize("host", ["１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1"])
@pytest.mark.parametrize("to_ascii", [ascii_host, EgressPolicy().to_ascii])
def test_f62_digits_in_other_clothes_are_judged_as_what_they_become(host, to_ascii):
    assert reason(f"https://{host}/", EgressPolicy(to_ascii=to_ascii)) == "loopback_address"


@pytest.mark.parametrize(
    "url",
    ["https://[::1]", "https://127.0.0.1", "https://[::ffff:7f00:1]", "https://10.0.0.1/", "https://169.254.169.254/"],
)
def test_f62_a_literal_is_judged_at_registration_and_refused_for_its_address(url):
    parsed = parse_url(url, STRICT)
    assert isinstance(parsed, Refusal)
    assert not parsed.form


def test_a_private_literal_on_a_strange_port_is_refused_for_its_address():
    assert reason("https://[::ffff:7f00:1]:9") == "translated_address"
    assert reason("https://8.8.8.8:9") == "port"


def test_http_needs_a_setting_and_brings_port_80():
    policy = parse_policy(allow_http=True)
    assert target("http://example.com/", policy).origin == "http://example.com:80"
    assert not target("http://example.com/", policy).tls
    assert target("http://example.com:443/", policy).head.endswith(b"host: example.com:443\r\n")
    assert reason("https://example.com:80/", policy) == "port"
    assert reason("http://localhost/", parse_policy(allow="localhost")) == "scheme"
    assert reason("http://10.0.0.1/", parse_policy(allow="10.0.0.1")) == "scheme"


def test_a_url_that_is_too_long_is_refused():
    url = "https://example.com/"
    assert reason(url + "a" * (MAX_URL_LENGTH - len(url))) is None
    assert reason(url + "a" * (MAX_URL_LENGTH - len(url) + 1)) == "too_long"


def test_an_allow_entry_for_a_host_lifts_name_and_address_rules_together():
    policy = parse_policy(allow="localhost *.svc.cluster.local:8080")
    assert target("https://localhost:1234/", policy).port == 1234
    assert address_reason("127.0.0.1", policy, "localhost", 1234) is None
    assert address_reason("169.254.169.254", policy, "localhost", 1234) == "metadata_address"
    assert target("https://a.b.svc.cluster.local:8080/", policy).host == "a.b.svc.cluster.local"
    assert address_reason("10.0.0.7", policy, "a.b.svc.cluster.local", 8080) is None
    assert reason("https://a.b.svc.cluster.local/", policy) == "local_name"
    assert address_reason("10.0.0.7", policy, "a.b.svc.cluster.local", 443) == "private_address"
    assert address_reason("127.0.0.1", policy, "evil.example", 1234) == "loopback_address"


def test_an_allow_entry_for_a_block_lifts_the_rules_for_its_addresses():
    policy = parse_policy(allow="10.1.0.0/16:8000-8010 [fd00:1::/32]:8443", ports="8443")
    assert target("https://10.1.2.3:8010/", policy).literal == IPv4Address("10.1.2.3")
    assert target("https://[fd00:1::5]:8443/", policy).literal == IPv6Address("fd00:1::5")
    assert reason("https://10.1.2.3:8011/", policy) == "private_address"
    assert reason("https://10.2.0.0:8010/", policy) == "private_address"
    assert reason("https://10.0.255.255:8010/", policy) == "private_address"
    assert address_reason("10.1.2.3", policy, "hooks.example", 8000) is None
    assert reason("https://localhost:8000/", policy) == "local_name"


def test_an_entry_may_hold_for_one_tenant_only():
    policy = parse_policy(allow="acct_42=10.0.0.0/8 acct_42=localhost", deny="acct_7=8.8.8.8,acct_7=*.example")
    assert reason("https://10.0.0.1/", policy, "acct_42") is None
    assert reason("https://10.0.0.1/", policy, "acct_43") == "private_address"
    assert reason("https://localhost/", policy, "acct_42") is None
    assert reason("https://localhost/", policy, "acct_4") == "local_name"
    assert reason("https://8.8.8.8/", policy, "acct_7") == "denied_address"
    assert reason("https://8.8.8.8/", policy, "acct_8") is None
    assert reason("https://hooks.example/", policy, "acct_7") == "denied_host"
    assert reason("https://hooks.example/", policy, "acct_8") is None


@pytest.mark.parametrize("to_ascii", [egress.ascii_host, ascii_host])
@pytest.mark.parametrize(
    "text",
    ["https://①②⑦.⓪.⓪.①/", "https://127。0。0。1/", "https://127.0.0.1\u00ad/", "https://１６９.254.169.254/",
     "https://loc\u00adalhost/", "https://ⓛocalhost/", "https://０x7f.1/", "https://2130706433。/", "https://a。internal/"],
)  # fmt: skip
def test_letters_that_become_others_hide_nothing(text, to_ascii):
    """Whatever the reason, which depends on the IDNA tables."""
    assert isinstance(parse_url(text, parse_policy(to_ascii=to_ascii)), Refusal)


@pytest.mark.parametrize(
    "hiding",
    ["::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1", "2002:a00:1::", "::ffff:0:10.0.0.1",
     "2600::5efe:a00:1", "2001:0:0a00:0001::", "2001:67c:1::10.0.0.1"],
)  # fmt: skip
def test_a_denied_address_is_denied_inside_every_other_one(hiding):
    """The name is allowed, and whoever runs its DNS answers with an address that the system, or a gateway, unwraps."""
    policy = parse_policy(allow="hooks.example", deny="10.0.0.0/8", nat64_prefixes="2001:67c:1::/96")
    assert address_reason("10.0.0.1", policy) == "denied_address"
    assert address_reason(hiding, policy) == "denied_address"
    assert address_reason("192.168.0.1", policy) is None


@pytest.mark.parametrize("allow", ["*", "hooks.example", "0.0.0.0/0 ::/0", "169.254.0.0/16", "t1=169.254.169.254"])
@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254",
     "2600::5efe:a9fe:a9fe", "::169.254.169.254", "100.100.100.200", "168.63.129.16"],
)  # fmt: skip
def test_metadata_stays_closed_however_wide_the_door(allow, address):
    assert address_reason(address, parse_policy(allow=allow)) == "metadata_address"


def test_deny_wins_over_allow_and_may_name_a_host_for_its_addresses():
    policy = parse_policy(allow="10.0.0.0/8 internal.example", deny="10.9.0.0/16 internal.example evil.example:443")
    assert reason("https://10.9.0.1/", policy) == "denied_address"
    assert reason("https://10.8.0.1/", policy) is None
    assert reason("https://internal.example/", policy) == "denied_host"
    assert address_reason("1.1.1.1", policy, "evil.example") == "denied_address"
    assert address_reason("1.1.1.1", policy, "evil.example", 8443) is None


def test_the_star_opens_literals_too_but_other_patterns_name_names_only():
    everything, some = parse_policy(allow="*"), parse_policy(allow="f* a*1")
    assert reason("https://10.0.0.1:99/", everything) is None
    assert reason("https://[fd00::1]/", everything) is None
    assert reason("https://localhost:99/", everything) is None
    assert reason("https://169.254.169.254/", everything) == "metadata_address"
    assert reason("https://[fd00::1]/", some) == "private_address"
    assert reason("https://foo/", some) is None
    assert reason("https://foo", parse_policy(allow="fo?")) is None
    assert reason("https://fooo", parse_policy(allow="fo?")) == "local_name"


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("  , ", []),
        ("localhost:8080,9000-9010,10.0.0.0/8:443", [[(8080, 8080), (9000, 9010)], [(443, 443)]]),
        ("localhost:*", [[(1, 65535)]]),
        ("a.example\n\tb.example", [[(1, 65535)], [(1, 65535)]]),
        ("t=[::1]:80", [[(80, 80)]]),
        ("t=::1", [[(1, 65535)]]),
        ("[::1]", [[(1, 65535)]]),
    ],
)
def test_the_text_form_of_entries(text, entries):
    assert [list(entry.ports.ranges) for entry in parse_entries(text)] == entries


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("10.1.2.3/8", "10.1.2.3/8"),
        ("10.*", "10.*"),
        ("127.1", "127.1"),
        ("1.2.3.4/33", "1.2.3.4/33"),
        ("[::1/200]:80", "::1/200"),
        ("zz::/8", "zz::/8"),
        ("=localhost", "no tenant"),
        ("localhost:99999", "99999"),
        ("localhost:20-10", "20-10"),
        ("localhost:http", "'http'"),
        ("münchen.example", "münchen"),
        ("https://example.com", "https://example.com"),
        ("localhost 8080", "8080"),
        ("*.*", "*.*"),
        ("a.example/24", "a.example/24"),
        ("a.example:", "a.example:"),
        ("t=10.0.0.0/8:", "10.0.0.0/8:"),
        ("[::1]:", "[::1]:"),
        ("[::1", "[::1"),
        ("[::1]80", "[::1]80"),
    ],
)
def test_a_malformed_entry_stops_the_start_with_one_clear_line(text, part):
    with pytest.raises(ValueError, match="egress entry") as caught:
        parse_policy(allow=text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0", "65536", "x", "1-", "-1", "5-4", "443;80"])
def test_malformed_ports_are_refused(text):
    with pytest.raises(ValueError, match="port"):
        parse_ports(text)


@pytest.mark.parametrize("text", ["64:ff9b::/95", "10.0.0.0/8", "64:ff9b::1/96", "x"])
def test_malformed_nat64_prefixes_are_refused(text):
    with pytest.raises(ValueError, match="NAT64 prefix"):
        parse_nat64_prefixes(text)


def test_every_reason_of_the_tables_has_a_sentence():
    words = {word for _, word in (*SPECIAL_V4, *SPECIAL_V6)}
    assert words <= SENTENCES.keys()
    assert all(sentence.endswith(".") for sentence in SENTENCES.values())


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_special_exactly_when_a_block_holds_it(address):
    assert (find_special(address) is None) == (not any(address in block for block, _ in SPECIAL_V4))


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_outside_2000_3_is_public(address):
    if find_special(address) is None:
        assert address in PUBLIC_V6


@given(st.ip_addresses(v=4))
def test_f63_no_ipv6_spelling_of_an_ipv4_address_is_public(address):
    number = int(address)
    for form in (
        number,
        0xFFFF << 32 | number,
        0xFFFF << 48 | number,
        0x64FF9B << 96 | number,
        0x2002 << 112 | number << 80,
    ):
        assert address_reason(str(IPv6Address(form))) is not None


@given(st.ip_addresses())
def test_a_literal_is_judged_like_the_same_address_from_the_resolver(address):
    shown = f"[{address}]" if address.version == 6 else str(address)
    refusal = judge_address(address, STRICT, str(address), 443, "")
    parsed = parse_url(f"https://{shown}/", STRICT)
    assert parsed == refusal if refusal else parsed.literal == address


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_a_refusal_and_a_target_is_safe_to_write(text):
    for url in (text, f"https://{text}", f"https://{text}/", f"https://example.com/{text}", f"https://[{text}]/"):
        parsed = parse_url(url, EgressPolicy(to_ascii=ascii_host))
        if isinstance(parsed, Target):
            assert parsed.host.isascii()
            assert parsed.head.count(b"\n") == 2
            assert parsed.head.count(b" ") == 3
            assert parsed.path.startswith(b"/")
            assert (
                target(f"https://{'[' + parsed.host + ']' if ':' in parsed.host else parsed.host}/").host == parsed.host
            )


@given(st.lists(st.from_regex(r"[a-z0-9_-]{1,20}", fullmatch=True), min_size=2, max_size=5))
def test_f61_ordinary_names_are_accepted_unless_local_or_numeric(labels):
    host = ".".join(labels)
    assert reason(f"https://{host}/") in {None, "local_name", "numeric_host", "loopback_address"} | {
        word for _, word in SPECIAL_V4
    }


@given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4))
def test_an_allow_entry_opens_its_block_and_nothing_else(base, length, address):
    network = IPv4Network((base, length), strict=False)
    opened = judge_address(address, parse_policy(allow=str(network)), "hooks.example", 443, "")
    usual = judge_address(address, STRICT, "hooks.example", 443, "")
    if address not in METADATA:
        assert opened == (None if address in network else usual)


@pytest.mark.parametrize("host", ["Hooks.Example.", "xn--bcher-kva.example", "[2001:0db8::1]", "192.0.2.7"])
def test_a_host_by_itself_is_spelled_as_in_a_url(host):
    assert parse_host(host, STRICT) == target(f"https://{host}/", parse_policy(allow=host)).host


def test_a_host_by_itself_needs_no_brackets():
    assert parse_host("2001:DB8::1", STRICT) == parse_host("[2001:db8::1]", STRICT) == "2001:db8::1"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a.example:443", "host_syntax"),
        ("https://a.example", "host_syntax"),
        ("[2001:db8::1", "host_syntax"),
        ("[", "host_syntax"),
        ("", "host_syntax"),
        ("a b", "forbidden_character"),
        ("0x7f.1", "numeric_host"),
    ],
)
def test_what_is_no_host_by_itself(text, word):
    refusal = parse_host(text, STRICT)
    assert isinstance(refusal, Refusal) and refusal.reason == word
