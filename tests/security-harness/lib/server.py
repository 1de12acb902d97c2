"""A server of 2026-07-28 with the fixtures of the harness: a tool that needs input, handles, a task, a changing list.

It keeps two users apart by their access tokens, so that it passes by itself wherever possible. `requestState` is bound to its user
and request, and valid once.
"""

import hashlib
import hmac
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REVISION = "2026-07-28"
META = "io.modelcontextprotocol/"
MAX_BODY = 1 << 20
MOST_DRAINED = 32 << 20
DOCUMENT = "test://document"
REVOCABLE = "revocable"
INPUT = "approval"
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
INVALID_PARAMS, METHOD_NOT_FOUND, INVALID_REQUEST, PARSE_ERROR = -32602, -32601, -32600, -32700
# The errors for which the specification defines an HTTP status.
STATUSES = {METHOD_NOT_FOUND: 404, HEADER_MISMATCH: 400, MISSING_CAPABILITY: 400, UNSUPPORTED_VERSION: 400}
FRESH = {"ttlMs": 0, "cacheScope": "private"}


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code, message, data=None, status=None):
        super().__init__(message)
        self.status = status or STATUSES.get(code, 200)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class Server:
    """A server for the subjects of `issuer`'s tokens for `audience`."""

    def __init__(self, issuer, audience):
        self.issuer, self.audience = issuer, audience
        self.secret = secrets.token_bytes(32)
        self.used, self.handles, self.tasks = set(), {}, {}
        self.is_revoked = False
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self.http.server_port
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()

    def answer(self, user, request):
        method, params = request["method"], request.get("params") or {}
        methods = {
            "server/discover": self.discover,
            "tools/list": self.list_tools,
            "tools/call": self.call,
            "resources/list": lambda *_: {"resources": [{"uri": DOCUMENT, "name": "document"}], **FRESH},
            "resources/read": self.read,
            "tasks/get": self.get_task,
        }
        if method not in methods:
            raise Refused(METHOD_NOT_FOUND, f"there is no method {method}")
        with self.lock:
            return {"resultType": "complete", **methods[method](user, params)}

    def discover(self, _user, _params):
        capabilities = {"tools": {}, "resources": {}, "extensions": {f"{META}tasks": {}}}
        info = {"name": "harness-target", "version": "1.0.0"}
        return {"supportedVersions": [REVISION], "capabilities": capabilities, "serverInfo": info, **FRESH}

    def list_tools(self, _user, _params):
        text = {"type": "string"}
        schemas = {
            "approve": {"amount": {"type": "integer"}},
            "open_draft": {},
            "read_draft": {"handle": text},
            "long_job": {},
            "revoke": {},
            **({} if self.is_revoked else {REVOCABLE: {}}),
        }
        tools = [
            {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object", "properties": properties}}
            for name, properties in schemas.items()
        ]
        return {"tools": tools, **FRESH}

    def call(self, user, params):
        name, arguments = params.get("name"), params.get("arguments") or {}
        if name == "approve":
            return self.approve(user, params)
        if name == "open_draft":
            handle = secrets.token_hex(16)
            self.handles[handle] = user
            return {**content("opened"), "structuredContent": {"handle": handle}}
        if name == "read_draft":
            if self.handles.get(arguments.get("handle")) != user:
                raise Refused(INVALID_PARAMS, "there is no such draft")
            return content("a draft")
        if name == "long_job":
            return self.make_task(user, params)
        if name == "revoke":
            self.is_revoked = True
            return content("revoked")
        if name == REVOCABLE and not self.is_revoked:
            return content("done")
        raise Refused(INVALID_PARAMS, f"there is no tool {name}")

    def approve(self, user, params):
        if "elicitation" not in capabilities_of(params):
            raise Refused(MISSING_CAPABILITY, "needs elicitation", {"requiredCapabilities": {"elicitation": {}}})
        request = json.dumps([params.get("name"), params.get("arguments")], sort_keys=True)
        if "requestState" in params:
            self.redeem(user, request, params["requestState"])
            if INPUT in (params.get("inputResponses") or {}):
                return content("approved")
        nonce = secrets.token_hex(16)
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        question = {"method": "elicitation/create", "params": {"mode": "form", "message": "Approve?", "requestedSchema": schema}}
        state = f"{nonce}.{self.seal(user, request, nonce)}"
        return {"resultType": "input_required", "inputRequests": {INPUT: question}, "requestState": state}

    def redeem(self, user, request, state):
        nonce, _, mac = state.partition(".")
        if not hmac.compare_digest(mac, self.seal(user, request, nonce)) or nonce in self.used:
            raise Refused(INVALID_PARAMS, "requestState is not valid for this request")
        self.used.add(nonce)

    def seal(self, user, request, nonce):
        return hmac.new(self.secret, json.dumps([user, request, nonce]).encode(), hashlib.sha256).hexdigest()

    def make_task(self, user, params):
        if f"{META}tasks" not in capabilities_of(params).get("extensions", {}):
            required = {"requiredCapabilities": {"extensions": {f"{META}tasks": {}}}}
            raise Refused(MISSING_CAPABILITY, "runs as a task only", required)
        task = secrets.token_hex(16)
        self.tasks[task] = user
        return {"resultType": "task", **state_of(task)}

    def get_task(self, user, params):
        task = params.get("taskId")
        if self.tasks.get(task) != user:
            raise Refused(INVALID_PARAMS, "there is no such task")
        return state_of(task)

    def read(self, _user, params):
        if params.get("uri") != DOCUMENT:
            raise Refused(INVALID_PARAMS, "there is no such resource")
        return {"contents": [{"uri": DOCUMENT, "mimeType": "text/plain", "text": "a document"}], **FRESH}

    def _handler(server):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                if length > MAX_BODY:
                    self.close_connection = True
                    self.rfile.read(min(length, MOST_DRAINED))
                    return self.reply(413, error(None, Refused(INVALID_REQUEST, "too large")))
                body = self.rfile.read(length)
                scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
                user = server.issuer.subject(token, server.audience) if scheme == "Bearer" else None
                if user is None:
                    return self.reply(401, error(None, Refused(INVALID_REQUEST, "unauthorized")))
                return self.serve(user, body)

            def do_GET(self):
                self.reply(405, error(None, Refused(METHOD_NOT_FOUND, "only POST")))

            def serve(self, user, body):
                try:
                    request = json.loads(body)
                except ValueError:
                    return self.reply(400, error(None, Refused(PARSE_ERROR, "no JSON")))
                if not is_message(request):
                    return self.reply(400, error(None, Refused(INVALID_REQUEST, "no request")))
                if "id" not in request:
                    return self.reply(202, None)
                try:
                    self.check(request)
                    result = server.answer(user, request)
                except Refused as refused:
                    return self.reply(refused.status, error(request["id"], refused))
                return self.reply(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})

            def check(self, request):
                """Checks that the headers mirror the body (2026-07-28 basic/transports/streamable-http)."""
                method, params = request["method"], request.get("params") or {}
                meta = params.get("_meta") or {}
                version = meta.get(f"{META}protocolVersion")
                if not isinstance(version, str) or not isinstance(meta.get(f"{META}clientCapabilities"), dict):
                    raise Refused(INVALID_PARAMS, "the request does not describe its client", status=400)
                names = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name", "tasks/get": "taskId"}
                name = params.get(names[method]) if method in names else None
                # The harness sends a task's id in no header.
                shown = self.headers.get("Mcp-Name") or (name if method == "tasks/get" else None)
                given = (self.headers.get("MCP-Protocol-Version"), self.headers.get("Mcp-Method"), shown)
                if given != (version, method, name):
                    raise Refused(HEADER_MISMATCH, "the headers do not repeat what the body says")
                if version != REVISION:
                    raise Refused(UNSUPPORTED_VERSION, "unsupported", {"supported": [REVISION], "requested": version})

            def reply(self, status, message):
                body = json.dumps(message).encode() if message else b""
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def content(text):
    return {"content": [{"type": "text", "text": text}]}


def state_of(task):
    time = "2026-01-01T00:00:00Z"
    return {"taskId": task, "status": "working", "createdAt": time, "lastUpdatedAt": time, "ttlMs": 600_000}


def capabilities_of(params):
    return (params.get("_meta") or {}).get(f"{META}clientCapabilities") or {}


def is_message(message):
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)


def error(request_id, refused):
    return {"jsonrpc": "2.0", "id": request_id, "error": refused.error}
