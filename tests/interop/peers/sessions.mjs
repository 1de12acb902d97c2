// The sessions of a legacy server over Streamable HTTP, for any SDK: by id, each opened by an `initialize`.
import { randomUUID } from 'node:crypto';

export class Sessions {
  /** Transports by the ids of their sessions. */
  byId = new Map();
  #world;

  constructor(world) {
    this.#world = world;
  }

  /** A transport of the SDK's class that is registered by its id as soon as it has one. */
  newTransport(Transport) {
    const transport = new Transport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.byId.set(id, transport),
      onsessionclosed: (id) => void this.byId.delete(id),
    });
    return transport;
  }

  /** Responds to a request; `open` creates a connected transport. */
  async serve(request, response, body, open) {
    const id = request.headers['mcp-session-id'];
    const transport = id === undefined && body?.method === 'initialize' ? await open() : this.byId.get(id);
    if (!transport) return void response.writeHead(404).end();
    if (request.method === 'GET') this.#notifyWhenOpen(response);
    await transport.handleRequest(request, response, body);
  }

  #notifyWhenOpen(response) {
    const { writeHead } = response;
    response.writeHead = (status, ...more) => {
      const written = writeHead.call(response, status, ...more);
      if (status === 200) this.#world.countStream(response);
      return written;
    };
  }
}
