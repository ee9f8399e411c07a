// What `hub.traffic` told over the last minutes. It tells totals: rates are differences between two answers.

/** Seconds that the charts show. */
export const SPAN = 300;
/** Seconds over which a rate is taken, so that it does not jump. */
const WINDOW = 5;
/** Without an answer for so many seconds, lines have a gap. */
const GAP = 6;
const QUANTILES = { p50: 0.5, p95: 0.95, p99: 0.99 };

/** @typedef {Record<string, any>} Told an answer of `hub.traffic` */

const sum = (values) => values.reduce((total, each) => total + each, 0);
export const frames = (protocol) => (protocol?.frames_in ?? 0) + (protocol?.frames_out ?? 0);

/** How long that part of the calls took at most, of counts between bounds; null if there are none. */
export function quantile(bounds, counts, part) {
  const wanted = part * sum(counts);
  if (!wanted) return null;
  let below = 0;
  for (let at = 0; at < bounds.length; at++) {
    if (counts[at] && below + counts[at] >= wanted) {
      const lower = at ? bounds[at - 1] : 0;
      return lower + ((bounds[at] - lower) * (wanted - below)) / counts[at];
    }
    below += counts[at];
  }
  return bounds.at(-1) ?? null;
}

/** The calls that ended between two answers: p50, p95 and p99, in seconds. */
export function latency(older, newer) {
  const { bounds = [], counts = [] } = newer.latency ?? {};
  const before = older.latency?.counts ?? [];
  const ended = counts.map((each, index) => each - (before[index] ?? 0));
  return Object.fromEntries(Object.entries(QUANTILES).map(([name, part]) => [name, quantile(bounds, ended, part)]));
}

/** Failures, the newest first, where those that follow each other and are alike are one, with how many `times`. */
export function inARow(failures) {
  const alike = (one, other) => ["method", "caller", "callee", "reason", "text"].every((key) => one[key] === other[key]);
  const rows = [];
  for (const each of failures) {
    const last = rows.at(-1);
    if (last && alike(last, each)) last.times += 1;
    else rows.push({ ...each, times: 1 });
  }
  return rows;
}

export class History {
  /** @type {Told[]} the answers of the last seconds, the oldest first */
  #recent = [];
  /** @type {({at: number, frames: Record<string, number>, latency: Record<string, number | null>} | {at: number})[]} */
  points = [];

  /** Take an answer. */
  add(told) {
    const last = this.#recent.at(-1);
    // Totals that begin anew are those of another hub, even if it has the same address.
    if (last && (told.uptime < last.uptime || told.at <= last.at)) this.#recent = [];
    if (last && told.at - last.at > GAP) {
      this.#recent = [];
      this.points.push({ at: (last.at + told.at) / 2 });
    }
    this.#recent.push(told);
    const [older, newer] = this.#ends();
    if (older) this.points.push(this.#point(older, newer));
    while (this.#recent.length > 2 && told.at - this.#recent[1].at >= WINDOW) this.#recent.shift();
    while (this.points.length && told.at - this.points[0].at > SPAN) this.points.shift();
  }

  get latest() {
    return this.#recent.at(-1) ?? null;
  }

  /** So many a second of what `total` finds in an answer; null as long as there is only one. */
  rate(total) {
    const [older, newer] = this.#ends();
    return older ? Math.max(0, total(newer) - total(older)) / (newer.at - older.at) : null;
  }

  /** Rates of the rows of a list in the answers, by the name of each: a map of functions would be asked too often. */
  rates(list, key, column) {
    const [older, newer] = this.#ends();
    if (!older) return new Map();
    const before = new Map(older[list].map((each) => [each[key], each[column]]));
    const seconds = newer.at - older.at;
    return new Map(newer[list].map((each) => [each[key], Math.max(0, each[column] - (before.get(each[key]) ?? 0)) / seconds]));
  }

  /** Latency of the last seconds. */
  latency() {
    const [older, newer] = this.#ends();
    return older ? latency(older, newer) : {};
  }

  #ends() {
    return this.#recent.length > 1 ? [this.#recent[0], this.#recent.at(-1)] : [null, null];
  }

  #point(older, newer) {
    const seconds = newer.at - older.at;
    const rates = Object.entries(newer.protocols).map(([name, each]) => (
      [name, Math.max(0, frames(each) - frames(older.protocols[name])) / seconds]
    ));
    return { at: newer.at, frames: Object.fromEntries(rates), latency: latency(older, newer) };
  }
}
