"""Certificate files become a context, or a sentence that names the file."""

import ssl
import subprocess
from pathlib import Path

import pytest

from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.tls_files import TlsFiles, tls_context
from culver.errors import InvalidConfiguration
from support.encrypted_servers import CertificateFiles, make_certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_without_files_the_system_decides() -> None:
    assert tls_context(TlsFiles()) is None
    assert TlsFiles().arguments() == []
    assert not TlsFiles()


def test_the_given_authority_is_the_only_one(files: CertificateFiles) -> None:
    context = tls_context(TlsFiles(files.authority))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "authority"),),)]


def test_access_keeps_the_files_for_other_processes(files: CertificateFiles) -> None:
    given = TlsFiles(files.authority, *files.client)
    access = ServerAccess.with_files("me", "mine", given)
    assert access.tls is not None
    assert access.tls_files == given
    assert given.arguments() == files.client_options()


def test_missing_file_is_named_with_its_option(files: CertificateFiles, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.pem"
    for given, name in (
        (TlsFiles(nowhere), "--tls-ca"),
        (TlsFiles(None, nowhere, files.client[1]), "--tls-cert"),
        (TlsFiles(None, files.client[0], nowhere), "--tls-key"),
    ):
        with pytest.raises(InvalidConfiguration, match=f"^{name} {nowhere} cannot be read: No such file"):
            tls_context(given)


def test_settings_are_named_by_their_own_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"^channels\.tls_ca .* cannot be read") as refused:
        tls_context(TlsFiles(tmp_path / "nowhere.pem"), "channels.tls_")
    assert refused.value.field == "channels.tls_ca"


def test_certificate_and_key_belong_together(files: CertificateFiles) -> None:
    certificate, key = files.client
    with pytest.raises(InvalidConfiguration, match=r"^--tls-key is missing"):
        tls_context(TlsFiles(certificate=certificate))
    with pytest.raises(InvalidConfiguration, match=r"^--tls-cert is missing"):
        tls_context(TlsFiles(key=key))
    wrong = files.server[1]
    with pytest.raises(InvalidConfiguration, match=f"^--tls-key {wrong} is not the key of --tls-cert"):
        tls_context(TlsFiles(None, certificate, wrong))


def test_file_with_other_contents_is_refused(files: CertificateFiles, tmp_path: Path) -> None:
    certificate, key = files.client
    with pytest.raises(InvalidConfiguration, match=r"^--tls-ca .* holds no certificate in PEM"):
        tls_context(TlsFiles(key))
    with pytest.raises(InvalidConfiguration, match=r"^--tls-key .* holds no private key in PEM"):
        tls_context(TlsFiles(None, certificate, certificate))
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidConfiguration, match=r"^--tls-ca .*damaged\.pem: "):
        tls_context(TlsFiles(damaged))
    with pytest.raises(InvalidConfiguration, match=r"^--tls-key .* cannot be used with .*damaged\.pem: "):
        tls_context(TlsFiles(None, damaged, key))


def test_encrypted_key_is_refused_instead_of_asking_on_the_terminal(
    files: CertificateFiles, tmp_path: Path
) -> None:
    certificate, key = files.client
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-aes256", "-passout", "pass:x", "-in", str(key), "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(InvalidConfiguration, match=r"^--tls-key .* is encrypted"):
        tls_context(TlsFiles(None, certificate, locked))
