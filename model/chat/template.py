"""The chat template of a model: from messages to the text that the model was trained to answer.

A template is a program in Jinja that came with the model.  It writes who says what, with the
model's special tokens between.
"""
from collections.abc import Sequence

from data.tokenizer import Tokenizer
from minigrad.words import shown
from model.chat.sandbox import MOST_LINES, at_most, environment
from model.convert.hugging_face import stated_roles

Message = dict[str, str]        # "role": system, user or assistant; and "content"
REMEDY = "continue a text by --start instead, written as the model's makers say"


class ChatError(ValueError):
    """A model cannot be asked.  The message says why, and what to do."""


class Template:
    """Renders messages as transformers' `apply_chat_template` does.

    Parameters
    ----------
    tokenizer : its `chat_template` is the program, or None; a template may use the names of the
        tokens with a role, as `bos_token`.

    Raises
    ------
    ChatError : there is no template, or it is no Jinja.
    MissingLibrary : jinja2 is not installed.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise ChatError("this model brought no chat template, so it was not made to answer; "
                            "continue a text by --start")
        jinja = environment()
        try:
            self._program = jinja.from_string(tokenizer.chat_template)
        except Exception as error:
            raise ChatError(f"the model's chat template is not valid Jinja: {shown(error)}; "
                            f"{REMEDY}") from error
        self._tokens = tokens_with_a_role(tokenizer)

    def render(self, messages: Sequence[Message]) -> str:
        """Return the text that an answer follows.

        Raises
        ------
        ChatError : the template fails, refuses the messages, or does not end.
        """
        try:
            with at_most(MOST_LINES):
                return self._program.render(
                    messages=messages,
                    add_generation_prompt=True,
                    tools=None,
                    documents=None,
                    **self._tokens)
        except Exception as error:      # whatever a program of somebody else raises
            raise ChatError(f"the model's chat template cannot put this question: "
                            f"{shown(error)}; {REMEDY}") from error


def tokens_with_a_role(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the names of the tokens with a role, such as "bos_token": "<s>"."""
    ids = stated_roles(tokenizer)
    if tokenizer.end is not None:
        ids["eos_token"] = tokenizer.end
    names = {id: name for name, id in tokenizer.ids_of_names().items()}
    return {role: names[id] for role, id in ids.items() if id in names}
