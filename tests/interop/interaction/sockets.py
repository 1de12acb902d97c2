"""A pytest plugin that puts real sockets, and Fanlight, between the clients and servers of the Python SDK's interaction suite.

The suite connects its clients and servers within one process. This plugin replaces its factories for Streamable HTTP: each server
listens on loopback, and with `THROUGH` set to `fanlight` or `policy` its client reaches it through Fanlight, the second time with
a policy that permits everything. `FANLIGHT_BIN` names the program.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import anyio
import httpx2
import uvicorn

THROUGH = os.environ.get("THROUGH", "")
START_SECONDS = 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.asynccontextmanager
async def served(app, port):
    """Serves `app` on loopback, in this event loop."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    server.capture_signals = contextlib.nullcontext
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.005)
        try:
            yield
        finally:
            # Streams of clients that have not gone must not hold up the end.
            server.should_exit = server.force_exit = True


@contextlib.asynccontextmanager
async def fanlight(port, server_port):
    """Fanlight on `port`, in front of the server."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="interaction-"))
    lines = [
        f"listen: 127.0.0.1:{port}",
        f"admin: {{ listen: '127.0.0.1:{free_port()}' }}",
        "audit: { keepFor: off }",
        f"mcpServers: {{ one: {{ url: 'http://127.0.0.1:{server_port}/mcp' }} }}",
    ]
    if THROUGH == "policy":
        (folder / "all.cedar").write_text("permit(principal, action, resource);\n", encoding="utf-8")
        lines.append("policy: { files: [all.cedar] }")
    config = folder / "fanlight.yaml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([os.environ["FANLIGHT_BIN"], "--config", config], stdout=log, stderr=log)
    try:
        await connected(port, process, folder / "log")
        yield
    finally:
        process.kill()
        await anyio.to_thread.run_sync(process.wait)
        shutil.rmtree(folder)


async def connected(port, process, log):
    """Waits until something listens on the port."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(encoding="utf-8")) from error
            await anyio.sleep(0.01)


@contextlib.asynccontextmanager
async def reachable(app, port):
    """Makes `app` reachable on `port`, directly or through Fanlight."""
    if not THROUGH:
        async with served(app, port):
            yield
        return
    server_port = free_port()
    async with served(app, server_port), fanlight(port, server_port):
        yield


def pytest_configure(config):
    from functools import partial

    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.mcpserver import MCPServer
    from mcp_types import jsonrpc_message_adapter
    from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
    from tests.interaction import _connect

    port = free_port()
    base = _connect.BASE_URL = f"http://127.0.0.1:{port}"
    timeout = httpx2.Timeout(30, read=300)
    unprotected = _connect.NO_DNS_REBINDING_PROTECTION

    @contextlib.asynccontextmanager
    async def connect(server, *, spec_version=LATEST_HANDSHAKE_VERSION, **options):
        of_app = ("stateless_http", "json_response", "event_store", "retry_interval")
        app = {name: options.pop(name) for name in of_app if name in options}
        app = server.streamable_http_app(transport_security=unprotected, **app)
        mode = spec_version if spec_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        async with server.session_manager.run(), reachable(app, port), httpx2.AsyncClient(timeout=timeout) as http:
            async with Client(streamable_http_client(f"{base}/mcp", http_client=http), mode=mode, **options) as client:
                yield client

    @contextlib.asynccontextmanager
    async def mounted_app(server, *, on_request=None, on_response=None, headers=None, **options):
        lowlevel = server._lowlevel_server if isinstance(server, MCPServer) else server
        app = lowlevel.streamable_http_app(**{"transport_security": unprotected, **options})
        hooks = {"request": [on_request] if on_request else [], "response": [on_response] if on_response else []}
        async with server.session_manager.run(), reachable(app, port):
            client = httpx2.AsyncClient(base_url=base, event_hooks=hooks, headers=headers, timeout=timeout)
            async with client as http:
                yield http, server.session_manager

    async def post_jsonrpc(http, body, *, session_id=None):
        """Sends a message; its answer may be JSON or an event stream (2025-11-25, Transports)."""
        response = await http.post("/mcp", json=body, headers=_connect.base_headers(session_id=session_id))
        if response.headers.get("content-type", "").startswith("application/json"):
            texts = [response.text]
        else:
            texts = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
        return response, [jsonrpc_message_adapter.validate_json(text) for text in texts if text.strip()]

    async def initialize_via_http(http):
        response, messages = await post_jsonrpc(http, _connect.initialize_body())
        assert response.status_code == 200 and [message.id for message in messages] == [1]
        session = response.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await post_jsonrpc(http, ready, session_id=session))[0].status_code == 202
        return session

    _connect.post_jsonrpc = post_jsonrpc
    _connect.initialize_via_http = initialize_via_http
    _connect.connect_over_streamable_http = connect
    _connect.connect_over_streamable_http_stateless = partial(connect, stateless_http=True)
    _connect.mounted_app = mounted_app
