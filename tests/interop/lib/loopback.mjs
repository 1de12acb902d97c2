// Preload (node --import) for servers that would listen on every interface: a listen() without a host gets 127.0.0.1.
import net from 'node:net';

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (port, ...rest) {
  const namesOnlyPort = /^\d+$/.test(String(port)) && typeof rest[0] !== 'string';
  return namesOnlyPort ? listen.call(this, Number(port), '127.0.0.1', ...rest) : listen.call(this, port, ...rest);
};
