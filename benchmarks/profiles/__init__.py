"""Hardware profiles that published results were computed with.

Their figures include some of projects without a licence (NOTICE), so the wheel's profiles of the
same names hold other ones.
"""

from pathlib import Path


def published_profile(name: str) -> str:
    """Return the file of a profile, a name of hardware wherever one is taken."""
    return str(Path(__file__).with_name(f"{name}.json"))
