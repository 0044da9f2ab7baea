"""TLS between sites: both show certificates, and the files can be exchanged while links stand.

A site's certificate carries its name as the common name or a DNS name, and may be used by servers and by clients: the
same one is shown to those who dial this site and to those whom it dials.
"""

import logging
import os
import ssl
from typing import NamedTuple

from culver.errors import InvalidConfiguration

logger = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class TlsContextPair(NamedTuple):
    """One context for connections that this site accepts, and one for those that it dials."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


class TlsContexts:
    """Reads the three files, and reads them again when one has changed. New files that cannot be used are named once
    in the log, and what was read before stays in use; the next change is another try.

    :raises InvalidConfiguration: the files cannot be used at the start.
    """

    def __init__(self, ca: str, cert: str, key: str) -> None:
        self._files = {"tls_ca": ca, "tls_cert": cert, "tls_key": key}
        # The stamp is taken first: a file that changes while it is read is read again.
        self._stamp = self._stamp_of_files()
        self._contexts = self._load()

    def current(self) -> TlsContextPair:
        """Call it for each connection; it never fails. Costs three ``stat`` unless a file has changed."""
        stamp = self._stamp_of_files()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._contexts = self._load()
            except InvalidConfiguration as error:
                logger.warning("%s; the certificates from before stay in use", error.message)
            else:
                logger.info("the certificates for links to other sites were read anew")
        return self._contexts

    def _stamp_of_files(self) -> _Stamp:
        stamps = []
        for path in self._files.values():
            try:
                found = os.stat(path)
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append((0, -1, 0))
        return tuple(stamps)

    def _load(self) -> TlsContextPair:
        return TlsContextPair(self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT))

    def _context(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        # A certificate names a site and not a host; the hello is checked against it.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for name, path in self._files.items():
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise _unusable(name, f"{path} cannot be read: {error.strerror}") from error
        ca, cert, key = self._files["tls_ca"], self._files["tls_cert"], self._files["tls_key"]
        try:
            context.load_verify_locations(ca)
        except (ssl.SSLError, OSError) as error:
            raise _unusable("tls_ca", f"{ca} holds no certificates in PEM: {_words(error)}") from error

        def ask_for_password() -> str:
            # OpenSSL would ask on the terminal, where a service has nobody to answer.
            raise _unusable("tls_key", f"{key} is encrypted: give a key without a passphrase")

        try:
            context.load_cert_chain(cert, key, ask_for_password)
        except (ssl.SSLError, OSError) as error:
            raise _unusable(
                "tls_cert", f"{cert} cannot be used with the key {key}: {_words(error)}"
            ) from error
        return context


def tls_words(error: ssl.SSLError) -> str:
    """The reason why TLS failed, without the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    return _words(error)


def _words(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")


def _unusable(name: str, words: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"overlay.{name} {words}", field=f"overlay.{name}")
