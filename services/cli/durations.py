"""Durations in words."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def in_words(seconds: float) -> str:
    """Two units at most: "40 s", "12 min", "2 h 05 min", "3 d 4 h"."""
    whole = max(0, round(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"
