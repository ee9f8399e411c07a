// Reads commands from its standard input, one a line, and writes what came of each.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { cases } from "./battery.mjs";
import { driver } from "./driver.mjs";

// Older ones take no .js for a module, unless a package says that it is one.
const text = () => encodeURIComponent(readFileSync(fileURLToPath(process.argv[2]), "utf8"));
const asText = async () => import(`data:text/javascript,${text()}`);
const fiveways = await import(process.argv[2]).catch(asText);
const drive = driver(cases, { ...fiveways });

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await drive(JSON.parse(line)))}\n`);
}
