// What a client without tasks has to get from a tool that can only be called as a task. Face to face it is refused;
// Fanlight runs the task for it, so its call must give what the client with tasks gets in the end.
import { clientWithTasks } from './clients.mjs';

/** `direct`, with what such calls give through Fanlight in the place of the refusals. */
export function withTasksAwaited(direct) {
  return (server, client) => {
    const report = direct(server, client);
    const tasks = server.steps.filter(({ method }) => method === 'task');
    if (client.tasks || tasks.length === 0) return report;
    const { steps } = direct(server, clientWithTasks);
    const awaited = tasks.map(({ id }) => {
      const { task, ...outcome } = steps[id];
      return [id, outcome];
    });
    return { ...report, steps: { ...report.steps, ...Object.fromEntries(awaited) } };
  };
}
