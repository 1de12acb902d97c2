#!/usr/bin/env node
// A small second server (stdio, both eras) for runs in which Fanlight merges two. None of its names occur in the suite.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

serveStdio(() => {
  const server = new McpServer({ name: 'second', version: '1.0.0' }, { instructions: 'Keeps one note.' });
  const note = 'One note.';
  server.registerTool('second_note', { description: 'Reads the note' }, async () => ({
    content: [{ type: 'text', text: note }],
  }));
  server.registerPrompt('second_prompt', { description: 'Asks about the note' }, async () => ({
    messages: [{ role: 'user', content: { type: 'text', text: 'What does the note say?' } }],
  }));
  server.registerResource('note', 'second://note', { description: 'The note', mimeType: 'text/plain' }, async () => ({
    contents: [{ uri: 'second://note', mimeType: 'text/plain', text: note }],
  }));
  return server;
});
