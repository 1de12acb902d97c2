"""Driver for the Python SDK (`mcp`): both eras. Input and output as in provider.mjs."""

import base64
import json
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urljoin, urlparse

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

MODERN_REVISION = "2026-07-28"
REDIRECT_URI = "http://127.0.0.1:1/callback"
USER_HEADER = "x-test-user"
MAX_REDIRECTS = 12
TIMEOUT_S = 20.0


class Memory(TokenStorage):
    """Keeps the client's credentials, and every access token that it had."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.access_tokens: list[str] = []

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.access_tokens.append(tokens.access_token)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Follows the redirects of a sign-in, with cookies, as one user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.callback = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient(headers={USER_HEADER: self.user}, timeout=TIMEOUT_S) as http:
            for _ in range(MAX_REDIRECTS):
                response = await http.get(url)
                if "location" not in response.headers:
                    raise RuntimeError(f"the sign-in ends with {response.status_code}: {response.text}")
                url = urljoin(url, response.headers["location"])
                if url.startswith(REDIRECT_URI):
                    self.callback = url
                    return
        raise RuntimeError("too many redirects")

    async def result(self) -> AuthorizationCodeResult:
        parameters = {name: values[0] for name, values in parse_qs(urlparse(self.callback).query).items()}
        return AuthorizationCodeResult(**parameters)


async def main() -> None:
    plan = json.load(sys.stdin)
    memory, browser = Memory(), Browser(plan["user"])
    metadata = OAuthClientMetadata(
        client_name=plan["name"],
        redirect_uris=[REDIRECT_URI],
        grant_types=["authorization_code"] + (["refresh_token"] if plan["keepsRefreshTokens"] else []),
        token_endpoint_auth_method="none",
    )
    provider = OAuthClientProvider(
        plan["url"], metadata, memory, browser.open, browser.result, client_metadata_url=plan.get("clientMetadataUrl")
    )
    async with httpx2.AsyncClient(auth=provider, timeout=TIMEOUT_S) as http:
        mode = "auto" if plan["era"] == "modern" else "legacy"
        target = streamable_http_client(plan["url"], http_client=http)
        async with Client(target, mode=mode, read_timeout_seconds=TIMEOUT_S) as client:
            if plan["era"] == "modern" and client.protocol_version != MODERN_REVISION:
                raise RuntimeError(f"asked for {MODERN_REVISION}, the server speaks {client.protocol_version}")
            tools = [tool.name for tool in (await client.list_tools()).tools]
            results = [await run_step(client, memory, step) for step in plan["steps"]]
    shown = [result for result in results if result is not None]
    json.dump({"tools": tools, "results": shown, "tokens": memory.access_tokens}, sys.stdout)


async def run_step(client: Client, memory: Memory, step: dict[str, Any]) -> str | None:
    if "waitForExpiry" in step:
        await until_expired(memory.access_tokens[-1], step["waitForExpiry"])
        return None
    result = await client.call_tool(step["call"], step.get("arguments", {}))
    return result.content[0].text


async def until_expired(token: str, leeway: int) -> None:
    """Waits until the token has been expired for `leeway` seconds, as its own `exp` says."""
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    await anyio.sleep(max(0.0, claims["exp"] + leeway - time.time()) + 1.0)


anyio.run(main)
