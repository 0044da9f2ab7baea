"""`culver channels` and a site over TLS: a service of servers with certificates, its clients, and every mistake."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from culver.channels.servers.server_program import find_server_program
from support.encrypted_servers import (
    CertificateFiles,
    EncryptedServers,
    encrypted_servers,
    make_certificates,
)
from support.served_channels import ServedChannels
from support.service import Service
from support.until import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

CULVER = [sys.executable, "-m", "culver", "channels"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CULVER_CHANNELS")}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def servers(tmp_path: Path, files: CertificateFiles) -> Iterator[EncryptedServers]:
    with encrypted_servers(tmp_path / "servers", files) as found:
        yield found


@pytest.fixture
def asking_servers(tmp_path: Path, files: CertificateFiles) -> Iterator[EncryptedServers]:
    """They want certificates of their clients."""
    with encrypted_servers(tmp_path / "servers", files, ask_clients=True) as found:
        yield found


def listed(urls: list[str]) -> list[str]:
    return [word for url in urls for word in ("--server", url)]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CULVER, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**ENVIRONMENT, **environment},
    )


def refusal(folder: Path, *arguments: str) -> str:
    """What `serve` says when it does not start."""
    done = run("serve", "--port", "0", "--data-dir", str(folder / "refused"), *arguments)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("culver: ")]
    assert len(said) == 1, done.stderr
    return said[0]


def message_arrives(url: str, *options: str, **environment: str) -> bool:
    with subprocess.Popen(
        [*CULVER, "sub", "news", "--count", "1", "--url", url, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    ) as listening:
        assert listening.stderr is not None
        assert "listening" in listening.stderr.readline()
        published = run("pub", "news", "hello", "--url", url, *options, **environment)
        assert published.stderr == "published to 1 subscriber\n"
        return listening.communicate(timeout=60)[0] == "news: hello\n"


def test_service_dispatchers_and_clients_show_their_certificates(
    tmp_path: Path, files: CertificateFiles, asking_servers: EncryptedServers
) -> None:
    with ServedChannels(tmp_path, *listed(asking_servers.urls), *files.client_options()) as served:
        assert message_arrives(served.url, *files.client_options())
        variables = {
            "CULVER_CHANNELS_TLS_CA": str(files.authority),
            "CULVER_CHANNELS_TLS_CERT": str(files.client[0]),
            "CULVER_CHANNELS_TLS_KEY": str(files.client[1]),
        }
        assert message_arrives(served.url, **variables)
        # An analyser, which runs beside the dispatcher, has told of each server.
        asyncio.run(until(lambda: all(server.clients for server in served.plan().servers)))
        without = run("pub", "news", "hello", "--url", served.url, "--tls-ca", str(files.authority))
        assert without.returncode == 1
        assert "wants a certificate of its clients (--tls-cert and --tls-key" in without.stderr


def test_client_without_the_authority_is_told_at_once(
    tmp_path: Path, files: CertificateFiles, servers: EncryptedServers
) -> None:
    with ServedChannels(tmp_path, *listed(servers.urls), "--tls-ca", str(files.authority)) as served:
        assert message_arrives(served.url, "--tls-ca", str(files.authority))
        for command in (("pub", "news", "hello"), ("sub", "news")):
            for options in ((), ("--tls-ca", str(files.stranger))):
                refused = run(*command, "--url", served.url, *options)
                assert refused.returncode == 1
                assert "the certificate of rediss://127.0.0.1:" in refused.stderr
                assert "give the authority that signed it (--tls-ca" in refused.stderr


def test_service_names_every_mistake(
    tmp_path: Path, files: CertificateFiles, asking_servers: EncryptedServers
) -> None:
    encrypted, plain = asking_servers.urls[0], asking_servers.plain_urls[0]
    authority, (certificate, key) = str(files.authority), map(str, files.client)
    wrong_authority = refusal(tmp_path, "--server", encrypted, "--tls-ca", str(files.stranger))
    assert f"the certificate of {encrypted} is not trusted" in wrong_authority
    not_shown = refusal(tmp_path, "--server", encrypted, "--tls-ca", authority)
    assert encrypted in not_shown
    assert "--tls-cert and --tls-key" in not_shown
    as_plain = encrypted.replace("rediss", "redis")
    assert "TLS" in refusal(tmp_path, "--server", as_plain).partition(as_plain)[2]
    as_encrypted = plain.replace("redis", "rediss")
    said = refusal(tmp_path, "--server", as_encrypted, "--tls-ca", authority)
    assert "does not speak TLS" in said.partition(as_encrypted)[2]
    missing = refusal(tmp_path, "--server", encrypted, "--tls-ca", "nowhere.pem")
    assert missing == "culver: --tls-ca nowhere.pem cannot be read: No such file or directory"
    other_key = str(files.server[1])
    mixed = refusal(
        tmp_path,
        "--server",
        encrypted,
        "--tls-ca",
        authority,
        "--tls-cert",
        certificate,
        "--tls-key",
        other_key,
    )
    assert mixed == f"culver: --tls-key {other_key} is not the key of --tls-cert {certificate}"
    assert refusal(tmp_path, "--server", encrypted, "--tls-key", key) == (
        "culver: --tls-cert is missing: --tls-cert and --tls-key belong together"
    )


def test_own_servers_speak_tls_or_their_program_is_named(tmp_path: Path, files: CertificateFiles) -> None:
    certificate, key = map(str, files.server)
    options = ["--tls-ca", str(files.authority), "--tls-cert", certificate, "--tls-key", key]
    if b"SSL_CTX_new" not in find_server_program().read_bytes():
        assert "is built without TLS: install valkey-server or redis-server" in refusal(tmp_path, *options)
        return
    with ServedChannels(tmp_path, *options) as served:
        assert all(server.url.startswith("rediss://") for server in served.plan().servers)
        assert message_arrives(served.url, "--tls-ca", str(files.authority))


def test_site_publishes_over_tls(tmp_path: Path, files: CertificateFiles, servers: EncryptedServers) -> None:
    with (
        ServedChannels(tmp_path, *listed(servers.urls), "--tls-ca", str(files.authority)) as served,
        Service(
            tmp_path / "site",
            "inline",
            "--channels-url",
            served.url,
            CULVER_CHANNELS_TLS_CA=str(files.authority),
        ) as site,
    ):
        site.wait_until_ready()
        published = site.http.post("/v1/channels/news", json={"data": "hello"})
        assert (published.status_code, published.json()) == (200, {"receivers": 0})
