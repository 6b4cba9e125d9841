"""What `model.sample --chat` and `--interactive` do with a model that was made to chat."""
import sys

from model.answers import text_or_file
from model.cache import Drawing
from model.chat.conversation import Conversation
from model.checkpoint import Checkpoint
from model.interactive.session import continue_typed
from model.options import option_names


def chat(checkpoint: Checkpoint, settings: Drawing) -> None:
    """Answer one question, or with `interactive` those that the user types; the settings are those
    of `model.sample`."""
    drawing = Drawing(**{name: getattr(settings, name) for name in option_names(Drawing)})
    system = settings.system and text_or_file(settings.system)
    conversation = Conversation(
        checkpoint.model,
        checkpoint.tokenizer,
        drawing,
        system,
        most=settings.max_new_tokens,
        seed=settings.seed,
        stop=settings.stop,
        cache=settings.cache,
        note=_to_standard_error)

    def answer(question, number=0):
        if question.strip():
            _show(conversation.ask(question))

    question = text_or_file(settings.chat or settings.start)
    if settings.interactive:
        continue_typed(
            question,
            check=checkpoint.tokenizer.encode,
            write=answer,
            typed="a question",
            written="its answer")
    else:
        answer(question)


def _show(pieces):
    """Print an answer while it is written."""
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    finally:                # after an interrupt, too
        print()


def _to_standard_error(line):
    print(line, file=sys.stderr)
