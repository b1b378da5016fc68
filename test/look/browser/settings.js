// Settings of the page, and what @grafana/data needs before it can apply a panel's options.
import {
  createTheme, dateTime, FieldConfigOptionsRegistry, identityOverrideProcessor, standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry,
} from '@grafana/data';

const query = new URLSearchParams(location.search);
export const board = query.get('board');
export const width = Number(query.get('width'));
export const sourceName = query.get('source');
// Seconds between two scrapes.
export const scrapeInterval = Number(query.get('scrape'));
// Seconds that the dashboard shows; 0 = its own time range.
export const chosenSpan = Number(query.get('span'));
export const to = Number(query.get('to'));
export const theme = createTheme({ colors: { mode: query.get('theme') } });
// Values of variables that differ from the dashboard's own.
export const chosen = Object.fromEntries([...query].filter(([k]) => k.startsWith('var-')).map(([k, v]) => [k.slice(4), v]));

export function timeRange(span) {
  return { from: dateTime((to - span) * 1000), to: dateTime(to * 1000), raw: { from: `now-${span}s`, to: 'now' } };
}

const option = (id, path, isCustom, defaultValue) => ({
  id, path, name: id, isCustom, defaultValue, settings: {}, editor: () => null, override: () => null, process: identityOverrideProcessor, shouldApply: () => true,
});
const lists = ['links', 'mappings', 'actions'];
const standard = () => ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'noValue', 'thresholds', 'fieldMinMax', ...lists]
  .map((name) => option(name, name, false, lists.includes(name) ? [] : undefined));

// The options of each kind of panel with Grafana's defaults. An override of an option that
// is not listed has no effect.
const custom = {
  timeseries: {
    drawStyle: 'line', lineInterpolation: 'linear', barAlignment: 0, barWidthFactor: 0.6, lineWidth: 1, lineStyle: undefined, fillOpacity: 0, fillBelowTo: undefined, gradientMode: 'none', spanNulls: false,
    insertNulls: false, showPoints: 'auto', pointSize: 5, stacking: { mode: 'none', group: 'A' }, transform: undefined, axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text',
    axisBorderShow: false, axisCenteredZero: false, axisSoftMin: undefined, axisSoftMax: undefined, axisWidth: undefined, axisGridShow: undefined, scaleDistribution: { type: 'linear' },
    hideFrom: { tooltip: false, viz: false, legend: false }, thresholdsStyle: { mode: 'off' },
  },
  table: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: undefined, width: undefined, minWidth: undefined, hideFrom: undefined, footer: { reducers: [] }, wrapHeaderText: undefined },
  stat: {},
  bargauge: {},
  'state-timeline': { lineWidth: 0, fillOpacity: 70, spanNulls: false },
};
export const registries = Object.fromEntries(Object.entries(custom).map(([type, options]) => [
  type, new FieldConfigOptionsRegistry(() => [...standard(), ...Object.entries(options).map(([name, value]) => option('custom.' + name, name, true, value))]),
]));

standardFieldConfigEditorRegistry.setInit(standard);
const transformers = new Map(Object.values(standardTransformers).map((t) => [t.id, t]));
standardTransformersRegistry.setInit(() => [...transformers.values()].map((t) => ({ id: t.id, name: t.name, description: t.description, aliasIds: t.aliasIds, transformation: async () => t, editor: () => null })));
