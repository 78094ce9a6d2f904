"""One session for each row: what is filled into the prompt, what the value has, and what a failed row does to the others."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import pytest
from pydantic import BaseModel, create_model

import toolloop_jupyter as tl
from toolloop_jupyter import amap
from toolloop_jupyter.core.conversation import Named, tell_text
from toolloop_jupyter.core.events import ArgumentInvalid
from toolloop_jupyter.core.rows.table import RowPrompt, Table
from toolloop_jupyter.teaching import ModelOfRow, ScriptedModel, call, error


def last(messages: list[dict[str, object]]) -> str:
    """What the model was asked or told last."""
    return str(messages[-1]["content"])


def echo() -> ScriptedModel:
    """A model that repeats the last message."""
    return ScriptedModel(last)


class Label(BaseModel):
    label: str
    score: int


def labelling(messages: list[dict[str, object]]) -> Label:
    return Label(label=last(messages).split()[-1], score=len(last(messages)))


# --- rows in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "one"}, {"text": "two"}],
        ({"text": text} for text in ("one", "two")),
        pd.DataFrame({"text": ["one", "two"]}),
    ],
)
async def test_rows_of_each_kind(rows):
    """Dicts, a generator of dicts and a DataFrame are read row by row, and the answers are in the order of the table."""
    found = await amap("Say {{text}}.", rows, model=echo())
    assert [row.answer for row in found] == ["Say one.", "Say two."]
    assert [row.number for row in found] == [0, 1]
    assert found[1].input == {"text": "two"}


@pytest.mark.parametrize("rows", [["a", "b"], pd.Series(["a", "b"], name="letter")])
async def test_texts_are_the_row(rows):
    """A row that is a text is `{{row}}`."""
    found = await amap("Say {{row}}.", rows, model=echo())
    assert [row.answer for row in found] == ["Say a.", "Say b."]


async def test_polars():
    """For a polars DataFrame, the answers come in a polars DataFrame."""
    polars = pytest.importorskip("polars")
    rows = await amap(
        "Rate {{text}}", polars.DataFrame({"text": ["x", "yy"]}), model=ScriptedModel(labelling), output=Label
    )
    assert isinstance(rows.frame, polars.DataFrame)
    assert rows.frame["label"].to_list() == ["x", "yy"]


async def test_names_are_columns_else_variables():
    """A column comes before a variable of the same name. Braces in a cell are not filled in. Other braces stay as typed."""
    variables = {"product": "tea", "text": "no"}
    rows = await amap(
        "{{product}}: {{text}} {{ text }} {{not a name}} {x}",
        [{"text": "{{product}}"}],
        model=echo(),
        variables=variables,
    )
    assert rows[0].answer == "tea: {{product}} {{product}} {{not a name}} {x}"


async def test_values_that_are_no_texts():
    """A number, a list and a column with a blank in its name are written like a tool's result."""
    found = await amap("{{n}} {{of what}}", [{"n": 3, "of what": ["a", None]}], model=echo())
    assert found[0].answer == '3 ["a", null]'


def fail():
    raise ValueError("of the cell")


class Word(str, enum.Enum):
    A = "x"


class Odd:
    def __str__(self):
        raise RuntimeError


def test_cells_are_told_as_values_of_any_prompt():
    """A cell, a variable and a value in a prompt become the same text. An error's traceback has the names that a person knows."""
    try:
        fail()
    except ValueError as error:
        raised = error
    given = [raised, pd.DataFrame({"a": [1]}), "text ", Word.A, {"k": [None]}]
    table = Table([{"value": value} for value in given])
    prompt = RowPrompt("{{value}}|{{other}}", table, {"other": raised}, lambda code: code.upper())
    texts = [tell_text(Named("value", value), lambda code: code.upper()) for value in given]
    assert [prompt.fill(row) for row in table] == [f"{text}|{texts[0]}" for text in texts]
    assert "IN FAIL" in texts[0]


async def test_a_cell_without_a_text_is_an_error_of_its_row():
    """A value whose own code raises an error is not sent. If it is a variable, this is a mistake before the run."""
    rows = await amap("{{a}}", [{"a": Odd()}, {"a": "1"}], model=echo())
    assert [row.answer for row in rows] == [None, "1"]
    assert "{{a}} cannot be filled in: str(a) raised RuntimeError" in rows[0].error
    with pytest.raises(ArgumentInvalid, match=r"\{\{b\}\} cannot be filled in"):
        RowPrompt("{{a}} {{b}}", Table([{"a": 1}]), {"b": Odd()})


@pytest.mark.parametrize(
    ("prompt", "rows", "words"),
    [
        (
            "{{txt}}",
            [{"text": "a"}],
            r"\{\{txt\}\} is neither a column nor a variable; did you mean \{\{text\}\}\?",
        ),
        ("{{text}}", [{"text": "a"}, {"other": "b"}], "neither a column nor a variable.* in row 1"),
        ("Hello", [{"text": "a"}], r"names no column.*into it: \{\{text\}\}"),
        ("{{text}}", "text", "rows must be a DataFrame, or dicts or texts in a list, got str"),
        ("{{text}}", 3, "rows must be"),
        ("{{row}}", ["a", 3], "row 1 is a value of type int"),
        ("{{nothing}}", (row for row in [{"text": "a"}]), "neither"),
    ],
)
async def test_mistakes_before_anything_goes_out(prompt, rows, words):
    """A name that is neither a column nor a variable, and rows that are not rows, raise an error before the model is called."""
    model = echo()
    with pytest.raises((ValueError, TypeError), match=words):
        await amap(prompt, rows, model=model)
    assert model.requests == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency must be >= 1"),
        ({"max_cost": 0}, "max_cost must be > 0"),
        ({"on_error": "raise"}, 'on_error must be "continue" or "stop"'),
        ({"permissions": "ask"}, "permissions='ask' needs on_approval="),
    ],
)
def test_options_that_no_run_can_have(options, words):
    """Wrong options raise an error when the run is made."""
    with pytest.raises(ValueError, match=words):
        amap("{{row}}", ["a"], model=echo(), **options)


async def test_an_iterable_is_read_as_rows_are_needed():
    """With two rows at the same time, never more than three rows are read ahead of the rows that have ended."""
    ended, ahead = 0, []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(20):
            ahead.append(number - ended)
            yield {"n": number}

    def answer(messages: list[dict[str, object]]) -> str:
        nonlocal ended
        ended += 1
        return last(messages)

    answers = await amap("{{n}}", rows(), model=ScriptedModel(answer), concurrency=2)
    assert len(answers) == 20
    assert max(ahead) <= 3


async def test_a_generator_that_raises():
    """If a generator raises an error, the value has the rows before it, and the message has the error."""

    def rows() -> Iterator[str]:
        yield "a"
        raise OSError("the file is gone")

    ended = await amap("{{row}}", rows(), model=echo())
    assert [row.answer for row in ended] == ["a"]
    assert ended.message == "row 1 could not be read: OSError: the file is gone"


async def test_no_rows():
    """A table without rows gives an empty value and an empty frame."""
    found = await amap("{{row}}", [], model=echo())
    assert (len(found), found.cost, len(found.frame)) == (0, 0, 0)


# --- the value ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([7, 7, 9]),
        pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["group", "n"]),
        pd.date_range("2026-01-01", periods=3),
    ],
)
async def test_the_index_is_kept(index):
    """The frame has the index of the rows: a duplicate one, one of several levels, dates."""
    given = pd.DataFrame({"text": ["x", "yy", "zzz"]}, index=index)
    frame = (await amap("Rate {{text}}", given, model=ScriptedModel(labelling), output=Label)).frame
    assert frame.index.equals(index)
    assert list(frame.columns) == ["label", "score", "stop_reason", "error", "cost", "tokens", "seconds"]
    assert list(frame["label"]) == ["x", "yy", "zzz"]
    assert list(frame["score"]) == [6, 7, 8]


async def test_the_index_is_the_one_at_the_start():
    """If the table is sorted or cut after the run, each row of the frame still has its own index."""
    table = pd.DataFrame({"text": list("cab")}, index=[10, 20, 30])
    rows = await amap("{{text}}", table, model=echo())
    table.index = [30, 20, 10]
    assert rows.frame["answer"].to_dict() == {10: "c", 20: "a", 30: "b"}


async def test_a_doubled_column():
    """If two columns have the same name, this name in a prompt is a mistake. A prompt without this name works."""
    table = pd.DataFrame([["a", "b", "c"]], columns=["text", "text", "other"])
    with pytest.raises(ValueError, match=r"\{\{text\}\} is the name of more than one column"):
        await amap("{{text}}", table, model=echo())
    assert (await amap("{{other}}", table, model=echo()))[0].answer == "c"


async def test_fields_with_our_names():
    """If fields have the names of our columns, our columns get other names."""
    Odd = create_model("Odd", error=(str, ...), row_error=(str, ...))
    rows = await amap("{{row}}", ["a"], model=ScriptedModel(Odd(error="x", row_error="y")), output=Odd)
    assert rows.frame[["error", "row_error", "row_row_error"]].to_dict("records") == [
        {"error": "x", "row_error": "y", "row_row_error": None}
    ]


async def test_columns_of_other_answers():
    """Texts and numbers are in the column `answer`. Fields with the names of our columns keep their names."""

    @dataclass
    class Cost:
        cost: float
        currency: str

    assert list((await amap("{{row}}", ["a"], model=echo())).frame["answer"]) == ["a"]
    numbers = await amap("{{row}}", ["3"], model=echo(), output=int)
    assert list(numbers.frame["answer"]) == [3]
    costs = await amap("{{row}}", ["a"], model=ScriptedModel({"cost": 2.5, "currency": "EUR"}), output=Cost)
    assert list(costs.frame.columns) == [
        "cost",
        "currency",
        "stop_reason",
        "error",
        "row_cost",
        "tokens",
        "seconds",
    ]


async def test_a_failing_row_is_a_value():
    """If a row fails, the others go on. The value and the frame have the row's error and stop reason, at its place."""
    rows = await amap(
        "{{row}}",
        ["a", "b", "c"],
        model=lambda row: ScriptedModel(error("no such thing", 400) if row["row"] == "b" else row["row"]),
    )
    assert [row.number for row in rows.failed] == [1]
    assert "no such thing" in rows.failed[0].error
    assert rows.failed[0].answer is None
    assert list(rows.frame["stop_reason"]) == ["done", "runtime_error", "done"]
    assert list(rows.frame["answer"].isna()) == [False, True, False]
    assert rows.progress.done == 2
    assert rows.progress.failed == 1


async def test_an_answer_that_does_not_fit_is_an_error_of_its_row():
    """If an answer does not fit `output`, this is the row's error, and the row has its transcript."""
    rows = await amap("{{row}}", ["a"], model=ScriptedModel(*["no JSON"] * 3), output=Label)
    assert "did not match Label" in rows[0].error
    assert rows[0].result.text == "no JSON"


async def test_a_row_without_a_column_is_an_error_of_its_row():
    """If an iterable's row lacks a column, which cannot be known before the run, this row fails."""
    rows = await amap("{{a}}", iter([{"a": "1"}, {"b": "2"}, {"a": "3"}]), model=echo())
    assert [row.error for row in rows] == [None, "the row has no 'a'", None]


async def test_one_row_whole():
    """`rows[n]` has the row's transcript: calls, results, text. If row `n` has not ended, the error says so."""

    def lookup(word: str) -> str:
        """Look a word up."""
        return f"{word}!"

    rows = await amap(
        "Look up {{row}}", ["a", "b"], model=ScriptedModel(call("lookup", word="x"), last), tools=[lookup]
    )
    assert [result.output for result in rows[1].result.tool_results] == ["x!"]
    assert (rows[1].result.prompt, rows[1].answer) == ("Look up b", "x!")
    assert rows[-1] is rows[1]
    with pytest.raises(IndexError, match="row 2 has not ended"):
        _ = rows[2]


async def test_usage_and_cost():
    """Usage and cost are the sums of all rows."""
    rows = await amap("{{row}}", ["a", "b"], model=echo())
    assert rows.usage.calls == 2
    assert rows.cost == 0.0
    assert rows.usage.total_tokens == sum(row.tokens for row in rows) > 0


async def test_order_is_the_tables():
    """Rows that end in another order are in the order of the table."""
    order: list[int] = []

    @tl.tool(parallel=True)
    async def wait_for(number: int) -> str:
        """Wait for the end of another row."""
        while number not in run.rows.ended:  # noqa: ASYNC110 - as a person looks
            await asyncio.sleep(0.005)
        order.append(number)
        return "ended"

    def model(row: dict[str, int]) -> ScriptedModel:
        return (
            ScriptedModel("x") if row["n"] == 2 else ScriptedModel(call("wait_for", number=row["n"] + 1), "x")
        )

    config = tl.core.session.build_config(model=tl.teaching.ModelOfRow(model), tools=[wait_for])
    run = tl.core.rows.RowsRun(config, "{{n}}", [{"n": n} for n in range(3)])
    rows = await run.collect()
    assert order == [2, 1]
    assert [row.number for row in rows.progress.last] == [2, 1, 0]
    assert [row.number for row in rows] == [0, 1, 2]


async def test_not_streamed_unless_asked(call):
    """A row's answer is not streamed, unless `completion_kwargs={"stream": True}` asks for it."""
    from support.servers import answer

    for wanted, options in ((False, {}), (True, {"completion_kwargs": {"stream": True}})):
        more, server = call(answer("Hi"))
        await amap("{{row}}", ["a"], **more, options=tl.ToolLoopOptions(**options))
        assert bool(server.requests[0].body.get("stream")) is wanted


async def test_at_most_so_many_at_once():
    """Never more rows than `concurrency` call the model at the same time."""
    now, most = 0, 0

    async def wait(n: int) -> int:
        """Wait."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return n

    await amap(
        "{{row}}",
        list("abcdefgh"),
        model=ScriptedModel(call("wait", n=1), "x"),
        tools=[tl.tool(parallel=True)(wait)],
        concurrency=3,
    )
    assert most == 3


async def test_on_error_stop():
    """With on_error="stop", no other row begins after a row has failed."""
    model = ScriptedModel(error("bad", 400))
    rows = await amap("{{row}}", list("abcdef"), model=model, concurrency=1, on_error="stop")
    assert len(rows) == 1
    assert rows.message.startswith("stopped, because row 0 failed: ")


def test_map_works_in_sync_code():
    """`map` returns the Rows."""
    assert [row.answer for row in tl.map("{{row}}", ["a"], model=echo())] == ["a"]


def test_pandas_is_not_imported():
    """A run over dicts imports neither pandas nor polars."""
    code = (
        "import sys, toolloop_jupyter as tl; from toolloop_jupyter.teaching import ScriptedModel\n"
        "tl.map('{{row}}', ['a'], model=ScriptedModel('b')); print({'pandas', 'polars', 'litellm'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout == "set()\n"


async def test_a_script_for_each_row():
    """A ScriptedModel begins its script again with each row. It has the requests of all rows."""
    model = ScriptedModel("first", name="lesson")
    rows = await amap("{{row}}", ["a", "b", "c"], model=model)
    assert [row.answer for row in rows] == ["first"] * 3
    assert len(model.requests) == 3
    assert {row.result.model for row in rows} == {"toolloop/lesson"}


class NoClass:
    """A value that raises an error when its class is read."""

    @property
    def __class__(self):
        raise RuntimeError


async def test_a_cell_with_code_of_its_own():
    """If a cell's value raises an error when it is read, the other rows go on."""
    rows = await amap(
        "Say {{row}}", [{"row": 1}, {"row": NoClass()}, {"row": 2}], model=ScriptedModel("Yes.")
    )
    assert [row.answer for row in rows] == ["Yes."] * 3


async def test_a_model_that_cannot_be_made_is_an_error_of_its_row():
    """If a function in `model=` raises an error or returns something else than a model, only this row fails."""
    made = {
        "a": lambda: ScriptedModel("A."),
        "b": lambda: 1 / 0,
        "c": lambda: 5,
        "d": lambda: ScriptedModel("D."),
    }
    rows = await amap("{{row}}", list(made), model=ModelOfRow(lambda row: made[row["row"]]()))
    assert [row.answer for row in rows] == ["A.", None, None, "D."]
    assert "division by zero" in rows[1].error
    assert "not a ScriptedModel" in rows[2].error


async def test_a_fallbacks_script_begins_with_each_row():
    """The script of a `fallback` model begins again with each row, too."""
    first = ScriptedModel(error("out of order", 400), repeat_last=True)
    options = tl.ToolLoopOptions(fallback=[ScriptedModel("Second.")])
    rows = await amap("{{row}}", ["a", "b"], model=first, options=options, concurrency=1)
    assert [row.answer for row in rows] == ["Second."] * 2
