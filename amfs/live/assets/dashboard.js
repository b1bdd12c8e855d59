/* The page of `amfs dashboard`: takes a frame each second, draws it once an animation frame, keeps five minutes.
   Rows of tables are bounded, maps are binned: the page costs the same with ten nodes and with a thousand. */
'use strict';
(() => {
  const $ = id => document.getElementById(id);
  const token = new URLSearchParams(location.search).get('token') || '';
  const KEPT = 300, ROWS = 60, MAP_ROWS = 200, HEAT = 96;
  const num = n => Math.round(n).toLocaleString('en');
  const rate = n => n >= 10 ? num(n) : n.toFixed(1);
  const span = s => secs(Math.max(0, s) * 1e6);
  const age = s => s < 100 ? span(s) : s < 3600 ? Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s' : Math.floor(s / 3600) + ' h ' + Math.floor(s / 60 % 60) + ' min';
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let frame = null, chosen = null, picked = false, failedBefore = null, paused = false, wanted = 20, dirty = false, drawn = 0, filter = '';
  let page = { at_work: [], failed: [], at_work_total: 0, failed_total: 0 };
  const series = { at: [], rate: [], failed: [], slots: [], running: [], memory: [], spilled: [], moved: [] };

  /* ── text ── */
  function cell(row, text, kind) { const td = document.createElement('td'); td.textContent = text; if (kind) td.className = kind; row.append(td); return td; }
  function table(id, heads, rows) {
    const head = document.createElement('thead'), top = document.createElement('tr'), body = document.createElement('tbody');
    for (const text of heads) { const th = document.createElement('th'); th.textContent = text; top.append(th); }
    head.append(top);
    for (const row of rows) body.append(row);
    $(id).replaceChildren(head, body);
  }
  function row(cells) { const tr = document.createElement('tr'); cells.forEach((text, i) => cell(tr, text, i ? '' : 'name')); return tr; }
  function card(value, words, bad) {
    const box = document.createElement('div'), b = document.createElement('b'), s = document.createElement('span');
    box.className = 'card' + (bad ? ' bad' : ''); b.textContent = value; s.textContent = words; box.append(b, s);
    return box;
  }
  const sum = (list, field) => { let all = 0; for (const each of list) all += each[field]; return all; };

  function tables() {
    const { runs, nodes, sessions } = frame, going = runs.filter(run => !run.over);
    const now = runs.find(run => run.id === chosen);
    if (!now || (now.over && !picked && going.length)) { chosen = (going[0] || runs[0] || {}).id || null; picked = false; }
    const run = runs.find(each => each.id === chosen), slots = sum(nodes, 'slots'), busy = sum(nodes, 'running');
    const failed = sum(runs, 'failed');
    $('cards').replaceChildren(
      card(num(going.length), going.length === 1 ? 'run goes on' : 'runs go on'), card(num(sum(runs, 'finished')), 'tasks finished'),
      card(rate(sum(going, 'rate')) + '/s', 'tasks ended'), card(num(busy) + ' of ' + num(slots), 'slots busy'),
      card(size(sum(nodes, 'memory')), 'of files in memory'), card(size(sum(nodes, 'fetched_rate')) + '/s', 'between nodes'),
      ...(failed ? [card(num(failed), 'failed', true)] : []));
    $('sub').textContent = sessions.length || runs.length ? sessions.map(s => 'session ' + s.name).join(', ') || 'no session; runs have nodes of their own'
      : 'no run is going on, and there is no session: amfs run FILE starts a run, amfs up a session';
    $('notes').replaceChildren(...frame.notes.map(text => { const p = document.createElement('p'); p.textContent = text; return p; }));
    table('runtable', ['run', 'in', 'progress', 'done', 'failed', 'running', 'per second', 'moved', 'left', 'for'], runs.slice(0, ROWS).map(each => {
      const tr = document.createElement('tr'), bar = document.createElement('progress');
      tr.tabIndex = 0; tr.dataset.run = each.id;
      if (each.id === chosen) { tr.className = 'chosen'; tr.setAttribute('aria-selected', 'true'); }
      cell(tr, each.source.split('/').pop() || each.source, 'name').title = each.directory + ' process ' + each.pid;
      cell(tr, each.place === each.id ? '' : each.place);
      if (each.total >= 0) { bar.max = Math.max(1, each.total); bar.value = each.finished + each.failed; }
      bar.setAttribute('aria-label', 'progress');
      cell(tr, '').append(bar);
      cell(tr, num(each.finished) + (each.total >= 0 ? ' of ' + num(each.total) : '')); cell(tr, each.failed ? num(each.failed) : '', 'no');
      cell(tr, each.over || (each.silent ? 'does not answer' : num(each.running))); cell(tr, each.rate ? rate(each.rate) : '');
      cell(tr, each.moved ? size(each.moved) : ''); cell(tr, each.eta_s >= 0 && !each.over ? age(each.eta_s) : ''); cell(tr, age(frame.at - each.began));
      return tr;
    }));
    const stages = run ? run.stages : [];
    $('stagenote').textContent = run ? run.source : '';
    table('stagetable', ['stage', 'done', 'of', 'failed', 'not run', 'per second', 'busy', 'moved', 'to shared'], stages.slice(0, 200).map(s => row([s.label,
      num(s.finished), s.tasks ? num(s.tasks) : '', s.failed ? num(s.failed) : '', s.not_run ? num(s.not_run) : '', s.rate ? rate(s.rate) : '', s.busy_s ? age(s.busy_s) : '',
      s.moved ? size(s.moved) : '', s.to_shared ? size(s.to_shared) : ''])));
    const shown = filter ? nodes.filter(n => (n.host + ' ' + n.state + ' ' + n.place).includes(filter)) : nodes;
    const odd = shown.filter(n => n.state !== 'up'), rest = shown.filter(n => n.state === 'up');
    $('nodenote').textContent = num(shown.length) + ' nodes' + (odd.length ? ', ' + num(odd.length) + ' not up' : '') + (shown.length > ROWS ? '; the first ' + ROWS + ' are shown' : '');
    table('nodetable', ['node', 'in', 'state', 'host', 'slots', 'running', 'wait for a slot', 'wait for files', 'per second', 'memory', 'spilled', 'fetched'],
      [...odd, ...rest].slice(0, ROWS).map(n => row([n.node, n.place, n.state, n.host, n.slots, n.running, num(n.ready), num(n.waiting), n.rate ? rate(n.rate) : '',
        size(n.memory), n.spilled ? size(n.spilled) : '', n.fetched ? size(n.fetched) : ''])));
    const said = sessions.flatMap(s => s.decisions.map(text => (sessions.length > 1 ? s.name + ' ' : '') + text)).slice(-60).reverse();
    const jobs = sessions.flatMap(s => s.jobs.map(job => 'job ' + job[0] + ': ' + job[1] + (job[2] ? ' (' + job[2] + ')' : '')));
    const paused = sessions.map(s => s.paused).filter(Boolean);
    $('decisionlist').replaceChildren(...[...paused, ...jobs, ...said].map(text => { const d = document.createElement('div'); d.textContent = text; return d; }));
    $('decisions').hidden = !paused.length && !jobs.length && !said.length;
    $('transfers').hidden = !frame.transfers.length;
  }

  function lists() {
    const now = frame ? frame.at : Date.now() / 1000, sources = new Map((frame ? frame.runs : []).map(run => [run.id, run.source.split('/').pop()]));
    $('tasknote').textContent = num(page.at_work_total) + ' run; those that run longest first';
    $('moretasks').hidden = page.at_work.length >= page.at_work_total || wanted >= 500;
    table('tasktable', ['task', 'stage', 'for', 'memory', 'node', 'slot', 'process', 'run'], page.at_work.map(t => row([t.task || '#' + t.number, t.label,
      age(now - t.since), t.memory >= 0 ? size(t.memory) : '', t.node, t.slot, t.pid, sources.get(t.run) || ''])));
    $('failures').hidden = !page.failed_total;
    $('failnote').textContent = num(page.failed_total) + ', newest first';
    const open = new Set([...document.querySelectorAll('#faillist details[open]')].map(d => d.dataset.key));
    $('faillist').replaceChildren(...page.failed.map((f, i) => {
      const box = document.createElement('details'), head = document.createElement('summary'), b = document.createElement('b');
      box.dataset.key = f.run + ' ' + f.task; box.open = open.has(box.dataset.key) || (i < 2 && !open.size);
      b.textContent = f.task;
      head.append(b, ' ' + f.why + ' ');
      const why = document.createElement('span'); why.className = 'why';
      why.textContent = [f.where, f.node >= 0 ? 'node ' + f.node : ''].filter(Boolean).join(', ');
      head.append(why); box.append(head);
      if (f.stderr) { const pre = document.createElement('pre'); pre.textContent = f.stderr.trimEnd().split('\n').slice(-20).join('\n'); box.append(pre); }
      return box;
    }));
  }

  /* ── curves ── */
  const charts = [];
  function chart(id, names, colours, values, least = 1) {
    const width = () => Math.max(200, $(id).clientWidth);
    const axis = extra => ({ stroke: () => css('--soft'), grid: { stroke: () => css('--line'), width: 1 }, ticks: { stroke: () => css('--line') }, ...extra });
    const plot = new uPlot({
      width: width(), height: 150, cursor: { y: false }, legend: { live: true },
      scales: { x: { time: true }, y: { range: (u, low, high) => [0, Math.max(least, high * 1.08)] } },
      axes: [axis({}), axis({ size: 74, values: (u, all) => all.map(values) })],
      series: [{}, ...names.map((name, i) => ({ label: name, stroke: () => css(colours[i]), width: 1.6, fill: i ? undefined : () => css(colours[0]) + '33',
        value: (u, v) => v == null ? '' : values(v) }))],
    }, [[], ...names.map(() => [])], $(id));
    charts.push({ plot, id, width, data: names.map(name => series[name]) });
  }
  chart('c-rate', ['rate', 'failed'], ['--accent', '--bad'], v => v >= 1000 ? (v / 1000).toFixed(1) + ' k' : String(Math.round(v * 10) / 10));
  chart('c-slots', ['running', 'slots'], ['--busy', '--soft'], v => num(v));
  chart('c-memory', ['memory', 'spilled'], ['--accent', '--idle'], size, 1000);
  chart('c-moved', ['moved'], ['--accent'], v => size(v) + '/s', 1000);

  /* ── slots over time: a column each frame, a row for each node or group of nodes ── */
  const map = { keys: '', columns: [] };
  function column() {
    const nodes = frame.nodes, group = Math.max(1, Math.ceil(nodes.length / MAP_ROWS)), rows = Math.ceil(nodes.length / group);
    const shares = new Float32Array(rows).fill(-1);
    for (let r = 0; r < rows; r++) {
      let slots = 0, running = 0;
      for (let i = r * group; i < Math.min(nodes.length, (r + 1) * group); i++) { slots += nodes[i].slots; running += nodes[i].running; }
      if (slots) shares[r] = Math.min(1, running / slots);
    }
    const keys = nodes.length + ':' + (nodes.length ? nodes[0].place + nodes[nodes.length - 1].node : '');
    if (keys !== map.keys) { map.keys = keys; map.columns = []; }
    map.columns.push(shares);
    if (map.columns.length > KEPT) map.columns.shift();
    $('slotnote').textContent = nodes.length ? (group > 1 ? 'a row for ' + group + ' nodes' : 'a row for each node') + '; the last ' + Math.round(map.columns.length) + ' looks, now at the right; the darker the more slots are busy' : '';
  }
  const rgb = text => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = text; const n = parseInt(c.fillStyle.slice(1), 16); return [n >> 16, n >> 8 & 255, n & 255]; };
  function pixels(canvas, width, height, paint) {
    canvas.width = width; canvas.height = height;
    const context = canvas.getContext('2d'), image = context.createImageData(width, height);
    paint(image.data);
    context.putImageData(image, 0, 0);
  }
  function slotmap() {
    const rows = map.columns.length ? map.columns[0].length : 0;
    $('timeline').hidden = !rows;
    if (!rows) return;
    $('slotmap').style.height = Math.max(24, Math.min(220, rows * 16)) + 'px';
    const from = rgb(css('--track')), to = rgb(css('--busy')), none = rgb(css('--card'));
    pixels($('slotmap'), KEPT, rows, data => {
      const first = KEPT - map.columns.length;
      for (let x = 0; x < KEPT; x++) for (let y = 0; y < rows; y++) {
        const share = x < first ? -1 : map.columns[x - first][y], at = 4 * (y * KEPT + x);
        for (let c = 0; c < 3; c++) data[at + c] = share < 0 ? none[c] : from[c] + (to[c] - from[c]) * share;
        data[at + 3] = 255;
      }
    });
  }

  /* ── which node fetches from which ── */
  let heatCells = null;
  function heat() {
    const pairs = frame.transfers;
    if (!pairs.length) return;
    const most = pairs.reduce((high, p) => Math.max(high, p.source, p.node), 0) + 1, group = Math.ceil(most / HEAT), side = Math.ceil(most / group);
    const cells = new Float64Array(side * side);
    for (const p of pairs) cells[Math.floor(p.node / group) * side + Math.floor(p.source / group)] += p.total;
    const top = Math.log1p(cells.reduce((a, b) => Math.max(a, b), 1)), from = rgb(css('--track')), to = rgb(css('--accent'));
    heatCells = { cells, side, group };
    $('heat').style.height = Math.max(90, Math.min(320, side * 24)) + 'px';
    pixels($('heat'), side, side, data => cells.forEach((value, i) => {
      const share = Math.log1p(value) / top;
      for (let c = 0; c < 3; c++) data[4 * i + c] = from[c] + (to[c] - from[c]) * share;
      data[4 * i + 3] = 255;
    }));
    $('transfernote').textContent = 'rows fetch from columns' + (group > 1 ? ', each for ' + group + ' nodes' : '') + '; ' + size(sum(pairs, 'rate')) + '/s now';
  }

  /* ── one picture an animation frame, only if there is news ── */
  function draw() {
    if (dirty && frame && !document.hidden) {
      dirty = false; drawn++;
      tables(); lists(); slotmap(); heat();
      for (const each of charts) each.plot.setData([series.at, ...each.data]);
    }
    requestAnimationFrame(draw);
  }
  function take(told) {
    if (told.version !== 1) { status('this page is of another version of amfs: reload it', true); return; }
    frame = told;
    const going = told.runs.filter(run => !run.over);
    const add = (name, value) => { series[name].push(value); if (series[name].length > KEPT) series[name].shift(); };
    add('at', told.at); add('rate', sum(going, 'rate')); const failed = sum(told.runs, 'failed'), gap = series.at.length > 1 ? told.at - series.at[series.at.length - 2] : 0;
    add('failed', gap > 0 && failedBefore !== null ? Math.max(0, failed - failedBefore) / gap : 0); failedBefore = failed;
     add('slots', sum(told.nodes, 'slots'));
    add('running', sum(told.nodes, 'running')); add('memory', sum(told.nodes, 'memory')); add('spilled', sum(told.nodes, 'spilled'));
    add('moved', sum(told.nodes, 'fetched_rate'));
    column();
    dirty = true;
  }
  function status(text, bad) { $('state').textContent = text; $('state').className = bad ? 'bad' : ''; }
  let source = null;
  function connect() {
    source = new EventSource('events?token=' + encodeURIComponent(token));
    source.onopen = () => status(paused ? 'paused' : 'live');
    source.onmessage = event => { if (!paused) take(JSON.parse(event.data)); };
    source.onerror = () => { status('no answer; trying again', true); };
  }
  async function ask() {
    if (!paused && !document.hidden && frame) {
      try {
        const answer = await fetch('page?at_work=' + wanted + '&failed=20&token=' + encodeURIComponent(token));
        if (answer.ok) { page = await answer.json(); dirty = true; }
      } catch { /* the stream says that nobody answers */ }
    }
    setTimeout(ask, 2000);
  }

  /* ── hands ── */
  function pause() { paused = !paused; $('pause').setAttribute('aria-pressed', paused); status(paused ? 'paused' : 'live'); }
  function choose(step) {
    if (!frame || !frame.runs.length) return;
    const at = frame.runs.findIndex(run => run.id === chosen);
    chosen = frame.runs[Math.max(0, Math.min(frame.runs.length - 1, at + step))].id; picked = dirty = true;
  }
  $('pause').addEventListener('click', pause);
  $('moretasks').addEventListener('click', () => { wanted = Math.min(500, wanted * 4); });
  $('nodefilter').addEventListener('input', event => { filter = event.target.value.trim(); dirty = true; });
  $('runtable').addEventListener('click', event => { const tr = event.target.closest('tr[data-run]'); if (tr) { chosen = tr.dataset.run; picked = dirty = true; } });
  $('runtable').addEventListener('keydown', event => { if (event.key === 'Enter') event.target.click(); });
  const jumps = { r: 'runs', s: 'stages', t: 'tasks', f: 'failures', n: 'nodes', x: 'transfers', d: 'decisions' };
  document.addEventListener('keydown', event => {
    if (event.target.tagName === 'INPUT' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === ' ' && event.target.tagName !== 'BUTTON') { event.preventDefault(); pause(); }
    else if (event.key === 'j') choose(1);
    else if (event.key === 'k') choose(-1);
    else if (jumps[event.key]) $(jumps[event.key]).scrollIntoView({ behavior: 'smooth' });
  });
  $('heat').addEventListener('pointermove', event => {
    if (!heatCells) return;
    const box = $('heat').getBoundingClientRect(), { cells, side, group } = heatCells;
    const to = Math.floor((event.clientY - box.top) / box.height * side), from = Math.floor((event.clientX - box.left) / box.width * side);
    const name = at => group > 1 ? 'nodes ' + at * group + ' – ' + ((at + 1) * group - 1) : 'node ' + at;
    $('tip').textContent = name(to) + ' from ' + name(from) + '\n' + size(cells[to * side + from] || 0);
    $('tip').style.display = 'block'; $('tip').style.left = Math.min(event.clientX + 14, innerWidth - $('tip').offsetWidth - 8) + 'px';
    $('tip').style.top = event.clientY + 16 + 'px';
  });
  $('heat').addEventListener('pointerleave', () => { $('tip').style.display = 'none'; });
  addEventListener('resize', () => { for (const each of charts) each.plot.setSize({ width: each.width(), height: 150 }); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { dirty = true; for (const each of charts) each.plot.redraw(); });
  addEventListener('pagehide', () => source && source.close());
  window.amfs = { take, drawn: () => drawn, frame: () => frame };
  connect(); ask(); draw();
})();
