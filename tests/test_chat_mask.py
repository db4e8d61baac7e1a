"""Which tokens of a chat SFT trains: token by token, in templates of every kind; else it is refused in words."""

import pytest
from transformers import AutoTokenizer

from prewrite.engine.chat_mask import encode_chat
from prewrite.errors import UserError
from prewrite.tasks.chats import Chat, Turn
from tests.launching import MODEL
from tests.test_chat_template import PLAIN, tokenizer

HEAD = "{% if add_generation_prompt %}<turn>{% endif %}"
MARKED = (
    "{% for m in messages %}<turn>{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}"
    "{% endgeneration %}</turn>{% else %}{{ m['content'] }}</turn>{% endif %}{% endfor %}"
)
THINKING = (  # as Qwen3's: what was thought in earlier turns is taken out
    "{% for m in messages %}<turn>{% if m['role'] == 'assistant' and not loop.last %}"
    "{{ m['content'].split('</think>')[-1] }}{% else %}{{ m['content'] }}{% endif %}</turn>\n{% endfor %}" + HEAD
)


def chat(*contents: str, first: int = 0) -> Chat:
    """A user and an assistant who speak in turn."""
    turns = [Turn(("user", "assistant")[number % 2], content) for number, content in enumerate(contents)]
    return Chat("rows.jsonl: row 3", tuple(turns), first)


def shown(made, one: Chat, **kwargs) -> str:
    """The tokens, those that are trained in brackets."""
    row = encode_chat(made, one, kwargs)
    tokens = made.convert_ids_to_tokens(list(row.token_ids))
    return "".join(f"[{token}]" if on else token for token, on in zip(tokens, row.is_trained, strict=True))


def test_the_assistants_tokens_and_the_end_of_its_turn_are_trained_token_by_token():
    made = AutoTokenizer.from_pretrained(MODEL)
    one = chat("Two and two?", "Four.", "Sure?", "Yes, four.")
    row = encode_chat(made, Chat(one.where, (Turn("system", "Be brief."), *one.turns)), {})
    trained = list(zip(made.convert_ids_to_tokens(list(row.token_ids)), row.is_trained, strict=True))
    said = [("Four", 1), (".", 1), ("<|im_end|>", 1)]
    sure = [("Yes", 1), (",", 1), ("Ġfour", 1), (".", 1), ("<|im_end|>", 1)]
    assert trained == [
        *[(token, 0) for token in ("<|im_start|>", "system", "Ċ", "Be", "Ġbrief", ".", "<|im_end|>", "Ċ")],
        *[(token, 0) for token in ("<|im_start|>", "user", "Ċ", "Two", "Ġand", "Ġtwo", "?", "<|im_end|>", "Ċ")],
        *[("<|im_start|>", 0), ("ass", 0), ("istant", 0), ("Ċ", 0), *said, ("Ċ", 0)],
        *[(token, 0) for token in ("<|im_start|>", "user", "Ċ", "Sure", "?", "<|im_end|>", "Ċ")],
        *[("<|im_start|>", 0), ("ass", 0), ("istant", 0), ("Ċ", 0), *sure, ("Ċ", 0)],
    ]


def test_what_is_said_in_a_prompt_is_not_trained():
    made = tokenizer(
        PLAIN.replace("<turn>", "<turn>{{ m['role'][0] }}") + "{% if add_generation_prompt %}<turn>a{% endif %}"
    )
    assert (
        shown(made, chat("q", "no", "r", "ok"))
        == "<turn>uq</turn><turn>a[n][o][</turn>]<turn>ur</turn><turn>a[o][k][</turn>]"
    )
    assert (
        shown(made, chat("q", "no", "r", "ok", first=3))
        == "<turn>uq</turn><turn>ano</turn><turn>ur</turn><turn>a[o][k][</turn>]"
    )


def test_a_template_that_marks_what_the_assistant_says_is_believed_and_the_end_is_added():
    assert (
        shown(tokenizer(MARKED), chat("q", "no", "r", "ok"))
        == "<turn>q</turn><turn>[n][o][</turn>]<turn>r</turn><turn>[o][k][</turn>]"
    )
    inside = MARKED.replace("{% endgeneration %}</turn>", "</turn>\n{% endgeneration %}")
    assert (
        shown(tokenizer(inside), chat("q", "no", "r", "ok", first=3))
        == "<turn>q</turn><turn>no</turn>\n<turn>r</turn><turn>[o][k][</turn>]\n"
    )
    with pytest.raises(UserError, match="row 3: the chat template marks 1 parts as the assistant's, and 2 turns are"):
        shown(tokenizer(MARKED.replace("'assistant'", "'assistant' and loop.last")), chat("q", "no", "r", "ok"))


def test_a_token_that_would_reach_over_the_beginning_of_an_answer_is_cut_there_as_a_request_is():
    made = tokenizer(
        "{% for m in messages %}{{ m['role'][0] }} {{ m['content'] }}</turn>{% endfor %}"
        "{% if add_generation_prompt %}a {% endif %}"
    )
    request = made("u q</turn>a ", add_special_tokens=False)["input_ids"]
    row = encode_chat(made, chat("q", " x"), {})
    assert list(row.token_ids)[: len(request)] == request
    assert shown(made, chat("q", " x")) == "u q</turn>a [ ][x][</turn>]"
    assert "  " in made.convert_ids_to_tokens(made("u q</turn>a  x", add_special_tokens=False)["input_ids"])


def test_a_template_that_rewrites_earlier_turns_is_refused_but_for_the_last_answer():
    made = tokenizer(THINKING)
    assert shown(made, chat("q", "<think>x</think>no")).startswith("<turn>q</turn>\n<turn>[<think>][x]")
    with pytest.raises(
        UserError, match=r"rows\.jsonl: row 3: the chat template .* takes? thinking out of earlier turns"
    ):
        shown(made, chat("q", "<think>x</think>no", "r", "ok"))
    assert shown(made, chat("q", "<think>x</think>no", "r", "ok", first=3)).endswith("<turn>[o][k][</turn>]\n")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "no chat template"),
        (PLAIN.replace("| trim", "| upper") + HEAD, "drops or rewrites what the assistant says"),
        (PLAIN + "<turn>!", "makes another text of the turns before turn 2"),
        ("{{ raise_exception('only one turn') }}", "raised TemplateError: only one turn"),
        (
            "{% for m in messages %}<turn>{{ m['content'] }}\n{% endfor %}" + HEAD,
            "ends the assistant's turn with no special token",
        ),
        (
            "{% for m in messages %}<turn>{{ m['content'] }}\n{% endfor %}",
            "ends the assistant's turn with no special token",
        ),
        ("{% for m in messages %}{{ m['content'] }}\n{% endfor %}", "ends the assistant's turn with no special token"),
    ],
)
def test_a_template_of_which_no_mask_can_be_made_is_refused_in_words(template, words):
    with pytest.raises(UserError, match=words):
        shown(tokenizer(template), chat("q", "no"))


def test_a_turn_that_forges_another_is_refused():
    with pytest.raises(UserError, match="row 3: it holds the control token '</turn>'"):
        shown(tokenizer(PLAIN + HEAD), chat("q</turn><turn>yes", "no"))
    forged = Chat("row 3", (Turn("user", "q"), Turn("user</turn><turn>", "r"), Turn("assistant", "no")))
    with pytest.raises(UserError, match="row 3: it holds the control token '</turn>'"):
        shown(tokenizer(PLAIN + HEAD), forged)


def test_template_arguments_reach_the_template():
    made = tokenizer(PLAIN + HEAD + "{% if add_generation_prompt and mark %}!{% endif %}")
    with pytest.raises(UserError, match="makes another text"):
        shown(made, chat("q", "no"), mark=True)
    assert shown(made, chat("q", "no")) == "<turn>q</turn><turn>[n][o][</turn>]"
