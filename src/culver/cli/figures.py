"""Figures as short texts for people, and the width of a page. Pure."""

WIDTH = 80


def amount(value: float) -> str:
    """Three significant digits: 0, 7.25, 980, 12.3 k, 1.50 M."""
    for unit in ("", " k", " M", " G"):
        if abs(value) < 999.5 or unit == " G":
            break
        value /= 1000
    if unit == "" and value == round(value):
        return f"{value:.0f}"
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}{unit}"


def size(value: float) -> str:
    return f"{amount(value)}{'' if amount(value)[-1].isalpha() else ' '}B"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 9.995 else f"{100 * share:.0f} %"


def moment(seconds: float) -> str:
    """A short time: 350 ns, 2.1 us, 35 ms, 1.2 s."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.{1 if seconds * factor < 9.95 else 0}f} {unit}"
    return f"{seconds:.{1 if seconds < 99.95 else 0}f} s"


def duration(seconds: float) -> str:
    """A long time: 12 s, 3 min, 4 h 10 min, 12 d 3 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"
