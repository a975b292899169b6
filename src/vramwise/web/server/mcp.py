"""`vramwise mcp` and `/mcp`: the tools by the protocol's own SDK, on standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from vramwise import __version__
from vramwise.errors import UsageError
from vramwise.web.api import answer_text
from vramwise.web.mcp_tools import INSTRUCTIONS, question, shown, tools
from vramwise.web.server.workers import Answering, Busy, TooSlow

NEEDS = "vramwise mcp needs the protocol's SDK: pip install 'vramwise[mcp]'"

Ask = Callable[[str, str], Awaitable[str]]


def server(ask: Ask) -> Any:
    """The SDK's server; `ask` is given a name of the API and a body. Raises UsageError without the SDK."""
    try:
        lowlevel, types = import_module("mcp.server.lowlevel"), import_module("mcp.types")
    except ImportError:
        raise UsageError(NEEDS) from None

    async def list_tools(context: object, asked: object) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=one["name"], description=one["description"], input_schema=one["input_schema"])
                for one in tools()
            ]
        )

    async def call_tool(context: object, asked: Any) -> Any:
        arguments = asked.arguments or {}
        if asked.name not in {one["name"] for one in tools()}:
            text = json.dumps({"error": {"kind": "UnknownNameError", "message": "no such tool", "exit_code": 2}})
        else:
            name, body = question(asked.name, arguments)
            text = await ask(name, json.dumps(body))
        failed = text.startswith('{"error": ')
        content = types.TextContent(type="text", text=text if failed else shown(asked.name, arguments, text))
        return types.CallToolResult(content=[content], is_error=failed)

    return lowlevel.Server(
        "vramwise", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def run_stdio() -> None:
    """Answer on standard input and output until the other side ends. Raises UsageError without the SDK."""

    async def ask(name: str, body: str) -> str:
        return await asyncio.to_thread(answer_text, name, body)

    made = server(ask)
    stdio = import_module("mcp.server.stdio")

    async def run() -> None:
        async with stdio.stdio_server() as (reading, writing):
            await made.run(reading, writing, made.create_initialization_options())

    asyncio.run(run())


def http_server(answering: Answering) -> Any:
    """The same over HTTP, answered by the server's processes."""

    async def ask(name: str, body: str) -> str:
        try:
            return (await answering.ask(name, body.encode())).text.decode()
        except (Busy, TooSlow) as problem:
            message = "took too long" if isinstance(problem, TooSlow) else "too many questions at once"
            return json.dumps({"error": {"kind": type(problem).__name__, "message": message, "exit_code": 1}})

    return server(ask)
