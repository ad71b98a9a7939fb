"""The one exception that the command line turns into a sentence and exit code 2."""


class UserError(ValueError):
    """Input that a person can mend.

    The message is one sentence that names the file, field and value, and the way out.
    """
