// The expected results of task-only tools for clients without tasks. A direct call is refused.
// Fanlight runs the task, so the call must return the result that the client with tasks gets.
import { clientWithTasks } from './clients.mjs';

/** The report `direct`, with the results of such calls through Fanlight instead of the refusals. */
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
