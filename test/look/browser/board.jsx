// Draws the dashboard that the page's parameters name.
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { DashboardCursorSync, EventBusSrv, LoadingState } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { GlobalStyles, PanelChrome, PanelContextProvider, ThemeContext } from '@grafana/ui';
import { dataOf, secondsOf } from './queries.js';
import { inspect, remember } from './inspect.js';
import { board, chosen, chosenSpan, sourceName, theme, width } from './settings.js';
import { views } from './views.jsx';

const margin = 16, rowHeight = 38, gap = 8;
const column = (width - 2 * margin + gap) / 24;
const context = { eventsScope: 'global', eventBus: new EventBusSrv(), sync: () => DashboardCursorSync.Off };

// variablesOf returns the value of each variable, and the names and values that are shown.
function variablesOf(dashboard) {
  const values = {}, shown = [];
  for (const v of dashboard.templating.list) {
    if (v.type === 'datasource') { shown.push([v.label || v.name, sourceName]); continue; }
    const own = typeof v.current.value === 'string' ? v.current.value : v.allValue;
    values[v.name] = chosen[v.name] ?? own;
    shown.push([v.label || v.name, values[v.name] === v.allValue ? 'All' : values[v.name]]);
  }
  return { values, shown };
}

function Panel({ panel, variables, span, done }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { position: 'absolute', left: x * column, top: y * rowHeight, width: w * column - gap, height: h * rowHeight - gap };
  const [state, setState] = useState(null);
  useEffect(() => {
    dataOf(panel, variables, span, box.width).catch((e) => ({ data: [], errors: [String(e)] })).then((result) => {
      remember(panel, result.data, result.errors);
      setState(result);
      done();
    });
  }, []);
  const View = views[panel.type];
  const bare = ['stat', 'table'].includes(panel.type);
  return <div id={`panel-${panel.id}`} style={box}>
    <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height} padding={bare ? 'none' : 'md'} statusMessage={state?.errors[0]} loadingState={state ? LoadingState.Done : LoadingState.Loading}>
      {(width, height) => state && <div style={{ width, height }}><PanelContextProvider value={context}><View panel={panel} data={state.data} span={span} width={width} height={height} /></PanelContextProvider></div>}
    </PanelChrome>
  </div>;
}

function Row({ panel }) {
  return <div style={{ position: 'absolute', left: 0, top: panel.gridPos.y * rowHeight, height: rowHeight - gap, display: 'flex', alignItems: 'center', fontSize: 16, fontWeight: 500, color: theme.colors.text.primary }}>⌄&ensp;{panel.title}</div>;
}

function Board({ dashboard }) {
  const { values, shown } = variablesOf(dashboard);
  const rows = dashboard.panels.filter((p) => p.type === 'row');
  const panels = dashboard.panels.filter((p) => p.type !== 'row');
  const span = chosenSpan || secondsOf(dashboard.time.from.replace('now-', ''));
  const bottom = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h));
  let waiting = panels.length;
  const done = () => { if (--waiting === 0) setTimeout(() => { window.drawn = true; }, 1500); };
  const label = { background: theme.colors.background.secondary, color: theme.colors.text.primary, padding: '6px 8px' };
  const value = { border: `1px solid ${theme.colors.border.medium}`, color: theme.colors.text.secondary, padding: '5px 12px' };
  return <div style={{ padding: margin, width, boxSizing: 'border-box', background: theme.colors.background.canvas }}>
    <div style={{ display: 'flex', justifyContent: 'space-between', color: theme.colors.text.primary, fontSize: 18, marginBottom: 8 }}>
      <span>{dashboard.title}</span><span style={{ fontSize: 12 }}>Last {span % 3600 ? `${span / 60} minutes` : span === 3600 ? 'hour' : `${span / 3600} hours`}</span>
    </div>
    <div style={{ display: 'flex', gap: 8, marginBottom: 12, fontSize: 12 }}>{shown.map(([name, text]) => <div key={name} style={{ display: 'flex' }}><span style={label}>{name}</span><span style={value}>{text}</span></div>)}</div>
    <div style={{ position: 'relative', height: bottom * rowHeight }}>
      {rows.map((p) => <Row key={p.id} panel={p} />)}
      {panels.map((p) => <Panel key={p.id} panel={p} variables={values} span={span} done={done} />)}
    </div>
  </div>;
}

window.inspect = inspect;
await initPluginTranslations('look').catch(() => {}); // the texts stay English
const dashboard = await (await fetch(`/dashboards/${board}`)).json();
createRoot(document.getElementById('root')).render(<ThemeContext.Provider value={theme}><GlobalStyles /><Board dashboard={dashboard} /></ThemeContext.Provider>);
