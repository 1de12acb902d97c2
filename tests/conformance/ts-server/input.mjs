// Tools and a prompt that need input from the client. Tools that the suite calls only in the legacy
// era send server requests, which a modern session refuses. The others return `input_required`,
// which the SDK turns into server requests for a legacy client.
import { fromJsonSchema, inputRequired, inputResponse } from '@modelcontextprotocol/server';
import { answer, text } from './content.mjs';
import { clientCapabilities } from './tools.mjs';

/** Registers the tools and the prompt on `server`; `states` seals and opens `requestState`. */
export function registerInputTools(server, states) {
  legacyNamedTools(server);
  singleInputTools(server);
  statefulTools(server, states);
  elicitationSchemaTools(server);
  inputPrompt(server);
}

/** A tool for the legacy era, which sends the client a request and waits. In the modern era the SDK refuses that. */
function askingTool(server, name, config, request, conclude) {
  server.registerTool(name, config, async (args, ctx) => {
    // Without an input schema the context is the only argument.
    const [given, context] = ctx === undefined ? [{}, args] : [args, ctx];
    try {
      return answer(text(conclude(await context.mcpReq.send(request(given)))));
    } catch (error) {
      return { isError: true, content: [text(`The client cannot be asked: ${error.message}`)] };
    }
  });
}

const elicitation = (message, properties, required) => ({
  method: 'elicitation/create',
  params: { message, requestedSchema: { type: 'object', properties, required } },
});

function legacyNamedTools(server) {
  const withArgument = (name) => fromJsonSchema({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] });
  askingTool(
    server,
    'test_sampling',
    { description: 'Asks the client\'s model', inputSchema: withArgument('prompt') },
    ({ prompt }) => ({
      method: 'sampling/createMessage',
      params: { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 },
    }),
    (reply) => `LLM response: ${reply.content.text}`,
  );
  const properties = {
    username: { type: 'string', description: "User's response" },
    email: { type: 'string', description: "User's email address" },
  };
  askingTool(
    server,
    'test_elicitation',
    { description: 'Asks the user', inputSchema: withArgument('message') },
    ({ message }) => elicitation(message, properties, Object.keys(properties)),
    (reply) => `User response: action=${reply.action}, content=${JSON.stringify(reply.content ?? {})}`,
  );
}

function singleInputTools(server) {
  const askName = () => form('What is your name?', { name: { type: 'string' } });
  const elicitName = async (ctx) => {
    const name = elicited(ctx, 'user_name')?.content?.name;
    return typeof name === 'string' ? answer(text(`Hello, ${name}!`)) : ask({ user_name: askName() });
  };
  server.registerTool('test_input_required_result_elicitation', { description: 'Asks the user for a name' }, elicitName);
  server.registerTool(
    'test_streaming_elicitation',
    { description: 'Reports progress where it may, then asks the user for a name' },
    async (ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: 1, total: 2 } });
      }
      return elicitName(ctx);
    },
  );
  server.registerTool('test_input_required_result_sampling', { description: 'Asks the client\'s model' }, async (ctx) => {
    const reply = samplingText(ctx, 'capital_question');
    if (reply === undefined) return ask({ capital_question: sampling('What is the capital of France?', 100) });
    return answer(text(reply));
  });
  // The SDK responds with -32021 to a client that did not declare sampling.
  server.registerTool('test_missing_capability', { description: 'Needs a client that can sample' }, async (ctx) => {
    const reply = samplingText(ctx, 'reply');
    return reply === undefined ? ask({ reply: sampling('Say hello', 50) }) : answer(text(reply));
  });
  server.registerTool('test_input_required_result_list_roots', { description: 'Asks for the client\'s roots' }, async (ctx) => {
    const reply = response(ctx, 'client_roots');
    if (reply.kind !== 'roots') return ask({ client_roots: inputRequired.listRoots() });
    return answer(text(`Roots: ${reply.roots.map((root) => root.uri).join(', ')}`));
  });
  server.registerTool(
    'test_input_required_result_capabilities',
    { description: 'Asks only for what the client declared' },
    async (ctx) => {
      const { sampling: mayAskModel, elicitation: mayAskUser } = clientCapabilities(server, ctx);
      const wanted = {};
      if (mayAskModel && samplingText(ctx, 'model') === undefined) wanted.model = sampling('Say hello', 50);
      if (mayAskUser && !elicited(ctx, 'user')) wanted.user = askName();
      return Object.keys(wanted).length > 0 ? ask(wanted) : answer(text('Nothing (more) to ask.'));
    },
  );
}

function statefulTools(server, states) {
  const confirm = () => form('Please confirm', { ok: { type: 'boolean' } });
  for (const name of ['test_input_required_result_request_state', 'test_input_required_result_tampered_state']) {
    server.registerTool(name, { description: 'Confirms, with sealed state' }, async (ctx) => {
      const known = ctx.mcpReq.requestState()?.tool === name;
      if (!known || !elicited(ctx, 'confirm')) return ask({ confirm: confirm() }, await states.mint({ tool: name }));
      return answer(text('state-ok'));
    });
  }
  server.registerTool('test_input_required_result_multiple_inputs', { description: 'Asks three things at once' }, async (ctx) => {
    const name = elicited(ctx, 'user_name')?.content?.name;
    const greeting = samplingText(ctx, 'greeting');
    const roots = response(ctx, 'client_roots');
    if (name !== undefined && greeting !== undefined && roots.kind === 'roots' && ctx.mcpReq.requestState()?.asked === 3) {
      return answer(text(`${greeting} ${name}, ${roots.roots.length} roots`));
    }
    const wanted = {
      user_name: form('What is your name?', { name: { type: 'string' } }),
      greeting: sampling('Generate a greeting', 50),
      client_roots: inputRequired.listRoots(),
    };
    return ask(wanted, await states.mint({ asked: 3 }));
  });
  server.registerTool('test_input_required_result_multi_round', { description: 'Asks twice, one after the other' }, async (ctx) => {
    const state = ctx.mcpReq.requestState() ?? {};
    const name = state.name ?? elicited(ctx, 'step1')?.content?.name;
    if (name === undefined) {
      const wanted = { step1: form('Step 1: What is your name?', { name: { type: 'string' } }) };
      return ask(wanted, await states.mint({ round: 1 }));
    }
    const color = elicited(ctx, 'step2')?.content?.color;
    if (color === undefined) {
      const wanted = { step2: form('Step 2: What is your favorite color?', { color: { type: 'string' } }) };
      return ask(wanted, await states.mint({ round: 2, name }));
    }
    return answer(text(`${name} likes ${color}.`));
  });
}

function elicitationSchemaTools(server) {
  const complete = (reply) => `Elicitation completed: action=${reply.action}, content=${JSON.stringify(reply.content ?? {})}`;
  const tool = (name, description, message, properties) =>
    askingTool(server, name, { description }, () => elicitation(message, properties, []), complete);
  tool('test_elicitation_sep1034_defaults', 'Asks with a default for each primitive type', 'Please check the values', {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  });
  const plain = ['option1', 'option2', 'option3'];
  const titled = (...titles) => titles.map((title, index) => ({ const: `value${index + 1}`, title }));
  tool('test_elicitation_sep1330_enums', 'Asks with each form of enumeration', 'Please choose', {
    untitledSingle: { type: 'string', enum: plain },
    titledSingle: { type: 'string', oneOf: titled('First Option', 'Second Option', 'Third Option') },
    legacyEnum: {
      type: 'string',
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    },
    untitledMulti: { type: 'array', items: { type: 'string', enum: plain } },
    titledMulti: { type: 'array', items: { anyOf: titled('First Choice', 'Second Choice', 'Third Choice') } },
  });
}

function inputPrompt(server) {
  server.registerPrompt('test_input_required_result_prompt', { description: 'Asks the user for context' }, async (ctx) => {
    const context = elicited(ctx, 'user_context')?.content?.context;
    if (context === undefined) {
      return ask({ user_context: form('What context should the prompt use?', { context: { type: 'string' } }) });
    }
    return { messages: [{ role: 'user', content: text(`Use this context: ${context}`) }] };
  });
}

const ask = (inputRequests, requestState) =>
  inputRequired(requestState === undefined ? { inputRequests } : { inputRequests, requestState });

const form = (message, properties, required = Object.keys(properties)) =>
  inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required } });

const sampling = (prompt, maxTokens) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: text(prompt) }], maxTokens });

const response = (ctx, key) => inputResponse(ctx.mcpReq.inputResponses, key);

function elicited(ctx, key) {
  const reply = response(ctx, key);
  return reply.kind === 'elicit' ? reply : undefined;
}

function samplingText(ctx, key) {
  const reply = response(ctx, key);
  if (reply.kind !== 'sampling') return undefined;
  const raw = ctx.mcpReq.inputResponses[key].content;
  const blocks = Array.isArray(raw) ? raw : [raw];
  return blocks.map((block) => block.text ?? '').join('');
}
