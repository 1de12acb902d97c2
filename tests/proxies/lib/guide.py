"""The configurations of docs/guides/proxies.md."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guides/proxies.md"


def blocks(language):
    """The texts of the guide's blocks in a language, in order."""
    found = re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{GUIDE} has no block in {language}"
    return found


def replaced(text, *pairs):
    """The text with each of these parts, which it must have, replaced."""
    for old, new in pairs:
        assert old in text, f"`{old}` is not in the guide any more:\n{text}"
        text = text.replace(old, new)
    return text
