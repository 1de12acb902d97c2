// Driver for @modelcontextprotocol/sdk (v1): the legacy era.
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { HeadlessProvider, runDriver } from './provider.mjs';

await runDriver(async (plan) => {
  const provider = new HeadlessProvider(plan);
  let client;
  let transport;
  const open = async () => {
    transport = new StreamableHTTPClientTransport(new URL(plan.url), { authProvider: provider });
    client = new Client({ name: plan.name, version: '1.0.0' });
    await client.connect(transport);
  };
  const signedIn = async (run) => {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof UnauthorizedError)) throw error;
      await transport.finishAuth(provider.callback.get('code'));
      return run();
    }
  };
  await signedIn(open);
  return { client, provider, signedIn };
});
