// Reports what the drawn panels show.
import { getFieldDisplayName } from '@grafana/data';

const drawn = new Map();

// remember keeps the data of a panel for the report.
export function remember(panel, data, errors) { drawn.set(panel.id, { panel, data, errors }); }

// cut returns the texts of elements that are narrower than their text.
const cut = (elements) => [...elements].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.textContent.trim()).map((e) => e.textContent.trim());

const withDescendants = (roots) => [...roots].flatMap((e) => [e, ...e.querySelectorAll('*')]);

// inspect returns a list with one object for each panel.
export function inspect() {
  return [...drawn.values()].map(({ panel, data, errors }) => {
    const element = document.getElementById(`panel-${panel.id}`);
    const fields = data.flatMap((frame) => frame.fields.filter((f) => f.type === 'number').map((field) => ({
      name: getFieldDisplayName(field, frame, data), values: field.values.length, numbers: [...field.values].filter(Number.isFinite).length,
    })));
    return {
      title: panel.title, type: panel.type, errors, fields, rows: data[0]?.length ?? 0,
      cutTitles: cut(element.querySelectorAll('h2, h2 *')),
      cutHeaders: cut(withDescendants(element.querySelectorAll('[role=columnheader]'))),
      cutCells: cut(withDescendants(element.querySelectorAll('[role=gridcell]'))),
    };
  });
}
