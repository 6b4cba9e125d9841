"""What the documents state in words and numbers."""
import re

from tests.kit import ROOT

DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen".split()


def stated(document, pattern):
    """The groups of each match in a document, whose lines are joined."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(pattern, " ".join(text.translate(DIGITS).split()))
