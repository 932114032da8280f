// The icon's menu as a desktop sees it: read and clicked over the session bus. No tray is needed for that.

import { execFileSync } from "node:child_process";

import { until } from "./webdriver.mjs";

const gdbus = (...args) => execFileSync("gdbus", ["call", "--session", "--timeout", "10", ...args], { encoding: "utf8" });

/** Where the app's menu is on the bus. */
function place() {
  const names = gdbus("--dest", "org.freedesktop.DBus", "--object-path", "/org/freedesktop/DBus", "--method", "org.freedesktop.DBus.ListNames");
  for (const [, name] of names.matchAll(/'(:[^']+)'/g)) {
    try {
      const base = "/org/ayatana/NotificationItem";
      const found = gdbus("--dest", name, "--object-path", base, "--method", "org.freedesktop.DBus.Introspectable.Introspect");
      const [, item] = /node name="([^"]+)"/.exec(found) ?? [];
      if (item) return { name, path: `${base}/${item}/Menu` };
    } catch {
      // Not the app.
    }
  }
  return null;
}

/** The menu's entries, in order: `{ id, label, enabled }`. */
export async function menu() {
  return until("the icon's menu", () => {
    const at = place();
    if (!at) return null;
    const layout = gdbus("--dest", at.name, "--object-path", at.path, "--method", "com.canonical.dbusmenu.GetLayout", "0", "--", "-1", "@as []");
    const entries = [...layout.matchAll(/\(int32 (\d+), (?:@a\{sv\} )?(\{[^}]*\})/g), ...layout.matchAll(/<\((\d+), (?:@a\{sv\} )?(\{[^}]*\})/g)].map(([, id, properties]) => ({
      id,
      label: /'label': <'((?:[^'\\]|\\.)*)'>|'label': <"([^"]*)">/.exec(properties)?.slice(1).find(Boolean)?.replaceAll("_", ""),
      enabled: !/'enabled': <false>/.test(properties),
      at,
    }));
    return entries.length > 0 && entries;
  });
}

/** Chooses the entry of that name, once it is there. */
export async function choose(label) {
  const entry = await until(`${label} in the menu`, async () => (await menu()).find((one) => one.label === label));
  gdbus("--dest", entry.at.name, "--object-path", entry.at.path, "--method", "com.canonical.dbusmenu.Event", entry.id, "clicked", "<''>", "0");
}
