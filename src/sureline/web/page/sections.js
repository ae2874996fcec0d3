// The sections that tell rather than list: head, failures, graph, path, losses, kinds, slowest.

const STATE_WORDS = {
  succeeded: 'Succeeded', failed: 'Failed', cancelled: 'Cancelled', interrupted: 'Interrupted', running: 'Still running',
};
const counts = {};
for (const state of tasks.state) counts[state] = (counts[state] ?? 0) + 1;

function stateSentence() {
  const done = (counts.succeeded ?? 0) + (counts.reused ?? 0);
  const never = tasks.state.filter((state, i) => state === 'cancelled' && !attemptsOf[i].length).length;
  const why = run.reason ? ` (${run.reason})` : '';
  switch (run.state) {
    case 'succeeded': return `All ${several(run.total, 'task')} have their results.`;
    case 'failed': return `${several(counts.failed ?? 0, 'task')} failed${why}`
      + `${never ? `, so ${number(never)} more never ran` : ''}; ${number(done)} of ${number(run.total)} have their results.`;
    case 'cancelled': return `${number(done)} of ${several(run.total, 'task')} have their results${why}.`;
    case 'interrupted': return `Its process ended with ${number(done)} of ${several(run.total, 'result')}; 'sureline resume ${run.run}' continues it.`;
    default: return `${number(done)} of ${several(run.total, 'task')} had their results on ${dayAndClock(run.now)}, when this report was made.`;
  }
}

const HEAD_STATE = {running: 'running', succeeded: 'succeeded', failed: 'failed'};

function showHead() {
  const machines = data.machines.length
    ? data.machines.slice(0, 3).map(([name, cores, memory]) => `${name} (${several(cores, 'core')}, ${size(memory)})`).join(', ')
      + (data.machines.length > 3 ? ` and ${number(data.machines.length - 3)} more` : '')
    : '–';
  const facts = [
    ['Run', run.run],
    ['Began', dayAndClock(0)],
    ['Time spent', duration(run.elapsed) + (data.sessions.length > 1 ? ` in ${data.sessions.length} sessions` : '')],
    [data.machines.length > 1 ? 'Machines' : 'Machine', machines],
    ['Workflow', run.source ?? 'made in Python'],
  ];
  const params = Object.entries(run.params);
  if (params.length) facts.push(['Parameters', params.map(([name, value]) => `${name} = ${value}`).join(', ')]);
  replace(byId('head'),
    make('div', {class: 'top'}, make('h1', {}, run.name), make('span', {class: 'spring'}), themeSwitch()),
    make('p', {class: `state ${HEAD_STATE[run.state] ?? 'cancelled'}`},
      make('span', {class: 'badge'}, make('span', {class: 'sign', 'aria-hidden': 'true'}, looks[HEAD_STATE[run.state] ?? 'cancelled'][0]),
        STATE_WORDS[run.state]), ` ${stateSentence()}`),
    run.pretended ? make('p', {class: 'note'}, 'This run was pretended: its tasks slept for the times of a trace instead of working.') : null,
    countsBar(),
    make('dl', {class: 'facts wide'}, facts.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value)))));
  replace(byId('foot'), `Made by Sureline ${run.version} on ${dayAndClock(run.now)}. This file holds all it shows and asks nothing of any network.`);
}

function countsBar() {
  const present = Object.keys(looks).filter((state) => counts[state]);
  const said = present.map((state) => `${number(counts[state])} ${looks[state][1]}`);
  return make('div', {class: 'counts'},
    make('div', {class: 'stack', role: 'img', 'aria-label': said.join(', ')},
      present.map((state) => make('i', {class: state, style: `flex-grow:${counts[state]}`}))),
    make('ul', {class: 'legend'}, present.map((state, k) => make('li', {class: state},
      make('span', {class: 'swatch', 'aria-hidden': 'true'}), `${looks[state][0]} ${said[k]}`))));
}

function themeSwitch() {
  const media = window.matchMedia('(prefers-color-scheme: dark)');
  const dark = () => (document.documentElement.dataset.theme ?? (media.matches ? 'dark' : 'light')) === 'dark';
  const button = make('button', {type: 'button', class: 'tool', id: 'theme', onclick: () => {
    document.documentElement.dataset.theme = dark() ? 'light' : 'dark';
    tell();
  }});
  const tell = () => {
    button.textContent = dark() ? 'Light' : 'Dark';
    button.setAttribute('aria-label', `Use ${dark() ? 'light' : 'dark'} colours`);
    if (timeline.repaint) timeline.repaint();
  };
  media.addEventListener('change', tell);
  tell();
  return button;
}

function showFailures() {
  const failed = tasks.state.flatMap((state, i) => (state === 'failed' ? [i] : []));
  if (!failed.length) return;
  byId('failures').hidden = false;
  const shown = failed.filter((task) => task in tasks.blocked);
  replace(body('failures'), shown.map(failureCard),
    failed.length > shown.length ? make('p', {class: 'soft'}, `and ${number(failed.length - shown.length)} more; choose 'failed' in the list of tasks below`) : null);
}

function failureCard(task) {
  const last = tasks.events[task].findLast((event) => event[0] === 'e');
  const wrote = (tasks.wrote[task] ?? []).at(-1);
  const tail = wrote ? (wrote[2] || wrote[1] || '').trimEnd().split('\n').slice(-8).join('\n') : '';
  const lost = tasks.blocked[task];
  return make('article', {class: 'failure'},
    make('p', {}, make('span', {class: 'sign failed', 'aria-hidden': 'true'}, looks.failed[0]), taskLink(task),
      make('span', {}, last ? ended(...last.slice(2)) : 'failed')),
    tail ? make('pre', {tabindex: 0}, tail) : null,
    lost ? make('p', {class: 'soft'}, `${several(lost, 'task')} cannot run without its result.`) : null);
}

function showGraph() {
  const drawings = [...body('graph').querySelectorAll('svg.graph')];
  const key = make('ul', {class: 'legend'}, make('li', {}, make('span', {class: 'mark', 'aria-hidden': 'true'}), PATH_WORDS.toLowerCase()));
  const tools = make('div', {class: 'tools'}, key, make('span', {class: 'spring'}));
  if (drawings.length === 2) {
    const choose = (shown) => drawings.forEach((one, k) => {
      one.toggleAttribute('hidden', k !== shown);
      buttons[k].setAttribute('aria-pressed', String(k === shown));
    });
    const buttons = ['By kind', 'Every task'].map((words, k) => make('button', {type: 'button', class: 'tool', onclick: () => choose(k)}, words));
    tools.append(...buttons);
    choose(0);
  }
  body('graph').prepend(tools);
  // A drawing that is only a little too wide is shrunk; a much wider one scrolls.
  const room = body('graph').clientWidth;
  for (const one of drawings) if (one.getAttribute('width') < 1.4 * room) one.style.cssText = 'max-width:100%;height:auto';
}

const STEPS_MAX = 5000;
const PATH_WORDS = ['running', 'interrupted'].includes(run.state) ? 'The path that led this far' : 'The path that decided the end';

function showPath() {
  byId('path-title').textContent = PATH_WORDS;
  if (!data.path.length) { replace(body('path'), make('p', {class: 'soft'}, 'No task has ended yet.')); return; }
  const sum = (pick) => data.path.reduce((total, step) => total + pick(step), 0);
  const worked = sum(([, began, end]) => end - began);
  const [waits, retries, pauses] = [3, 4, 5].map((k) => sum((step) => step[k]));
  const whole = worked + waits + retries + pauses;
  const parts = [`${duration(worked)} of work (${percent(worked, whole)})`];
  if (waits > 0.0005) parts.push(`${duration(waits)} waiting to start`);
  if (retries > 0.0005) parts.push(`${duration(retries)} in attempts that failed and before their repetition`);
  if (pauses > 0.0005) parts.push(`${duration(pauses)} in which nobody worked on the run`);
  let at = 0;
  const rows = data.path.map((step) => {
    const before = at;
    at += step[2] - step[1] + step[3] + step[4];
    return () => stepRow(step, before, worked + waits + retries);
  });
  const list = make('div', {class: 'steps'});
  const fill = (shown, hidden) => replace(list, shown.map((row, k) => [
    hidden && k === shown.length / 2 ? make('button', {type: 'button', class: 'tool', onclick: () => fill(rows.slice(0, STEPS_MAX), 0)},
      `show ${number(hidden)} more steps`) : null,
    row()]));
  if (rows.length > 40) fill([...rows.slice(0, 15), ...rows.slice(-15)], rows.length - 30);
  else fill(rows, 0);
  replace(body('path'), make('p', {}, `Each task here could begin only when the one above it had ended. `
    + `${several(data.path.length, 'task')}, ${duration(whole)}: ${parts.join(', ')}. `
    + (run.state !== 'succeeded' ? '' : waits > whole / 2 ? 'Most of it was waiting: more slots would help more than faster tasks.'
      : worked > whole / 2 ? 'Most of it was work: only faster tasks on this path would help.' : '')), list);
}

function stepRow([task, began, end, waits, retries, pauses], before, whole) {
  const share = (seconds) => `${Math.max(0, (100 * seconds) / whole).toFixed(2)}%`;
  const gaps = [];
  if (waits > 0.0005) gaps.push(`waited ${duration(waits)}`);
  if (retries > 0.0005) gaps.push(`repeated for ${duration(retries)}`);
  if (pauses > 0.0005) gaps.push(`paused ${duration(pauses)}`);
  return make('div', {class: 'step'}, make('span', {class: 'name'}, make('span', {class: `sign ${tasks.state[task]}`}, looks[tasks.state[task]][0]), taskLink(task)),
    make('span', {class: 'line', 'aria-hidden': 'true'},
      make('i', {class: 'wait', style: `left:${share(before)};width:${share(waits)}`}),
      make('i', {class: 'wait failed', style: `left:${share(before + waits)};width:${share(retries)}`}),
      make('i', {class: `work ${tasks.state[task]}`, style: `left:${share(before + waits + retries)};width:${share(end - began)}`})),
    make('span', {class: 'figure'}, duration(end - began)),
    make('span', {class: 'soft gaps'}, gaps.join(', ')));
}

function showLosses() {
  const l = data.losses;
  const ran = bars.task.length;
  const items = [];
  items.push(['Waiting for a slot', duration(l.waited_s), ran
    ? `Summed over ${several(ran, 'attempt')}, from ready to started: ${duration(l.waited_s / ran)} each on average`
      + `${l.waited_longest === null ? '' : [', the longest ', duration(l.waited_longest_s), ' for '].join('')}` : 'No task has started yet.',
  ran && l.waited_longest !== null ? taskLink(l.waited_longest) : '']);
  items.push(['Attempts without a result', duration(l.fruitless_s), l.fruitless
    ? `${several(l.fruitless, 'attempt')} failed, ran out of time or ${l.fruitless === 1 ? 'was' : 'were'} stopped`
      + `${l.delays_s ? `, and ${duration(l.delays_s)} went by before repetitions` : ''}.` : 'Every attempt that ended brought a result.', '']);
  const idle = l.idle_ready_core_s + l.idle_starved_core_s;
  items.push(['Idle cores', l.core_s ? percent(idle, l.core_s) : '–', l.core_s
    ? `Of ${duration(l.core_s)} of core time, tasks held ${duration(l.busy_core_s)}. ${duration(l.idle_ready_core_s)} were idle although tasks were ready `
      + `(being started, or needing more than was free), ${duration(l.idle_starved_core_s)} because nothing was ready.` : 'No machine has joined the run yet.', '']);
  if (l.paused_s) items.push(['Between sessions', duration(l.paused_s), `The run was left and taken up again ${several(data.sessions.length - 1, 'time')}; nobody worked on it meanwhile.`, '']);
  const stack = [['held', l.busy_core_s, 'held by tasks'], ['idle-ready', l.idle_ready_core_s, 'idle, tasks ready'], ['idle', l.idle_starved_core_s, 'idle, nothing ready']];
  replace(body('losses'),
    make('div', {class: 'cards'}, items.map(([title, figure, words, link]) => make('div', {class: 'card'},
      make('h3', {}, title), make('p', {class: 'big'}, figure), make('p', {}, words, link)))),
    l.core_s ? make('div', {class: 'counts'}, make('div', {class: 'stack', role: 'img', 'aria-label': 'Core time'},
      stack.map(([css, seconds]) => make('i', {class: css, style: `flex-grow:${seconds}`}))),
    make('ul', {class: 'legend'}, stack.map(([css, seconds, words]) => make('li', {class: css},
      make('span', {class: 'swatch', 'aria-hidden': 'true'}), `${words}: ${percent(seconds, l.core_s)}`)))) : null);
}

// One scale for all kinds: even if they are alike, by powers of ten if they are not.
function durationScale(values) {
  const least = Math.max(1e-3, Math.min(...values.filter((v) => v > 0), Infinity));
  const most = Math.max(...values, least * 1.01);
  const wide = most / least > 60;
  const low = Math.log10(least) - 0.08;
  const high = Math.log10(most) + 0.08;
  const place = wide ? (v) => Math.max(0, (Math.log10(Math.max(v, least)) - low) / (high - low)) : (v) => v / (most * 1.04);
  const marks = [];
  if (wide) for (let power = Math.ceil(low); power <= high; power += 1) marks.push(10 ** power);
  else for (let k = 0, step = roundStep(most / 4); k * step <= most; k += 1) marks.push(k * step);
  return {place, marks};
}

// The nearest of 1, 2, 5 times a power of ten that is not smaller.
function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((one) => one * power >= value * 0.999);
}

const PLOT = {width: 360, height: 26};

function showKinds() {
  const ran = data.kinds.filter((kind) => kind.spread);
  if (!ran.length) { replace(body('kinds'), make('p', {class: 'soft'}, 'No task has succeeded yet.')); return; }
  const shown = ran.slice(0, 40);
  const values = shown.flatMap((kind) => [kind.spread[0], kind.spread[4], ...(kind.takes ?? [])]);
  const axis = durationScale(values);
  const head = ['Kind', 'Tasks', 'Median', 'Estimate', 'In all'].map((words, k) => make('th', {scope: 'col', class: k ? 'right' : null}, words));
  const ticksRow = draw('svg', {class: 'plot', width: PLOT.width, height: 16, viewBox: `0 0 ${PLOT.width} 16`, 'aria-hidden': 'true'}, axis.marks.map((mark) => draw('text', {
    x: axis.place(mark) * PLOT.width, y: 11, 'text-anchor': 'middle'}, duration(mark))));
  replace(body('kinds'), make('div', {class: 'scroll plain'}, make('table', {class: 'kinds'},
    make('thead', {}, make('tr', {}, head, make('th', {scope: 'col'}, ticksRow))),
    make('tbody', {}, shown.map((kind) => kindRow(kind, axis))))),
  make('p', {class: 'soft'}, 'Each dot is a task; the box holds the middle half, its line is the median. '
    + (shown.some((kind) => kind.takes) ? 'The band is the estimate from optimistic to pessimistic, its tick the likely value. ' : '')
    + (ran.length > shown.length ? `${number(ran.length - shown.length)} kinds that took less time are left out.` : '')));
}

function kindRow(kind, axis) {
  const likely = kind.takes?.[1];
  const ratio = likely ? kind.spread[2] / likely : null;
  const against = ratio === null ? '–' : `${duration(likely)}`;
  const off = ratio !== null && (ratio > 1.5 || ratio < 1 / 1.5)
    ? make('span', {class: 'soft'}, ` ${ratio > 1 ? `took ${ratio.toFixed(1)}×` : `took ${ratio.toFixed(2)}×`}`) : null;
  return make('tr', {},
    make('th', {scope: 'row'}, make('button', {class: 'link', type: 'button', 'data-kind': kind.kind}, kind.kind)),
    make('td', {class: 'right'}, kind.ran === kind.tasks ? number(kind.tasks) : `${number(kind.ran)} of ${number(kind.tasks)}`),
    make('td', {class: 'right'}, duration(kind.spread[2])), make('td', {class: 'right'}, against, off),
    make('td', {class: 'right'}, duration(kind.total)), make('td', {}, kindPlot(kind, axis)));
}

function kindPlot(kind, axis) {
  const x = (seconds) => axis.place(seconds) * PLOT.width;
  const [least, low, middle, high, most] = kind.spread;
  const half = PLOT.height / 2;
  const said = `from ${duration(least)} to ${duration(most)}, half of them from ${duration(low)} to ${duration(high)}`;
  return draw('svg', {class: 'plot', width: PLOT.width, height: PLOT.height, viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: 'img', 'aria-label': said}, draw('title', {}, said),
    kind.takes ? [draw('rect', {class: 'band', x: x(kind.takes[0]), y: half - 9, width: Math.max(1.5, x(kind.takes[2]) - x(kind.takes[0])), height: 18}),
      draw('rect', {class: 'likely', x: x(kind.takes[1]) - 1, y: half - 12, width: 2, height: 24})] : null,
    draw('line', {class: 'whisker', x1: x(least), x2: x(most), y1: half, y2: half}),
    kind.points.map((point, k) => draw('circle', {class: 'dot', cx: x(point).toFixed(1), cy: half + ((k * 7) % 9) - 4, r: 1.8})),
    draw('rect', {class: 'quartiles', x: x(low), y: half - 6, width: Math.max(1, x(high) - x(low)), height: 12}),
    draw('rect', {class: 'median', x: x(middle) - 1.25, y: half - 6, width: 2.5, height: 12}));
}

function showSlowest() {
  const slow = tasks.name.map((_, i) => i).filter((i) => latest(i) !== null).map((i) => [took(i), i]).sort((a, b) => b[0] - a[0]).slice(0, 10);
  if (!slow.length) { replace(body('slowest'), make('p', {class: 'soft'}, 'No task has run yet.')); return; }
  const medians = Object.fromEntries(data.kinds.filter((kind) => kind.spread && kind.ran > 2).map((kind) => [kind.kind, kind.spread[2]]));
  const most = slow[0][0] || 1;
  replace(body('slowest'), make('div', {class: 'steps'}, slow.map(([seconds, task]) => {
    const median = medians[kindOf(task)];
    const ratio = median ? seconds / median : 0;
    return make('div', {class: 'step'}, make('span', {class: 'name'}, make('span', {class: `sign ${tasks.state[task]}`}, looks[tasks.state[task]][0]), taskLink(task)),
      make('span', {class: 'line', 'aria-hidden': 'true'}, make('i', {class: `work ${tasks.state[task]}`, style: `left:0;width:${((100 * seconds) / most).toFixed(2)}%`})),
      make('span', {class: 'figure'}, duration(seconds)),
      make('span', {class: 'soft gaps'}, ratio >= 1.2 ? `${ratio.toFixed(1)}× the median of its kind` : ''));
  })));
}
