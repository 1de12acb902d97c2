// The MCP server behind the protected resource, both eras, in this process. It records the headers
// of each request, which must not contain a client's credentials.
import { createServer } from 'node:http';
import { once } from 'node:events';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, fromJsonSchema, McpServer } from '@modelcontextprotocol/server';

const NOTHING = fromJsonSchema({ type: 'object', properties: {} });

export async function startBackend() {
  const requests = [];
  const serve = toNodeHandler(createMcpHandler(build, { legacy: 'stateless' }));
  const server = createServer((request, response) => {
    requests.push({ method: request.method, headers: request.headers });
    return serve(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}/mcp`,
    requests,
    close: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))),
  };
}

function build() {
  const server = new McpServer({ name: 'till', version: '1.0.0' });
  const tools = { note: ['Notes something', 'noted'], refund: ['Pays money back', 'refunded'] };
  for (const [name, [description, text]] of Object.entries(tools)) {
    server.registerTool(name, { description, inputSchema: NOTHING }, async () => ({ content: [{ type: 'text', text }] }));
  }
  return server;
}
