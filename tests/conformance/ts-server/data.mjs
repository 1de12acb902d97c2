// Resources and prompts.
import { ResourceTemplate, completable } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { PNG, image, resource, text } from './content.mjs';

export function registerResources(server) {
  const fixed = (name, uri, mimeType, content) =>
    server.registerResource(name, uri, { description: `The resource ${uri}`, mimeType }, async () => ({
      contents: [{ uri, mimeType, ...content }],
    }));
  fixed('static-text', 'test://static-text', 'text/plain', { text: 'This is the content of the static text resource.' });
  fixed('static-binary', 'test://static-binary', 'image/png', { blob: PNG });
  fixed('watched-resource', 'test://watched-resource', 'text/plain', { text: 'Watched.' });
  server.registerResource(
    'template',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { description: 'Data by id', mimeType: 'application/json' },
    async (uri, { id }) => {
      const body = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
      return { contents: [{ uri: uri.href, mimeType: 'application/json', text: body }] };
    },
  );
  for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
    server.server.setRequestHandler(method, async () => ({}));
  }
}

export function registerPrompts(server, world) {
  const user = (content) => ({ role: 'user', content });
  server.registerPrompt('test_simple_prompt', { description: 'A prompt without arguments' }, async () => ({
    messages: [user(text('This is a simple prompt for testing.'))],
  }));
  const words = ['paris', 'park', 'party'];
  const argsSchema = z.object({
    arg1: completable(z.string().describe('First test argument'), (value) => words.filter((word) => word.startsWith(value))),
    arg2: z.string().describe('Second test argument'),
  });
  server.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'A prompt with two arguments', argsSchema },
    async ({ arg1, arg2 }) => ({ messages: [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))] }),
  );
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'A prompt that embeds a resource', argsSchema: z.object({ resourceUri: z.string() }) },
    async ({ resourceUri }) => ({
      messages: [
        user(resource(resourceUri, 'text/plain', 'Embedded resource content for testing.')),
        user(text('Please process the embedded resource above.')),
      ],
    }),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'A prompt with an image' }, async () => ({
    messages: [user(image()), user(text('Please analyze the image above.'))],
  }));
  if (world.extraPrompt) registerExtraPrompt(server);
}

/** Registers the changing entry; the returned function removes it. */
export function registerExtraPrompt(server) {
  return server.registerPrompt('test_extra_prompt', { description: 'Added and removed' }, async () => ({
    messages: [user(text('Here for now.'))],
  }));
}
