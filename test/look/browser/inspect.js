// Reports what the drawn panels show.
import { getFieldDisplayName } from '@grafana/data';

const drawn = new Map();

// remember keeps the data of a panel for the report.
export function remember(panel, data, errors) { drawn.set(panel.id, { panel, data, errors }); }

// cut returns the texts in the cells that reach beyond their cell, or beyond the table.
function cut(cells, table) {
  return [...cells].filter((cell) => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      range.selectNodeContents(text);
      const needs = range.getBoundingClientRect();
      if ([cell, table].some((e) => needs.left < e.getBoundingClientRect().left - 1 || needs.right > e.getBoundingClientRect().right + 1)) return true;
    }
    return false;
  }).map((cell) => cell.textContent.trim());
}

// shortened returns the names in the legend that end with an ellipsis.
function shortened(element) {
  return [...element.querySelectorAll('table *')].filter((e) => !e.children.length && e.textContent.trim() && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.trim());
}

// inspect returns a list with one object for each panel.
export function inspect() {
  return [...drawn.values()].map(({ panel, data, errors }) => {
    const element = document.getElementById(`panel-${panel.id}`);
    const fields = data.flatMap((frame) => frame.fields.filter((f) => f.type === 'number').map((field) => ({
      name: getFieldDisplayName(field, frame, data), values: field.values.length, numbers: [...field.values].filter(Number.isFinite).length,
    })));
    return {
      title: panel.title, type: panel.type, errors, fields, rows: data[0]?.length ?? 0,
      cutNames: panel.type === 'timeseries' ? shortened(element) : [],
      cutTitles: cut(element.querySelectorAll('h2'), element),
      cutHeaders: cut(element.querySelectorAll('[role=columnheader]'), element),
      cutCells: cut(element.querySelectorAll('[role=gridcell]'), element),
    };
  });
}
