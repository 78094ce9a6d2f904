"""Results of tools as text for the model."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import gc
import json
import pathlib
import time
import uuid

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, SecretStr, field_serializer

from toolloop_jupyter.core.events import Result, Usage
from toolloop_jupyter.core.results.text import LIMIT, cut, describe


def text(value, limit=None):
    """The text of a value, which fits the limit and can be sent."""
    described = describe(value, limit)
    assert isinstance(described.text, str)
    assert described.text.strip()
    assert len(described.text) <= (limit or LIMIT)
    assert described.full_length >= len(described.text)
    described.text.encode("utf-8")
    return described.text


class Color(enum.Enum):
    RED = "red"
    BOTH = (1, 2)


@dataclasses.dataclass
class Edit:
    path: str
    lines: set
    secret: str = dataclasses.field(default="s3", repr=False)


class User(BaseModel):
    name: str
    key: SecretStr
    score: float = 0.5


class Fails(BaseModel):
    a: int

    @field_serializer("a")
    def fail(self, value):
        raise RuntimeError


class Silent:
    """An object whose texts are empty."""


class Speaking:
    def __repr__(self):
        return "<Speaking of 3 at 0x7f00deadbeef>"


class Markdown:
    def _repr_markdown_(self):
        return "**bold**"


class Html:
    def _repr_html_(self):
        return "<style>p {color: red}</style><p>a &amp; b</p><script>x()</script>"


class OnlyTags:
    """An object whose only form is HTML without words."""

    def _repr_html_(self):
        return '<img src="https://example.org/a.png"/>'


class Svg:
    def _repr_svg_(self):
        return "<svg><text>5</text></svg>"


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


class Hostile:
    def __getattr__(self, name):
        return lambda *args: "anything"


class Lying(list):
    def __iter__(self):
        raise RuntimeError("no items")


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - the old kind is tested

ROWS = [
    (None, "null"),
    ("", "(no output)"),
    (" \n", "(only whitespace: ' \\n')"),
    ("text\n", "text\n"),
    ("[1]", "[1]"),
    (True, "true"),
    (3, "3"),
    (1.5, "1.5"),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
    (10**5000, "an integer of 16,610 bits"),
    (1 + 2j, "(1+2j)"),
    ([], "[]"),
    ((), "[]"),
    ({}, "{}"),
    (set(), "[]"),
    ([1, "a", None, float("nan")], '[1, "a", null, "NaN"]'),
    ({"k": [1.5]}, '{"k": [1.5]}'),
    ({"ä": "ö"}, '{"ä": "ö"}'),
    ({(1, 2): 1, None: 2, 3: 4, Color.RED: 5}, '{"[1, 2]": 1, "null": 2, "3": 4, "red": 5}'),
    ({3, 1, 2}, "[1, 2, 3]"),
    ({"b", "a", 1}, '[1, "a", "b"]'),
    (frozenset({(2, 1), (1, 2)}), "[[1, 2], [2, 1]]"),
    (Pair(1, [2]), '{"a": 1, "b": [2]}'),
    (collections.Counter("aab"), '{"a": 2, "b": 1}'),
    (collections.deque([1]), "[1]"),
    ({"a": 1}.keys(), '["a"]'),
    (range(3), "range(0, 3)"),
    (b"", "0 bytes"),
    (b"abc\n", "4 bytes, as UTF-8 text:\nabc\n"),
    (b"\xff\x00", "2 bytes: ff 00"),
    (bytearray(b"ab"), "2 bytes, as UTF-8 text:\nab"),
    (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03",
        "PNG image of 2 × 3 pixels, 24 bytes",
    ),
    (dt.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.time(3, 4), "03:04:00"),
    (dt.timedelta(hours=1), "PT1H"),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (decimal.Decimal("0.10"), "0.10"),
    (Color.RED, "red"),
    (Color.BOTH, "Color.BOTH"),
    (Edit("p", {2, 1}), '{"path": "p", "lines": [1, 2]}'),
    (User(name="n", key="s3"), '{"name": "n", "key": "**********", "score": 0.5}'),
    (Fails(a=1), '{"a": 1}'),
    (ValueError("bad"), "ValueError: bad"),
    (ValueError(), "ValueError"),
    (Silent(), "<tests.Silent object, without a text form>"),
    (Speaking(), "<Speaking of 3>"),
    (Markdown(), "**bold**"),
    (OnlyTags(), "<tests.OnlyTags object, without a text form>"),
    (Svg(), "<svg><text>5</text></svg>"),
    (Html(), "a & b"),
    (Broken(), "<tests.Broken without a text form: RuntimeError>"),
    ([1, Broken()], '[1, "<tests.Broken without a text form: RuntimeError>"]'),
    (Hostile(), "<tests.Hostile object, without a text form>"),
    (Lying([1]), "<tests.Lying without a text form: RuntimeError>"),
    ((i for i in [1]), "<generator, an iterator whose items were not read>"),
    (iter([1]), "<list_iterator, an iterator whose items were not read>"),
    (len, "<built-in function len>"),
    (int, "<class 'int'>"),
    ("\udcff", "\\udcff"),
    (np.int64(3), "3"),
    (np.float32(0.1), "0.1"),
    (np.float64("nan"), "NaN"),
    (np.bool_(True), "true"),
    (np.str_("a"), "a"),
    (np.datetime64("2026-01-02"), "2026-01-02"),
    ({"k": np.float32(1.5)}, '{"k": 1.5}'),
    (np.array(3), "3"),
    (np.array([]), "array of shape (0,), dtype float64:\n[]"),
    (np.array([[1, 2], [3, 4]]), "array of shape (2, 2), dtype int64:\n[[1, 2],\n [3, 4]]"),
    (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
    (pd.NaT, "null"),
    ([pd.NA, pd.NaT], "[null, null]"),
    (
        pd.DataFrame({"a": [1, None]}),
        "DataFrame: 2 rows × 1 columns\ncolumns: a (float64, 1 missing)\nas CSV:\n,a\n0,1.0\n1,",
    ),
    (pd.DataFrame(), 'DataFrame: 0 rows × 0 columns\ncolumns: none\nas CSV:\n""'),
    (pd.Series([1, 2], name="s"), "Series: 2 rows × 1 columns\ncolumns: s (int64)\nas CSV:\n,s\n0,1\n1,2"),
    (pd.Index([1, 2]), "Index: 2 rows × 1 columns\ncolumns: 0 (int64)\nas CSV:\n,0\n0,1\n1,2"),
    (
        {"t": pd.DataFrame({"a": [1]})},
        '{"t": "DataFrame: 1 rows × 1 columns\\ncolumns: a (int64)\\nas CSV:\\n,a\\n0,1"}',
    ),
]


@pytest.mark.parametrize(
    ("value", "expected"), ROWS, ids=[f"{n}-{type(row[0]).__name__}" for n, row in enumerate(ROWS)]
)
def test_text(value, expected):
    """Each kind of value has a stable, useful text (C66, C67, C69)."""
    assert text(value) == expected.replace("<tests.", f"<{__name__}.")


def test_cycles_end():
    """A structure that contains itself ends with a note."""
    loop = [1]
    loop.append(loop)
    ring = {"a": {}}
    ring["a"]["up"] = ring
    assert text(loop) == '[1, "<the same list again>"]'
    assert text(ring) == '{"a": {"up": "<the same dict again>"}}'


def test_one_object_twice_is_no_cycle():
    """If a list contains an object twice, the object is written twice."""
    inner = [1]
    assert text([inner, inner]) == "[[1], [1]]"


def test_deep_nesting_ends():
    """At a depth of fifty levels, a note says that there is more."""
    deep = []
    for _ in range(50_000):
        deep = [deep]
    assert "<list, nested deeper>" in text(deep)
    while deep:  # the levels are freed one by one: freeing the whole object would recurse as deeply
        deep = deep.pop()
    gc.collect()


def test_structures_are_strict_json():
    """A list or an object becomes strict JSON, whatever it contains."""
    mixed = {
        "nan": float("nan"),
        "set": {1},
        "at": dt.date(2026, 1, 2),
        "frame": pd.DataFrame({"a": [None]}),
        "o": Silent(),
    }
    json.loads(text(mixed), parse_constant=lambda name: pytest.fail(name))


def test_the_same_text_in_every_run():
    """Memory addresses are left out, because they change with each run."""
    assert "0x" not in text([object(), Silent(), Speaking(), lambda: 1, Silent().__init__])


class TestCut:
    def test_keeps_the_beginning_and_the_end(self):
        """A note in the middle says how much is left out (C70)."""
        value = "begin" + "x" * 5_000_000 + "end"
        described = describe(value)
        assert described.full_length == 5_000_008
        assert described.text.startswith("begin")
        assert described.text.endswith("end")
        assert (
            "[… 5,000,008 characters, of which about 4,980,008 are left out here; ask for a smaller part"
            in described.text
        )
        assert len(described.text) <= LIMIT

    def test_at_line_ends(self):
        """A text is cut at the end of a line if there is one near the cut."""
        value = "\n".join(f"line {n:05}" for n in range(5_000))
        begin, end = text(value).split("[…")[0], text(value).split("…]\n")[1]
        assert all(len(line) == 10 for line in begin.strip().splitlines())
        assert all(len(line) == 10 for line in end.splitlines())

    def test_lists_show_their_own_end(self):
        """Of a long list, the text has the first and last items and their number."""
        shown = text(list(range(3_000_000)))
        assert shown.startswith("[0, 1, 2")
        assert shown.endswith("2999998, 2999999]")
        assert "a list of 3,000,000 items" in shown

    @pytest.mark.parametrize("limit", [1, 2, 30, 150, 200, 500])
    def test_any_limit(self, limit):
        """No text exceeds its limit. The note counts, too."""
        for value in ("x" * 10_000, list(range(5_000)), pd.DataFrame({"a": range(1_000)}), b"\xff" * 1_000):
            assert len(text(value, limit)) <= limit

    def test_nothing_is_cut_at_the_limit(self):
        """A text that is exactly as long as the limit is not cut."""
        assert cut("x" * 10, 10) == "x" * 10

    @pytest.mark.parametrize(
        "value",
        [
            "x" * 5_000_000,
            list(range(3_000_000)),
            {n: str(n) for n in range(300_000)},
            set(range(300_000)),
            [list(range(1_000))] * 10_000,
            pd.DataFrame({"a": range(1_000_000)}),
            np.zeros((1_000, 1_000)),
        ],
        ids=["text", "list", "dict", "set", "lists", "frame", "array"],
    )
    def test_large_values_are_quick(self, value):
        """Only what may fit is read, so each value takes far less than a second."""
        began = time.thread_time()
        described = describe(value)
        assert time.thread_time() - began < 2
        assert described.full_length > len(described.text)


class TestTables:
    def test_a_large_frame(self):
        """The text has the shape, the columns with types, the first rows, and how to get the other rows."""
        frame = pd.DataFrame({"city": ["Oslo"] * 1_000, "n": range(1_000)})
        lines = text(frame).splitlines()
        assert lines[0] == "DataFrame: 1,000 rows × 2 columns"
        assert lines[1].startswith("columns: city (")
        assert lines[2] == "first 10 of 1,000 rows, as CSV:"
        assert lines[4] == "0,Oslo,0"
        assert lines[13] == "9,Oslo,9"
        assert lines[14].startswith("To see other rows or columns, ask for them")

    def test_a_wide_frame(self):
        """The first forty columns are named. A number says how many more there are."""
        frame = pd.DataFrame([range(1_000)])
        shown = text(frame)
        assert "39 (int64) and 960 more" in shown
        assert len(shown) < 2_000

    def test_long_cells(self):
        """The middle is cut, and a note says how much."""
        assert "characters, of which about" in text(pd.DataFrame({"text": ["x" * 3_000] * 20}))
        assert len(text(pd.DataFrame({"text": ["x" * 300_000] * 20}))) <= LIMIT

    def test_a_large_array(self):
        """The text has the shape, the type, the number of values that are not finite, and the corners."""
        shown = text(np.array([0.0, np.nan] * 5_000))
        assert shown.startswith("array of shape (10000,), dtype float64, 5,000 not finite:\n[")
        assert "Of 10,000 values, only the corners are shown" in shown
        assert "ask for a smaller part" in shown

    def test_odd_frames(self):
        """Repeated and nested column names, objects in cells, and empty rows are described."""
        for frame in (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            pd.DataFrame({("a", "b"): [1], ("a", "c"): [2]}),
            pd.DataFrame({"o": [Broken, {"a": 1}, [2]]}),
            pd.DataFrame(index=range(3)),
            pd.DataFrame({"c": pd.Categorical(["x"]), "t": pd.to_datetime(["2026-01-02"])}),
        ):
            assert text(frame).startswith("DataFrame: ")

    def test_missing_values_are_counted(self):
        """Missing values are counted for each column."""
        frame = pd.DataFrame({"a": [1.0, None, None] * 100, "b": ["x", "y", None] * 100, "c": range(300)})
        assert "columns: a (float64, 200 missing), b (" in text(frame)
        assert ", 100 missing), c (int64)\nfirst 10 of 300 rows" in text(frame)

    def test_cells_that_cannot_be_written(self):
        """If a cell raises an error, the text names the error."""
        assert text(pd.DataFrame({"o": [Broken()]})).endswith("DataFrame without a text form: RuntimeError>")

    def test_polars(self):
        """Tables of polars are described as those of pandas. Values without a CSV form are written by polars' own `repr`."""
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({"a": [1, None, 3] * 30, "b": ["x"] * 90})
        lines = text(frame).splitlines()
        assert lines[:4] == [
            "DataFrame: 90 rows × 2 columns",
            "columns: a (Int64, 30 missing), b (String)",
            "first 10 of 90 rows, as CSV:",
            "a,b",
        ]
        assert "columns: q (Int64)" in text(polars.Series("q", [1]))
        assert "as text:\nshape: (1, 1)" in text(polars.DataFrame({"n": [[1, 2]]}))


class TestPictures:
    def test_a_figure(self):
        """A figure is described in words."""
        figure_module = pytest.importorskip("matplotlib.figure")
        figure = figure_module.Figure()
        figure.suptitle("Both")
        axes = figure.subplots()
        axes.plot([1, 2, 3], [1, 4, 9], label="squares")
        axes.bar([1, 2], [3, 4])
        axes.set(title="Growth", xlabel="year", ylabel="EUR", xlim=(0, 4), ylim=(0, 10))
        first, second = text(figure).splitlines()
        assert first == "matplotlib figure 'Both', 640 × 480 pixels, with 1 axes"
        assert second == (
            "- <Axes: title={'center': 'Growth'}, xlabel='year', ylabel='EUR'>; x from 0 to 4; y from 0 to 10; "
            "Line2D(squares); 2 patches (bars, areas)"
        )
        assert text(axes).startswith("matplotlib axes: <Axes: title={'center': 'Growth'}")
        assert text(list(axes.lines)) == '["Line2D(squares)"]'

    def test_an_image(self):
        """An image is described by its size and mode."""
        image = pytest.importorskip("PIL.Image")
        assert text(image.new("RGB", (3, 4))) == "image, 3 × 4 pixels, mode RGB"


def test_a_run_is_told_as_its_answer() -> None:
    """For a Result, the model gets the answer. A class of a person may choose its own text in the same way."""

    class Ours:
        def _repr_model_(self) -> str:
            return "in short"

    result = Result("The answer.", None, [], [], Usage(), 0.0, "done", "s")
    assert describe(result).text == "The answer."
    assert describe([result, Ours()]).text == '["The answer.", "in short"]'


def test_an_error_that_was_raised_is_told_with_its_traceback() -> None:
    """An error that was raised has a traceback of the person's frames. Any other error has only its message."""
    try:
        json.loads("{")
    except ValueError as error:
        described = describe(error, name_code=lambda text: text.replace(__file__, "Cell In[3]"))
    assert described.text.startswith('Traceback (most recent call last):\n  File "Cell In[3]"')
    assert 'json.loads("{")' in described.text
    assert "decoder.py" not in described.text
    assert described.text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")
    assert describe(ValueError("no"), name_code=str).text == "ValueError: no"
    assert len(describe(error_with("x" * 50_000), 2_000, str).text) <= 2_000


def error_with(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_a_value_without_a_text_is_named_with_its_fault() -> None:
    """`fault` names the error that the value itself raised. If only a part raised, the text alone says so."""

    class Odd:
        def __repr__(self) -> str:
            raise KeyError("no")

    assert describe(Odd()).fault == "KeyError"
    assert describe([Odd()]).fault == ""
    assert "without a text form: KeyError" in describe([Odd()]).text
