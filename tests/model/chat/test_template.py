"""Messages become the text that a template writes; a template that cannot is refused in a line."""
import json
import warnings

import pytest

from data.tokenizer import CharTokenizer
from model.chat.template import ChatError, Template
from tests.extras import lacking
from tests.kit import refusal
from tests.model.chat.chats import chat_tokenizer
from tests.token_files import byte_level

if not lacking("interop"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast

pytestmark = pytest.mark.needs("gguf")
HELLO = [{"role": "user", "content": "Hello <b>, 🙂"}]
LONGER = [{"role": "system", "content": " Be brief.\n"}, *HELLO,
          {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
          {"role": "user", "content": "Why?"}]
# Each uses what templates of real models use.
TEMPLATES = {
    "default of the system": """{% for m in messages %}
        {%- if loop.first and m.role != 'system' %}{{ 'system\\nBe kind<|end|>\\n' }}{% endif %}
        {{- m['role'] + '\\n' + m['content'] | trim + '<|end|>\\n' }}
    {%- endfor %}
    {%- if add_generation_prompt %}{{ 'assistant\\n' }}{% endif %}""",
    "roles and date": """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if tools is not none or documents %}{{ raise_exception("no tools") }}{% endif %}
{{ date_string + eos_token + pad_token }}{{ messages[0].content }}""",
    "namespace and split": """{%- set ns = namespace(last=0) %}
{%- for m in messages[::-1] %}
    {%- if m.role == 'user' and m.content is string %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}
    {{- '<' ~ m.role ~ '>' ~ content ~ ns.last }}
    {% if loop.index > 2 %}{% break %}{% endif %}
{%- endfor %}""",
    "generation and json": """{% set x = 1 %}{% for m in messages %}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% set x = 3 %}{{ x }}
{% endgeneration %}{{ x }}{% else %}{{ m | tojson(indent=2) }}{% endif %}
    {% continue %}{{ 'never' }}
{% endfor %}""",
}


@pytest.mark.needs("gguf", "interop")
@pytest.mark.parametrize("messages", [HELLO, LONGER], ids=["one", "several"])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_render_writes_what_transformers_writes(template, messages):
    names = {"bos_token": json.loads(byte_level())["model"]["vocab"]}
    bos = next(name for name, id in names["bos_token"].items() if id == 5)
    library = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level()),
                                      bos_token=bos, eos_token="<|end|>")
    library.chat_template = template.replace("+ pad_token", "")
    theirs = library.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ours = Template(chat_tokenizer(template.replace("+ pad_token", ""))).render(messages)
    assert ours == theirs and len(ours) > 10


def test_render_knows_the_names_of_tokens_with_a_role():
    template = Template(chat_tokenizer("{{ bos_token }}{{ eos_token }}{{ pad_token }}."))
    tokenizer = chat_tokenizer()
    bos = next(name for name, id in tokenizer.ids_of_names().items() if id == 5)
    assert template.render(HELLO) == f"{bos}<|end|>."


@pytest.mark.parametrize("program, why", [
    pytest.param("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
                 "it does not end", id="endless"),
    pytest.param("{{ raise_exception('roles must alternate') }}", "roles must alternate",
                 id="refuses"),
    pytest.param("{{ 'a' * 10**10 }}", "it repeats 1 items 10000000000 times", id="large text"),
    pytest.param("{{ 9 ** 99999 }}", "it takes a power of 99999", id="large power"),
    pytest.param("{{ messages.append(1) }}", "is unsafe", id="changes messages"),
    pytest.param("{{ ''.__class__.__mro__ }}", "unsafe", id="leaves the sandbox"),
    pytest.param("{{ messages[7].content }}", "no element 7", id="undefined"),
    pytest.param("{% include '/etc/passwd' %}", "no loader", id="reads a file"),
    pytest.param("{{ 1 / 0 }}", "division by zero", id="divides")])
def test_render_answers_a_template_that_fails_in_a_line(program, why):
    template = Template(chat_tokenizer(program))
    said = refusal(ChatError, template.render, HELLO)
    assert why in said and "\n" not in said
    assert said.endswith("continue a text by --start instead, written as the model's makers say")


def test_a_template_that_is_no_jinja_is_refused():
    said = refusal(ChatError, Template, chat_tokenizer("{% if %}"))
    assert said.startswith("the model's chat template is not valid Jinja: ")


def test_a_model_without_a_template_cannot_be_asked():
    said = refusal(ChatError, Template, CharTokenizer("abc"))
    assert said == ("this model brought no chat template, so it was not made to answer; continue a "
                    "text by --start")
