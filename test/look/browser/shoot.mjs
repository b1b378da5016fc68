// Opens each page in Chromium, and writes a picture and a report of it. The argument is a
// JSON file: {chromium, pages: [{url, width, picture, report}]}.
// A page is as high as its dashboard, because tables draw only what is visible, and its
// clock shows the time that the dashboard ends at.
import fs from 'node:fs';
import { chromium } from 'playwright-core';

const { chromium: executablePath, pages } = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const browser = await chromium.launch({ executablePath, timeout: 180000, args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--font-render-hinting=none'] });
for (const { url, width, picture, report } of pages) {
  const page = await browser.newPage({ viewport: { width, height: 4000 } });
  const end = Number(new URL(url).searchParams.get('to')) * 1000;
  await page.addInitScript((behind) => { const now = Date.now; Date.now = () => now() - behind; }, Date.now() - end);
  const errors = [];
  page.on('pageerror', (e) => errors.push(String(e)));
  page.setDefaultTimeout(180000);
  await page.goto(url);
  await page.waitForFunction(() => window.drawn, null, { timeout: 180000 }).catch((e) => errors.push(String(e)));
  const height = await page.evaluate(() => Math.ceil(document.getElementById('root').getBoundingClientRect().height));
  await page.screenshot({ path: picture, clip: { x: 0, y: 0, width, height } });
  const panels = await page.evaluate(() => window.inspect?.() ?? []);
  fs.writeFileSync(report, JSON.stringify({ errors, panels }, null, 1));
  console.log(picture);
  await page.close();
}
await browser.close();
