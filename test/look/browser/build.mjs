// Bundles board.jsx as board.js.
import { build } from 'esbuild';

await build({
  entryPoints: ['board.jsx'], bundle: true, outfile: 'dist/board.js', format: 'esm', jsx: 'automatic', logLevel: 'error',
  loader: { '.svg': 'dataurl', '.png': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' },
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'window' },
  conditions: ['import', 'browser'],
});
