"""A conversation with a model: questions, answers, and a KV cache that stays from turn to turn."""
from collections.abc import Callable, Iterator

import numpy as np

from data.tokenizer import Tokenizer
from minigrad.random import generator
from model.cache import Drawing
from model.chat.template import ChatError, Message, Template
from model.generation import Reader, Text, continue_texts
from model.transformer import Transformer

Note = Callable[[str], object]      # tells the user a line


class Conversation:
    """Questions and answers so far.

    All of it is rendered anew for each question, as templates may change what was said before; the
    cache reads on from the first id that differs.  When the block is full, the oldest questions are
    forgotten with their answers, and an answer ends at the end of the block.

    Parameters
    ----------
    system : what the model is told before all questions; None for what its template says.
    most : tokens of an answer.
    stop, cache : as in `generation.stream_many`.
    note : is called with a line whenever something is forgotten or cut.

    Raises
    ------
    ChatError : see `Template`.
    """

    def __init__(
            self,
            model: Transformer,
            tokenizer: Tokenizer,
            drawing: Drawing,
            system: str | None = None,
            most: int = 500,
            seed: int | None = None,
            stop: str | None = None,
            cache: bool = True,
            note: Note = print) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.template = Template(tokenizer)
        self.drawing = drawing
        self.most = most
        self.random = generator(seed, "sampling")
        self.stop = stop
        self.cache = cache
        self.note = note
        self.system: list[Message] = []
        if system is not None:
            self.system = [{"role": "system", "content": system}]
        self.turns: list[Message] = []          # a question, its answer, and so on
        self.reader: Reader | None = None

    def ask(self, question: str) -> Iterator[str]:
        """Yield the answer piece by piece.  What was written of it, also before an interrupt, is
        part of the conversation.

        Raises
        ------
        ChatError : the question is longer than the block, or the template refuses it; the
            conversation is as before.
        """
        before = self.turns
        self.turns = before + [{"role": "user", "content": question}]
        try:
            ids = self._fitting_ids()
        except ValueError:
            self.turns = before
            raise
        if self.reader is None:
            self.reader = Reader(self.model, ids[None], self.cache)
        else:
            self.reader.restart(ids[None])
        pieces = []
        try:
            for piece in self._answer(ids):
                pieces.append(piece)
                yield piece
        finally:
            self.turns.append({"role": "assistant", "content": "".join(pieces)})

    def _answer(self, ids):
        """Yield what follows these ids piece by piece."""
        tokenizer = self.tokenizer
        text = Text(
            tokenizer.stream(ids),
            tokenizer.ends,
            self.stop,
            tokenizer.hidden)
        block_size = self.model.config.block_size
        most = min(self.most, block_size - len(ids))
        steps = continue_texts(
            self.reader,
            [self.random],
            [text],
            most,
            self.drawing)
        count = 0
        for piece, in steps:
            yield piece
            count += 1
        ended = count <= most       # by an end; otherwise one more piece is what was held back
        if not ended and most < self.most:
            self.note(f"the block of {block_size:,} tokens is full, so the answer ends here")

    def _fitting_ids(self):
        """Return the ids of the conversation, without the oldest questions if the block would have
        no room for an answer, (T,)."""
        block_size = self.model.config.block_size
        room = min(self.most, block_size // 2)
        forgotten = 0
        while True:
            ids = self._encode(self.system + self.turns)
            if len(ids) + room <= block_size or len(self.turns) == 1:
                break
            self.turns = self.turns[2:]
            forgotten += 1
        if len(ids) >= block_size:
            raise ChatError(f"this question has {len(ids):,} tokens, with what the template puts "
                            f"around it, and the model reads {block_size:,}; ask a shorter one")
        if forgotten == 1:
            self.note(f"the block of {block_size:,} tokens is full, so the oldest question and its "
                      "answer are forgotten")
        elif forgotten:
            self.note(f"the block of {block_size:,} tokens is full, so the {forgotten} oldest "
                      "questions and their answers are forgotten")
        return ids

    def _encode(self, messages) -> np.ndarray:
        """Return the ids of messages, (T,).  The template itself writes a beginning-of-text token,
        where a model wants one."""
        text = self.template.render(messages)
        first, _ = self.tokenizer.around
        return self.tokenizer.encode(text)[len(first):]
