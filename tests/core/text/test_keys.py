"""Keys are removed from texts: a key is found in every form in which it may be written, and nothing else is removed."""

from __future__ import annotations

import base64
import itertools
import json
import sys
import threading
import time
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from toolloop_jupyter.core.text import keys as keys_module
from toolloop_jupyter.core.text.keys import KeyFilter, hide, hide_in, remember
from toolloop_jupyter.teaching import tape

KEY = "opaque+Q7/x9.Zp3wVtAB"


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Exactly one key is known, whatever other tests have used."""
    monkeypatch.setattr(keys_module, "_known", {})
    remember([KEY])


def b64(text):
    return base64.b64encode(text.encode()).decode()


WRITINGS = {
    "plain": KEY,
    "JSON, slash": KEY.replace("/", "\\/"),
    "JSON, unicode": KEY.replace("+", "\\u002B"),
    "JSON in JSON": json.dumps(json.dumps({"k": KEY.replace("/", "\\/")})),
    "in an address": quote(KEY, safe=""),
    "in an address, lower case": quote(KEY, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
    "in an address, twice": quote(quote(KEY, safe=""), safe=""),
    "HTML, decimal": KEY.replace("+", "&#43;"),
    "HTML, hexadecimal": KEY.replace("/", "&#x2F;"),
    "HTML, twice": KEY.replace("+", "&amp;#43;"),
    "in tags": f"<b>{KEY[:6]}</b><span class='x'>{KEY[6:]}</span>",
    "between brackets": f"<{KEY}>",
    "cut off": KEY[:14] + "...",
    "cut off early": KEY[:12] + "\u2026",
}


@pytest.mark.parametrize("text", WRITINGS.values(), ids=WRITINGS)
def test_each_writing_is_found(text):
    """The key is removed in this form, and the text around it stays."""
    shown = hide(f"before {text} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "[key]" in shown
    for part in (KEY[:6], KEY[-6:], "Q7", "x9"):
        assert part not in shown


@pytest.mark.parametrize("before", ["", "u:", "me:", "user:", "user1:"])
def test_base64_is_found_wherever_it_begins(before):
    """HTTP's basic authentication has a user name before the key. This changes the characters of the key in base64."""
    shown = hide(f"Authorization: Basic {b64(before + KEY)}")
    assert "[key]" in shown
    left = shown.split("Basic ")[1].replace("[key]", "")
    assert len(left) <= len(b64(before)) + 4, "but for the name, and the last character's bits"


@pytest.mark.parametrize(
    "text",
    [
        "opaque glass and an opaque question",
        "https://example.org/opaque?x=1&y=2",
        "Set sk-proj- or litellm- before it.",
        "A plain sentence, 50 % of it in {braces} and \\n escapes &amp; entities.",
    ],
)
def test_nothing_else_is_touched(text):
    """Ordinary text is not changed, even if a known key begins with the same letters."""
    remember(["sk-proj-0123456789abcdef", "litellm-master-key-9", "https://example.org/secret-path"])
    assert hide(text) == text


def test_short_keys_are_no_keys():
    """Local servers have keys such as "EMPTY" and "ollama". These are not hidden, because they are ordinary words."""
    remember(["EMPTY", "ollama", "sk-1234"])
    assert hide("ollama says EMPTY to sk-1234") == "ollama says EMPTY to sk-1234"


@pytest.mark.parametrize(
    ("name", "does"),
    [
        *(
            (name, True)
            for name in ("api_key", "apiKey", "X-Auth", "Authorization", "session_token", "AWS_ACCESS_KEY_ID")
        ),
        *(
            (name, True)
            for name in ("extra_headers", "headers", "DB_PASSWORD", "Set-Cookie", "sig", "vertex_credentials")
        ),
        *(
            (name, False)
            for name in (
                "max_tokens",
                "prompt_cache_key",
                "authors",
                "GIT_AUTHOR_NAME",
                "tokenizer",
                "design",
            )
        ),
    ],
)
def test_one_rule_for_names(name, does):
    """One rule says which names mean a key: names of options, headers, variables, fields of a recording, and parts of an
    address.
    """
    secret = "Ab1Cd2Ef3Gh4"
    assert keys_module.names_key(name) is does
    assert keys_module.holds_key(name, secret) is does
    assert keys_module.holds_key("extra_body", {"safety": [{name: secret}]}) is does
    assert list(keys_module.find_keys(name, secret)) == [secret] * does
    assert tape.list_options({"extra_body": {name: secret}}) == {
        "extra_body": {name: "…" if does else secret}
    }
    assert (secret in keys_module.leave_out_user(f"https://example.org/?{name}={secret}")) is not does


@pytest.mark.parametrize("user", ["u:p@", "u:p@ss@", "u:a@b@c@", "u@"])
def test_a_user_and_a_password_in_an_address(user):
    """Everything before the last `@` is left out, because a password may contain an `@`."""
    assert (
        keys_module.leave_out_user(f"at http://{user}h.example/p and https://{user}h2")
        == "at http://h.example/p and https://h2"
    )


class Tags(HTMLParser):
    """An HTML parser that fails if an element is not closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_stays_whole():
    """Tags inside a key are kept, so the block that shows the text still ends at the same place."""
    html = f"<pre><span>{KEY[:3]}</span><i>{KEY[3:9]}<b>{KEY[9:12]}</b></i>{KEY[12:]}</pre><p>next</p>"
    shown, parser = hide(html), Tags()
    parser.feed(shown)
    assert parser.open == []
    assert KEY[3:9] not in shown
    assert shown.endswith("<p>next</p>")


def test_plain_data_is_copied_without_it():
    """The key is removed at every depth, also from names of fields. Other values do not change."""
    data = {"a": [KEY, 1, None, {"b": f"x {KEY}"}], KEY: True}
    assert hide_in(data) == {"a": ["[key]", 1, None, {"b": "x [key]"}], "[key]": True}
    assert data["a"][0] == KEY
    row = {"pk_customer_id": "sk-proj-0123456789", "password": [1]}
    assert hide_in(row, keys_module.hide_suspected, keys_module.names_key) == {
        "pk_customer_id": "[key]",
        "password": "…",
    }


@pytest.mark.parametrize("text", [KEY, WRITINGS["JSON, unicode"], WRITINGS["HTML, twice"], KEY[:12] + " and"])
@pytest.mark.parametrize("size", [1, 2, 5, 13])
def test_a_key_in_pieces_is_never_printed(text, size):
    """However a text is cut into pieces, no part of the key is printed. Everything else is printed."""
    whole, stream = f"say {text}, an opaque thing", KeyFilter()
    pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
    printed = [stream.add(piece) for piece in pieces]
    text = "".join([*printed, stream.end()])
    assert text.replace("[key] and", "[key]") == "say [key], an opaque thing"
    assert printed[0] or size < 5, "ordinary text is not held back"


def test_text_without_a_key_is_printed_at_once():
    """Text is held back only while it may be the beginning of a key."""
    stream = KeyFilter()
    assert stream.add("Hello wor") == "Hello wor"
    assert stream.add("ld, opa") == "ld, "
    assert stream.add("l is a stone") == "opal is a stone"
    assert stream.end() == ""


PATHS = [
    "/Users/Alice/work/gcp-cred.json",
    "/home/ec2-user/key.pem",
    "/run/secrets/openai_key",
    "~/.config/gcloud/credentials.db",
    "./keys/service-account1",
    "C:\\Users\\Joe\\k1.json",
    "https://tracker.example.org/team-7/board",
]
WORDS = [
    "production",
    "data-science",
    "lm-studio",
    "not-needed",
    "placeholder",
    "anything",
    "Postgres",
    "no_key",
]


@pytest.mark.parametrize("value", PATHS + WORDS)
def test_words_and_places_are_no_keys(value):
    """Some values of variables and headers are words or paths and not keys. These stay in texts, and so does text that begins
    like them.
    """
    remember([value])
    texts = (f"It is {value}, see {value[:-4]} and {value[:14]}_9.", value)
    assert [hide(text) for text in texts] == list(texts)


def test_the_name_of_a_file_is_no_key(tmp_path, monkeypatch):
    """The path of an existing file is not hidden, whatever it looks like."""
    (tmp_path / "Cred 7F2a9").write_text("{}")
    monkeypatch.chdir(tmp_path)
    remember(["Cred 7F2a9", "Cred 7F2b9"])
    assert hide("Cred 7F2a9, Cred 7F2b9") == "Cred 7F2a9, [key]"


@pytest.mark.parametrize(
    "key",
    [
        "/K7MDENG/bPxRfiCYEXAMPLEKEYwJalrXUtnFEMIq",  # in base64, as AWS has them
        "/wJalrXUtnFEMI+K7MDENG+bPxRfiCYEXAMPLEKE",
        "abcdefghijklmnop",  # an app password
        "correct-horse-battery-staple",
        "QwErTyUiOp",
        "hunter22",
        "https://hooks.example.org/services/T1/B1/Xa4Xa4Xa4Xa4Xa4Xa4Xa4Xa4",
        "https://me:opaque9@example.org/v1",
    ],
)
def test_what_only_resembles_them_is_a_key(key):
    """A value with a slash at its beginning, of letters alone, or in an address may still be a key, and is hidden."""
    remember([key])
    assert hide(f"say {key}.") == "say [key]."


@pytest.mark.parametrize("start", ["sk-", "sk-proj-", "sk-ant-api03-", "AIza", "ghp_", "hf_", ""])
def test_a_beginning_needs_characters_of_its_own(start):
    """A key that is cut off is found if twelve of its own characters are there. The beginning that all keys of a provider
    share does not count.
    """
    key = f"{start}Ab1Cd2Ef3Gh4Ij5Kl6Mn7"
    remember([key])
    assert hide(f"Set {start}... or {start}Ab1Cd2Ef3Gh here") == f"Set {start}... or {start}Ab1Cd2Ef3Gh here"
    assert hide(f"got {start}Ab1Cd2Ef3Gh4...") == "got [key]..."
    assert hide(f"got {key}") == "got [key]"


LONG = {
    "blanks": ("o", " "),
    "backslashes": ("", "\\"),
    "line breaks": ("o", "\\n"),
    "tags": ("o", "<b>"),
    "half tags": ("o", "<b"),
    "percents": ("o", "%25"),
    "half entities": ("o", "&amp;#0"),
    "first letters": ("", "o "),
    "starts": ("", "opaque+Q "),
    "addresses": ("", "?a=b&://"),
    "mixtures": ("o", " \\<b>%25&amp;\u200b\\n"),
    "blanks, then backslashes": ("o" + " " * 5000, "\\\\u00"),
}


def seconds(work):
    """Return the shortest of three measured times of this thread, in seconds."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


@pytest.mark.parametrize(
    "rule", ["hide", "KeyFilter", "KeyFilter in pieces", "take_out", "find_unfinished", "leave_out_user"]
)
@pytest.mark.parametrize(("first", "more"), LONG.values(), ids=LONG)
def test_the_work_grows_with_the_text(rule, first, more):
    """Four times the text takes about four times as long. With a quadratic rule, it would take sixteen times as long."""
    pattern = keys_module._make_patterns(KEY)[0]

    def pieces(text):
        stream = KeyFilter()
        return [stream.add(text[n : n + 100]) for n in range(0, len(text), 100)] + [stream.end()]

    work = {
        "hide": hide,
        "KeyFilter": lambda text: KeyFilter().add(text),
        "KeyFilter in pieces": pieces,
        "take_out": pattern.take_out,
        "find_unfinished": pattern.find_unfinished,
        "leave_out_user": keys_module.leave_out_user,
    }[rule]
    small, large = (first + more * (size // len(more)) + " x " + KEY for size in (5_000, 20_000))
    assert seconds(lambda: work(large)) < 10 * seconds(lambda: work(small)) + 0.002


def test_a_key_behind_what_is_long_is_still_found():
    """A key is found even if many tags stand between two of its characters, or many backslashes before it."""
    assert hide(KEY[:9] + "<i></i>" * 30 + KEY[9:]).startswith("[key]")
    assert hide("\\" * 500 + " " + KEY).endswith("[key]")


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("within", ["<b class='x'>", "</i>", "<i></i><b>"])
def test_what_stands_in_a_key_in_pieces(within, size):
    """A text comes in pieces, and a tag inside the key is cut, too: the key is hidden, and the tag stays."""
    whole, stream = f"say {KEY[:9]}{within}{KEY[9:]}, 1 < 2", KeyFilter()
    printed = "".join(stream.add(whole[n : n + size]) for n in range(0, len(whole), size)) + stream.end()
    assert printed.replace(within, "") == "say [key], 1 < 2"


def test_two_bytes_of_one_character():
    """In an address, a letter outside of ASCII becomes two or more escapes, which may be escaped again. The key is still
    found.
    """
    remember(["naïve-Schlüssel-7ß"])
    once = quote("naïve-Schlüssel-7ß", safe="")
    assert hide(f"{once}; {quote(once, safe='')};") == "[key]; [key];"


def test_keys_that_litellm_finds_by_itself_are_known(monkeypatch):
    """Keys in the environment and in LiteLLM's attributes are found, even in an attribute that was added later."""
    litellm = pytest.importorskip("litellm")
    keys = {name: f"made-up-{name}-Zp3wVtAB" for name in ("variable", "openai", "new")}
    assert not set(keys.values()) & set(keys_module.find_environment_keys())
    monkeypatch.setenv("SOME_API_KEY", keys["variable"])
    monkeypatch.setattr(litellm, "openai_key", keys["openai"])
    monkeypatch.setattr(litellm, "some_new_key", keys["new"], raising=False)
    assert set(keys.values()) <= set(keys_module.find_environment_keys())


def test_a_run_may_begin_while_another_prints():
    """A text can be printed while another thread remembers the keys of its run."""
    words = map("".join, itertools.product("abcdefghijkl", repeat=9))
    thread = threading.Thread(target=lambda: [remember([word]) for word in itertools.islice(words, 20_000)])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while thread.is_alive():
            assert KeyFilter().add("Hi.") == "Hi."
    finally:
        sys.setswitchinterval(interval)
        thread.join()
