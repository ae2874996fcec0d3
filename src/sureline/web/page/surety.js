// The deadline: how sure the run was to meet it, over time, when it was to end, and what was done.

const CHART = {left: 84, right: 16, top: 14, height: 150, gap: 40, bottom: 26};

function showSurety() {
  const terms = data.terms;
  if (!terms) return;
  byId('surety').hidden = false;
  replace(body('surety'), make('p', {}, suretySentence(terms)),
    terms.seen.length && terms.deadline !== null ? [suretyLegend(terms), suretyChart(terms)] : null,
    terms.repairs.length ? [make('h4', {}, 'What was done about it'), repairList(terms)] : null);
}

const inPercent = (share) => (share === null ? '–' : `${Math.round(100 * share)}\u00a0%`);

function suretySentence({deadline, budget, wanted, planned, cost, spent, late}) {
  const parts = [];
  if (deadline !== null) {
    parts.push(`To be done by ${when(deadline)} with a surety of ${inPercent(wanted)}.`);
    if (planned !== null) parts.push(`When it began, ${inPercent(planned)} was promised.`);
    if (late !== null) parts.push(late > 0 ? `It ended ${duration(late)} late.` : 'It ended in time.');
  }
  if (budget !== null) parts.push(`It might cost ${budget} at most; ${cost} was planned and ${spent} paid.`);
  return parts.join(' ');
}

function suretyLegend({repairs}) {
  const keys = [['surety-key', 'surety of being in time'], ['wanted-key', 'what was wanted'], ['band-key', 'end foreseen, 5 to 95 %'], ['deadline-key', 'deadline']];
  if (repairs.length) keys.push(['repair-key', 'repair']);
  return make('ul', {class: 'legend'}, keys.map(([css, words]) => make('li', {}, make('span', {class: `key ${css}`, 'aria-hidden': 'true'}), words)));
}

function suretyChart(terms) {
  const width = Math.max(360, Math.min(1180, body('surety').clientWidth));
  const {left, right, top, height, gap, bottom} = CHART;
  const {seen, deadline, wanted, repairs} = terms;
  const last = Math.max(run.until, deadline, seen.at(-1)[0]) || 1;
  const x = (at) => left + (at / last) * (width - left - right);
  const y = (share) => top + (1 - share) * height;
  const ends = seen.flatMap(([, early, , late]) => [early, late]);
  const low = Math.min(deadline, ...ends);
  const high = Math.max(deadline, ...ends.map((end) => Math.min(end, 2 * deadline + last)));
  const base = top + height + gap;
  const z = (at) => base + height - ((Math.min(Math.max(at, low), high) - low) / (high - low || 1)) * height;
  const steps = [...seen, [run.state === 'running' ? run.until : Math.min(run.until, last), ...seen.at(-1).slice(1)]];
  const said = `Surety over time: ${inPercent(seen[0][4])} at first, ${inPercent(seen.at(-1)[4])} at the end; ${several(repairs.length, 'repair')}.`;
  const total = base + height + bottom;
  return draw('svg', {class: 'surety-plot', width, height: total, viewBox: `0 0 ${width} ${total}`, role: 'img', 'aria-label': said}, draw('title', {}, said),
    [0, 0.25, 0.5, 0.75, 1].map((share) => [draw('line', {class: 'rule', x1: left, x2: width - right, y1: y(share), y2: y(share)}),
      draw('text', {x: left - 8, y: y(share) + 4, 'text-anchor': 'end'}, inPercent(share))]),
    draw('line', {class: 'wanted', x1: left, x2: width - right, y1: y(wanted), y2: y(wanted)}),
    draw('path', {class: 'surety', d: stepped(steps, ([at]) => x(at), ([, , , , surety]) => y(surety ?? 0))}),
    draw('text', {class: 'caption', x: left, y: base - 10}, 'When it was to end'),
    draw('path', {class: 'band', d: band(steps, x, z)}),
    draw('path', {class: 'middle', d: stepped(steps, ([at]) => x(at), ([, , middle]) => z(middle))}),
    draw('line', {class: 'deadline', x1: left, x2: width - right, y1: z(deadline), y2: z(deadline)}),
    draw('line', {class: 'deadline', x1: x(deadline), x2: x(deadline), y1: top, y2: top + height}),
    [low, high].map((at) => draw('text', {x: left - 8, y: z(at) + 4, 'text-anchor': 'end'}, duration(at))),
    draw('line', {class: 'rule', x1: left, x2: width - right, y1: base + height, y2: base + height}),
    [0, 0.25, 0.5, 0.75, 1].map((part) => draw('text', {x: x(part * last), y: total - 8, 'text-anchor': part === 1 ? 'end' : part ? 'middle' : 'start'}, duration(part * last))),
    repairs.map((repair) => repairMark(repair, x, y)));
}

// A line that keeps each value until the next one.
function stepped(points, x, y) {
  return points.map((point, k) => (k ? `H${x(point).toFixed(1)}V${y(point).toFixed(1)}` : `M${x(point).toFixed(1)} ${y(point).toFixed(1)}`)).join('');
}

function band(steps, x, z) {
  const upper = stepped(steps, ([at]) => x(at), ([, , , late]) => z(late));
  let lower = '';
  for (let k = steps.length - 1; k >= 0; k -= 1) {
    const early = z(steps[k][1]).toFixed(1);
    lower += `V${early}H${x(steps[Math.max(0, k)][0]).toFixed(1)}`;
  }
  return `${upper}${lower}Z`;
}

function repairMark([at, action, task, words, before, after], x, y) {
  const [px, from, to] = [x(at), y(before), y(after)];
  const shape = action === 'none' ? `M${px - 5} ${from - 5}L${px + 5} ${from + 5}M${px - 5} ${from + 5}L${px + 5} ${from - 5}`
    : `M${px} ${from}V${to}M${px - 5} ${to + 7}L${px} ${to}L${px + 5} ${to + 7}`;
  return draw('g', {class: `repair ${action}`, 'data-task': task}, draw('title', {}, `${offset(at)}: ${words}`),
    draw('path', {d: shape}), draw('circle', {cx: px, cy: from, r: 4}));
}

function repairList({repairs}) {
  return make('ol', {class: 'events'}, repairs.map(([at, , task, words]) => make('li', {},
    make('time', {title: dayAndClock(at)}, offset(at)), make('span', {}, words, task === null ? '' : ' ', task === null ? '' : taskLink(task)))));
}
