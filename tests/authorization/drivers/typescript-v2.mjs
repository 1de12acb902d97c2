// Driver for @modelcontextprotocol/client (v2): both eras.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { HeadlessProvider, runDriver } from './provider.mjs';

const MODERN_REVISION = '2026-07-28';

await runDriver(async (plan) => {
  const provider = new HeadlessProvider(plan);
  const mode = plan.era === 'modern' ? { pin: MODERN_REVISION } : 'legacy';
  let client;
  let transport;
  const open = async () => {
    transport = new StreamableHTTPClientTransport(new URL(plan.url), { authProvider: provider });
    client = new Client({ name: plan.name, version: '1.0.0' }, { versionNegotiation: { mode } });
    await client.connect(transport);
  };
  const signedIn = async (run) => {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof UnauthorizedError)) throw error;
      await transport.finishAuth(provider.callback);
      return run();
    }
  };
  await signedIn(open);
  return { client, provider, signedIn };
});
