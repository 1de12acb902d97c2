// Tools that need no input from the client. The suite calls the first tool when any tool will do,
// so that one takes no arguments.
import { setTimeout as delay } from 'node:timers/promises';
import { fromJsonSchema } from '@modelcontextprotocol/server';
import { answer, audio, image, resource, text } from './content.mjs';

/** Registers the tools on `server`; `world` is the state that all of the process's sessions share. */
export function registerTools(server, world) {
  contentTools(server);
  notifyingTools(server);
  schemaTools(server);
  changingTools(server, world);
}

/** The capabilities that this request's client declared, in either era. */
export function clientCapabilities(server, ctx) {
  return ctx.mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'] ?? server.server.getClientCapabilities() ?? {};
}

function contentTools(server) {
  const tool = (name, description, run) => server.registerTool(name, { description }, run);
  tool('test_simple_text', 'Answers with one text block', async () =>
    answer(text('This is a simple text response for testing.')));
  tool('test_image_content', 'Answers with an image', async () => answer(image()));
  tool('test_audio_content', 'Answers with a sound', async () => answer(audio()));
  tool('test_embedded_resource', 'Answers with an embedded resource', async () =>
    answer(resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')));
  tool('test_multiple_content_types', 'Answers with text, an image and a resource', async () =>
    answer(
      text('Multiple content types test:'),
      image(),
      resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ));
  tool('test_error_handling', 'Always fails', async () => ({
    isError: true,
    content: [text('This tool intentionally returns an error for testing')],
  }));
}

function notifyingTools(server) {
  const steps = ['Tool execution started', 'Tool processing data', 'Tool execution completed'];
  server.registerTool('test_tool_with_logging', { description: 'Logs three times while it runs' }, async (ctx) => {
    for (const [index, step] of steps.entries()) {
      if (index > 0) await delay(50);
      await ctx.mcpReq.log('info', step, 'reference');
    }
    return answer(text('Logged three messages.'));
  });
  server.registerTool('test_logging_tool', { description: 'Logs once if the client has requested logs' }, async (ctx) => {
    await ctx.mcpReq.log('info', 'one message', 'reference');
    return answer(text('Logged.'));
  });
  server.registerTool('test_tool_with_progress', { description: 'Reports 0, 50 and 100 of 100' }, async (ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progress > 0) await delay(50);
      if (progressToken === undefined) continue;
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
    }
    return answer(text('Progressed.'));
  });
  server.registerTool('test_reconnection', { description: 'Closes the response stream, then answers' }, async (ctx) => {
    ctx.http?.closeSSE?.();
    await delay(100);
    return answer(text('Answered after the stream was closed.'));
  });
}

function schemaTools(server) {
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
      address: {
        $anchor: 'addressDef',
        type: 'object',
        properties: { street: { type: 'string' }, city: { type: 'string' } },
      },
    },
    properties: {
      name: { type: 'string' },
      address: { $ref: '#/$defs/address' },
      contactMethod: { type: 'string', enum: ['phone', 'email'] },
      phone: { type: 'string' },
      email: { type: 'string' },
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
  };
  server.registerTool(
    'json_schema_2020_12_tool',
    { description: 'Has an input schema with the wider vocabulary of JSON Schema 2020-12', inputSchema: fromJsonSchema(schema) },
    async (args) => answer(text(JSON.stringify(args))),
  );
  const mirrored = {
    type: 'object',
    properties: {
      region: { type: 'string', 'x-mcp-header': 'Region' },
      retries: { type: 'integer', 'x-mcp-header': 'Retries' },
      note: { type: 'string' },
    },
    required: ['region'],
  };
  server.registerTool(
    'test_mirrored_parameters',
    { description: 'Has parameters that are mirrored into Mcp-Param headers', inputSchema: fromJsonSchema(mirrored) },
    async ({ region }) => answer(text(`region: ${region}`)),
  );
}

/** Tools that change the lists: each call adds an entry or, every other time, removes it. */
function changingTools(server, world) {
  server.registerTool('test_trigger_tool_change', { description: 'Changes the list of tools' }, async () => {
    world.toggleTool();
    return answer(text('The list of tools has changed.'));
  });
  server.registerTool('test_trigger_prompt_change', { description: 'Changes the list of prompts' }, async () => {
    world.togglePrompt();
    return answer(text('The list of prompts has changed.'));
  });
  if (world.extraTool) registerExtraTool(server);
}

/** Registers the changing entry; the returned function removes it. */
export function registerExtraTool(server) {
  return server.registerTool('test_extra_tool', { description: 'Added and removed' }, async () => answer(text('Here for now.')));
}
