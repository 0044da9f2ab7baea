"""Servers that speak TLS, in a thread of their own, and the certificates for them.

The servers of the wheels are built without TLS. A relay before each of them ends it: to clients, that is a server
with TLS like any other.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.loop_thread import LoopThread
from support.redis_servers import PROGRAMS, make_certificate, relay_to, showing, strange_server


@dataclass(frozen=True)
class CertificateFiles:
    """An authority, and what it signed for the servers and for a client; ``stranger`` is another authority."""

    authority: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]
    stranger: Path

    def client_options(self) -> list[str]:
        certificate, key = self.client
        return ["--tls-ca", str(self.authority), "--tls-cert", str(certificate), "--tls-key", str(key)]


def make_certificates(folder: Path) -> CertificateFiles:
    authority, _ = make_certificate(folder, "authority")
    server = make_certificate(folder, "server", authority)
    client = make_certificate(folder, "client", authority)
    stranger, _ = make_certificate(folder, "stranger")
    return CertificateFiles(authority, server, client, stranger)


@dataclass(frozen=True)
class EncryptedServers:
    """Addresses of the same servers with TLS and in the clear."""

    urls: list[str]
    plain_urls: list[str]


@contextmanager
def encrypted_servers(
    folder: Path, files: CertificateFiles, *, count: int = 2, ask_clients: bool = False
) -> Iterator[EncryptedServers]:
    """With ``ask_clients``, they refuse clients without a certificate."""
    opened: list[EncryptedServers] = []

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        context = showing(*files.server, files.authority if ask_clients else None)
        async with AsyncExitStack() as stack:
            settings = LocalServerSettings(program=PROGRAMS["valkey"])
            pool = await stack.enter_async_context(LocalServers(folder, settings))
            plain = [(await pool.start()).url for _ in range(count)]
            relays = [strange_server(relay_to(urlsplit(url).port or 0), context) for url in plain]
            opened.append(EncryptedServers([await stack.enter_async_context(each) for each in relays], plain))
            yield

    thread = LoopThread("encrypted-servers", life())
    try:
        yield opened[0]
    finally:
        thread.close()
