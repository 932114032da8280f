// Makes the sizes that the bundle needs from `app.svg`: PNGs, and an ICNS, which is a list of PNGs.
// Run by `scripts/icons`; what it makes is checked in, so that a build needs no renderer.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const { Resvg } = createRequire(`${root}ui/package.json`)('@resvg/resvg-js');

const svg = readFileSync(`${root}icons/app.svg`);
const png = (size) => new Resvg(svg, { fitTo: { mode: 'width', value: size } }).render().asPng();

/** The kinds of an ICNS that hold PNGs, with their sizes in pixels. */
const KINDS = { ic11: 32, ic12: 64, ic07: 128, ic13: 256, ic08: 256, ic14: 512, ic09: 512, ic10: 1024 };

function icns() {
  const entries = Object.entries(KINDS).map(([kind, size]) => {
    const data = png(size);
    const head = Buffer.from(`${kind}\0\0\0\0`, 'latin1');
    head.writeUInt32BE(data.length + 8, 4);
    return Buffer.concat([head, data]);
  });
  const body = Buffer.concat(entries);
  const head = Buffer.from('icns\0\0\0\0', 'latin1');
  head.writeUInt32BE(body.length + 8, 4);
  return Buffer.concat([head, body]);
}

const to = process.argv[2] ?? `${root}src-tauri/icons`;
mkdirSync(to, { recursive: true });
for (const [name, size] of [['32x32', 32], ['128x128', 128], ['128x128@2x', 256]]) {
  writeFileSync(`${to}/${name}.png`, png(size));
}
writeFileSync(`${to}/icon.icns`, icns());
