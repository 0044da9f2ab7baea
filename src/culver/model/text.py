"""Text as Culver keeps it: Unicode in normalisation form C, without lone surrogates."""

import re
import unicodedata

# Normalisation takes time quadratic in the length of a run of combining marks: a hostile 256 KiB of marks would take
# seconds. No script needs more than a few in a row (Unicode's stream-safe text format allows 30).
MOST_COMBINING_MARKS = 256
_LONG_RUN = re.compile(rb"[^\x00]{%d,}" % (MOST_COMBINING_MARKS + 1))


def normalise_text(text: str) -> str:
    """`text` in form C. Raises ValueError for a lone surrogate or an absurd run of combining marks."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(
            f"a lone surrogate (U+{ord(text[exc.start]):04X}) at character {exc.start}"
        ) from None
    if len(text) > MOST_COMBINING_MARKS:
        run = _LONG_RUN.search(bytes(map(unicodedata.combining, text)))
        if run is not None:
            raise ValueError(
                f"more than {MOST_COMBINING_MARKS} combining marks in a row at character {run.start()}"
            )
    return unicodedata.normalize("NFC", text)
