"""Style and script of the pages of ``amfs report`` and ``amfs dashboard``: constants, nothing else. No network, no fonts.

``STYLE`` and ``HELPERS`` are of both pages, ``SCRIPT`` of the report.
"""

# ruff: noqa: E501  (style and script have lines of their own kind)

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --bg:#fbfbfa; --card:#fff; --ink:#1d2329; --soft:#68727d; --line:#e3e5e8; --track:#eceef0;
  --busy:#7cc576; --idle:#a33b35; --bad:#c2185b; --accent:#4878a8; }
@media (prefers-color-scheme: dark) { :root { --bg:#15181c; --card:#1d2126; --ink:#e4e7ea; --soft:#98a2ad; --line:#31373e;
  --track:#2a2f35; --busy:#6db567; --idle:#8d3a35; --bad:#ff5c9a; --accent:#7fb0e0; } }
* { box-sizing: border-box; }
body { margin:0; background:var(--bg); color:var(--ink); font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif; }
main { max-width:1180px; margin:0 auto; padding:28px 24px 60px; }
h1 { font-size:24px; font-weight:650; margin:0 0 2px; overflow-wrap:anywhere; }
h2 { font-size:16px; font-weight:650; margin:0; }
.sub { color:var(--soft); margin:0 0 18px; }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(122px,1fr)); gap:12px; margin-bottom:18px; }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:11px 14px; }
.card b { display:block; font-size:22px; font-weight:650; line-height:1.25; font-variant-numeric:tabular-nums; }
.card span { color:var(--soft); font-size:13px; }
.card.bad b { color:var(--bad); }
section { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:16px 18px 14px; margin-bottom:18px; }
section > header { display:flex; flex-wrap:wrap; gap:4px 14px; align-items:baseline; margin-bottom:8px; }
section > header .note { color:var(--soft); font-size:13px; flex:1; }
.legend { display:flex; flex-wrap:wrap; gap:3px 16px; font-size:13px; margin:8px 0 0; }
.legend[hidden] { display:none; }
.chip { display:inline-block; width:11px; height:11px; border-radius:3px; margin-right:6px; vertical-align:-1px; }
button { font:inherit; font-size:13px; color:var(--ink); background:var(--bg); border:1px solid var(--line); border-radius:7px;
  padding:2px 10px; cursor:pointer; }
button[aria-pressed=true] { background:var(--accent); border-color:var(--accent); color:#fff; }
.plot { display:grid; grid-template-columns:74px 1fr 62px; }
.plot.chart { grid-template-columns:74px 1fr 14px; }
.plot svg { width:100%; display:block; }
.rows { position:relative; font-size:11px; color:var(--soft); text-align:right; }
.rows span { position:absolute; right:8px; transform:translateY(-50%); white-space:nowrap; }
.busy.rows { text-align:left; } .busy.rows span { right:auto; left:8px; }
.axis { position:relative; height:20px; font-size:11px; color:var(--soft); grid-column:2; }
.axis span { position:absolute; top:3px; transform:translateX(-50%); white-space:nowrap; font-variant-numeric:tabular-nums; }
.track { fill:var(--track); } .bad { fill:var(--bad); }
.two .track { fill:var(--idle); } .two .task { fill:var(--busy) !important; }
.grid { stroke:var(--line); stroke-width:1; vector-effect:non-scaling-stroke; }
.curve { fill:none; stroke:var(--accent); stroke-width:2; vector-effect:non-scaling-stroke; }
.curve.fail { stroke:var(--bad); }
.area { fill:var(--accent); opacity:.28; }
.limit { stroke:var(--soft); stroke-width:1; stroke-dasharray:4 4; vector-effect:non-scaling-stroke; }
.pair { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr)); gap:18px; }
.pair section { margin-bottom:0; } .pair { margin-bottom:18px; }
.wide { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:14px; font-variant-numeric:tabular-nums; }
th { color:var(--soft); font-weight:500; font-size:12.5px; text-align:right; padding:4px 10px; border-bottom:1px solid var(--line); white-space:nowrap; }
td { text-align:right; padding:5px 10px; border-bottom:1px solid var(--line); white-space:nowrap; }
tr:last-child td { border-bottom:0; } tr.sum td { font-weight:650; }
th:first-child, td:first-child { text-align:left; padding-left:0; } td:last-child, th:last-child { padding-right:0; }
td.no { color:var(--bad); font-weight:650; } td svg { vertical-align:middle; }
details { border-top:1px solid var(--line); padding:7px 0; } details:first-of-type { border-top:0; }
summary { cursor:pointer; overflow-wrap:anywhere; } summary b { font-weight:650; } summary .why { color:var(--soft); }
pre { margin:6px 0 4px; padding:9px 12px; background:var(--bg); border:1px solid var(--line); border-radius:7px; overflow-x:auto;
  font:12.5px/1.45 ui-monospace,"SF Mono",Menlo,Consolas,monospace; }
#tip { position:fixed; pointer-events:none; background:var(--ink); color:var(--bg); font-size:12.5px; line-height:1.4; border-radius:7px;
  padding:6px 10px; max-width:420px; display:none; z-index:9; overflow-wrap:anywhere; white-space:pre-line; }
footer { color:var(--soft); font-size:13px; }
@media print { button { display:none; } }
.pair section, .wide { min-width:0; }
@media (max-width:640px) {
  main { padding:14px 10px 40px; } section { padding:12px 10px 10px; } h1 { font-size:20px; }
  .cards { grid-template-columns:repeat(auto-fit,minmax(96px,1fr)); gap:8px; } .card { padding:8px 10px; } .card b { font-size:18px; }
  .plot { grid-template-columns:48px 1fr 38px; } .plot.chart { grid-template-columns:52px 1fr 8px; }
  .rows span { right:4px; } .busy.rows span { left:4px; } td, th { padding-left:6px; padding-right:6px; }
}
"""

# Sizes and durations in the words of the commands.
HELPERS = """
const secs = us => { const s = us / 1e6; return s >= 100 ? s.toFixed(0) + ' s' : s >= 1 ? s.toFixed(2) + ' s' : (s * 1e3).toFixed(s < .01 ? 2 : 0) + ' ms'; };
const size = n => { const u = ['B', 'kB', 'MB', 'GB', 'TB']; let i = 0; while (n >= 999.5 && i < 4) { n /= 1000; i++; } return (i && n < 99.95 ? n.toFixed(1) : n.toFixed(0)) + ' ' + u[i]; };
"""

# Zooming changes only the viewBox; the hovered task is found by bisection in its row's start times.
SCRIPT = HELPERS + """
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const svg = document.getElementById('timeline'), tip = document.getElementById('tip'), axis = document.getElementById('axis');
  if (!svg) return;
  const full = [0, data.span];
  let view = full.slice();
  function ticks() {
    const span = view[1] - view[0], raw = span / 8, mag = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(m => m * mag).find(m => m >= raw), digits = Math.max(0, Math.ceil(-Math.log10(step / 1e6) - 1e-9));
    axis.textContent = '';
    for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
      const mark = document.createElement('span');
      mark.textContent = (t / 1e6).toFixed(digits) + ' s';
      mark.style.left = 100 * (t - view[0]) / span + '%';
      axis.append(mark);
    }
  }
  function show() {
    const k = 1000 / data.span;
    svg.setAttribute('viewBox', `${view[0] * k} 0 ${(view[1] - view[0]) * k} ${data.height}`);
    ticks();
  }
  const at = event => { const box = svg.getBoundingClientRect();
    return [view[0] + (event.clientX - box.left) / box.width * (view[1] - view[0]), (event.clientY - box.top) / box.height * data.rows.length]; };
  svg.addEventListener('wheel', event => {
    event.preventDefault();
    const [t] = at(event), factor = event.deltaY > 0 ? 1.25 : .8;
    const width = Math.min(data.span, Math.max(20, (view[1] - view[0]) * factor));
    const left = Math.min(Math.max(0, t - (t - view[0]) * width / (view[1] - view[0])), data.span - width);
    view = [left, left + width];
    show();
  }, { passive: false });
  let drag = null;
  svg.addEventListener('pointerdown', event => { drag = [event.clientX, view.slice()]; svg.setPointerCapture(event.pointerId); });
  svg.addEventListener('pointerup', () => { drag = null; });
  svg.addEventListener('dblclick', () => { view = full.slice(); show(); });
  svg.addEventListener('pointermove', event => {
    if (drag) {
      const width = drag[1][1] - drag[1][0];
      const left = Math.min(Math.max(0, drag[1][0] - (event.clientX - drag[0]) / svg.getBoundingClientRect().width * width), data.span - width);
      view = [left, left + width];
      tip.style.display = 'none';
      show();
      return;
    }
    const [t, y] = at(event), row = data.rows[Math.min(data.rows.length - 1, Math.max(0, Math.floor(y)))];
    let text = row.name + '\\n' + secs(t) + ': idle';
    if (row.tasks) {
      let low = 0, high = row.tasks.length;
      while (low < high) { const mid = (low + high) >> 1; if (row.tasks[mid][0] <= t) low = mid + 1; else high = mid; }
      const task = row.tasks[low - 1];
      if (task && t <= task[0] + Math.max(task[1], (view[1] - view[0]) / 800))
        text = `${task[3]} (${data.labels[task[2]]})${task[4] ? '' : ', failed'}\\n${row.name}, from ${secs(task[0])}, for ${secs(task[1])}\\nread ${size(task[5])}, ${size(task[6])} of it from other nodes; wrote ${size(task[7])}`;
    } else text = row.name + ': busy ' + row.busy;
    tip.textContent = text;
    tip.style.display = 'block';
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + 'px';
  });
  svg.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
  for (const button of document.querySelectorAll('button[data-mode]'))
    button.addEventListener('click', () => {
      svg.classList.toggle('two', button.dataset.mode === 'two');
      document.querySelectorAll('button[data-mode]').forEach(b => b.setAttribute('aria-pressed', b === button));
      document.querySelectorAll('[data-legend]').forEach(l => { l.hidden = l.dataset.legend !== button.dataset.mode; });
    });
  show();
})();
"""
