"""A server on the Python SDK (`mcp`), both eras, that announces changes and asks its client: see README.md.

python.py --port N [--name NAME]   Streamable HTTP at /mcp, the transport of 2024-11-05 at /sse
python.py --stdio  [--name NAME]
"""

import argparse
from typing import Any

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from starlette.responses import Response
from starlette.routing import Mount, Route

MODERN_REVISION = "2026-07-28"
LISTENING_TIMEOUT_S = 10.0
NOTHING = {"type": "object", "properties": {}}
FORM = {"type": "object", "properties": {"name": {"type": "string", "title": "Näme"}}, "required": ["name"]}

CHANGES = {
    "tools": (ToolsListChanged, types.ToolListChangedNotification),
    "prompts": (PromptsListChanged, types.PromptListChangedNotification),
    "resources": (ResourcesListChanged, types.ResourceListChangedNotification),
}


class AnnouncingServer(Server):
    """Declares list changes in the legacy era too, on every transport."""

    def create_initialization_options(self, *_: Any, **more: Any) -> Any:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, **more)


class World:
    """The state that all connections share: the extra entries, and the sessions and subscriptions to notify."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.extra: set[str] = set()
        self.bus = InMemorySubscriptionBus()
        self.subscribers: dict[str, dict[str | None, Any]] = {}
        self.sessions: dict[str | None, Any] = {}
        self.streams = 0
        self.stream_began = anyio.Event()

    def uri(self, entry: str) -> str:
        return f"note://{self.name}/{entry}"

    async def updated(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri))
        for session in list(self.subscribers.get(uri, {}).values()):
            await notify(session.send_resource_updated(uri))

    async def toggle(self, kind: str) -> None:
        self.extra ^= {kind}
        event, notification = CHANGES[kind]
        await self.bus.publish(event())
        for session in list(self.sessions.values()):
            await notify(session.send_notification(notification()))


async def notify(sending: Any) -> None:
    """Notifies a session, unless it has ended."""
    try:
        await sending
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass


def session_id(ctx: Any) -> str | None:
    if ctx.request is None:
        return None
    return ctx.request.headers.get("mcp-session-id") or ctx.request.query_params.get("session_id")


async def until_listening(world: World, ctx: Any) -> None:
    """Waits until a legacy client's stream for notifications is open."""
    if is_modern(ctx) or ctx.request is None or "mcp-session-id" not in ctx.request.headers:
        return
    with anyio.fail_after(LISTENING_TIMEOUT_S):
        while world.streams == 0:
            await world.stream_began.wait()


def is_modern(ctx: Any) -> bool:
    return ctx.protocol_version == MODERN_REVISION


def text_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def build(world: World) -> Server:
    def tool(name: str, description: str, schema: dict[str, Any] = NOTHING) -> types.Tool:
        return types.Tool(name=name, description=description, input_schema=schema)

    async def list_tools(ctx: Any, _: Any) -> types.ListToolsResult:
        strings = {"type": "array", "items": {"type": "string"}}
        tools = [
            tool("touch", "Announces updates", {"type": "object", "properties": {"uris": strings}}),
            tool("toggle", "Adds or removes an entry", {"type": "object", "properties": {"kind": {"type": "string"}}}),
            tool("ask-both", "Asks the user and the model"),
            tool("ask-twice", "Asks the user, and again"),
        ]
        return types.ListToolsResult(tools=tools + [tool("extra", "Added and removed")] * ("tools" in world.extra))

    async def list_prompts(ctx: Any, _: Any) -> types.ListPromptsResult:
        names = ["hint"] + ["extra"] * ("prompts" in world.extra)
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in names])

    async def list_resources(ctx: Any, _: Any) -> types.ListResourcesResult:
        entries = ["1", "2", "3"] + ["extra"] * ("resources" in world.extra)
        return types.ListResourcesResult(
            resources=[types.Resource(uri=world.uri(entry), name=f"{world.name}-{entry}") for entry in entries]
        )

    async def list_resource_templates(ctx: Any, _: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        arguments = params.arguments or {}
        match params.name:
            case "touch":
                await until_listening(world, ctx)
                for uri in arguments["uris"]:
                    await world.updated(uri)
                return text_result("touched")
            case "toggle":
                await until_listening(world, ctx)
                await world.toggle(arguments["kind"])
                return text_result(f"toggled {arguments['kind']}")
            case "ask-both":
                return await ask_both(ctx, params)
            case "ask-twice":
                return await ask_twice(ctx, params)
            case name:
                return types.CallToolResult(
                    content=[types.TextContent(type="text", text=f"no tool {name}")], is_error=True
                )

    async def initialized(ctx: Any, _: Any) -> None:
        world.sessions[session_id(ctx)] = ctx.session

    async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        world.subscribers.setdefault(params.uri, {})[session_id(ctx)] = ctx.session
        return types.EmptyResult()

    async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        world.subscribers.get(params.uri, {}).pop(session_id(ctx), None)
        return types.EmptyResult()

    server = AnnouncingServer(
        world.name,
        version="1.0.0",
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_list_resources=list_resources,
        on_list_resource_templates=list_resource_templates,
        on_call_tool=call_tool,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(world.bus),
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    return server


def name_form(message: str) -> types.ElicitRequestFormParams:
    return types.ElicitRequestFormParams(message=message, requested_schema=FORM)


POEM = {
    "messages": [types.SamplingMessage(role="user", content=types.TextContent(type="text", text="a poem, s’il vous plaît"))],
    "max_tokens": 9,
}


async def ask_both(ctx: Any, params: types.CallToolRequestParams) -> Any:
    if is_modern(ctx):
        answers = params.input_responses or {}
        if not {"name", "poem"} <= answers.keys():
            return types.InputRequiredResult(
                input_requests={
                    "name": types.ElicitRequest(params=name_form("Who?")),
                    "poem": types.CreateMessageRequest(params=types.CreateMessageRequestParams(**POEM)),
                }
            )
        name, poem = answers["name"], answers["poem"]
    else:
        related = {"related_request_id": ctx.request_id}
        name = await ctx.session.elicit_form("Who?", FORM, **related)
        poem = await ctx.session.create_message(**POEM, **related)
    return text_result(f"{name.action} {name.content['name']}: {poem.content.text}")


async def ask_twice(ctx: Any, params: types.CallToolRequestParams) -> Any:
    if not is_modern(ctx):
        first = await ctx.session.elicit_form("Who?", FORM, related_request_id=ctx.request_id)
        question = f"Sure, {first.content['name']}?"
        second = await ctx.session.elicit_form(question, FORM, related_request_id=ctx.request_id)
        return text_result(f"{first.content['name']}, {second.content['name']}")
    answers = params.input_responses or {}
    if "second" in answers:
        return text_result(f"{params.request_state}, {answers['second'].content['name']}")
    if "first" in answers:
        name = answers["first"].content["name"]
        request = types.ElicitRequest(params=name_form(f"Sure, {name}?"))
        return types.InputRequiredResult(input_requests={"second": request}, request_state=name)
    return types.InputRequiredResult(input_requests={"first": types.ElicitRequest(params=name_form("Who?"))})


class Streams:
    """Counts the open GET streams of Streamable HTTP sessions: without one, notifications reach no client."""

    def __init__(self, app: Any, world: World) -> None:
        self.app = app
        self.world = world

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/mcp":
            await self.app(scope, receive, send)
            return
        began = False

        async def observed(message: Any) -> None:
            nonlocal began
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200:
                began = True
                self.world.streams += 1
                self.world.stream_began.set()
                self.world.stream_began = anyio.Event()

        try:
            await self.app(scope, receive, observed)
        finally:
            self.world.streams -= began


def serve_http(world: World, port: int) -> None:
    server = build(world)
    transport = SseServerTransport("/messages/")

    async def sse(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    app = server.streamable_http_app(
        custom_starlette_routes=[
            Route("/sse", sse, methods=["GET"]),
            Mount("/messages/", app=transport.handle_post_message),
        ]
    )
    uvicorn.run(Streams(app, world), host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)


async def serve_stdio(world: World) -> None:
    server = build(world)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("--name", default="python-peer")
    arguments = parser.parse_args()
    if arguments.stdio:
        anyio.run(serve_stdio, World(arguments.name))
    else:
        serve_http(World(arguments.name), arguments.port)
