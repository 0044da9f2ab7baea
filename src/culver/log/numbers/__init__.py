"""What a site remembers of numbered publications, so that none is stored twice."""

from culver.log.numbers.publication_memory import (
    MemoryContent as MemoryContent,
    PublicationMemory as PublicationMemory,
    StoredPart as StoredPart,
)
from culver.log.numbers.publishers_file import PublishersFile as PublishersFile
