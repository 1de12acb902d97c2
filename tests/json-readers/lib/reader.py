"""A stdio MCP server that returns what Python's `json` has read of a call."""
import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "reader", "version": "1"}}
        case "tools/list":
            schema = {"type": "object", "properties": {"disk": {"type": "string"}}}
            result = {"tools": [{"name": name, "inputSchema": schema} for name in ("look", "shut")]}
        case "tools/call":
            seen = {"name": params.get("name"), "disk": (params.get("arguments") or {}).get("disk")}
            result = {"content": [{"type": "text", "text": json.dumps(seen)}]}
        case _:
            result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
