from __future__ import annotations

import pytest

from headrace.core.connection import Connection, parse_connection
from headrace.core.values.shards import Shard
from headrace.errors import UpstreamError
from headrace.sources.kafka.settings import client_settings, consumer_settings, ignored_settings


def test_an_address_without_a_port_has_the_default_port() -> None:
    assert client_settings(parse_connection("kafka", "kafka://broker.example"))["bootstrap.servers"] == "broker.example:9092"


@pytest.mark.parametrize(
    ("host", "port", "servers"),
    [
        ("a.example,b.example:9094", 9093, "a.example:9093,b.example:9094"),
        ("::1", 9092, "[::1]:9092"),
        ("[::1]", 9092, "[::1]:9092"),
        ("10.0.0.1", None, "10.0.0.1:9092"),
    ],
)
def test_several_hosts_and_ip_addresses_become_bootstrap_servers(host: str, port: int | None, servers: str) -> None:
    assert client_settings(Connection("kafka", "kafka", host=host, port=port))["bootstrap.servers"] == servers


def test_a_login_uses_tls_unless_the_connection_sets_another_protocol() -> None:
    settings = client_settings(parse_connection("kafka", "kafka://ada:s%40cret@broker.example:9093"))
    assert settings == {
        "bootstrap.servers": "broker.example:9093",
        "sasl.username": "ada",
        "sasl.password": "s@cret",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }
    extra = "security.protocol=SASL_PLAINTEXT&sasl.mechanisms=SCRAM-SHA-512"
    settings = client_settings(parse_connection("kafka", f"kafka://ada:secret@broker.example?{extra}"))
    assert settings["security.protocol"] == "SASL_PLAINTEXT"
    assert settings["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert "sasl.mechanism" not in settings


def test_a_token_endpoint_takes_login_and_password_as_id_and_secret_of_the_client() -> None:
    extra = "sasl.mechanism=OAUTHBEARER&sasl.oauthbearer.token.endpoint.url=https%3A%2F%2Flogin.example%2Ftoken"
    settings = client_settings(parse_connection("kafka", f"kafka://ada:s%40cret@broker.example?{extra}"))
    assert settings == {
        "bootstrap.servers": "broker.example:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "ada",
        "sasl.oauthbearer.client.secret": "s@cret",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "https.ca.location": "probe",
    }
    settings = client_settings(parse_connection("kafka", f"kafka://broker.example?{extra}&sasl.oauthbearer.method=default&https.ca.pem=x"))
    assert settings["sasl.oauthbearer.method"] == "default"
    assert "https.ca.location" not in settings
    unsigned = parse_connection("kafka", "kafka://broker.example?sasl.mechanism=oauthbearer&enable.sasl.oauthbearer.unsecure.jwt=true")
    assert "sasl.oauthbearer.method" not in client_settings(unsigned)


@pytest.mark.parametrize(
    ("uri", "protocol"),
    [
        ("kafka://a", None),
        ("kafka://a?ssl.ca.location=ca.pem", "SSL"),
        ("kafka://a?ssl.ca.location=ca.pem&security.protocol=PLAINTEXT", "PLAINTEXT"),
        ("kafka://a?sasl.mechanism=SCRAM-SHA-512&sasl.username=ada", "SASL_SSL"),
        ("kafka://ada:secret@a?sasl.mechanism=OAUTHBEARER&security.protocol=SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    ],
)
def test_the_protocol_follows_from_the_other_settings_unless_it_is_set(uri: str, protocol: str | None) -> None:
    assert client_settings(parse_connection("kafka", uri)).get("security.protocol") == protocol


def test_settings_of_the_upstream_cannot_be_changed() -> None:
    connection = parse_connection("kafka", "kafka://broker.example?group.id=x&enable.auto.commit=true&fetch.min.bytes=5")
    settings = consumer_settings(connection, "shop", "member")
    assert (settings["group.id"], settings["enable.auto.commit"], settings["fetch.min.bytes"]) == ("shop", False, "5")
    assert ignored_settings(connection) == ["group.id", "enable.auto.commit"]


def test_only_a_classic_group_has_a_static_member() -> None:
    assert consumer_settings(parse_connection("kafka", "kafka://a"), "shop", "member")["group.instance.id"] == "member"
    assert "group.instance.id" not in consumer_settings(parse_connection("kafka", "kafka://a?group.protocol=consumer"), "shop", "member")


@pytest.mark.parametrize(("uri", "problem"), [("http://a", "kind 'http'"), ("kafka://", "no address")])
def test_an_unusable_connection_is_named(uri: str, problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        client_settings(parse_connection("kafka", uri))


def test_shards_are_members_of_one_group_and_the_first_replaces_an_only_reader() -> None:
    connection = parse_connection("kafka", "kafka://a?heartbeat.interval.ms=500")
    settings = [consumer_settings(connection, "shop", "member", Shard(number, 3)) for number in range(3)]
    assert [one["group.instance.id"] for one in settings] == ["member", "member-1", "member-2"]
    assert {(one["group.id"], one["heartbeat.interval.ms"]) for one in settings} == {("shop", "500")}
    assert consumer_settings(connection, "shop", "member", Shard(0, 1)) == consumer_settings(connection, "shop", "member")


def test_shards_need_a_classic_group() -> None:
    connection = parse_connection("kafka", "kafka://a?group.protocol=consumer")
    with pytest.raises(UpstreamError, match="shards=2 needs a classic group"):
        consumer_settings(connection, "shop", "member", Shard(0, 2))
