// Driver for @modelcontextprotocol/sdk (v1): the legacy era only. See plan.mjs for its input and output.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { answering, CAPABILITIES, CLIENT_INFO, runDriver } from './plan.mjs';

await runDriver({
  async connect(target, era) {
    if (era !== 'legacy') throw new Error(`SDK v1 has no ${era} era`);
    const client = new Client(CLIENT_INFO, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, answering('elicitation/create'));
    client.setRequestHandler(CreateMessageRequestSchema, answering('sampling/createMessage'));
    await client.connect(
      target.url ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target),
    );
    return client;
  },

  callTool: (client, params, options) => client.callTool(params, undefined, options),

  wireError(error) {
    if (!(error instanceof McpError)) return undefined;
    // The SDK puts this before the message that was on the wire.
    const message = error.message.replace(`MCP error ${error.code}: `, '');
    return { code: error.code, message, data: error.data };
  },
});
