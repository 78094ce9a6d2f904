"""All deliberate differences from LiteLLM's Tool Loop (1.110.2): the one list, and the table that is made from it.

    python -m tests.system.parity    prints the table in Markdown

`tests/system/parity/test_differences.py` checks that each difference has a test, and that the scenarios name no other.
`test_theirs.py` checks what LiteLLM does in the cases that no scenario shows.
"""

from __future__ import annotations

from dataclasses import dataclass

SUITE = "tests/system/parity/test_parity.py::test_same_or_better"
HERE = "tests/system/parity/test_differences.py"


@dataclass(frozen=True)
class Difference:
    """One row: what LiteLLM does, what we do, why this is better, and the test that holds it."""

    name: str
    theirs: str
    ours: str
    why: str
    test: str = ""
    """The id of a test; "" if scenarios of the parity suite name this difference."""


DIFFERENCES = [
    Difference(
        "token deltas",
        "one `Text` for each model call, when it has ended",
        '`Text` and `Reasoning` as they arrive; `{"stream": False}` in `completion_kwargs` turns it off',
        "a person reads along, and a cancel keeps what has come",
        f"{HERE}::test_token_deltas",
    ),
    Difference(
        "sync calls in a notebook",
        "`agent(...)` raises where an event loop is running",
        "works in a cell, in a function called there, in a thread and in a script",
        "a notebook's loop is always running",
        f"{HERE}::test_sync_calls_under_a_running_loop",
    ),
    Difference(
        "sandbox",
        "`sandbox=` is required, though the loop's tools are not confined by it",
        "may be left out; it names the folder that is searched for changed files; a path is enough",
        "it cannot be mistaken for protection",
        "tests/test_api.py::test_sandbox_may_be_left_out",
    ),
    Difference(
        "typed arguments",
        "nested models and dataclasses reach the function as dicts",
        "the function gets what its annotations say",
        "`point.x` works",
    ),
    Difference(
        "tool schemas",
        "the whole docstring is the description; `$ref`s, titles, `default: null`",
        "each parameter has its description from the docstring; the docstring's Returns section is left out, its Raises, Notes "
        "and Examples "
        "are shortened; models are written out; no titles",
        "the model knows what each parameter is for, and has nothing to look up in `$defs`",
    ),
    Difference(
        "argument errors",
        "pydantic's or `json`'s text, with links and internal names",
        "one short line for each argument; the model is told that the tool was not run",
        "fewer tokens, and the model repairs the call",
    ),
    Difference(
        "empty arguments",
        "an empty text instead of `{}` is an error",
        "a call without arguments",
        "several providers send it for tools without parameters",
    ),
    Difference(
        "valid arguments in the history",
        "broken arguments are sent back unchanged",
        "the history holds `{}` and the message about it",
        "Anthropic's and Gemini's converters raise on the next call otherwise",
    ),
    Difference(
        "unknown tools",
        "`ValueError: unknown tool`",
        "the same, with the names of the tools",
        "the model finds the right name at once",
    ),
    Difference(
        "names of calls",
        "a name with blanks around it is unknown; a name goes back to the model unchanged",
        "the blanks are removed; a name goes back with `_` for each character that is not a letter, a digit, `_` or `-`; an empty "
        "name goes back as "
        "`unnamed_tool`",
        "the call runs, and OpenAI does not refuse the next request",
    ),
    Difference(
        "nobody is asked in vain",
        "asks a person about unknown tools, too, and about arguments that are invalid",
        "validates first; asks only about a call that can run, with the values that will be used",
        "the approved arguments are those that run",
    ),
    Difference(
        "edited arguments",
        "allow or deny",
        "`approval.allow({...})` runs the call with other arguments, validated again; the model is told",
        "a person corrects a path instead of refusing it",
        f"{HERE}::test_edited_arguments",
    ),
    Difference(
        "per-tool permissions",
        "one mode for all tools",
        "also a mapping of names to modes, a callable, and `@tool(permissions=...)`",
        "reading needs no click where deleting does",
        f"{HERE}::test_permissions_by_tool",
    ),
    Difference(
        "denials",
        "`denied: reason`",
        "the same, with the words that this was a decision and that the call must not be repeated",
        "models take a bare denial for a failure and try again",
    ),
    Difference(
        "repair of structured output",
        "one try, then `OutputInvalid`",
        "the model is told what was wrong and tries again, twice by default (`output_retries`)",
        "most models correct an invalid answer when they are told what was wrong",
    ),
    Difference(
        "JSON in prose",
        "an answer with a word or a fence around its JSON is invalid, in spite of `last_json_object`",
        "the JSON is found",
        "models write so if they are not forced to write only JSON",
    ),
    Difference(
        "valid history",
        "a call that max_turns, a timeout or a cancel cut off stays without a result",
        "at every moment, each call has exactly one result, which says what happened; so has each call's event",
        "OpenAI and Anthropic refuse the next turn otherwise",
    ),
    Difference(
        "unanswered prompts",
        "a prompt whose model call failed stays in the history",
        "it is removed; if the cell runs again, the model gets the prompt once, not twice",
        "two user messages in a row confuse models, and some providers refuse them",
    ),
    Difference(
        "shown retries",
        "retries by `num_retries` are invisible, and there are none once a stream has begun",
        "each one is a `Retry` event; a stream that breaks is tried again, too, and shows no text twice",
        "a person sees why the run waits",
    ),
    Difference(
        "unique call ids",
        "ids stay as they come, even if a provider repeats them",
        "a repeated id gets a new one",
        "Anthropic refuses a second use, and results could go to the wrong call",
    ),
    Difference(
        "reasoning in the history",
        "reasoning, thinking blocks, signatures and provider fields are dropped",
        "they go back untouched",
        "Anthropic and Gemini want them back beside tool calls",
    ),
    Difference(
        "history that comes back",
        "a session cannot begin with a history",
        "`agent_session(history=...)`, `session.save(path)`, `load(path)`",
        "a conversation survives the kernel",
        "tests/test_api.py::test_save_and_load",
    ),
    Difference(
        "unknown cost",
        "0.0",
        '`None`, shown as "cost not reported"',
        "unknown is not free",
    ),
    Difference(
        "cost of cut calls",
        "a call that was cut off (by a cancel, a timeout or a broken connection, also before a retry) counts as 0 calls for $0",
        "it counts as a call, and the cost of its turn is `None`; a request that was refused, or never sent, counts as no call "
        "and costs nothing",
        "the provider bills what it has worked on",
    ),
    Difference(
        "prompt caching",
        "Claude's requests are marked only if `enable_prompt_caching` is set",
        "they are marked if there are tools, or from a session's second turn on; `enable_prompt_caching: False` turns that off; "
        "marks of your own win; `Usage` has the cached tokens",
        "a loop sends the same beginning again with each step",
        "tests/core/models/test_caching.py::test_a_loop_on_claude_is_marked",
    ),
    Difference(
        "fallback models",
        "`fallbacks` in `completion_kwargs` takes a call to another model with the same key, and no event says so",
        "`fallback` of `ToolLoopOptions` (`--fallback MODEL`): a `Retry` event, the model and its cost in `Result.spans`; the "
        "key goes to "
        "models of the same provider only",
        "you see which model has answered, and a key goes only to its own provider",
        "tests/core/loop/test_fallback.py::test_two_servers",
    ),
    Difference(
        "a budget for all runs",
        "none: `litellm.max_budget` is checked, but the costs of chats are not counted",
        "`%toolloop --budget 5` is checked before each model call of the kernel; when it is used up, a run ends with the stop "
        "reason `max_cost`",
        "a loop that does not end is stopped before the bill comes",
        "tests/core/loop/test_spending.py::test_a_budget_ends_a_run_before_the_next_call",
    ),
    Difference(
        "what cannot be rerouted",
        "`base_url`, `custom_llm_provider` and `extra_body` in `completion_kwargs` win over `api_base=`, over the "
        "gateway and over what the loop sends. `fallbacks`, `model_list`, `client` and similar options send a call "
        "to another model or address, and no event says so",
        "`base_url`, `custom_llm_provider` and `extra_body` count only for what nothing else sets: they do not "
        "change `model=`, `api_base=`, the gateway, the messages or the tools. The other options are refused by "
        "name. On a gateway, they are refused in `extra_body`, too. Two things are not covered: settings on the "
        "module `litellm` (`api_base`, `model_alias_map`, an HTTP session), and fields that only one provider "
        "knows (OpenRouter's `models`)",
        "a run stays where its budget, its log and its key are",
    ),
    Difference(
        "retries that cannot help",
        "`num_retries` also repeats a call after status 400 or 401 (not in 1.110.0)",
        "a call is not repeated after 400, 401, 403, 404, 405, 413 and 422",
        "the same request would be refused again",
        f"{HERE}::test_a_refusal_is_not_tried_again",
    ),
    Difference(
        "own headers",
        "`extra_headers` are lost on the way to a gateway",
        "they are sent together with the headers of the run's tags, which win",
        "a proxy in front of the gateway may need them",
    ),
    Difference(
        "the limit of model calls",
        "100 in a turn, then `runtime_error`",
        "`max_model_calls` (100), then the stop reason `max_model_calls`; also `max_cost`",
        "a limit is not a failure",
    ),
    Difference(
        "late cancel",
        "if the reader of a stream is slow, a cancel after the end turns a complete answer into `cancelled`",
        "`done`: the turn had ended",
        "a complete answer is reported as complete",
    ),
    Difference(
        "neighbouring questions",
        "a turn that is stopped before its answer leaves two user messages in a row in each later request",
        "one message with both in the request; the history keeps two",
        "strict chat templates (Mistral's, Gemma's) refuse two",
        "tests/core/conversation/test_history.py::test_after_a_stop_roles_alternate",
    ),
    Difference(
        "empty answers",
        "an empty text and `done`; an assistant message without content stays in the history",
        "`runtime_error`, with the reason if the finish reason tells it; nothing is added to the history",
        "silence looks like success; Anthropic refuses empty messages",
    ),
    Difference(
        "empty prompts",
        "sent",
        "`ValueError` before anything is sent",
        "providers refuse them, or answer at random",
    ),
    Difference(
        "prompts that are lists",
        "parts of a message go out as they are; anything else in a list ends the turn with an internal error",
        "texts, figures, paths of files, parts of a message and other values in a list become OpenAI's parts; a part is an error "
        "before anything is sent if LiteLLM does not know that the model takes it",
        "a notebook is full of figures, tables and files",
        "tests/core/conversation/test_prompt.py::test_the_exact_parts_arrive_at_a_server",
    ),
    Difference(
        "one tool twice",
        "`ValueError`",
        "the same function twice is one tool; two functions of one name are still an error",
        "a list of tools is often joined from several lists",
    ),
    Difference(
        "results as text",
        "`json.dumps(value, default=str)`: quoted texts of dates, sets, models and dataclasses, `\\u00e9`, the name of a "
        "generator; nothing for an empty text",
        "JSON for data (models, dataclasses, sets, a generator's items), plain dates and numbers, unescaped letters; `(no output)`",
        "the model reads values, not Python's notation",
    ),
    Difference(
        "long results",
        "sent whole",
        "the beginning and the end of a text of more than 20,000 characters (`@tool(max_result=...)`), and how much is missing",
        "one result does not fill the model's context",
    ),
    Difference(
        "calls cut off",
        'the last call of an answer that ends with `finish_reason` "length" or "content_filter" is run',
        "it is not run, and the model is told",
        "its arguments may be half of what was meant",
    ),
    Difference(
        "calls sent twice",
        "a call that one message has twice, with the same id, name and arguments, runs twice",
        "it runs once",
        "some servers repeat a call, but its effect should happen once",
        "tests/core/models/test_assembly_property.py::test_calls_of_a_whole_message_are_no_fragments",
    ),
    Difference(
        "several calls in one",
        "arguments with several JSON objects in a row are an error",
        "each object is a call of its own",
        "some servers write parallel calls so, and none is lost",
        "tests/core/models/test_assembly_property.py::test_whole_objects_in_a_row_are_taken_apart",
    ),
    Difference(
        "blank text beside calls",
        "goes back as it came",
        "is left out of the history",
        "Anthropic refuses blank text",
        "tests/core/models/test_assembly_property.py::test_cutting_and_interleaving_change_nothing",
    ),
    Difference(
        "filtered answers",
        "text that a content filter has stopped is an answer, and `done`",
        "`runtime_error` that says so; the text is kept",
        "half an answer must not look like a whole one",
    ),
    Difference(
        "output asked for in words",
        "`response_format` is sent with the tools, even if the provider refuses that, or if the model then calls no tool",
        "such models are asked for the JSON in words, in one more request at the end",
        "tools and `output=` work together with every model",
        "tests/core/loop/test_output.py::test_a_model_that_takes_no_response_format_is_asked_in_words",
    ),
    Difference(
        "only True allows",
        'every value that Python counts as true allows the call, even the text "n" of an `input()`',
        "only `True` allows the call; if `on_approval` returns another value, the model is told",
        "an approval must be deliberate",
    ),
    Difference(
        "denied again and again",
        "every call is asked about",
        "a call that was denied three times in a turn is refused without asking",
        "nobody has to deny the same call for ever",
    ),
    Difference(
        "lambdas",
        "a tool with the name `<lambda>`, which providers refuse",
        '`ToolDefinitionError`; `tool(name="...")(lambda ...)` gives it a name',
        "a person learns what to write before anything starts",
    ),
    Difference(
        "changed files",
        "`.hg`, `.svn` and `.ipynb_checkpoints` are searched",
        "they are skipped, as `.git`, `.venv`, `node_modules` and the caches of Python's tools are",
        "files of a notebook's autosave are not changes of the turn",
    ),
    Difference(
        "closed sessions",
        "`history()` raises `SessionClosed`",
        "it returns the conversation, which a new session can continue (`history=`)",
        "the end of a `with` block does not lose the conversation",
        f"{HERE}::test_the_history_of_a_closed_session",
    ),
    Difference(
        "sandbox objects",
        "`sandbox.docker`; sandboxes run commands and write files",
        "`sandbox.local` is a folder that is only read (`snapshot`, `read`); LiteLLM's own sandboxes are accepted",
        "the loop needs no more, and a container around the notebook's own functions would confine nothing",
        "tests/test_ported.py::test_what_only_other_harnesses_do",
    ),
    Difference(
        "clearer messages",
        "the error's name and text",
        "the same kinds of errors with the value, and what to type or to set next",
        "a person reads what to do",
    ),
]


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| | LiteLLM's Tool Loop | here | why |", "|---|---|---|---|"]
    lines += [
        f"| {cell(row.name)} | {cell(row.theirs)} | {cell(row.ours)} | {cell(row.why)} |"
        for row in DIFFERENCES
    ]
    return "\n".join(lines)
