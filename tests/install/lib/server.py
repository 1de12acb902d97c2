"""A legacy MCP server over HTTP with one tool, in threads of this process."""

import contextlib
import http.server
import json
import threading

RESULTS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "units", "version": "1"}},
    "tools/list": {"tools": [{"name": "convert_units", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [], "structuredContent": {"value": 1000}},
    "ping": {},
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            self.answer(202)
            return
        result = RESULTS.get(request["method"])
        outcome = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}).encode())

    def do_GET(self):
        self.answer(405)

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving():
    """Yields the URL of the server, which runs within the context."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
