"""A notebook with each kind of block. Several tests in a browser look at it."""

from __future__ import annotations

SET_UP = '''%load_ext toolloop_jupyter
import pandas as pd
from pydantic import BaseModel
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, reasoning, text

def stock(room: str) -> pd.DataFrame:
    """List what a stock room has.

    Args:
        room: its name, as on the door.
    """
    return pd.DataFrame({"item": ["pens", "paper", "ink"], "count": [12, 500, 3], "place": [room] * 3})

def order(item: str, count: int = 1, note: str = "", express: bool = False) -> str:
    """Order something from the supplier. What is ordered is paid for."""
    print("asking the supplier for", item)
    if item == "glue":
        raise LookupError(f"the supplier has no {item!r}")
    return f"ordered {count} x {item}"

class Plan(BaseModel):
    summary: str
    items: list[str]
    total: float

letter = "Dear supplier,\\n\\nwe would like to have what is listed here, as soon as it can be had.\\n\\n" + "Kind regards\\n" * 3
model = ScriptedModel(
    [reasoning("What is there? I have to look."), text("I look into the **stock room** first."), call("stock", room="A-17")],
    [text("Little ink. I order some."), call("order", item="ink", count=4, note=letter)],
    call("order", item="paper", count=10),
    call("order", item="glue"),
    """## What I did

| item | ordered | why |
|---|---:|---|
| ink | 12 | only 3 left |
| paper | 0 | you said no |

1. `stock("A-17")` lists what is there.
2. The supplier has no glue; see [its page](https://example.org/glue).

```python
def needed(have: int, want: int = 10) -> int:
    return max(0, want - have)  # never less than nothing
```
""",
)
planner = ScriptedModel({"summary": "Ink is ordered", "items": ["ink", "pens"], "total": 41.5})
'''
CELLS = [
    SET_UP,
    "%%toolloop -m model -t stock order -p policy --as run\nSee to the stock room A-17.",
    "%%toolloop -m planner -o Plan --as plan\nWhat is the plan?",
    "print('END', run.stop_reason, plan.output.total)",
]
CELLS[0] += 'policy = {"stock": "full", "*": "ask"}\n'


def decide(desk) -> None:
    """Edit and approve the first order, deny the second with a reason, approve the third."""
    desk.click("Edit…")
    count = desk.page.locator(".tlj-card:visible .tlj-form").get_by_label("count")
    desk.see(count, "the form")
    count.fill("12")
    desk.click("Approve edited")
    desk.see(desk.page.locator(".tlj-card:visible").get_by_text('"paper"'), "the second card")
    desk.page.locator(".tlj-card:visible .tlj-why input").fill("there is enough paper")
    desk.click("Deny")
    desk.see(desk.page.locator(".tlj-card:visible").get_by_text('"glue"'), "the third card")
    desk.click("Approve")
    desk.wait_for("END done 41.5")
