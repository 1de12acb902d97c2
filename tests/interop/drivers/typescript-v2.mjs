// Driver for @modelcontextprotocol/client (v2): both eras. See plan.mjs for its input and output.
import { Client, ProtocolError, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { recordNotification } from './notifications.mjs';
import { answering, CAPABILITIES, CLIENT_INFO, runDriver } from './plan.mjs';

const MODERN_REVISION = '2026-07-28';

await runDriver({
  async connect(target, era) {
    const mode = era === 'modern' ? { pin: MODERN_REVISION } : 'legacy';
    const client = new Client(CLIENT_INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
    for (const method of ['elicitation/create', 'sampling/createMessage']) {
      client.setRequestHandler(method, answering(method));
    }
    client.fallbackNotificationHandler = recordNotification;
    await client.connect(transportTo(target));
    return client;
  },

  callTool: (client, params, options) => client.callTool(params, options),

  wireError(error) {
    if (!(error instanceof ProtocolError)) return undefined;
    return { code: error.code, message: error.message, data: error.data };
  },
});

function transportTo(target) {
  if (target.sse) return new SSEClientTransport(new URL(target.sse));
  return target.url ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
}
