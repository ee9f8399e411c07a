// Lets a test give commands to the page.

import * as fiveways from "/fiveways.js";
import { cases } from "/battery.mjs";
import { driver } from "/driver.mjs";

globalThis.drive = driver(cases, { ...fiveways });
