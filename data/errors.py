"""The one exception of this package.  Knows nothing of files, networks or arrays."""


class TextError(ValueError):
    """A mistake with a text that the user can mend.

    Its message is one line in the user's words: what was expected, what came, what to do.
    """
