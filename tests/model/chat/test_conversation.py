"""A conversation: each answer is the model's own, the cache stays, and a full block is told."""
import pytest

from model import generate
from model.cache import Drawing
from model.chat.conversation import Conversation
from model.chat.template import ChatError
from tests.kit import refusal
from tests.model.chat.chats import CHATML, chat_model, chat_tokenizer

pytestmark = [pytest.mark.needs("gguf"), pytest.mark.late]
LIKELIEST = Drawing(temperature=0)


@pytest.fixture(scope="module")
def model():
    return chat_model()


def conversation(model, notes=None, drawing=LIKELIEST, **settings):
    notes = [] if notes is None else notes
    return Conversation(model, chat_tokenizer(), drawing, note=notes.append, **settings)


def rendered(*contents, system=None):
    """The text of questions and answers in turns."""
    roles = ("user", "assistant") * len(contents)
    texts = [f"[{role}]{content}<|end|>\n" for role, content in zip(roles, contents)]
    first = [] if system is None else [f"[system]{system}<|end|>\n"]
    return "".join(first + texts) + "[assistant]"


def answer_of(talk, question):
    return "".join(talk.ask(question))


def test_ask_continues_the_rendered_conversation_turn_after_turn(model):
    talk = conversation(model, most=8, system="be kind")
    contents = []
    for question in ("the in", "Why?", "And the?"):
        contents.append(question)
        prompt = rendered(*contents, system="be kind")
        answer = answer_of(talk, question)
        assert answer == generate(model, chat_tokenizer(), prompt, 8, 0)[len(prompt):]
        contents.append(answer)
    assert len({*contents[1::2]}) > 1


def test_ask_draws_with_its_seed_and_settings(model):
    warm = Drawing(temperature=1, top_k=9)
    prompt = rendered("the in")
    answers = [answer_of(conversation(model, drawing=warm, seed=seed, most=12), "the in")
               for seed in (3, 4)]
    assert answers == [generate(model, chat_tokenizer(), prompt, 12, 1, 9, seed=seed)[len(prompt):]
                       for seed in (3, 4)]
    assert answers[0] != answers[1]


def test_ask_without_the_cache_gives_the_same(model):
    with_cache, without = (conversation(model, most=8, cache=cache) for cache in (True, False))
    for question in ("the in", "Why?"):
        assert answer_of(with_cache, question) == answer_of(without, question)
    assert with_cache.reader.cache is not None and without.reader.cache is None


def test_ask_reads_only_what_the_cache_has_not(model):
    talk = conversation(model, most=8)
    answer = answer_of(talk, "the in")
    read = []
    draw = talk.reader.cache.draw
    talk.reader.cache.draw = lambda ids, *others: (read.append(ids.shape[1]), draw(ids, *others))[1]
    answer_of(talk, "Why?")
    tokenizer = chat_tokenizer()
    whole = len(tokenizer.encode(rendered("the in", answer, "Why?")))
    before = len(tokenizer.encode(rendered("the in")))
    assert 0 < read[0] < whole - before


def test_ask_ends_at_each_end_of_the_model_and_before_stop(model):
    first = answer_of(conversation(model, most=8), "the in")
    tokenizer = chat_tokenizer()
    last = first[-1]
    talk = conversation(model, most=8)
    talk.tokenizer.more_ends = [int(tokenizer.encode(last)[0])]
    assert answer_of(talk, "the in") == first[:first.index(last)]
    talk = conversation(model, most=8, stop=last)
    assert answer_of(talk, "the in") == first[:first.index(last)]


def test_ask_forgets_the_oldest_questions_when_the_block_is_full(model):
    notes = []
    talk = conversation(model, notes, most=20, system="be kind")
    for _ in range(4):
        answer_of(talk, "the in the in")
    assert "the block of 128 tokens is full, so the oldest question and its answer are forgotten" \
        in notes
    prompt = rendered(*[turn["content"] for turn in talk.turns[:-1]], system="be kind")
    assert len(chat_tokenizer().encode(prompt)) + 20 <= 128
    assert talk.turns[-1]["content"] == generate(model, chat_tokenizer(), prompt, 20,
                                                 0)[len(prompt):]


def test_ask_ends_an_answer_with_the_block_and_says_so(model):
    notes = []
    talk = conversation(model, notes, most=500)
    answer_of(talk, "the in" * 5)
    tokenizer = chat_tokenizer()
    assert notes == ["the block of 128 tokens is full, so the answer ends here"]
    assert len(talk.reader.ids[0]) == talk.reader.n == 128
    assert len(tokenizer.encode(rendered("the in" * 5))) < 128


def test_ask_says_nothing_of_an_answer_that_ends_with_the_last_token_of_the_block(model,
                                                                                  monkeypatch):
    notes = []
    talk = conversation(model, notes)
    monkeypatch.setattr("model.chat.conversation.continue_texts",
                        lambda reader, generators, texts, count, drawing: [["a"]] * count)
    answer = answer_of(talk, "the in")
    assert set(answer) == {"a"} and notes == []


def test_a_question_longer_than_the_block_is_refused_and_forgotten(model):
    talk = conversation(model, most=8)
    first = answer_of(talk, "the in")
    said = refusal(ChatError, lambda: answer_of(talk, "q" * 200))
    assert said.startswith("this question has ") and said.endswith("; ask a shorter one")
    assert [turn["content"] for turn in talk.turns] == ["the in", first]


def test_an_interrupted_answer_stays_in_the_conversation(model):
    talk = conversation(model, most=8)
    pieces = talk.ask("the in")
    begun = next(pieces) + next(pieces)
    pieces.close()
    assert talk.turns[-1] == {"role": "assistant", "content": begun}
    prompt = rendered("the in", begun, "Why?")
    assert answer_of(talk, "Why?") == generate(model, chat_tokenizer(), prompt, 8, 0)[len(prompt):]


def test_the_beginning_of_text_is_the_templates_affair():
    tokenizer = chat_tokenizer()
    assert CHATML == tokenizer.chat_template and tokenizer.around == ([], [])
    talk = conversation(chat_model())
    talk.tokenizer._first, talk.tokenizer.around = [7], ([7], [])
    assert talk.tokenizer.encode("in")[0] == 7
    assert talk._encode([{"role": "user", "content": "in"}])[0] != 7
