"""Code that the cells of the stack tests use (`SET_UP`), and functions that read the cells' outputs."""

from __future__ import annotations

from support.kernels import Execution, LiveKernel

SET_UP = '''
import asyncio, contextvars, sys, threading, time
from pathlib import Path
import ipywidgets as widgets
from IPython.display import HTML, display
from toolloop_jupyter import Harness, aagent, aagent_session, agent, agent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.execution import runner
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, pause, text

KEY, runs, ticks, beats, HERE, GRACE = "k" * 8, [], [], [], Path.cwd(), runner.STOP_GRACE

def double(x: int) -> int:
    """Double a number."""
    runs.append(x)
    return 2 * x

def noisy(x: int) -> int:
    """Print and display, for a second."""
    for n in range(5):
        print(f"printed {n}")
        time.sleep(0.2)
    display(HTML(f"<b>displayed {x}</b>"))
    return x

def begin_test():
    """Nothing of an earlier test."""
    global m
    runs.clear()
    m, runner.STOP_GRACE = scripted(), GRACE

def naps(s: float) -> str:
    """Sleep in small steps, which can be stopped, however long a busy machine takes for that."""
    runner.STOP_GRACE = 60
    (HERE / "naps").touch()
    until = time.time() + s
    while time.time() < until:
        time.sleep(0.01)
    return "slept"

def sleeps(s: float) -> str:
    """Sleep in one piece, which cannot be stopped."""
    (HERE / "sleeps").touch()
    time.sleep(s)
    return "slept"

async def waits(s: float) -> str:
    """Wait on the loop."""
    (HERE / "waits").touch()
    await asyncio.sleep(s)
    return "waited"

def scripted(tool="double", **arguments):
    return ScriptedModel(call(tool, **arguments or {"x": 7}), "The end.")

def asking(**more):
    return {"model": scripted(), "tools": [double], "permissions": "ask", **more}

async def tick():
    while True:
        ticks.append(time.time())
        await asyncio.sleep(0.05)

def beat(ended):
    """Tick in a thread of its own: what is late here, the machine is."""
    while not ended.wait(0.05):
        beats.append(time.time())

def gap(times, since):
    """The longest time between two ticks since then."""
    late = [t for t in times if t >= since] + [time.time()]
    return max(b - a for a, b in zip(late, late[1:]))

def comms():
    try:
        import comm
        return comm.get_comm_manager().comms
    except ImportError:
        return get_ipython().kernel.comm_manager.comms

def as_found():
    ip, loop = get_ipython(), get_ipython().kernel.io_loop.asyncio_loop
    names = ("run_forever", "run_until_complete", "_run_once", "_check_running", "call_soon")
    return {
        "asyncio": (asyncio.Task, asyncio.Future, asyncio.run, asyncio.get_event_loop, asyncio.Handle._run),
        "loop": [getattr(type(loop), name) for name in names] + sorted(vars(loop)),
        "streams": (sys.stdout, sys.stderr, hasattr(sys.stdout.write, "_toolloop_hook")),
        "publisher": (ip.display_pub, sorted(vars(ip.display_pub))),
        "kernel": sorted(set(vars(ip.kernel)) - {"saved_sigint_handler"}),
        "contextvars": len(contextvars.copy_context()),
        "comms": sorted(comms()),
        # One that has run a tool waits 5 s for the next.
        "threads": sorted(t.name for t in threading.enumerate() if t.name != "toolloop-idle"),
        "tasks": len(asyncio.all_tasks()),
    }

def lasting():
    """What no test may leave changed for the next one."""
    settings = [one.trait_values() for one in get_ipython().configurables if type(one).__name__ == "ToolLoop"]
    return {name: as_found()[name] for name in ("asyncio", "streams", "publisher")} | {"settings": settings}

def left_changed():
    """Names of what is not as it was; the names that the test has defined go."""
    for name in set(globals()) - NAMES:
        if not name.startswith("_"):
            del globals()[name]
    return [name for name, value in lasting().items() if value != LASTING[name]]

m = scripted()
LASTING, NAMES = None, set(globals()) | {"LASTING", "NAMES"}
'''


def wait_until_begun(kernel: LiveKernel, tool: str) -> None:
    """Wait until the tool `naps`, `sleeps` or `waits` runs: it writes a file. The file is removed, so the next wait is for a new run."""
    mark = kernel.folder / tool
    kernel.wait_until(mark.exists, what=f"the tool {tool!r}")
    mark.unlink()


def run(kernel: LiveKernel, code: str, **options) -> Execution:
    """Run a cell to its end. After a failed cell, the kernel may still abort cells: then send the cell again."""
    for _ in range(20):
        done = kernel.execute(code, **options)
        if done.status != "aborted":
            break
    return done


def printed(kernel: LiveKernel, expression: str) -> str:
    done = run(kernel, f"print({expression})")
    assert done.status == "ok", done.text
    return done.stdout.strip()


def foot(cell: Execution) -> str:
    """Return the last line of a run's last block, as text."""
    return cell.outputs[-1].text.strip().splitlines()[-1]
