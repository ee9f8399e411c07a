// Two small charts. The library is large and comes when it comes; the numbers are there without it.

import { SPAN } from "./history.js";
import { h, say, show } from "./dom.js";
import { duration, rate } from "./format.js";

/** In the order in which they are shown; relatives stand together, and have shades of one colour. */
export const PROTOCOLS = ["umq", "umq36", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq"];
const QUANTILES = [["p50", "solid", 2], ["p95", "dash", 1.6], ["p99", "dot", 1.6]];
const CONFIG = { displayModeBar: false, responsive: true, showTips: false };

/** Ours first, then others by name. */
export function inOrder(protocols) {
  const rank = (each) => (PROTOCOLS.includes(each) ? PROTOCOLS.indexOf(each) : PROTOCOLS.length);
  return [...protocols].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** The colour of a protocol, as a name in the style sheet. */
export function colourOf(protocol) {
  const known = PROTOCOLS.indexOf(protocol);
  return known < 0 ? "c7" : `c${known + 1}`;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Seconds ago, as people say it. */
const ago = (seconds) => (seconds === 0 ? "now" : seconds % 60 ? `−${-seconds} s` : `−${-seconds / 60} min`);
/** How much is shown when so many seconds are known, and how far marks are apart. */
const SPANS = [[60, 15], [120, 30], [SPAN, 60]];

export class Charts {
  #isDrawing = false;
  #history;

  constructor(history, traffic, latency) {
    this.#history = history;
    this.traffic = traffic;
    this.latency = latency;
    this.notes = new Map([traffic, latency].map((each) => [each, h("p", { class: "waiting" }, "Waiting for data")]));
    for (const [each, note] of this.notes) each.append(note);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    // By then the library is there, or will not come.
    if (document.readyState === "complete") this.#look();
    else addEventListener("load", () => this.#look());
  }

  #look() {
    if (globalThis.Plotly !== undefined) return;
    for (const note of this.notes.values()) say(note, "The chart library did not load. All numbers are still shown.");
  }

  /** Draw what is known now. */
  async draw() {
    const plotly = globalThis.Plotly;
    if (plotly === undefined || this.#isDrawing || !this.#history.points.some((each) => each.frames)) return;
    this.#isDrawing = true;
    try {
      const points = this.#history.points;
      const end = points.at(-1).at;
      const xs = points.map((each) => each.at - end);
      this.span = SPANS.find(([seconds]) => -xs[0] <= seconds) ?? SPANS.at(-1);
      const highest = Math.max(1, ...points.map((each) => Object.values(each.frames ?? {}).reduce((sum, one) => sum + one, 0)));
      await this.#react(plotly, this.traffic, this.#layers(points, xs), { range: [0, 1.08 * highest], tickformat: "~s", nticks: 5 });
      const lines = this.#lines(points, xs);
      const seen = lines.flatMap((each) => each.y).filter((each) => each > 0);
      const [low, high] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [0.001, 0.01];
      // Whole decades, so that the scale stands still while the lines move.
      const range = [Math.floor(Math.log10(low)), Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(low)) + 1)];
      const decades = Array.from({ length: range[1] - range[0] + 1 }, (_, index) => 10 ** (range[0] + index));
      const ticks = { tickmode: "array", tickvals: decades, ticktext: decades.map((each) => duration(each)) };
      await this.#react(plotly, this.latency, lines, { type: "log", range, ...ticks });
      say(this.notes.get(this.latency), "No calls completed in this period.");
      show(this.notes.get(this.latency), seen.length === 0);
    } finally {
      this.#isDrawing = false;
    }
  }

  #layers(points, xs) {
    const names = inOrder(new Set(points.flatMap((each) => Object.keys(each.frames ?? {}))));
    const seen = names.filter((name) => points.some((each) => each.frames?.[name]));
    return (seen.length ? seen : names.slice(0, 1)).map((name) => {
      const y = points.map((each) => (each.frames ? each.frames[name] ?? 0 : 0));
      const colour = style(colourOf(name));
      const line = { width: 0.6, color: colour };
      const text = y.map((each) => rate(each));
      return { name, x: xs, y, text, hovertemplate: "%{text}", mode: "lines", stackgroup: "all", line, fillcolor: colour };
    });
  }

  #lines(points, xs) {
    return QUANTILES.map(([name, dash, width]) => {
      const y = points.map((each) => each.latency?.[name] ?? null);
      const text = y.map((each) => duration(each));
      const line = { color: style(name), dash, width };
      return { name, x: xs, y, text, hovertemplate: "%{text}", mode: "lines", connectgaps: false, line };
    });
  }

  async #react(plotly, place, traces, scale) {
    const soft = style("soft");
    const grid = style("mark");
    const axis = { gridcolor: grid, zeroline: false, fixedrange: true, tickfont: { size: 11, color: soft }, ticklen: 0 };
    const [span, step] = this.span;
    // The first mark would stand where the other axis has one.
    const ticks = Array.from({ length: span / step }, (_, index) => -index * step);
    const layout = {
      height: 210,
      margin: { l: 52, r: 16, t: 6, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("ink") },
      showlegend: true,
      legend: { orientation: "h", x: 0, y: -0.14, yanchor: "top", font: { size: 11.5, color: soft }, traceorder: "normal", itemclick: false, itemdoubleclick: false },
      hovermode: "x unified",
      hoverlabel: { bgcolor: style("page"), bordercolor: style("rule"), font: { size: 12, color: style("ink") } },
      xaxis: { ...axis, range: [-span, 0], tickvals: ticks, ticktext: ticks.map(ago), showgrid: false, unifiedhovertitle: { text: "" }, hoverformat: ".0f" },
      yaxis: { ...axis, ...scale },
    };
    show(this.notes.get(place), false);
    await plotly.react(place, traces, layout, CONFIG);
  }
}
