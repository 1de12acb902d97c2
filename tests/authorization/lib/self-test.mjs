// Runs the harness against our own protected resource: everything passes, and each fault makes
// something fail.
import { resourceAt } from './gateway.mjs';
import { checkClients } from './legs.mjs';
import { FAULTS, startReference } from './reference.mjs';
import { checkTraffic, signInAll } from './traffic.mjs';

export async function selfTest(checks, context, clients) {
  const { jwt, opaque, backend, ports: { plain: port } } = context;
  const resource = resourceAt(`http://127.0.0.1:${port}`);
  const reached = { ...context, name: 'reference', resource };
  const traffic = { ...reached, tokens: await signInAll(reached) };
  const start = (fault) => startReference({ port, authorizationServers: { jwt, opaque }, backend: backend.url, fault });

  const reference = await start();
  await checkTraffic(checks, traffic);
  await checkClients(checks, reached, clients);
  await reference.close();
  for (const fault of FAULTS) {
    const faulty = await start(fault);
    const seen = new Failures();
    backend.requests.length = 0;
    await checkTraffic(seen, traffic);
    await faulty.close();
    await checks.one(`a resource that ${inWords(fault)} is noticed`, () => (seen.count > 0 ? [] : ['nothing failed']));
  }
}

/** Counts the checks that find a difference. */
class Failures {
  count = 0;

  async one(_name, check) {
    const found = await Promise.resolve(check()).catch((error) => [error.message]);
    this.count += found.length > 0 ? 1 : 0;
  }
}

const inWords = (fault) => fault.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
