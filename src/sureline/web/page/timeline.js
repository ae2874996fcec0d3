// The timeline: a row per slot, a bar per attempt. Elements up to BARS_MAX bars, a canvas beyond.

const BARS_MAX = 2000;
const GAP_SHARE = 0.05; // how much of the width a pause between two sessions takes at most
const LABEL_WIDTH = 96;

// Time runs on evenly while somebody works on the run; longer pauses are drawn short.
const scale = (() => {
  const active = data.sessions.reduce((sum, [a, b]) => sum + b - a, 0) || 1;
  const pieces = [];
  let before = null;
  for (const [began, end] of data.sessions) {
    if (before !== null && began > before) {
      pieces.push({from: before, to: began, width: Math.min(began - before, GAP_SHARE * active), pause: true});
    }
    pieces.push({from: began, to: Math.max(began, end), width: Math.max(0, end - began), pause: false});
    before = Math.max(began, end);
  }
  const total = pieces.reduce((sum, piece) => sum + piece.width, 0) || 1;
  let at = 0;
  for (const piece of pieces) { piece.at = at / total; piece.share = piece.width / total; at += piece.width; }
  const squeezed = pieces.some((piece) => piece.pause && piece.width < piece.to - piece.from);
  function place(time) {
    for (const piece of pieces) {
      if (time <= piece.to) {
        const length = piece.to - piece.from;
        return piece.at + (length > 0 ? piece.share * Math.max(0, time - piece.from) / length : 0);
      }
    }
    return 1;
  }
  return {pieces, place, squeezed, active, total};
})();

function ticks(wanted) {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 14400, 28800, 86400, 172800, 604800];
  const step = steps.find((one) => scale.total / one <= wanted) ?? scale.total / wanted;
  const found = [];
  for (const piece of scale.pieces) {
    if (piece.pause) continue;
    for (let k = Math.ceil(piece.from / step); k * step <= piece.to && found.length < 500; k += 1) {
      const at = k * step;
      found.push([scale.place(at), scale.squeezed ? clock(at) : duration(at)]);
    }
  }
  return found.filter(([x], k) => k === 0 || x - found[k - 1][0] > 0.4 / wanted);
}

// No red among them: red is for what failed.
const KIND_HUES = [205, 32, 268, 168, 310, 88, 235, 50, 140, 290, 185, 70];
const kindColour = (kind) => `hsl(${KIND_HUES[kind % KIND_HUES.length]} 42% ${kind % 24 < 12 ? 42 : 30}%)`;
// If all went well there is nothing to single out, and the kinds tell more.
const timeline = {zoom: 1, byKind: bars.outcome.every((outcome) => outcome === 'succeeded'), chosen: 0};

function barWords(k) {
  const task = bars.task[k];
  return `${tasks.name[task]}, attempt ${bars.number[k]}: ${looks[bars.outcome[k]][1]}, `
    + `${duration(bars.ended[k] - bars.began[k])} from ${when(bars.began[k])}`
    + `, waited ${duration(bars.began[k] - bars.eligible[k])}`
    + (bars.window[k] ? `, promised ${when(bars.window[k][0])} to ${when(bars.window[k][1])}` : '');
}

function rowLabel(slot) {
  const [peer, index] = slots[slot];
  return index === 0 ? peer : '';
}

function showTimeline() {
  const where = body('timeline');
  if (!bars.task.length) {
    replace(where, make('p', {class: 'soft'}, 'No task has run yet.'), reusedList());
    return;
  }
  const tool = (words, label, action) => make('button', {type: 'button', class: 'tool', 'aria-label': label, onclick: action}, words);
  const zoomTo = (zoom) => { timeline.zoom = Math.min(200, Math.max(1, zoom)); drawBars(); };
  const colour = make('button', {type: 'button', class: 'tool', 'aria-pressed': String(timeline.byKind), onclick: () => {
    timeline.byKind = !timeline.byKind;
    colour.setAttribute('aria-pressed', String(timeline.byKind));
    drawBars();
  }}, 'Colour by kind');
  replace(where,
    make('div', {class: 'tools'}, make('ul', {class: 'legend', id: 'bar-legend'}), make('span', {class: 'spring'}), colour,
      tool('−', 'Show a longer time', () => zoomTo(timeline.zoom / 2)),
      tool('+', 'Show a shorter time', () => zoomTo(timeline.zoom * 2)),
      tool('All', 'Show all of the time', () => zoomTo(1))),
    make('div', {class: 'scroll lanes', id: 'lanes'}),
    reusedList());
  drawBars();
}

// The outcomes that occur; coloured by kind, the kinds too (succeeded bars show those).
function legend() {
  const seen = new Set(bars.outcome);
  const item = (css, colour, words) => make('li', {class: css}, make('span', {class: 'swatch', 'aria-hidden': 'true', style: colour}), words);
  const kinds = timeline.byKind
    ? tasks.kinds.slice(0, KIND_HUES.length).map((kind, k) => item(null, `--state:${kindColour(k)}`, kind)) : [];
  if (timeline.byKind && tasks.kinds.length > kinds.length) kinds.push(make('li', {}, 'and more'));
  const outcomes = Object.keys(looks).filter((name) => seen.has(name) && !(timeline.byKind && name === 'succeeded'));
  const promised = bars.window.some(Boolean) ? [make('li', {}, make('span', {class: 'swatch window', 'aria-hidden': 'true'}), 'promised time')] : [];
  replace(byId('bar-legend'), kinds, outcomes.map((name) => item(name, null, `${looks[name][0]} ${looks[name][1]}`)), promised);
}

function reusedList() {
  const found = tasks.state.flatMap((state, i) => (state === 'reused' ? [i] : []));
  if (!found.length) return null;
  const shown = found.slice(0, 100);
  const rest = found.length - shown.length;
  return make('details', {class: 'apart', open: found.length <= 12},
    make('summary', {}, `${several(found.length, 'task')} ${found.length === 1 ? 'was' : 'were'} not run: results of earlier runs were reused`),
    make('ul', {class: 'chips'}, shown.map((task) => make('li', {}, taskLink(task))),
      rest ? make('li', {class: 'soft'}, `and ${number(rest)} more; the list of tasks below has them`) : null));
}

function drawBars() {
  legend();
  const where = byId('lanes');
  const keep = where.scrollWidth > 0 ? (where.scrollLeft + where.clientWidth / 2) / where.scrollWidth : 0;
  if (bars.task.length > BARS_MAX) drawCanvas(where);
  else drawElements(where);
  where.scrollLeft = timeline.zoom === 1 ? 0 : keep * where.scrollWidth - where.clientWidth / 2;
}

function drawElements(where) {
  const rows = slots.map((_, slot) => make('div', {class: 'track'}));
  const pauses = scale.pieces.filter((piece) => piece.pause).map((piece) => make('div', {
    class: 'pause', title: `nobody worked on the run for ${duration(piece.to - piece.from)}`,
    style: `left:${(100 * piece.at).toFixed(3)}%;width:${(100 * piece.share).toFixed(3)}%`,
  }, make('span', {}, duration(piece.to - piece.from))));
  bars.task.forEach((task, k) => {
    const left = scale.place(bars.began[k]);
    const width = scale.place(bars.ended[k]) - left;
    const kind = timeline.byKind && bars.outcome[k] === 'succeeded' ? `;--state:${kindColour(tasks.kind[task])}` : '';
    const sign = bars.outcome[k] === 'succeeded' ? '' : looks[bars.outcome[k]][0];
    const words = [sign, tasks.name[task]].join(' ').trim();
    const room = width * (where.clientWidth - LABEL_WIDTH) * timeline.zoom - 10;
    const [from, to] = (bars.window[k] ?? [Infinity, Infinity]).map(scale.place);
    if (from < 1) { // who was done long before its time leaves nothing to draw
      rows[bars.slot[k]].append(make('i', {class: 'window', 'aria-hidden': 'true',
        style: `left:${(100 * from).toFixed(3)}%;width:${(100 * (to - from)).toFixed(3)}%`}));
    }
    rows[bars.slot[k]].append(make('button', {
      type: 'button', class: `bar ${bars.outcome[k]}`, 'data-task': task, 'data-bar': k, tabindex: k === timeline.chosen ? 0 : -1,
      'aria-label': barWords(k),
      style: `left:${(100 * left).toFixed(3)}%;width:${(100 * width).toFixed(3)}%${kind}`,
    }, room > words.length * 6.4 ? words : room > 4 ? sign : ''));
  });
  const marks = ticks(8 * timeline.zoom);
  const axis = make('div', {class: 'axis'}, marks.map(([x, label]) => make('span', {class: x > 1 - 0.07 / timeline.zoom ? 'last' : null,
    style: `left:${(100 * x).toFixed(3)}%`}, label)));
  const lines = marks.map(([x]) => make('i', {style: `left:${(100 * x).toFixed(3)}%`}));
  const grid = make('div', {class: 'grid', 'aria-hidden': 'true'}, lines, pauses);
  replace(where, make('div', {
    class: slots.length > 24 ? 'rows small' : 'rows', style: `width:${100 * timeline.zoom}%`,
    role: 'group', 'aria-label': 'Attempts, a row per slot; arrow keys move between them',
  }, grid, rows.map((track, slot) => make('div', {class: 'row'}, make('span', {class: 'label', title: slots[slot][0]}, rowLabel(slot)), track)),
  make('div', {class: 'row'}, make('span', {class: 'label'}), axis)));
  markChosen();
}

// On a canvas the size of what can be seen: only what lies there is drawn, whatever the zoom.
function drawCanvas(where) {
  const height = Math.max(6, Math.min(22, Math.floor(480 / slots.length)));
  const canvas = make('canvas', {tabindex: 0, role: 'img', 'aria-label': `${number(bars.task.length)} attempts in ${several(slots.length, 'slot')}; `
    + 'arrow keys move between them, Enter shows a story. The list of tasks below says the same in words.'});
  const room = make('div', {class: 'room', style: `width:${100 * timeline.zoom}%;height:${slots.length * height + 26}px`}, canvas);
  replace(where, room);
  const view = {where, canvas, height, colours: stateColours(where)};
  const repaint = () => paint(view);
  where.onscroll = () => requestAnimationFrame(repaint);
  timeline.repaint = () => { view.colours = stateColours(where); paint(view); };
  canvas.addEventListener('pointermove', (event) => hintAt(barAt(view, event), event));
  canvas.addEventListener('pointerleave', () => hintAt(null));
  canvas.addEventListener('click', (event) => { const k = barAt(view, event); if (k !== null) chooseBar(k, true); });
  canvas.addEventListener('keydown', (event) => { if (event.key === 'Enter') showStory(bars.task[timeline.chosen]); });
  repaint();
}

// Colours as the browser works them out, since a canvas knows no variables.
function stateColours(where) {
  const probe = make('i', {});
  where.append(probe);
  const resolve = (value) => { probe.style.color = value; return getComputedStyle(probe).color; };
  const found = {ink: resolve('var(--ink)'), soft: resolve('var(--soft)'), line: resolve('var(--line)'), ground: resolve('var(--card)')};
  for (const name of Object.keys(looks)) found[name] = resolve(`var(--state-${name})`);
  probe.remove();
  return found;
}

function paint(view) {
  const {where, canvas, height, colours} = view;
  const ratio = Math.max(window.devicePixelRatio || 1, timeline.printing ? 3 : 1);
  const width = where.clientWidth;
  const tall = Math.min(where.clientHeight || 520, slots.length * height + 26);
  canvas.width = width * ratio;
  canvas.height = tall * ratio;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  const long = (where.scrollWidth || width) - LABEL_WIDTH;
  const x = (time) => LABEL_WIDTH + scale.place(time) * long - where.scrollLeft;
  view.x = x;
  pen.font = '11px system-ui, sans-serif';
  pen.fillStyle = colours.soft;
  for (const [share, label] of ticks(8 * timeline.zoom)) {
    const at = LABEL_WIDTH + share * long - where.scrollLeft;
    if (at < LABEL_WIDTH - 1 || at > width) continue;
    pen.fillStyle = colours.line;
    pen.fillRect(at, 0, 1, tall - 22);
    pen.fillStyle = colours.soft;
    pen.textAlign = at > width - 60 ? 'right' : 'left';
    pen.fillText(label, at > width - 60 ? at - 3 : at + 3, tall - 8);
    pen.textAlign = 'left';
  }
  const bottom = tall - 24;
  for (const piece of scale.pieces.filter((one) => one.pause)) {
    pen.fillStyle = colours.line;
    pen.fillRect(x(piece.from), 0, x(piece.to) - x(piece.from), bottom);
    pen.fillStyle = colours.soft;
    pen.fillText(duration(piece.to - piece.from), x(piece.from) + 2, bottom - 4);
  }
  const order = ['succeeded', ...Object.keys(looks).filter((name) => name !== 'succeeded')];
  for (const outcome of order) {
    const least = outcome === 'succeeded' ? 0.6 : 2.5; // what went wrong is always seen
    for (let k = 0; k < bars.task.length; k += 1) {
      if (bars.outcome[k] !== outcome) continue;
      const from = x(bars.began[k]);
      const to = x(bars.ended[k]);
      const y = bars.slot[k] * height - where.scrollTop;
      if (to < LABEL_WIDTH || from > width || y > bottom || y < -height) continue;
      pen.fillStyle = timeline.byKind && outcome === 'succeeded' ? kindColour(tasks.kind[bars.task[k]]) : colours[outcome];
      const across = Math.max(least, to - from - (to - from > 3 ? 1 : 0));
      pen.fillRect(from, y + 1, across, Math.min(height - 2, bottom - y));
      if (bars.window[k]) {
        pen.strokeStyle = colours.ink;
        const [begins, ends] = bars.window[k].map(x);
        if (begins >= LABEL_WIDTH) pen.strokeRect(begins, y + 0.5, ends - begins, height - 1);
      }
      if (across > 60 && height > 15) label(pen, tasks.name[bars.task[k]], from, y + height / 2 + 4, across, colours.ground);
    }
  }
  paintMargin(view, pen, width, bottom);
}

function label(pen, text, x, y, width, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(Math.max(x, LABEL_WIDTH), 0, width - 6, 1e5);
  pen.clip();
  pen.fillStyle = colour;
  pen.fillText(text, Math.max(x, LABEL_WIDTH) + 5, y);
  pen.restore();
}

function paintMargin(view, pen, width, bottom) {
  const {where, height, colours} = view;
  pen.clearRect(0, 0, LABEL_WIDTH - 2, bottom + 24);
  pen.fillStyle = colours.soft;
  slots.forEach((_, slot) => {
    const y = slot * height - where.scrollTop;
    if (y >= -2 && y < bottom) pen.fillText(rowLabel(slot).slice(0, 14), 2, y + Math.min(height, 14) - 2);
  });
  const k = timeline.chosen;
  if (storyTask === bars.task[k] || document.activeElement === view.canvas) {
    const from = Math.max(LABEL_WIDTH, view.x(bars.began[k]) - 2);
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(from, bars.slot[k] * height - where.scrollTop, Math.max(5, view.x(bars.ended[k]) - from + 2), height);
  }
}

function barAt(view, event) {
  const box = view.canvas.getBoundingClientRect();
  const x = event.clientX - box.left;
  const slot = Math.floor((event.clientY - box.top + view.where.scrollTop) / view.height);
  let best = null;
  let least = 4; // pixels a pointer may miss by
  for (let k = 0; k < bars.task.length; k += 1) {
    if (bars.slot[k] !== slot) continue;
    const miss = Math.max(view.x(bars.began[k]) - x, x - view.x(bars.ended[k]), 0);
    if (miss < least) { least = miss; best = k; }
  }
  return best;
}

function chooseBar(k, open) {
  timeline.chosen = k;
  for (const bar of document.querySelectorAll('.bar')) bar.tabIndex = Number(bar.dataset.bar) === k ? 0 : -1;
  const element = document.querySelector(`.bar[data-bar="${k}"]`);
  if (element && !open) element.focus();
  if (open) showStory(bars.task[k]);
  if (timeline.repaint) timeline.repaint();
}

// Left and right go to the neighbour in the slot, up and down to another slot at about that time.
function moveInTimeline(event) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  const row = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (step === undefined && row === undefined) return;
  event.preventDefault();
  const now = timeline.chosen;
  const slot = bars.slot[now] + (row ?? 0);
  const there = bars.slot.flatMap((one, k) => (one === slot ? [k] : []));
  if (!there.length) return;
  if (step !== undefined) {
    const next = there[there.indexOf(now) + step];
    if (next !== undefined) chooseBar(next, false);
  } else {
    const far = (k) => Math.abs(bars.began[k] - bars.began[now]);
    chooseBar(there.reduce((best, k) => (far(k) < far(best) ? k : best)), false);
  }
}

function hintAt(k, event) {
  const hint = byId('hint');
  hint.hidden = k === null;
  if (k === null) return;
  replace(hint, make('b', {}, tasks.name[bars.task[k]]), make('br'), barWords(k).slice(tasks.name[bars.task[k]].length + 2));
  hint.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 300)}px`;
  hint.style.top = `${Math.min(event.clientY + 16, window.innerHeight - 70)}px`;
}
