// The events of one session, kept in memory so that a client can resume a stream with Last-Event-ID.

const MAX_EVENTS = 1000;

export class EventLog {
  #events = [];
  #next = 1;

  async storeEvent(streamId, message) {
    const id = `${streamId}~${this.#next++}`;
    this.#events.push({ id, streamId, message });
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
    return id;
  }

  async getStreamIdForEventId(eventId) {
    return this.#events.find((event) => event.id === eventId)?.streamId;
  }

  async replayEventsAfter(lastEventId, { send }) {
    const at = this.#events.findIndex((event) => event.id === lastEventId);
    if (at < 0) throw new Error(`no event ${lastEventId}`);
    const { streamId } = this.#events[at];
    for (const event of this.#events.slice(at + 1)) {
      // A priming event carries no message.
      if (event.streamId === streamId && event.message?.jsonrpc) await send(event.id, event.message);
    }
    return streamId;
  }
}
