"""Style sheet of the page, for light and dark screens, narrow screens, and paper."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #fcfcfb; --raised: #f4f5f5; --ink: #1b2126; --soft: #56616b; --rule: #dfe3e6; --mark: #e6e9ec;
  --accent: #1f5fa8; --bad: #b3261e; --note: #8a5a00; --fine: #26713a;
  --c1: #1f5fa8; --c2: #6ea8de; --c3: #c2591a; --c4: #e39a5b; --c5: #1a8572; --c6: #7a4fa3;
  --c7: #8a95a0; --c8: #b4bcc4;
  --p50: #1f5fa8; --p95: #c2591a; --p99: #7a4fa3;
  --h1: #e8f0f9; --h2: #cfe0f3; --h3: #aecbea; --h4: #7dabdd; --h5: #2f6fb7; --h6: #174a86;
  --on-low: #1b2126; --on-high: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --raised: #1d2329; --ink: #e6eaee; --soft: #a3afba; --rule: #323a42; --mark: #2a3138;
    --accent: #7fb4ee; --bad: #ff8f85; --note: #e8b14c; --fine: #74c98a;
    --c1: #4a8fdb; --c2: #b3d3f5; --c3: #dd7b35; --c4: #f6cba0; --c5: #36b39b; --c6: #ab87d6;
    --c7: #707c88; --c8: #4c555e;
    --p50: #7fb4ee; --p95: #f0a066; --p99: #c4a3ea;
    --h1: #1b2a3a; --h2: #1f3a57; --h3: #255079; --h4: #2f6ba3; --h5: #6aa6e3; --h6: #b5d5f6;
    --on-low: #e6eaee; --on-high: #10151a;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body {
  margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 71rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .2rem; }
h3 { font-size: 1rem; margin: 2rem 0 .3rem; }
a { color: var(--accent); text-underline-offset: .15em; }
p { margin: .3rem 0; }
header p, .lead, .unit, .below, .legend, .more, .empty, footer { color: var(--soft); }
.lead { margin: 0 0 .8rem; max-width: 54rem; text-wrap: pretty; }
.empty { padding: .6rem .9rem; background: var(--raised); border-radius: 6px; }
.more, .legend { font-size: .85rem; }
.unseen {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.none { color: var(--soft); }
.name { overflow-wrap: anywhere; }
td .name { display: inline-block; min-width: 11rem; }
.word { white-space: nowrap; }
section { margin-top: 3rem; padding-top: 1.2rem; border-top: 1px solid var(--rule); }
nav { margin-top: 1.6rem; font-size: .9rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 0; padding: 0; list-style: none; }

.tiles { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 1.3rem 1.2rem; margin: 1.8rem 0 0; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd {
  margin: 0; font-size: 1.4rem; line-height: 1.25; font-weight: 600; letter-spacing: -.01em;
  white-space: nowrap;
}
.tiles dd.below {
  font-size: .8rem; line-height: 1.35; font-weight: 400; letter-spacing: 0; white-space: normal;
  max-width: 9rem;
}
.tiles .wide dd { display: flex; gap: 1.4rem; }
.tiles .wide dd span { display: flex; flex-direction: column-reverse; }
.tiles dd i {
  font-style: normal; font-weight: 400; font-size: .8rem; line-height: 1.35; color: var(--soft);
  letter-spacing: 0;
}

.findings { list-style: none; margin: .6rem 0 0; padding: 0; }
.findings li { display: flex; gap: .6rem; padding: .15rem 0; }
.findings a { color: inherit; text-decoration-color: var(--rule); }
.findings a:hover { text-decoration-color: currentColor; }
.sign { flex: none; width: 1.1em; text-align: center; font-weight: 700; color: var(--soft); }
.w0 { color: var(--fine); } .w1 { color: var(--note); } .w2 { color: var(--bad); }

figure { margin: 1.2rem 0 .4rem; }
figcaption { margin-bottom: .5rem; }
.unit { font-size: .85rem; }
.plot { display: grid; grid-template-columns: 3.9rem minmax(0, 1fr) 6.6rem; }
.plot.bare { grid-template-columns: 3.9rem minmax(0, 1fr) .6rem; }
.ys { position: relative; }
.ys span {
  position: absolute; right: .5rem; transform: translateY(50%); font-size: 12px; line-height: 1;
  color: var(--soft); white-space: nowrap;
}
.area { position: relative; grid-column: 2; outline-offset: 3px; }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; pointer-events: none; }
.area path { vector-effect: non-scaling-stroke; }
path.mark, line.mark { stroke: var(--mark); stroke-width: 1; fill: none; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.line.p99 { stroke-dasharray: 2 4; } .line.p95 { stroke-dasharray: 7 3; }
.line.p50 { stroke: var(--p50); stroke-width: 2.2; }
.line.p95 { stroke: var(--p95); }
.line.p99 { stroke: var(--p99); }
.line.bad { stroke: var(--bad); }
.line.dot { stroke-width: 7; stroke-dasharray: none; }
.band { stroke: var(--page); stroke-width: .7; } .band.bad { fill: var(--bad); }
.band.c1 { fill: var(--c1); }
.band.c2 { fill: var(--c2); }
.band.c3 { fill: var(--c3); }
.band.c4 { fill: var(--c4); }
.band.c5 { fill: var(--c5); }
.band.c6 { fill: var(--c6); }
.band.c7 { fill: var(--c7); }
.band.c8 { fill: var(--c8); }
.ends { position: relative; list-style: none; margin: 0; padding: 0; font-size: 12.5px; line-height: 18px; }
.ends li { position: absolute; left: .6rem; white-space: nowrap; }
.key {
  display: inline-block; width: 10px; height: 10px; margin-right: .4rem; border-radius: 2px;
  background: var(--c8);
}
.key.c1 { background: var(--c1); } .key.c2 { background: var(--c2); } .key.c3 { background: var(--c3); }
.key.c4 { background: var(--c4); }
.key.c5 { background: var(--c5); }
.key.c6 { background: var(--c6); }
.key.c7 { background: var(--c7); }
.key.p50, .key.p95, .key.p99 {
  width: 18px; height: 0; vertical-align: 4px; border-radius: 0; background: none; border-top: 2.5px solid
  var(--p50);
}
.key.p95 { border-top: 2px dashed var(--p95); } .key.p99 { border-top: 2px dotted var(--p99); }
.xs { position: relative; grid-column: 2; height: 2.4rem; font-size: 12px; line-height: 1.25; color: var(--soft); }
.xs > span {
  position: absolute; top: .35rem; transform: translateX(-50%); text-align: center; white-space: nowrap;
}
.xs b { display: block; color: var(--ink); font-weight: 600; }
.quarters {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: .4rem 1.6rem;
}
.rule {
  position: absolute; top: 0; bottom: 0; width: 1px; background: var(--ink); opacity: .55;
  pointer-events: none;
}
.tip {
  position: absolute; z-index: 2; top: 0; padding: .4rem .6rem; pointer-events: none; background: var(--page);
  color: var(--ink);
  border: 1px solid var(--rule); border-radius: 6px; box-shadow: 0 3px 14px rgb(0 0 0 / .16); font-size: 12.5px;
  line-height: 1.45; white-space: nowrap;
}
.tip dl { display: grid; grid-template-columns: auto auto; gap: 0 .9rem; margin: 0; }
.tip dd { margin: 0; text-align: right; }
.tip dt { color: var(--soft); }

details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; padding: .15rem 0; }
.scroll {
  overflow-x: auto; background:
    linear-gradient(90deg, var(--page) 30%, transparent) 0 0 / 2rem 100% no-repeat local,
    linear-gradient(270deg, var(--page) 30%, transparent) 100% 0 / 2rem 100% no-repeat local,
    linear-gradient(90deg, var(--rule), transparent) 0 0 / .7rem 100% no-repeat scroll,
    linear-gradient(270deg, var(--rule), transparent) 100% 0 / .7rem 100% no-repeat scroll;
}
details .scroll:has(> .series) { max-height: 26rem; overflow-y: auto; }
.series thead th { position: sticky; top: 0; background: var(--page); }
table { border-collapse: collapse; font-size: .88rem; line-height: 1.35; width: 100%; }
th {
  text-align: left; font-weight: 600; color: var(--soft); vertical-align: bottom; border-bottom: 1px solid
  var(--rule);
}
th, td { padding: .32rem .9rem .32rem 0; }
td { vertical-align: top; border-bottom: 1px solid var(--mark); }
th.n, td.n { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th[aria-sort="ascending"] button::after { content: " ↑"; }
th[aria-sort="descending"] button::after { content: " ↓"; }
td:has(.barred) { width: 32%; } td:has(.small) { width: 9rem; }
.barred { display: flex; align-items: center; justify-content: flex-end; }
.barred > :last-child { min-width: 5.2rem; padding-left: .5rem; } .small > :last-child { min-width: 4rem; }
.bar { flex: 1; min-width: 2.5rem; height: .6rem; background: var(--mark); border-radius: 2px; }
.bar i { display: block; height: 100%; background: var(--accent); border-radius: 2px; }
.bar i.bad { background: var(--bad); }
.ranges td { vertical-align: middle; }
.ranges th:nth-child(3), .ranges td:nth-child(3) { padding-left: 1.2rem; }
.ranges td:nth-child(3) { width: 38%; padding-top: 0; padding-bottom: 0; }
.axis { display: block; width: 100%; height: 16px; overflow: visible; }
.axis text { fill: var(--soft); font-size: 11.5px; font-weight: 400; text-anchor: middle; }
.range { display: block; width: 100%; height: 28px; overflow: visible; }
.reach { stroke: var(--soft); stroke-width: 2; } .dot50 { fill: var(--p50); } .dot95 { fill: var(--p95); }

.heat { width: auto; table-layout: fixed; border-spacing: 2px; border-collapse: separate; }
.heat th { border: 0; padding: .3rem .7rem .3rem 0; vertical-align: middle; white-space: nowrap; }
.heat thead th { text-align: center; padding: .2rem; }
.heat td {
  width: 6.4rem; height: 3.5rem; padding: .25rem; text-align: center; vertical-align: middle; border: 0;
  border-radius: 4px; line-height: 1.3;
}
.heat td b, .heat td span, .heat td em { display: block; } .heat td b { font-size: .95rem; }
.heat td span, .heat td em { font-size: .78rem; font-style: normal; } .heat td em { font-weight: 700; }
.legend i { display: inline-block; width: 1.5rem; height: .7rem; vertical-align: -1px; }
.h0 { background: var(--raised); }
.h1, .h2, .h3, .h4 { color: var(--on-low); } .h5, .h6 { color: var(--on-high); }
.h1 { background: var(--h1); } .h2 { background: var(--h2); } .h3 { background: var(--h3); }
.h4 { background: var(--h4); } .h5 { background: var(--h5); } .h6 { background: var(--h6); }

.graph { display: block; width: 100%; min-width: 54rem; height: auto; font-size: 12.5px; }
.graph text { fill: var(--ink); } .graph .title, .graph .how { fill: var(--soft); font-size: 11.5px; }
.graph .what { font-weight: 600; }
.graph rect { fill: var(--raised); stroke: var(--rule); } .graph .rest rect { fill: none; stroke-dasharray: 3 3; }
.graph .rest .what { font-weight: 400; }
.edges path { fill: none; stroke: var(--c1); opacity: .38; } .edges path:hover { opacity: .9; }
.edges path.bad { stroke: var(--bad); stroke-dasharray: 7 4; opacity: .7; }
.graph tspan.bad { fill: var(--bad); font-weight: 600; }

.kinds { border-top: 1px solid var(--rule); }
.kind { margin: 0; border-bottom: 1px solid var(--rule); }
.kind summary, div.kind {
  display: grid; grid-template-columns: 1.4rem 9.5rem minmax(0, 1fr) 1.2rem; gap: .2rem .5rem; padding: .5rem
  0; color: var(--ink); font-size: .95rem; list-style: none;
}
.kind summary::-webkit-details-marker { display: none; }
.kind summary::after { content: "+"; color: var(--soft); text-align: center; }
.kind[open] summary::after { content: "\\2013"; }
.kind .unseen { grid-column: 1; } .kind > .scroll, .kind > .more { margin-left: 1.9rem; padding-bottom: .5rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--rule); font-size: .85rem; }

@media (max-width: 44rem) {
  body { padding: 1.2rem 1rem 2rem; }
  .extra { display: none; }
  .tiles { display: grid; grid-template-columns: 1fr 1fr; gap: 1.1rem 1rem; } .tiles .wide { grid-column: 1 / -1; }
  .plot, .plot.bare { grid-template-columns: 3.2rem minmax(0, 1fr); }
  .ends {
    grid-row: 1; grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 0 1rem; height: auto !important;
    margin-bottom: .6rem;
  }
  .ends li { position: static; }
  th, td { padding-right: .55rem; } th.n { white-space: normal; }
  td .name { min-width: 0; } td:first-child .name { min-width: 5.5rem; }
  .bar { display: none; } td:has(.barred) { width: auto; }
  .barred > :last-child, .small > :last-child { min-width: 0; padding-left: 0; }
  .ranges td:nth-child(3) { width: 24%; min-width: 4.8rem; }
  .ranges th:nth-child(3), .ranges td:nth-child(3) { padding-left: .4rem; }
  .heat { width: 100%; } .heat th:first-child { width: 5.2rem; white-space: normal; padding-right: .3rem; }
  .heat thead th:not(:first-child) { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
  .heat td { width: auto; height: 2.6rem; padding: 0; overflow: hidden; }
  .heat td b { font-size: .8rem; font-weight: 400; } .heat td em { font-size: .68rem; }
  .heat td b + span { display: none; }
  .kind summary, div.kind { grid-template-columns: 1.2rem minmax(0, 1fr) 1.2rem; }
  .kind summary > span:last-of-type, div.kind > span:last-of-type { grid-column: 2; grid-row: 2; }
  .kind summary::after { grid-column: 3; grid-row: 1; } .kind > .scroll, .kind > .more { margin-left: 0; }
}
@media print {
  :root { color-scheme: light; --page: #fff; }
  body { max-width: none; padding: 0; font-size: 11px; }
  nav, summary::after, details:not([open]) { display: none; }
  details.kind:not([open]) { display: block; }
  figure, tr, .tiles, .kind, .graph { break-inside: avoid; } h2, h3 { break-after: avoid; }
  section { margin-top: 1.5rem; } .graph { min-width: 0; }
  .band, .bar, .bar i, .key, .heat td, .legend i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
"""
