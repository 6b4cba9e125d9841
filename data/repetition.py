"""Check whether the validation text was seen in training, so that its loss means nothing.

This module knows no ids or models: it compares strings.
"""
from data.batches import spread

PROBE = 50          # characters; at 20, one probe in fifty of an ordinary play is a stock phrase
MOST_PROBES = 150   # keeps a text of 20 million characters under a second
# Ordinary texts measure 0.00 and a text pasted twice 1.00.  The validation loss reads too low by
# about this share, so less than this does not change what a run says.
WARNING_SHARE = 0.05


def repetition_warning(train_text: str, val_text: str) -> str | None:
    """Return a line for the user if too much of the validation text stands in the training text.

    The share is estimated from probes evenly spaced over the validation text.
    """
    probes = [val_text[i * PROBE:(i + 1) * PROBE]
              for i in spread(len(val_text) // PROBE, MOST_PROBES)]
    share = sum(probe in train_text for probe in probes) / max(len(probes), 1)
    if share < WARNING_SHARE:
        return None
    return (f"{share:.0%} of the validation text (the last part of the text) stands word for word "
            "in the training text too, so the validation loss will look better than it is; "
            "remove the repetitions")
