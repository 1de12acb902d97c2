"""Driver for the Python SDK (`mcp`): both eras. Same input and output as plan.mjs."""

import base64
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
)

MODERN_REVISION = "2026-07-28"
REQUEST_TIMEOUT_S = 20.0
NOTIFICATION_TIMEOUT_S = 10.0
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

# The server requests during the running step.
asked: list[dict[str, Any]] = []


class Notifications:
    """The notifications outside of calls that no step has reported yet, and the subscriptions."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.came = anyio.Event()
        self.uris: list[str] = []
        self.subscription = AsyncExitStack()
        self.subscription_id: str | int | None = None

    def note(self, method: str, params: dict[str, Any]) -> None:
        self.received.append({"method": method, "params": params})
        self.came.set()
        self.came = anyio.Event()

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Returns the notifications since the last time, once there are `count`, in a stable order."""
        with anyio.move_on_after(NOTIFICATION_TIMEOUT_S):
            while len(self.received) < count:
                await self.came.wait()
        received, self.received = self.received, []
        return sorted(received, key=json.dumps)


notifications = Notifications()


async def main() -> None:
    job = json.load(sys.stdin)
    client = Client(
        target_of(job["target"]),
        mode="auto" if job["era"] == "modern" else "legacy",
        client_info=Implementation(name="fanlight-interop", version="1.0.0"),
        read_timeout_seconds=REQUEST_TIMEOUT_S,
        elicitation_callback=answer_elicitation,
        sampling_callback=answer_sampling,
        message_handler=note_message,
    )
    async with client, notifications.subscription:
        if job["era"] == "modern" and client.protocol_version != MODERN_REVISION:
            raise RuntimeError(f"asked for {MODERN_REVISION}, the server speaks {client.protocol_version}")
        report = {"server": describe_server(client), "lists": await read_lists(client), "steps": {}}
        for step in job["steps"]:
            report["steps"][step["id"]] = await run_step(client, step)
    json.dump(report, sys.stdout)


async def answer_elicitation(_: Any, params: Any) -> ElicitResult:
    record_server_request("elicitation/create", params)
    return ElicitResult(action="accept", content={"name": 'Ada "é" Lovelace', "check": True, "integer": 7})


async def answer_sampling(_: Any, params: Any) -> CreateMessageResult:
    record_server_request("sampling/createMessage", params)
    content = TextContent(type="text", text="façade \u2028")
    return CreateMessageResult(role="assistant", content=content, model="a-model", stop_reason="endTurn")


def record_server_request(method: str, params: Any) -> None:
    """Removes the keys that name the call or connection, which differ between runs."""
    shown = plain(params)
    shown.pop("_meta", None)
    asked.append({"method": method, "params": shown})


def target_of(target: dict[str, Any]) -> Any:
    if "sse" in target:
        return sse_client(target["sse"])
    return target["url"] if "url" in target else StdioServerParameters(**target)


async def note_message(message: Any) -> None:
    method = getattr(message, "method", "")
    if method == "notifications/resources/updated" or method.endswith("/list_changed"):
        params = plain(message.params) or {}
        meta = params.pop("_meta", {})
        if meta.get(SUBSCRIPTION_ID) == notifications.subscription_id:
            meta.pop(SUBSCRIPTION_ID, None)
        notifications.note(method, {**params, "_meta": meta} if meta else params)


async def watch(client: Client, uris: list[str], lists: list[str]) -> dict[str, Any]:
    """Subscribes; returns the filter that the server honours."""
    notifications.uris = uris
    if client.protocol_version != MODERN_REVISION:
        for uri in uris:
            await client.subscribe_resource(uri)
        capabilities = plain(client.server_capabilities)
        return {"uris": uris, "lists": [kind for kind in lists if capabilities[kind].get("listChanged")]}
    wanted = {f"{kind}_list_changed": True for kind in lists}
    stream = client.listen(**wanted, resource_subscriptions=uris)
    subscription = await notifications.subscription.enter_async_context(stream)
    notifications.subscription_id = subscription.subscription_id
    honored = plain(subscription.honored)
    return {
        "uris": honored.get("resourceSubscriptions", []),
        "lists": [kind for kind in lists if honored.get(f"{kind}ListChanged")],
    }


async def unwatch(client: Client) -> dict[str, Any]:
    if client.protocol_version == MODERN_REVISION:
        await notifications.subscription.aclose()
    else:
        for uri in notifications.uris:
            await client.unsubscribe_resource(uri)
    return {}


async def names_listed(client: Client, kind: str) -> dict[str, Any]:
    """The key of the entries of a list: name or URI."""
    list_page = {"tools": client.list_tools, "prompts": client.list_prompts, "resources": client.list_resources}[kind]
    items = (await all_pages(kind, list_page))["items"]
    return {"kind": kind, "names": [item.get("uri", item["name"]) for item in items]}


def replace_file(file: str, text: str) -> dict[str, Any]:
    """Replaces a file in the way that most editors do, so that no reader sees part of it."""
    new = Path(f"{file}.new")
    new.write_text(text)
    new.replace(file)
    return {}


async def read_in_parts(client: Client, params: dict[str, Any]) -> dict[str, Any]:
    """Calls a tool whose result is shortened, and reads the text that it lacks in parts of so many bytes."""
    called = plain(await client.call_tool(params["name"], params["arguments"]))
    link = next(block for block in called["content"] if block["type"] == "resource_link")
    uri, count = link["uri"], params["bytes"]
    whole = b""
    for start in range(0, link["size"], count):
        read = plain(await client.read_resource(f"{uri}?bytes={start}-{start + count - 1}"))
        part = read["contents"][0]
        whole += part["text"].encode() if "text" in part else base64.b64decode(part["blob"])
    line = plain(await client.call_tool("read_result", {"uri": uri, "lines": "2-2"}))
    return {"text": whole.decode(), "line": line["content"][0]["text"]}


def describe_server(client: Client) -> dict[str, Any]:
    return {
        "era": "modern" if client.protocol_version == MODERN_REVISION else "legacy",
        "serverInfo": plain(client.server_info),
        "capabilities": plain(client.server_capabilities),
        "instructions": client.instructions,
    }


async def read_lists(client: Client) -> dict[str, Any]:
    """Every list the server has the capability for, all pages; None for a capability it lacks."""
    capabilities = client.server_capabilities
    lists = {
        "tools": (capabilities.tools, client.list_tools),
        "resources": (capabilities.resources, client.list_resources),
        "resourceTemplates": (capabilities.resources, client.list_resource_templates),
        "prompts": (capabilities.prompts, client.list_prompts),
    }
    return {
        member: None if capability is None else await all_pages(member, list_page)
        for member, (capability, list_page) in lists.items()
    }


async def all_pages(member: str, list_page: Any) -> dict[str, Any]:
    """`items` of all pages, and `rest`: the other members of the first page."""
    rest = plain(await list_page())
    items = rest.pop(member)
    cursor = rest.pop("nextCursor", None)
    while cursor is not None:
        page = plain(await list_page(cursor=cursor))
        items += page[member]
        cursor = page.get("nextCursor")
    return {"items": items, "rest": rest}


async def run_step(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    progress: list[dict[str, Any]] = []
    asked.clear()
    try:
        result = await send(client, step, progress)
        # Concurrent server requests may arrive in any order.
        outcome = {"result": plain(result), "progress": progress, "asked": sorted(asked, key=json.dumps)}
        if "count" in step["params"]:
            outcome["notifications"] = await notifications.until(step["params"]["count"])
        return outcome
    except MCPError as error:
        return {"error": plain(error.error), "progress": progress}
    except Exception as error:  # the report says it, and the comparison fails on it
        return {"clientFailure": f"{type(error).__name__}: {error}"}


async def send(client: Client, step: dict[str, Any], progress: list[dict[str, Any]]) -> Any:
    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        # Fanlight's own, on a machine so busy that a process takes seconds to start.
        if message == "waiting for the server to start":
            return
        update = {"progress": done, "total": total, "message": message}
        progress.append({key: value for key, value in update.items() if value is not None})

    params = step["params"]
    match step["method"]:
        case "tools/call" | "announce" | "task":
            return await client.call_tool(params["name"], params.get("arguments"), progress_callback=on_progress)
        case "resources/read":
            return await client.read_resource(params["uri"])
        case "prompts/get":
            return await client.get_prompt(params["name"], params.get("arguments"))
        case "completion/complete":
            reference = PromptReference if params["ref"]["type"] == "ref/prompt" else ResourceTemplateReference
            context = params.get("context", {}).get("arguments")
            return await client.complete(reference(**params["ref"]), params["argument"], context_arguments=context)
        case "watch":
            return await watch(client, params["uris"], params["lists"])
        case "unwatch":
            return await unwatch(client)
        case "list":
            return await names_listed(client, params["kind"])
        case "inParts":
            return await read_in_parts(client, params)
        case "replaceFile":
            return replace_file(params["file"], params["text"])
        case method:
            raise ValueError(f"no such method in a plan: {method}")


def plain(model: Any) -> Any:
    """JSON as on the wire: aliases, and only members that were set."""
    if model is None or isinstance(model, dict):
        return model
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    try:
        anyio.run(main)
    except Exception as error:
        cause = first_cause(error)
        sys.exit(f"{type(cause).__name__}: {cause}")
