// Opens pages in Chromium and reports what is wrong with each. The argument is a JSON file:
// {chromium, visits: [{name, url, width, theme, javascript, picture?}], live?: {url, before, after}}.
// It prints "live" when the page live.url shows the text live.before and is connected, and waits for the text live.after.
import fs from 'node:fs';
import { chromium } from 'playwright-core';

const { chromium: executablePath, visits, live } = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const browser = await chromium.launch({ executablePath, timeout: 180000, args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--font-render-hinting=none'] });
const problems = [];
const contexts = new Map(); // by theme and JavaScript: pages of one context share the cookies of their servers

async function contextOf({ theme, javascript }) {
  const key = `${theme} ${javascript}`;
  if (!contexts.has(key)) contexts.set(key, await browser.newContext({ colorScheme: theme, javaScriptEnabled: javascript }));
  return contexts.get(key);
}

// inspect runs in the page.
function inspect() {
  const found = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} pixels wide, the window ${width}`);
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if ((channels(color)[3] ?? 1) === 1) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  for (const e of document.querySelectorAll('body *')) {
    const box = e.getBoundingClientRect();
    if (box.right > width + 1 && box.width > 0 && box.left >= 0 && !(e.closest('.table') && width > 800)) found.push(`<${e.localName}> ends at ${box.right}`);
    const text = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (!text || box.width === 0) continue;
    const [a, b] = [luminance(getComputedStyle(e).color), luminance(background(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`the contrast of <${e.localName} class="${e.className}"> is ${((a + 0.05) / (b + 0.05)).toFixed(1)}`);
  }
  if (!document.querySelector('h1')) found.push('the page has no heading');
  return [...new Set(found)].slice(0, 5);
}

for (const visit of visits) {
  const page = await (await contextOf(visit)).newPage();
  await page.setViewportSize({ width: visit.width, height: 900 });
  const found = [];
  page.on('pageerror', (e) => found.push(String(e)));
  page.on('console', (m) => { if (m.type() === 'error') found.push(m.text()); });
  page.on('dialog', (d) => { found.push(`a script runs: ${d.message()}`); d.dismiss(); });
  page.on('request', (r) => { if (!r.url().startsWith(new URL(visit.url).origin) && !r.url().startsWith('data:')) found.push(`the page loads ${r.url()}`); });
  const response = await page.goto(visit.url, { waitUntil: 'load' });
  if (!response.ok()) found.push(`status ${response.status()}`);
  if (visit.javascript) await page.waitForFunction(() => document.getElementById('state').textContent === 'live').catch((e) => found.push(String(e)));
  // The driver's own scripts also run in pages whose scripts are off.
  found.push(...await page.evaluate(inspect));
  if (visit.picture) await page.screenshot({ path: visit.picture, fullPage: true });
  problems.push(...found.map((f) => `${visit.name}: ${f}`));
  await page.close();
}
if (live) {
  const page = await (await contextOf({ theme: 'light', javascript: true })).newPage();
  await page.goto(live.url);
  await page.waitForFunction((text) => document.getElementById('live').textContent.includes(text) && document.getElementById('state').textContent === 'live', live.before);
  console.log('live');
  await page.waitForFunction((text) => document.getElementById('live').textContent.includes(text), live.after).catch((e) => problems.push(`live: ${e}`));
}
await browser.close();
fs.writeFileSync(process.argv[2], JSON.stringify(problems));
