// Runs the queries of a panel like Grafana's Prometheus data source, and returns its data.
import { applyFieldOverrides, cacheFieldDisplayNames, createDataFrame, FieldType, getFieldSeriesColor, transformDataFrame } from '@grafana/data';
import { registries, scrapeInterval, theme, to } from './settings.js';

async function ask(path, parameters) {
  const response = await fetch(path, { method: 'POST', body: new URLSearchParams(parameters) });
  const answer = await response.json();
  if (answer.status !== 'success') throw new Error(answer.error);
  return answer.data.result;
}

function substitute(text, variables, step, span) {
  const own = { __rate_interval: Math.max(step + scrapeInterval, 4 * scrapeInterval) + 's', __interval: step + 's', __range: span + 's', __range_s: String(span) };
  return text.replace(/\$(?:\{(\w+)(?::\w+)?\}|(\w+))/g, (all, braced, plain) => own[braced || plain] ?? variables[braced || plain] ?? all);
}

// secondsOf parses a duration such as 5m.
export function secondsOf(duration) {
  const [, n, unit] = duration.match(/^(\d+)([smhd])$/);
  return n * { s: 1, m: 60, h: 3600, d: 86400 }[unit];
}

const parse = (text) => ({ '+Inf': Infinity, '-Inf': -Infinity })[text] ?? Number(text);

// name of a series for the legend, like Grafana's.
function name(format, labels) {
  if (format && format !== '__auto') return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '').trim();
  const pairs = Object.entries(labels).filter(([label]) => label !== '__name__').map(([label, value]) => `${label}="${value}"`);
  if (!pairs.length) return labels.__name__ ?? 'Value';
  return `${labels.__name__ ?? ''}{${pairs.join(', ')}}`;
}

function tableFrame(target, result, several) {
  const labels = [...new Set(result.flatMap((r) => Object.keys(r.metric)))].sort();
  return createDataFrame({ refId: target.refId, fields: [
    { name: 'Time', type: FieldType.time, values: result.map((r) => r.value[0] * 1000) },
    ...labels.map((label) => ({ name: label, type: FieldType.string, values: result.map((r) => r.metric[label] ?? '') })),
    { name: several ? `Value #${target.refId}` : 'Value', type: FieldType.number, values: result.map((r) => parse(r.value[1])) },
  ] });
}

function seriesFrames(target, result, step) {
  return result.map((r) => {
    const samples = r.values ?? [r.value];
    return createDataFrame({ refId: target.refId, fields: [
      { name: 'Time', type: FieldType.time, values: samples.map((s) => s[0] * 1000), config: { interval: step * 1000 } },
      { name: 'Value', type: FieldType.number, labels: r.metric, values: samples.map((s) => parse(s[1])), config: { displayNameFromDS: name(target.legendFormat, r.metric) } },
    ] });
  });
}

const transform = (frames, transformations) => new Promise((resolve) => {
  if (!transformations?.length) return resolve(frames);
  transformDataFrame(transformations, frames, { interpolate: (s) => s }).subscribe(resolve);
});

// withLowest returns thresholds as Grafana loads them: JSON has null for the lowest value.
function withLowest(config) {
  return JSON.parse(JSON.stringify(config), (key, value) => (key === 'steps' ? value.map((s) => ({ ...s, value: s.value ?? -Infinity })) : value));
}

// fixColors sets the colors that the names give: to draw the lines, Grafana joins the frames, and
// then some names are missing.
function fixColors(frame) {
  for (const field of frame.fields.filter((f) => f.type === FieldType.number)) {
    field.config = { ...field.config, color: { mode: 'fixed', fixedColor: getFieldSeriesColor(field, theme).color } };
  }
}

// dataOf returns the frames of a panel and the errors of its queries.
export async function dataOf(panel, variables, span, width) {
  const step = Math.max(scrapeInterval, secondsOf(panel.interval ?? '0s'), Math.ceil(span / Math.min(1000, width)));
  const frames = [], errors = [];
  const tables = panel.targets.filter((t) => t.format === 'table').length;
  for (const target of panel.targets) {
    const query = substitute(target.expr, variables, step, span);
    try {
      const result = target.instant ? await ask('/api/v1/query', { query, time: to })
        : await ask('/api/v1/query_range', { query, start: Math.floor((to - span) / step) * step, end: to, step });
      if (target.format === 'table') frames.push(tableFrame(target, result, tables > 1));
      else frames.push(...seriesFrames(target, result, step));
    } catch (e) {
      errors.push(`${target.refId}: ${e.message}`);
    }
  }
  const data = applyFieldOverrides({
    data: await transform(frames, panel.transformations), fieldConfig: withLowest(panel.fieldConfig), fieldConfigRegistry: registries[panel.type], theme, timeZone: 'utc', replaceVariables: (s) => s,
  });
  cacheFieldDisplayNames(data);
  if (panel.type === 'timeseries') data.forEach(fixColors);
  return { data, errors };
}
