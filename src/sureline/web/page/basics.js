// What every part of the page uses: the data, elements, and words for numbers.

const data = JSON.parse(document.getElementById('data').textContent);
const {run, tasks, bars, slots, looks} = data;
const byId = (id) => document.getElementById(id);
// The namespace of SVG elements, taken from the drawing so that the file names no address.
const SVG = document.querySelector('svg').namespaceURI;

// An element with attributes and children. Text is only ever set as text, never as markup.
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ''));
  return element;
}

function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== ''));
}

const body = (id) => byId(id).querySelector('.body');

// A duration: 0.4 ms, 38 ms, 2.4 s, 12 s, 3 min 20 s, 2 h 05 min.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 0.00005) return '0\u00a0s';
  if (seconds < 0.00995) return `${(seconds * 1000).toFixed(1)}\u00a0ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)}\u00a0s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}\u00a0s`;
  const two = (n) => String(n).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)}\u00a0min ${two(whole % 60)}\u00a0s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)}\u00a0h ${two(Math.floor((whole % 3600) / 60))}\u00a0min`;
  return `${(whole / 86400).toFixed(1)}\u00a0days`;
}

// A moment as the time since the run began, exact enough to tell events apart.
function offset(at) {
  if (at < 60) return `+${at.toFixed(2)}\u00a0s`;
  if (at < 3600) return `+${Math.floor(at / 60)}\u00a0min ${(at % 60).toFixed(1).padStart(4, '0')}\u00a0s`;
  return `+${duration(at)}`;
}

function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit ? bytes.toFixed(1) : bytes}\u00a0${units[unit]}`;
}

const number = (n) => n.toLocaleString('en').replaceAll(',', '\u202f');
const percent = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0}\u00a0%`;
const several = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

const DAY = {day: 'numeric', month: 'short', year: 'numeric'};
const CLOCK = {hour: '2-digit', minute: '2-digit', second: '2-digit'};
const moment = (at) => new Date((run.zero + at) * 1000);
const clock = (at) => moment(at).toLocaleTimeString('en-GB', CLOCK);
const dayAndClock = (at) => moment(at).toLocaleString('en-GB', {...DAY, ...CLOCK});
const sameDay = (a, b) => moment(a).toDateString() === moment(b).toDateString();
// A clock time, with its day if that is not the day the run began.
const when = (at) => (sameDay(0, at) ? clock(at) : dayAndClock(at));

function badge(state) {
  const [sign, words] = looks[state];
  return make('span', {class: `badge ${state}`}, make('span', {class: 'sign', 'aria-hidden': 'true'}, sign), words);
}

// A name that opens the task's story.
function taskLink(task) {
  return make('button', {class: 'link', 'data-task': task, type: 'button'}, tasks.name[task]);
}

// For every task, its attempts (indices into the bars) in order of their beginning.
const attemptsOf = tasks.name.map(() => []);
bars.task.forEach((task, k) => attemptsOf[task].push(k));
const kindOf = (task) => tasks.kinds[tasks.kind[task]];

function latest(task) {
  const attempts = attemptsOf[task];
  return attempts.length ? attempts[attempts.length - 1] : null;
}

// What the last attempt took, as measured on its machine where that is known.
function took(task) {
  const k = latest(task);
  if (k === null) return null;
  for (let i = tasks.events[task].length - 1; i >= 0; i -= 1) {
    const event = tasks.events[task][i];
    if (event[0] === 'e' && event[2] === bars.number[k]) return event[4] ?? 0;
  }
  return bars.ended[k] - bars.began[k];
}

// How long a task could have run but did not, over all its attempts.
const waited = (task) => attemptsOf[task].reduce((sum, k) => sum + bars.began[k] - bars.eligible[k], 0);
