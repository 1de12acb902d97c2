// Driver for @modelcontextprotocol/sdk (v1): the legacy era only. See plan.mjs for its input and output.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, CreateMessageRequestSchema, ElicitRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { recordNotification } from './notifications.mjs';
import { answering, CAPABILITIES, CLIENT_INFO, runDriver } from './plan.mjs';

await runDriver({
  async connect(target, era) {
    if (era !== 'legacy') throw new Error(`SDK v1 has no ${era} era`);
    const client = new Client(CLIENT_INFO, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, answering('elicitation/create'));
    client.setRequestHandler(CreateMessageRequestSchema, answering('sampling/createMessage'));
    client.fallbackNotificationHandler = recordNotification;
    await client.connect(transportTo(target));
    return client;
  },

  callTool: (client, params, options) => client.callTool(params, undefined, options),

  /** Runs the tool as a task; `seen` collects its first and its last state and its list entry. */
  async runTask(client, params, options, seen) {
    const { tasks } = client.experimental;
    let taskId;
    let outcome;
    for await (const message of tasks.callToolStream(params, CallToolResultSchema, { ...options, task: {} })) {
      if (message.type === 'taskCreated') ({ taskId, ...seen.began } = message.task);
      else outcome = message;
    }
    ({ taskId, ...seen.ended } = await tasks.getTask(taskId, options));
    seen.isListed = (await tasks.listTasks(undefined, options)).tasks.some((task) => task.taskId === taskId);
    seen.cancelled = await tasks.cancelTask(taskId, options).catch(wireError);
    // For a failed task the SDK reports only the failure; `tasks/result` may have details.
    if (outcome.type === 'error') seen.error = wireError(outcome.error);
    const result = outcome.result ?? (await tasks.getTaskResult(taskId, CallToolResultSchema, options));
    seen.isRelated = result._meta?.['io.modelcontextprotocol/related-task']?.taskId === taskId;
    return result;
  },

  wireError,
});

function wireError(error) {
  if (!(error instanceof McpError)) return undefined;
  // The SDK adds this prefix to the message of the error.
  const message = error.message.replace(`MCP error ${error.code}: `, '');
  return { code: error.code, message, data: error.data };
}

function transportTo(target) {
  if (target.sse) return new SSEClientTransport(new URL(target.sse));
  return target.url ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
}
