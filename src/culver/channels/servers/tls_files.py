"""The certificate files of connections over TLS, and what is wrong with them in one sentence."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from culver.errors import InvalidConfiguration

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM. ``authorities`` signed the servers' certificates; without it, those that the system trusts count.
    ``certificate`` and ``key`` are shown to servers that ask their clients for one."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __bool__(self) -> bool:
        return self.authorities is not None or self.certificate is not None or self.key is not None

    def arguments(self) -> list[str]:
        """The options of a command that name these files."""
        named = (("--tls-ca", self.authorities), ("--tls-cert", self.certificate), ("--tls-key", self.key))
        return [word for option, path in named if path is not None for word in (option, str(path))]


def tls_context(files: TlsFiles, prefix: str = "--tls-") -> ssl.SSLContext | None:
    """Makes the context that ``ServerAccess`` and ``Channels`` take; None if no file is given. Messages call the
    files ``ca``, ``cert`` and ``key`` with ``prefix`` before these words.

    :raises InvalidConfiguration: a file cannot be read or used, or key and certificate do not belong together.
    """
    if not files:
        return None
    name_of = {"ca": f"{prefix}ca", "cert": f"{prefix}cert", "key": f"{prefix}key"}
    if files.authorities is not None:
        _check(name_of["ca"], files.authorities, _CERTIFICATE, "certificate")
    try:
        context = ssl.create_default_context(cafile=files.authorities)
    except (ssl.SSLError, OSError) as error:
        raise _unusable(name_of["ca"], f"{files.authorities}: {_reason(error)}") from error
    if files.certificate is None and files.key is None:
        return context
    if files.certificate is None or files.key is None:
        lacking = name_of["cert" if files.certificate is None else "key"]
        raise _unusable(lacking, f"is missing: {name_of['cert']} and {name_of['key']} belong together")
    _check(name_of["cert"], files.certificate, _CERTIFICATE, "certificate")
    _check(name_of["key"], files.key, _KEY, "private key")

    def ask_for_password() -> str:
        # OpenSSL would ask on the terminal, where a service has nobody to answer.
        raise _unusable(name_of["key"], f"{files.key} is encrypted: give a key without a passphrase")

    try:
        context.load_cert_chain(files.certificate, files.key, ask_for_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            words = f"{files.key} is not the key of {name_of['cert']} {files.certificate}"
        else:
            words = f"{files.key} cannot be used with {files.certificate}: {_reason(error)}"
        raise _unusable(name_of["key"], words) from error
    return context


def _check(name: str, path: Path, mark: bytes, thing: str) -> None:
    """OpenSSL does not say which of two files it could not read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unusable(name, f"{path} cannot be read: {error.strerror}") from error
    if mark not in content:
        raise _unusable(name, f"{path} holds no {thing} in PEM")


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).lower().replace("_", " ")


def _unusable(name: str, words: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"{name} {words}", field=name)
