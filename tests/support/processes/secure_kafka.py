"""A Kafka server whose listeners have TLS, SASL and OAUTHBEARER, beside the plain one of the tests."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from support.processes.broker_server import SECONDS
from support.processes.certificates import Authority
from support.processes.kafka import KafkaServer, require
from support.processes.ports import free_port
from support.processes.shared_servers import shared_server
from support.processes.token_endpoint import TokenEndpoint

OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN_USER = "plain"
SCRAM_USER = "scram"
SESSION_MS = 2_000


class SecureKafkaServer(KafkaServer):
    """One server. `address_of` gives the address of a listener.

    | listener | protocol |
    |---|---|
    | SASL | SASL_SSL with PLAIN and SCRAM-SHA-512 |
    | MUTUAL | SSL, with a certificate of the client |
    | OAUTH | SASL_SSL with OAUTHBEARER: signed tokens of `tokens` |
    | EXPIRED | SSL with an expired certificate |
    | ELSEWHERE | SSL with a certificate for another host |
    | SHORT | SASL_SSL with SCRAM-SHA-512, where a client authenticates again after SESSION_MS |

    A session of OAUTH ends with its token.
    """

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        self.certificates = folder / "tls"
        self.authority = Authority(self.certificates)
        self.password = f"pass%/{secrets.token_hex(12)}"
        server = self.authority.issue("server")
        self.authority.issue("expired-server", expired=True)
        self.authority.issue("elsewhere", address="broker.example")
        self.tokens = TokenEndpoint(server.with_suffix(".chain"))
        keys = self.certificates / "keys.json"
        self.tokens.write_keys(keys)
        self._ports = {name: free_port() for name in ("SASL", "MUTUAL", "OAUTH", "EXPIRED", "ELSEWHERE", "SHORT")}
        properties = folder / "security.properties"
        properties.write_text(self._properties(keys))
        settings = {
            "KAFKA_LISTENERS": "".join(f",{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "KAFKA_PROPERTIES": str(properties),
            "KAFKA_JAVA_OPTIONS": f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",
        }
        super().__init__("kafka", folder=folder, **settings)
        self.set_scram_password(self.password)

    def address_of(self, listener: str, host: str = "127.0.0.1") -> str:
        """Return the address of a listener."""
        return f"{host}:{self._ports[listener]}"

    def close(self) -> None:
        self.tokens.close()
        super().close()

    def set_scram_password(self, password: str, user: str = SCRAM_USER) -> None:
        """Set the password of a user; create the user if there is none."""
        admin = self._library.admin
        scram = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 4096)
        change = admin.UserScramCredentialUpsertion(user, scram, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(SECONDS)

    def _properties(self, keys: Path) -> str:
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        protocols = {"SASL": "SASL_SSL", "MUTUAL": "SSL", "OAUTH": "SASL_SSL", "EXPIRED": "SSL", "ELSEWHERE": "SSL", "SHORT": "SASL_SSL"}
        lines = {
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in ({"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | protocols).items()
            ),
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": f'{plain} required user_{PLAIN_USER}="{self.password}";',
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.short.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            "listener.name.short.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "listener.name.oauth.oauthbearer.connections.max.reauth.ms": "3600000",
            "listener.name.oauth.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "listener.name.oauth.sasl.oauthbearer.expected.audience": "kafka",
            "listener.name.oauth.sasl.oauthbearer.clock.skew.seconds": "0",
        }
        certificates = {"EXPIRED": "expired-server", "ELSEWHERE": "elsewhere"}
        for name in protocols:
            prefix = f"listener.name.{name.lower()}.ssl"
            lines |= {
                f"{prefix}.keystore.type": "PEM",
                f"{prefix}.keystore.location": str(self.certificates / f"{certificates.get(name, 'server')}.chain"),
                f"{prefix}.truststore.type": "PEM",
                f"{prefix}.truststore.location": str(self.authority.certificate),
            }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


@shared_server
def shared() -> SecureKafkaServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require("kafka")
    return SecureKafkaServer()
