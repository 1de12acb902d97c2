"""Driver for the Python SDK (`mcp`): both eras. Same input and output as plan.mjs."""

import json
import sys
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
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

# What the client was asked during the running step.
asked: list[dict[str, Any]] = []


async def main() -> None:
    job = json.load(sys.stdin)
    client = Client(
        target_of(job["target"]),
        mode="auto" if job["era"] == "modern" else "legacy",
        client_info=Implementation(name="fanlight-interop", version="1.0.0"),
        read_timeout_seconds=REQUEST_TIMEOUT_S,
        elicitation_callback=answer_elicitation,
        sampling_callback=answer_sampling,
    )
    async with client:
        if job["era"] == "modern" and client.protocol_version != MODERN_REVISION:
            raise RuntimeError(f"asked for {MODERN_REVISION}, the server speaks {client.protocol_version}")
        report = {"server": describe_server(client), "lists": await read_lists(client), "steps": {}}
        for step in job["steps"]:
            report["steps"][step["id"]] = await run_step(client, step)
    json.dump(report, sys.stdout)


async def answer_elicitation(_: Any, params: Any) -> ElicitResult:
    note_question("elicitation/create", params)
    return ElicitResult(action="accept", content={"name": 'Ada "é" Lovelace', "check": True, "integer": 7})


async def answer_sampling(_: Any, params: Any) -> CreateMessageResult:
    note_question("sampling/createMessage", params)
    content = TextContent(type="text", text="façade \u2028")
    return CreateMessageResult(role="assistant", content=content, model="a-model", stop_reason="endTurn")


def note_question(method: str, params: Any) -> None:
    """Which call or connection it belongs to is no part of the question."""
    shown = plain(params)
    shown.pop("_meta", None)
    asked.append({"method": method, "params": shown})


def target_of(target: dict[str, Any]) -> StdioServerParameters | str:
    return target["url"] if "url" in target else StdioServerParameters(**target)


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
        return {"result": plain(await send(client, step, progress)), "progress": progress, "asked": list(asked)}
    except MCPError as error:
        return {"error": plain(error.error), "progress": progress}
    except Exception as error:  # the report says it, and the comparison fails on it
        return {"clientFailure": f"{type(error).__name__}: {error}"}


async def send(client: Client, step: dict[str, Any], progress: list[dict[str, Any]]) -> Any:
    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        update = {"progress": done, "total": total, "message": message}
        progress.append({key: value for key, value in update.items() if value is not None})

    params = step["params"]
    match step["method"]:
        case "tools/call":
            return await client.call_tool(params["name"], params.get("arguments"), progress_callback=on_progress)
        case "resources/read":
            return await client.read_resource(params["uri"])
        case "prompts/get":
            return await client.get_prompt(params["name"], params.get("arguments"))
        case "completion/complete":
            reference = PromptReference if params["ref"]["type"] == "ref/prompt" else ResourceTemplateReference
            context = params.get("context", {}).get("arguments")
            return await client.complete(reference(**params["ref"]), params["argument"], context_arguments=context)
        case method:
            raise ValueError(f"no such method in a plan: {method}")


def plain(model: Any) -> Any:
    """JSON as it was on the wire: aliases, and only members that were set."""
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_unset=True)


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
