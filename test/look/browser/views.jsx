// Draws a panel of each type with Grafana's components.
import { getFieldDisplayName, getFieldDisplayValues, getDisplayProcessor } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { theme, timeRange } from './settings.js';

function Empty({ panel }) {
  const style = { height: '100%', display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center', color: theme.colors.text.secondary, fontSize: 16 };
  return <div style={style}>{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
}

function displayValues(panel, data) {
  return getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: (s) => s, theme, data, sparkline: (panel.options.graphMode ?? 'none') !== 'none', timeZone: 'utc',
  });
}

function Stat({ panel, data, width, height }) {
  const o = panel.options;
  return <VizRepeater getValues={() => displayValues(panel, data)} width={width} height={height} source={data} itemSpacing={3} renderCounter={0} autoGrid orientation={o.orientation ?? 'auto'}
    getAlignmentFactors={() => ({ title: '', text: '' })}
    renderValue={({ value, width, height, count }) => <BigValue value={value.display} count={count} width={width} height={height} theme={theme} sparkline={value.sparkline}
      colorMode={o.colorMode ?? 'value'} graphMode={o.graphMode ?? 'none'} justifyMode={o.justifyMode ?? 'auto'} textMode={o.textMode ?? 'auto'} />} />;
}

function Bars({ panel, data, width, height }) {
  const o = panel.options;
  if (!data.length) return <Empty panel={panel} />;
  return <VizRepeater getValues={() => displayValues(panel, data)} width={width} height={height} source={data} itemSpacing={8} renderCounter={0} orientation={o.orientation ?? 'horizontal'}
    getAlignmentFactors={(values) => ({ title: values.map((v) => v.display.title ?? '').sort((a, b) => b.length - a.length)[0], text: '0000' })}
    renderValue={({ value, width, height, alignmentFactors }) => <BarGauge value={value.display} field={value.field} display={getDisplayProcessor({ field: { config: value.field }, theme })} width={width} height={height} theme={theme}
      text={o.text} orientation={o.orientation ?? 'horizontal'} displayMode={o.displayMode ?? 'basic'} itemSpacing={0} lcdCellWidth={10} alignmentFactors={alignmentFactors} />} />;
}

function Series({ panel, data, span, width, height }) {
  if (!data.length) return <Empty panel={panel} />;
  return <TimeSeries frames={data} structureRev={1} timeRange={timeRange(span)} timeZone="utc" width={width} height={height} legend={panel.options.legend} options={panel.options} />;
}

function Table({ panel, data, span, width, height }) {
  if (!data.length || !data[0].length) return <Empty panel={panel} />;
  return <TableNG data={data[0]} width={width} height={height} cellHeight={panel.options.cellHeight} noHeader={!panel.options.showHeader} sortBy={panel.options.sortBy} fieldConfig={panel.fieldConfig}
    timeRange={timeRange(span)} showTypeIcons={false} getActions={() => []} />;
}

// StateTimeline is not among Grafana's published components, so this one only resembles it.
function StateTimeline({ panel, data, span, width, height }) {
  if (!data.length) return <Empty panel={panel} />;
  const rows = data.map((frame) => ({ frame, field: frame.fields.find((f) => f.type === 'number'), times: frame.fields[0].values }));
  const { from, to } = timeRange(span);
  const start = from.valueOf(), end = to.valueOf(), axis = 22, legend = 24, label = Math.min(360, width / 2), each = (height - axis - legend) / rows.length;
  const x = (t) => label + ((t - start) / (end - start)) * (width - label);
  const states = new Map();
  const bars = rows.flatMap(({ field, times }, row) => {
    const found = [];
    for (let i = 0; i < times.length;) {
      let j = i;
      while (j + 1 < times.length && field.values[j + 1] === field.values[i]) j++;
      const shown = field.display(field.values[i]);
      states.set(shown.text, shown.color);
      found.push(<rect key={`${row}-${i}`} x={x(times[i])} width={Math.max(1, x(Math.min(end, times[j] + (times[1] - times[0] || 0))) - x(times[i]))} y={row * each + 2} height={each - 4} fill={shown.color} opacity={0.7} />);
      i = j + 1;
    }
    return found;
  });
  const marks = [0.25, 0.5, 0.75].map((share) => start + share * (end - start));
  return <svg width={width} height={height} style={{ font: '12px Inter, sans-serif', fill: theme.colors.text.primary }}>
    {bars}
    {rows.map(({ frame, field }, row) => <text key={row} x={label - 8} y={row * each + each / 2 + 4} textAnchor="end">{getFieldDisplayName(field, frame, data)}</text>)}
    {marks.map((t) => <text key={t} x={x(t)} y={height - legend - 6} textAnchor="middle" fill={theme.colors.text.secondary}>{new Date(t).toISOString().slice(11, 16)}</text>)}
    {[...states].map(([text, color], i) => <g key={text} transform={`translate(${8 + i * 120}, ${height - 8})`}><rect y={-10} width={14} height={4} fill={color} /><text x={20}>{text}</text></g>)}
  </svg>;
}

export const views = { stat: Stat, bargauge: Bars, timeseries: Series, table: Table, 'state-timeline': StateTimeline };
