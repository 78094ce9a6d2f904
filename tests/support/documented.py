"""The example of LiteLLM's documentation, with the import line and the address left open."""

from __future__ import annotations

DOCUMENTED = '''
    from pydantic import BaseModel
    {imports}

    class Review(BaseModel):
        summary: str
        bugs: list[str]

    def search_code(query: str, path: str = ".") -> list[str]:
        """Search the code for a text."""
        return [f"{{path}}/app.py:3: {{query}}"]

    async def read_file(path: str) -> str:
        """Read a file."""
        return "def main(): ..."

    result = agent(
        Harness.TOOL_LOOP,
        "Review the changes in this repository.",
        sandbox=sandbox.local("."),
        model="openai/stub",
        api_base={base!r},
        api_key="sk-test",
        tools=[search_code, read_file],
        output=Review,
    )
    print(type(result.output).__name__, result.output.bugs, result.stop_reason, result.usage.calls)
'''
