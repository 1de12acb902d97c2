// Checks the dashboard against Grafana's schema, which is published as types. TypeScript compiles the JSON as a value of the
// type `Dashboard`, and the options of each panel as its kind's type. A member that Grafana does not define is an error too.
//
//   node dashboard.mjs ../../../deploy/grafana-dashboard.json
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const SCHEMA = '@grafana/schema/dist/esm/raw';
const KINDS = { heatmap: 'Heatmap', stat: 'Stat', 'state-timeline': 'StateTimeline', timeseries: 'TimeSeries' };

const modules = path.join(import.meta.dirname, '../node_modules');
const dashboard = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const folder = path.join(modules, '.fanlight');
mkdirSync(folder, { recursive: true });
const file = path.join(folder, 'dashboard.ts');
writeFileSync(file, program(dashboard));
const options = ['--noEmit', '--strict', '--skipLibCheck', '--ignoreConfig', '--module', 'nodenext', '--moduleResolution', 'nodenext'];
const { status, error } = spawnSync(process.execPath, [path.join(modules, 'typescript/bin/tsc'), ...options, file], { stdio: 'inherit' });
if (error) throw error;
if (status !== 0) console.error(`${process.argv[2]} violates Grafana's schema; line numbers refer to ${file}`);
else console.log(`${path.basename(process.argv[2])}: ${dashboard.panels.length} panels match Grafana's schema`);
process.exitCode = status ?? 1;

function program({ panels, templating, ...rest }) {
  const kinds = [...new Set(panels.map((panel) => panel.type))].filter((kind) => kind !== 'row');
  const unknown = kinds.filter((kind) => !(kind in KINDS));
  if (unknown.length) throw new Error(`no schema is named here for panels of the kind ${unknown.join(', ')}`);
  const value = (name, type, json) => `export const ${name}: Written<${type}> = ${JSON.stringify(json, null, 2)};`;
  return [
    `import type { Dashboard, Panel, RowPanel, VariableModel } from '${SCHEMA}/dashboard/x/Dashboard_types.gen';`,
    ...kinds.map((kind) => {
      const name = KINDS[kind];
      return `import type * as ${name} from '${SCHEMA}/composable/${name.toLowerCase()}/panelcfg/x/${name}PanelCfg_types.gen';`;
    }),
    '',
    '/** The type as JSON is written: the values of enumerations, not their names. */',
    'type Written<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T',
    '  : T extends (infer One)[] ? Written<One>[] : T extends object ? { [K in keyof T]: Written<T[K]> } : T;',
    '/** Grafana itself writes the query a second time, which its schema leaves out. */',
    'type Variable = VariableModel & { definition?: string };',
    '',
    value('dashboard', 'Dashboard', rest),
    value('variables', 'Variable[]', templating.list),
    ...panels.flatMap((panel, index) => {
      const name = `panel${index}`;
      if (panel.type === 'row') return [value(name, 'RowPanel', panel)];
      const kind = KINDS[panel.type];
      const custom = panel.fieldConfig.defaults.custom;
      return [
        value(name, 'Panel', panel),
        value(`${name}Options`, `${kind}.Options`, panel.options),
        ...(custom ? [value(`${name}Custom`, `${kind}.FieldConfig`, custom)] : []),
      ];
    }),
    '',
  ].join('\n');
}
