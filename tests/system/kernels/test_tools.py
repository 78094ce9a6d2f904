"""What a person and the model see of tools in a live kernel: results, prints, figures, errors, settings."""

from __future__ import annotations

import re

import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel

SET_UP = """
%load_ext toolloop_jupyter
import asyncio, logging, sqlite3, sys, threading, time, warnings
import matplotlib.pyplot as plt
import numpy as np, pandas as pd
from IPython.display import HTML, Image, Markdown, SVG, clear_output, display
from PIL import Image as Pillow
from toolloop_jupyter import Harness, ToolContext, aagent, show, tool
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
OLD_HANDLER = logging.StreamHandler()
old_log = logging.getLogger("old"); old_log.addHandler(OLD_HANDLER); old_log.propagate = False
png = Pillow.new("RGB", (20, 10), "red")._repr_png_()
def drawn(n=3):
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot(range(n))
    return figure
def as_found(): return [(type(s).__name__, hasattr(s.write, "_toolloop_hook")) for s in (sys.stdout, sys.stderr)]
class OnlyPng:
    def _repr_png_(self): return png
class Interactive:
    def _repr_html_(self): return "<div id='x'></div><script>draw()</script>"
    def __repr__(self): return "Chart(of=3)"
"""


@pytest.fixture(scope="module")
def kernel():
    """One kernel for this module."""
    with LiveKernel() as live:
        done = live.execute(SET_UP, timeout=120)
        assert done.status == "ok", done.text
        yield live


class Seen:
    """One run of a tool: the outputs of its cell, and the text that the model got."""

    def __init__(self, kernel, cell):
        self.cell = cell
        self.html = "".join(
            o.data.get("text/html", "")
            for o in cell.outputs
            if '"tlj tlj-call"' in o.data.get("text/html", "")
        )
        self.text = "\n".join(
            o.data["text/plain"] for o in cell.outputs if o.data.get("text/plain", "")[:1] in ("✓", "✗", "●")
        )
        self.outside = [o for o in cell.outputs if "tlj" not in o.data.get("text/html", "")]
        got = kernel.execute("print(m.requests[1].messages[-1]['content'] if len(m.requests) > 1 else '')")
        self.model = got.stdout.removesuffix("\n")

    @property
    def pictures(self):
        return re.findall(r'<img src="data:image/(\w+)', self.html)


def run(kernel, body, *, header="def f():", arguments="", options="", decorator=""):
    """Define a tool with this body, run it once, and return what was seen."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    defined = kernel.execute(
        f'{decorator}\n{header}\n    "A tool."\n{lines}\nm = ScriptedModel(call("f"{arguments}), "Answer.")'
    )
    assert defined.status == "ok", defined.text
    cell = kernel.execute(f"%%toolloop --model m --tools f --as r {options}\nGo.", timeout=120)
    assert cell.status == "ok", cell.text
    assert "Answer." in cell.text, "the run went on to its answer"
    return Seen(kernel, cell)


# --- results, rich ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "pictures", "html"),
    [
        ("return pd.DataFrame({'a': [1, 2]})", [], "<td>2</td>"),
        ("return pd.DataFrame({'a': [1, 2]}).style.highlight_max()", [], "<td>2</td>"),
        ("return pd.Series([5, 6])", [], "6"),
        ("return drawn()", ["png"], ""),
        ("return drawn().axes[0]", ["png"], ""),
        ("return plt.subplots(1, 2)", ["png"], ""),
        ("return plt.subplots(1, 2)[1]", ["png"], ""),
        ("return [drawn(2), drawn(3)]", ["png", "png"], ""),
        ("return {'chart': drawn(), 'rows': pd.DataFrame({'a': [7]})}", ["png"], "<td>7</td>"),
        ("return [pd.DataFrame({'a': [1]}), pd.DataFrame({'b': [2]})]", [], "<th>b</th>"),
        ("plt.plot([1, 2])", ["png"], ""),
        ("plt.plot([1, 2]); plt.show()", ["png"], ""),
        ("figure = drawn(); plt.show(); return figure", ["png"], ""),
        ("figure = drawn(); display(figure); return figure", ["png"], ""),
        ("figure = drawn(); plt.show(); return {'chart': figure}", ["png"], ""),
        ("figure = drawn(); plt.close(figure); return figure", ["png"], ""),
        ("display(drawn(2)); plt.close(); return drawn(3)", ["png", "png"], ""),
        ("frame = pd.DataFrame({'a': [41]}); display(frame); return frame", [], "<td>41</td>"),
        ("return Pillow.new('RGB', (9, 9))", ["png"], ""),
        ("return OnlyPng()", ["png"], ""),
        ("return png", ["png"], ""),
        ("return Image(data=png)", ["png"], ""),
        ("return SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", ["svg"], ""),
        ("return Markdown('some **bold** words')", [], "<strong>bold</strong>"),
        ("return HTML('<b>fat</b>')", [], "<b>fat</b>"),
        ("return np.arange(6).reshape(2, 3)", [], "[3, 4, 5]"),
    ],
)
def test_a_result_is_shown_as_the_notebook_shows_it(kernel, body, pictures, html):
    """Tables are shown as tables and pictures as pictures: below their call, once. Nothing of them is below the run."""
    seen = run(kernel, body)
    assert seen.pictures == pictures
    assert html in seen.html
    assert seen.html.count(html) == 1 or not html.startswith("<"), "shown twice"
    assert seen.outside == [], [o.data for o in seen.outside]
    assert kernel.execute("print(plt.get_fignums())").stdout == "[]\n"
    if pictures or html.startswith("<td"):
        assert " open>" in seen.html, "what there is to look at is unfolded"


def test_foreign_html_loses_what_acts(kernel):
    """Scripts, handlers and remote pictures of a result are removed. If only a script would draw a part, a note says that it
    is left out.
    """
    seen = run(
        kernel,
        """return HTML('<b onclick="x()">a</b><script>steal()</script><img src="http://host.invalid/?q">')""",
    )
    assert "<b>a</b>" in seen.html
    assert not re.search("script|onclick|host.invalid", seen.html)
    seen = run(kernel, "return Interactive()")
    assert "Chart(of=3)" in seen.html
    assert "interactive display is left out here" in seen.html
    assert "r.tool_results[0].value" in seen.html
    assert "<script" not in seen.html


def test_objects_whose_display_fails_are_shown_all_the_same(kernel):
    """If an object's display code raises an error, only its display is lost. The run goes on, and nothing is printed into the
    cell.
    """
    kernel.execute(
        "class Bad:\n    def _repr_html_(self): raise ValueError('no')\n    def __repr__(self): return 'a bad one'"
    )
    seen = run(kernel, "return [Bad(), Bad()]")
    assert "a bad one" in seen.text
    assert seen.outside == []


def test_figures_that_were_open_before_stay(kernel):
    """A run neither shows nor closes a figure that the person had opened before."""
    kernel.execute(
        "get_ipython().events.unregister('post_execute', __import__('matplotlib_inline').backend_inline.flush_figures)"
    )
    kernel.execute("mine = plt.figure()")
    seen = run(kernel, "plt.figure().subplots().plot([1, 2])")
    assert seen.pictures == ["png"]
    assert kernel.execute("print(plt.get_fignums() == [mine.number]); plt.close('all')").stdout == "True\n"
    kernel.execute(
        "get_ipython().events.register('post_execute', __import__('matplotlib_inline').backend_inline.flush_figures)"
    )


# --- the model's text, the live object, the whole result ----------------------------------------------------------


def test_a_cut_result_names_where_the_whole_is(kernel):
    """The model gets a text of limited length. The transcript has the expression for the live object."""
    for body in (
        "return 'line\\n' * 9000",
        "return list(range(9000))",
        "return pd.DataFrame(np.zeros((9000, 3)))",
        "return np.zeros((300, 400))",
    ):
        seen = run(kernel, body)
        assert seen.html.count("r.tool_results[0].value") == 1, body
        assert seen.text.count("r.tool_results[0].value") == 1, body
        assert len(seen.model) < 21_000
        same = "print(type(r.tool_results[0].value).__name__, len(r.tool_results[0].value) > 299)"
        assert kernel.execute(same).stdout.endswith(" True\n")
    seen = run(kernel, "return [1, 2, 3]")
    assert "tool_results" not in seen.text


def test_the_text_says_how_many_lines_once(kernel):
    """The plain text states the number of all omitted lines once: those that it omits itself, and those that the block omits."""
    seen = run(kernel, "return list(range(1000))")
    assert re.findall(r"… .*more.*", seen.text) == ["… 984 more lines: r.tool_results[0].value"]


def test_a_model_that_sees_gets_the_picture(kernel):
    """With `takes_images`, the tool message has the picture, and the person is told. `--images never` turns this off."""
    kernel.execute(
        "def f():\n    'A chart.'\n    return drawn()\nm = ScriptedModel(call('f'), 'Seen.', takes_images=True, repeat_last=True)"
    )
    cell = kernel.execute("%%toolloop --model m --tools f --as r\nGo.")
    kinds = "print([p['type'] for p in m.requests[-1].messages[-1]['content']])"
    assert kernel.execute(kinds).stdout == "['text', 'image_url']\n"
    assert "seen by the model" in cell.text
    assert "with the picture" in "".join(o.data.get("text/html", "") for o in cell.outputs)
    kernel.execute("m.reset()")
    cell = kernel.execute("%%toolloop --model m --tools f --images never\nGo.")
    assert kernel.execute("print(type(m.requests[-1].messages[-1]['content']).__name__)").stdout == "str\n"
    assert "seen by the model" not in cell.text


def test_what_is_displayed_reaches_a_model_that_sees_where_the_tool_asks(kernel):
    """With `capture_output=True`, the pictures that the tool displayed are sent, too."""
    kernel.execute(
        "@tool(capture_output=True)\ndef f():\n    'A chart.'\n    print('words'); drawn(); plt.show()\n"
        "m = ScriptedModel(call('f'), 'Seen.', takes_images=True)"
    )
    kernel.execute("%%toolloop --model m --tools f\nGo.")
    got = kernel.execute(
        "c = m.requests[-1].messages[-1]['content']; print([p['type'] for p in c], c[0]['text'])"
    ).stdout
    assert got.startswith("['text', 'image_url'] [printed]\nwords\n")


# --- prints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("print('a'); print('b')", ["a", "b"]),
        ("print('a', file=sys.stderr)", ["a"]),
        ("logging.getLogger('new').warning('w')", ["w"]),
        ("old_log.warning('from an old handler')", ["from an old handler"]),
        ("warnings.warn('careful')", [r"Cell In\[\d+\], line \d+: UserWarning: careful"]),
        ("t = threading.Thread(target=print, args=('sub',)); t.start(); t.join()", ["sub"]),
        (
            "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as p: list(p.map(print, ['x']))",
            ["x"],
        ),
        ("for n in range(300): print(f'\\r{n}/300', end='')\nprint()", ["299/300"]),
        ("from tqdm import tqdm\nfor n in tqdm(range(40)): time.sleep(.01)", [r"100%\|.*\| 40/40 .*"]),
        (
            "from tqdm.auto import tqdm\nfor n in tqdm(range(40), desc='d'): time.sleep(.01)",
            [r"d: 100%\|.*\| 40/40 .*"],
        ),
        ("h = display('one', display_id=True); h.update('two')", ["'two'"]),
        ("print('kept'); clear_output()", ["kept"]),
        ("get_ipython().system('echo shell')", ["shell"]),
        ("print('\\x1b[31mred\\x1b[0m')", ["red"]),
    ],
)
@pytest.mark.parametrize("header", ["def f():", "async def f():"])
def test_prints_stand_under_their_call(kernel, body, lines, header):
    """All output of a running tool, in a thread or async, is shown below its call: once, and nowhere else."""
    seen = run(kernel, body, header=header)
    shown = [line.strip() for line in seen.text.splitlines()[1:] if line.strip()]
    expected = [*lines, *([r"lg\.warn.*|.*warnings\.warn.*"] if "warnings" in body else [])]
    assert len(shown) == len(expected), shown
    assert all(re.fullmatch(wanted, line) for wanted, line in zip(expected, shown, strict=True)), shown
    assert seen.outside == []
    assert seen.model == "null", "the model gets none of it"


def test_capture_output(kernel):
    """The model gets the printed text, plain and shortened, and the returned value. It also gets the printed text if the tool
    fails.
    """
    body = "print('a'); print('b', file=sys.stderr); display(Markdown('**c**'))\nfor n in range(99): print(f'\\r{n}', end='')"
    seen = run(kernel, f"{body}\nreturn 7", decorator="@tool(capture_output=True)")
    assert seen.model == "[printed]\na\nb\n**c**\n98\n[returned]\n7"
    assert "[printed]" not in seen.text
    seen = run(kernel, "print('before'); 1 / 0", decorator="@tool(capture_output=True)")
    assert seen.model == "ZeroDivisionError: division by zero\n[printed before the error]\nbefore"
    seen = run(kernel, "print('x' * 100_000)", decorator="@tool(capture_output=True, max_result=500)")
    assert len(seen.model) < 600


def test_late_prints_belong_to_their_call(kernel):
    """A thread that outlives its call still prints below this call, however it was started, and not into a later cell."""
    kernel.execute(
        "import contextvars\ngo, told = threading.Event(), threading.Event()\n"
        "def late(word): go.wait(60); print(word); told.set()"
    )
    for start in (
        "threading.Thread(target=late, args=('late',)).start()",
        "threading.Thread(target=contextvars.copy_context().run, args=(late, 'late')).start()",
        "try: late('gone')\nfinally: late('late')",
    ):
        kernel.execute("go.clear(); told.clear()")
        if start.startswith("try"):
            seen = run(kernel, start, decorator="@tool(timeout=.2)")
        else:
            seen = run(kernel, f"print('soon')\n{start}")
        assert "late" not in seen.text
        later = kernel.execute("print('other'); go.set(); print(told.wait(60))")
        kernel.wait_until(lambda seen=seen: "late" in seen.cell.text)
        assert later.stdout == "other\nTrue\n"
        assert "late" not in seen.cell.stdout
        assert "gone" not in seen.cell.text
    kernel.settle(0.5)
    left = kernel.execute("print(as_found(), [t.name for t in threading.enumerate()])").stdout
    assert left.startswith("[('OutStream', False), ('OutStream', False)]"), left


def test_two_runs_at_once_in_one_cell(kernel):
    """The prints of each run, from worker threads and tasks, are below its own call."""
    kernel.execute(
        "def a():\n    'A.'\n    for n in range(5): print('from a', n); time.sleep(.03)\n"
        "async def b():\n    'B.'\n    for n in range(5): print('from b', n); await asyncio.sleep(.03)\n"
        "def one(name, f): return show(aagent(Harness.TOOL_LOOP, 'Go.', model=models[name], tools=[f], stream=True))\n"
        "models = {n: ScriptedModel(call(n), n + ' done') for n in 'ab'}"
    )
    cell = kernel.execute("x, y = await asyncio.gather(one('a', a), one('b', b))")
    assert cell.status == "ok", cell.text
    blocks = [o.data["text/plain"] for o in cell.outputs if o.data.get("text/plain", "").startswith("✓")]
    assert len(blocks) == 2
    for block, name in zip(sorted(blocks), "ab", strict=True):
        assert re.findall(r"from (\w) (\d)", block) == [(name, str(n)) for n in range(5)]
    assert cell.stdout == ""


# --- while it runs ------------------------------------------------------------------------------------------------


def test_progress_and_elapsed_time_are_shown_while_it_runs(kernel):
    """A running call shows its seconds, and the progress that its ToolContext reports. Afterwards, the progress is gone."""
    kernel.execute(
        "def f(context: ToolContext, n: int = 4):\n    'Work.'\n"
        "    for i in range(n): context.progress(i + 1, n, 'files'); time.sleep(.5)\n    return n\n"
        "m = ScriptedModel(call('f'), 'Answer.')"
    )
    cell = kernel.submit("%%toolloop --model m --tools f\nGo.")
    kernel.wait_until(lambda: re.search(r"● f\(.*running\s+[1-9]\.\d+ s.*[34] of 4 files", cell.text))
    kernel.wait(cell)
    assert "of 4 files" not in cell.text
    assert (
        kernel.execute("print(list(m.requests[0].tools[0]['function']['parameters']['properties']))").stdout
        == "['n']\n"
    )


@pytest.mark.parametrize(
    ("header", "wait"), [("def f():", "time.sleep(.01)"), ("async def f():", "await asyncio.sleep(.01)")]
)
def test_items_of_generators_come_one_by_one(kernel, tmp_path, header, wait):
    """Each item is shown before the next one is made. The result is the list of items: in the call's line, and once below it."""
    kernel.execute(
        f"from pathlib import Path\n{header}\n    'Count.'\n    for i in range(3):\n        yield f'item {{i}}'\n"
        f"        while not (Path({str(tmp_path)!r}) / str(i)).exists(): {wait}\nm = ScriptedModel(call('f'), 'Answer.')"
    )
    cell = kernel.submit("%%toolloop --model m --tools f --as r\nGo.")
    for number in range(3):
        kernel.wait_until(lambda number=number: f"item {number}" in cell.text)
        assert f"item {number + 1}" not in cell.text
        (tmp_path / str(number)).touch()
    kernel.wait(cell)
    lines = [line.strip() for line in cell.text.splitlines()]
    assert [lines.count(f"item {n}") for n in range(3)] == [1, 1, 1]
    assert sum(line.endswith('["item 0", "item 1", "item 2"]') for line in lines) == 1
    assert kernel.execute("print(r.tool_results[0].value)").stdout == "['item 0', 'item 1', 'item 2']\n"


def test_items_before_an_error_stay(kernel):
    """If a generator raises an error, its earlier items stay visible, even items whose text raises an error."""
    kernel.execute("class Bad:\n    def __repr__(self): raise ValueError('no')")
    seen = run(kernel, "yield 'first'\nyield Bad()\nraise KeyError('gone')")
    assert "first" in seen.text
    assert seen.model == "KeyError: 'gone'"


# --- errors -------------------------------------------------------------------------------------------------------


def test_an_exception_is_one_line_to_the_model_and_a_folded_traceback_to_the_person(kernel):
    """The folded traceback has the person's own lines with their cells, and the cause. It has no file of a library or of this
    machine.
    """
    kernel.execute("import json\ndef helper(text): return json.loads(text)")
    seen = run(
        kernel, "try: helper('{')\nexcept ValueError as error: raise RuntimeError('unreadable') from error"
    )
    assert seen.model.splitlines()[0] == "RuntimeError: unreadable"
    assert seen.model.splitlines()[1].startswith("caused by JSONDecodeError: ")
    assert "traceback</summary>" in seen.html
    assert "Traceback" not in seen.text, "folded"
    kernel_text = re.sub("<[^>]*>", "", seen.html)
    assert re.search(r"Cell In\[\d+\], line 2, in helper", kernel_text)
    assert "JSONDecodeError" in kernel_text
    assert "direct cause" in kernel_text
    assert not re.search(r"/json/|site-packages|ipykernel_|toolloop_jupyter", kernel_text)


@pytest.mark.parametrize(
    ("header", "decorator"),
    [
        ("def f():", ""),
        ("async def f():", ""),
        ("def f():", "@tool(thread=False)"),
        ("def f():\n    yield 1", ""),
    ],
)
def test_an_interrupt_in_a_tool_ends_the_run_and_not_the_kernel(kernel, header, decorator):
    """The run ends with one line. Its history is valid, and the kernel goes on."""
    first, *rest = header.splitlines()
    body = "\n".join([*rest, "    raise KeyboardInterrupt"])
    kernel.execute(f"{decorator}\n{first}\n    'Leave.'\n{body}\nm = ScriptedModel(call('f'), 'Never.')")
    cell = kernel.execute("%%toolloop --model m --tools f --as r\nGo.")
    assert cell.status == "ok"
    assert "Never." not in cell.text
    assert "raised KeyboardInterrupt" in cell.text
    assert (
        kernel.execute("print(r.stop_reason, len(r.tool_results), r.tool_results[0].is_error)").stdout
        == "cancelled 1 True\n"
    )


@pytest.mark.parametrize(
    ("header", "decorator", "body", "told"),
    [
        ("def f():", "", "argparse.ArgumentParser().parse_args(['--no'])", "SystemExit: 2"),
        ("def f():", "@tool(thread=False)", "sys.exit('no')", "SystemExit: no"),
        ("async def f():", "", "raise SystemExit(2)", "SystemExit: 2"),
        ("async def f():", "@tool(timeout=9)", "raise SystemExit(2)", "SystemExit: 2"),
        ("async def f():", "", "yield 1\nraise Panic('rust')", "Panic: rust"),
        ("def f():", "", "yield 1\nraise GeneratorExit", "GeneratorExit"),
        ("async def f():", "", "asyncio.current_task().cancel()\nawait asyncio.sleep(9)", "Cancelled: "),
        (
            "async def f():",
            "",
            "asyncio.get_running_loop().stop()",
            "RuntimeError: code of a run must not stop",
        ),
        (
            "def f():",
            "@tool(thread=False)",
            "asyncio.get_running_loop().stop()",
            "RuntimeError: code of a run",
        ),
        ("def f():", "", "raise Mute", "Mute: <without a text: Panic>"),
    ],
)
def test_what_is_no_exception_is_an_error_of_the_call_alone(kernel, header, decorator, body, told):
    """If argparse exits, code panics, or a tool cancels its task or stops the loop, the model is told, and answers."""
    kernel.execute(
        "import argparse\nclass Panic(BaseException): pass\n"
        "class Mute(Exception):\n    def __str__(self): raise Panic"
    )
    seen = run(kernel, body, header=header, decorator=decorator)
    assert seen.model.startswith(told)
    assert seen.text.startswith("✗")
    kept = kernel.execute(
        "print(r.stop_reason, r.tool_results[0].is_error, asyncio.get_running_loop().is_running())"
    )
    assert kept.stdout == "done True True\n"


@pytest.mark.parametrize("method", ["__repr__", "_repr_html_", "_repr_mimebundle_", "__getattr__", "__len__"])
@pytest.mark.parametrize("header", ["return {}", "yield {}", "return [{}]", "display({}, '')"])
def test_a_value_whose_own_code_exits_ends_nothing(kernel, method, header):
    """Whatever the methods raise that show a value, the run goes on to its answer."""
    base = "list" if method == "__len__" else "object"
    kernel.execute(f"class Odd({base}):\n    def {method}(self, *given, **named): raise SystemExit(2)")
    run(kernel, header.format("Odd()"))
    assert kernel.execute("print(r.stop_reason)").stdout == "done\n"


@pytest.mark.parametrize(
    ("header", "decorator", "body", "also"),
    [
        ("def f():", "timeout=.3", "over.wait()", "runs on in the background"),
        ("def f():", "timeout=.3", "while True: sum(range(1000))", "was stopped"),
        ("async def f():", "timeout=.3", "await asyncio.sleep(9)", ""),
        ("def f():", "timeout=.3, thread=False", "time.sleep(.6)", "blocked the kernel for "),
        ("def f():", "timeout=.3", "while True: yield 1; time.sleep(.01)", "was stopped"),
    ],
)
def test_a_tools_timeout_is_an_error_of_the_call_alone(kernel, header, decorator, body, also):
    """The model is told of the timeout, and what happened to the tool. The run goes on to its answer, without a warning below
    it.
    """
    grace = "60" if also == "was stopped" else "usual"  # a busy machine may need longer than usual
    kernel.execute(
        "from toolloop_jupyter.core.execution import runner\nover, usual = threading.Event(), runner.STOP_GRACE\n"
        f"runner.STOP_GRACE = {grace}"
    )
    seen = run(kernel, body, header=header, decorator=f"@tool({decorator})")
    assert seen.model.startswith("TimeoutError: the tool took longer than its timeout of 0.3 s")
    kernel.execute("over.set(); runner.STOP_GRACE = usual")
    assert also in seen.model
    assert seen.text.startswith("✗")
    assert "⚠" not in seen.cell.text


def test_the_wrong_thread(kernel):
    """SQLite's error about threads is followed by the setting that helps. With this setting, the tool works, on the main
    thread.
    """
    kernel.execute("connection = sqlite3.connect(':memory:')")
    body = "return [threading.current_thread().name, connection.execute('select 6 * 7').fetchone()]"
    seen = run(kernel, body)
    assert "ProgrammingError: SQLite objects" in seen.model
    assert "mark f with @tool(thread=False)" in seen.model
    assert run(kernel, body, decorator="@tool(thread=False)").model == '["MainThread", [42]]'


def test_all_problems_of_all_tools_in_one_error(kernel):
    """Nothing runs. One error without a traceback names every function, and says what to write instead."""
    kernel.execute(
        "def one(*args): 'x'\ndef two(a: 'Nowhere', **more): 'x'\nthree = lambda x: x\nm = ScriptedModel('never')"
    )
    cell = kernel.execute("%%toolloop --model m --tools one two three\nGo.")
    (error,) = cell.outputs
    assert (cell.status, error.kind) == ("error", "error")
    text = "\n".join(error.data["traceback"])
    assert "Traceback" not in text
    assert "File " not in text
    for name in ("one", "*args", "two", "Nowhere", "**more", "lambda"):
        assert name in text
    assert kernel.execute("print(m.requests)").stdout == "[]\n"


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_of_the_decorator(kernel):
    """Name, description and max_result reach the model. `permissions="ask"` asks, even if the run's permissions do not."""
    kernel.execute(
        "@tool(name='find.größe', description='Said of it.', max_result=50)\ndef f(x: int):\n    'Not this.'\n    return list(range(x))\n"
        "m = ScriptedModel(call('find_gr_e', x=1000), 'Answer.')"
    )
    spec = "s = m.requests[0].tools[0]['function']; print(s['name'], s['description'], len(m.requests[-1].messages[-1]['content']))"
    kernel.execute("m = ScriptedModel(lambda messages: 'names?')\n")
    kernel.execute("%%toolloop --model m --tools f\nGo.")
    wire = kernel.execute("print(m.requests[0].tools[0]['function']['name'])").stdout.strip()
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire)
    kernel.execute(f"m = ScriptedModel(call({wire!r}, x=1000), 'Answer.')")
    cell = kernel.execute("%%toolloop --model m --tools f\nGo.")
    assert kernel.execute(spec).stdout.strip() == f"{wire} Said of it. 50"
    assert "find.größe" in cell.text
    kernel.execute(
        "@tool(permissions='ask')\ndef f():\n    'Ask.'\n    return 'ran'\nm = ScriptedModel(call('f'), 'Answer.')"
    )
    cell = kernel.submit("%%toolloop --model m --tools f -p full\nGo.", allow_stdin=True)
    kernel.click("Deny")
    kernel.wait(cell)
    assert "ran" not in kernel.execute("print(m.requests[-1].messages[-1]['content'])").stdout


def test_async_behind_a_sync_wrapper(kernel):
    """If a sync function returns a coroutine, it is awaited on the kernel's loop."""
    kernel.execute(
        "async def work(): await asyncio.sleep(.01); return asyncio.get_running_loop() is loop\nloop = asyncio.get_running_loop()"
    )
    assert run(kernel, "return work()").model == "true"


@pytest.mark.parametrize("thread", [True, False])
def test_a_cell_that_a_tool_runs_shows_in_the_tools_block(kernel, thread):
    """A tool calls `get_ipython().run_cell`. The value, the displays and the error of this cell are in the call's block, and
    nowhere else.
    """
    kernel.execute(
        f"@tool(thread={thread})\ndef run(code: str) -> str:\n    'Run code.'\n"
        "    return 'ok' if get_ipython().run_cell(code).success else 'failed'\n"
        "m = ScriptedModel(call('run', code='print(\"printed\"); 6 * 7'), call('run', code='1 / 0'), 'Done.')"
    )
    done = kernel.execute("%%toolloop -m m -t run --as r\nGo.")
    assert [output.kind for output in done.outputs if output.kind != "display_data"] == []
    first, second = (
        html for html in re.findall(r"<details class=\"tlj tlj-call.*?</details>", done.html) if "run" in html
    )
    assert "printed" in first
    assert "42" in first
    assert "ZeroDivisionError" in second
    assert kernel.execute("print([t.value for t in r.tool_results])").stdout == "['ok', 'failed']\n"
    after = kernel.execute("6 * 9")
    assert after.value == "54"
    assert "ZeroDivisionError" in kernel.execute("1 / 0").text
    assert kernel.execute("'finish_displayhook' in vars(get_ipython().displayhook)").value == "False"
