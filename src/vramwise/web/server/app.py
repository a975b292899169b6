"""The application: `POST /api/v1/NAME` for each name of the API, its description, and the files of the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

from vramwise import __version__
from vramwise.web.api import ANSWERS, answer_text
from vramwise.web.server.guards import Refusal, said
from vramwise.web.server.workers import Answered, Answering, Busy, TooSlow

PAGE = Path(__file__).parent.parent / "page"
STATUS = {0: 200, 1: 422, 2: 400, 3: 200, 4: 404}
"""HTTP statuses by exit code: the answer's own error says more."""
BACK_END = "back-end.json"
"""What the page reads to know who answers it: this server, or a worker of its own."""
LARGEST_QUESTION = 4 << 20
LARGEST_TEXT = 256 << 20
"""Of a body that holds a file as text; a file that is sent as it is stands on disk, and may be larger."""
DESCRIBED = {"docs": "text/html", "docs.js": "text/javascript", "docs.css": "text/css"}
"""The page that shows the API's description, without anybody else's server."""
OF_UPLOADS = frozenset({"read", "compare", "oom", "profile"})
OF_FILES = OF_UPLOADS | {"batch"}
"""Names whose bodies hold whole files, and may be as large as the server allows."""


def create_app(answering: Answering, *, mcp: bool = False) -> Any:
    """The FastAPI application. Raises ImportError without it."""
    fastapi = import_module("fastapi")
    responses, staticfiles = import_module("fastapi.responses"), import_module("fastapi.staticfiles")

    tools = None
    if mcp:
        from vramwise.web.server.mcp import http_server

        tools = http_server(answering)

    @contextlib.asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await answering.quick.warm(answering.quick.most)
        async with tools.session_manager.run() if tools is not None else contextlib.nullcontext():
            try:
                yield
            finally:
                await answering.end()

    app = fastapi.FastAPI(title="vramwise", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
                          openapi_url=None)  # fmt: skip
    for name in ANSWERS:
        handler = _handler(name, answering, responses.Response)
        handler.__annotations__ = {"request": fastapi.Request}
        app.add_api_route(f"/api/v1/{name}", handler, methods=["POST"], name=name, response_class=responses.Response)

    if tools is not None:
        made = tools.streamable_http_app(streamable_http_path="/mcp", stateless_http=True, json_response=True)
        app.router.routes.extend(made.routes)

    async def described() -> Any:
        from vramwise.web.server.openapi import description

        return responses.JSONResponse(description())

    app.add_api_route("/api/v1/openapi.json", described, methods=["GET"], include_in_schema=False)

    async def refused(_: object, refusal: Refusal) -> Any:
        closing = {"connection": "close"} if refusal.status in (408, 413) else None
        return responses.Response(said(refusal), refusal.status, closing, "application/json")

    async def unknown(request: Any) -> Any:
        return responses.Response(answer_text(request.path_params["name"], "{}"), 404, None, "application/json")

    unknown.__annotations__ = {"request": fastapi.Request}
    app.add_api_route("/api/v1/{name}", unknown, methods=["POST"], include_in_schema=False)
    for file, kind in DESCRIBED.items():
        app.add_api_route(f"/api/v1/{file}", _shown(responses, file, kind), methods=["GET"], include_in_schema=False)
    app.add_exception_handler(Refusal, refused)

    async def back_end() -> Any:
        return responses.JSONResponse({"kind": "server", "api": "api/v1/", "version": __version__})

    app.add_api_route(f"/{BACK_END}", back_end, methods=["GET"], include_in_schema=False)
    if PAGE.is_dir():
        app.mount("/", staticfiles.StaticFiles(directory=PAGE, html=True))
    return app


def _shown(responses: Any, file: str, kind: str) -> Callable[[], Awaitable[Any]]:
    content = (Path(__file__).parent / ("docs.html" if file == "docs" else file)).read_bytes()

    async def show() -> Any:
        return responses.Response(content, media_type=kind)

    return show


async def _received(request: Any, name: str) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        most = LARGEST_TEXT if name in OF_FILES else LARGEST_QUESTION
        if len(body) > most:
            raise Refusal(413, f"the body: at most {most:,} bytes for {name}")
    return bytes(body)


@contextlib.asynccontextmanager
async def _uploaded(request: Any) -> AsyncIterator[bytes]:
    """A file that was sent as it is (`?name=…`, other keys of the body beside it), on disk for this question alone."""
    given = dict(request.query_params)
    name = "".join(sign for sign in given.pop("name", "")[-120:] if sign.isalnum() or sign in "._-").lstrip(".")
    with tempfile.TemporaryDirectory(prefix="upload-") as folder:
        path = os.path.join(folder, name or "file")
        with open(path, "wb") as out:
            async for chunk in request.stream():
                out.write(chunk)
        yield json.dumps({**given, "name": name or "file", "path": path}).encode()


async def _while_waited_for(request: Any, asked: Coroutine[Any, Any, Answered]) -> Answered:
    """The answer, unless who asked leaves: then it is given up, and the processes that work on it end."""
    answer, leaving = asyncio.ensure_future(asked), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
        return await answer
    finally:
        answer.cancel()
        leaving.cancel()


async def _left(request: Any) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _handler(name: str, answering: Answering, response: Any) -> Callable[[Any], Awaitable[Any]]:
    async def handle(request: Any) -> Any:
        async with contextlib.AsyncExitStack() as stack:
            if name in OF_UPLOADS and request.headers["content-type"].startswith("application/octet-stream"):
                body = await stack.enter_async_context(_uploaded(request))
            else:
                body = await _received(request, name)
            return await answered(request, body)

    async def answered(request: Any, body: bytes) -> Any:
        try:
            asked = answering.ask(name, body)
            exit_code, text = await (_while_waited_for(request, asked) if name in answering.LONG else asked)
        except Busy:
            raise Refusal(503, "too many questions at once: ask again in a moment") from None
        except asyncio.CancelledError:  # the server ends, or who asked is gone
            raise Refusal(503, "the server ends") from None
        except TooSlow:
            raise Refusal(504, f"{name} took too long and was ended") from None
        status = 500 if exit_code == 1 and b'"kind": "InternalError"' in text[:64] else STATUS.get(exit_code, 500)
        return response(text, status_code=status, media_type="application/json")

    return handle
