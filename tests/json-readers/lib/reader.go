// An MCP server on standard input and output that tells what encoding/json has read of a call.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string  `json:"protocolVersion"`
		Name            *string `json:"name"`
		Arguments       struct {
			Disk *string `json:"disk"`
		} `json:"arguments"`
	} `json:"params"`
}

type object = map[string]any

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var received message
		// A value of another type leaves what has been read before it.
		_ = json.Unmarshal(lines.Bytes(), &received)
		if received.ID == nil {
			continue
		}
		params, result := received.Params, object{}
		switch received.Method {
		case "initialize":
			result = object{"protocolVersion": params.ProtocolVersion, "capabilities": object{"tools": object{}},
				"serverInfo": object{"name": "reader", "version": "1"}}
		case "tools/list":
			schema := object{"type": "object", "properties": object{"disk": object{"type": "string"}}}
			result = object{"tools": []object{{"name": "look", "inputSchema": schema}, {"name": "shut", "inputSchema": schema}}}
		case "tools/call":
			seen, _ := json.Marshal(object{"name": params.Name, "disk": params.Arguments.Disk})
			result = object{"content": []object{{"type": "text", "text": string(seen)}}}
		}
		answer, _ := json.Marshal(object{"jsonrpc": "2.0", "id": received.ID, "result": result})
		fmt.Println(string(answer))
	}
}
