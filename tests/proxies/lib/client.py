"""A client of a gateway behind a proxy, at an address of its own."""

import http.client
import json
import ssl
import time

HOST = "mcp.example.com"
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
# The clients' address differs from the proxies' address, so that the two can be told apart.
ADDRESS = "127.0.0.3"
ACCEPT = "application/json, text/event-stream"


class Client:
    def __init__(self, port, ca_file):
        self.port = port
        self.tls = ssl.create_default_context(cafile=ca_file)

    def request(self, method, path, body=None, host=HOST, **headers):
        """The response, of which only the head has been read."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        # The connection is made here, since the name does not resolve to the address.
        import socket

        plain = socket.create_connection(("127.0.0.1", self.port), 30, source_address=(ADDRESS, 0))
        connection.sock = self.tls.wrap_socket(plain, server_hostname=HOST)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            names |= {"Content-Type": "application/json", "Accept": ACCEPT}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers={"Host": host} | names)
        return connection.getresponse()

    def call(self, tool, arguments, meta=None, **headers):
        """The response to a call by a client of 2026-07-28."""
        own = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            **(meta or {}),
        }
        params = {"name": tool, "arguments": arguments, "_meta": own}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        names = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": tool}
        return self.request("POST", "/mcp", message, **names, **headers)

    def open_session(self):
        """The id of a new session of a client of 2025-11-25."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        response = self.request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        session = response.headers["Mcp-Session-Id"]
        response.read()
        assert response.status == 200 and session, response.status
        return session

    def in_session(self, session):
        """The status of a request in a session."""
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        response = self.request("POST", "/mcp", message, Mcp_Session_Id=session, MCP_Protocol_Version=LEGACY)
        response.read()
        return response.status


def events(response):
    """The messages of an event stream, each with the time of its arrival."""
    found = []
    while line := response.readline():
        if line.startswith(b"data:") and line[5:].strip():
            found.append((time.monotonic(), json.loads(line[5:])))
    return found
