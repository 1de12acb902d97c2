// Preload (node --import) for the suite, whose mock servers listen on every interface: a listen()
// without a host gets 127.0.0.1. The socket is bound at once, since some mocks read address() right
// after listen(0), which is too early for listen(port, host).
import net from 'node:net';

const BACKLOG = 511;
const IPV4 = 4;
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const onListening = typeof args.at(-1) === 'function' ? args.pop() : undefined;
  const [first, second] = args;
  const port = first?.port ?? first ?? 0;
  const namesHost = typeof second === 'string' || first?.host !== undefined || first?.path !== undefined;
  if (namesHost || !/^\d+$/.test(String(port))) {
    return listen.call(this, ...args, ...(onListening ? [onListening] : []));
  }
  if (onListening) this.once('listening', onListening);
  this._listen2('127.0.0.1', Number(port), IPV4, BACKLOG);
  return this;
};
