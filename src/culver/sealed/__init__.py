"""Sealed files: damage that nothing else would notice shows at the next start."""

from culver.sealed.seal_file import SealFile as SealFile, read_seal as read_seal, seal_path as seal_path
from culver.sealed.sealed_database import (
    SUFFIXES as SUFFIXES,
    DatabaseFormat as DatabaseFormat,
    SealedDatabase as SealedDatabase,
    Table as Table,
    open_sealed as open_sealed,
    row_checksum as row_checksum,
)
