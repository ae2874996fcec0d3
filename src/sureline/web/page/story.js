// The story of one task: everything the journal knows of it, in words.

const WORDS = {
  r: () => 'ready: all that it waits for is there',
  b: (attempt, peer) => `attempt ${attempt} is given to ${peer}`,
  s: (attempt, peer, pid) => `attempt ${attempt} starts on ${peer}${pid ? ` as process ${pid}` : ''}`,
  p: (attempt, fraction) => `attempt ${attempt} says it is ${Math.round(100 * fraction)} % done`,
  y: (attempt, delay) => `it will be tried again in ${duration(delay)}`,
  v: (reason) => `its result can no longer be had${reason ? ` (${reason})` : ''} and will be made again`,
  x: (words) => words,
  e: ended,
};

function ended(attempt, outcome, elapsed = 0, cpu = 0, memory = 0, reason = '', from = '') {
  if (outcome === 'reused') return `reused: the result of run ${from} is still right, nothing runs`;
  if (!attempt) return `${outcome}${reason ? `: ${reason}` : ' before it ran'}`;
  const spent = [];
  if (cpu) spent.push(`${duration(cpu)} of processor time`);
  if (memory) spent.push(`at most ${size(memory)} of memory`);
  const cost = spent.length ? ` (${spent.join(', ')})` : '';
  const verb = {
    succeeded: 'succeeds', failed: 'fails', timeout: 'runs out of time', cancelled: 'is stopped', lost: 'is lost',
  }[outcome];
  return `attempt ${attempt} ${verb} after ${duration(elapsed)}${reason ? `: ${reason}` : ''}${cost}`;
}

function eventLines(task) {
  const lines = tasks.events[task].map(([letter, at, ...rest]) => [at, WORDS[letter](...rest), letter === 'e' ? rest[1] : '']);
  if (lines.length) {
    const until = tasks.finished[task] ?? Infinity;
    data.sessions.slice(1).forEach(([began], k) => {
      if (began > lines[0][0] && began <= Math.max(until, lines[lines.length - 1][0])) {
        lines.push([began, `another process takes the run over (the ${ordinal(k + 2)})`, '']);
      }
    });
    lines.sort((a, b) => a[0] - b[0]);
  }
  return lines;
}

function ordinal(n) {
  const ending = n % 100 > 10 && n % 100 < 14 ? 'th' : ({1: 'st', 2: 'nd', 3: 'rd'}[n % 10] ?? 'th');
  return `${n}${ending}`;
}

function storyEvents(task) {
  const lines = eventLines(task);
  if (!lines.length) {
    const why = run.alive ? 'It waits for what it needs.' : 'It never became ready: something that it needs has no result.';
    return make('p', {class: 'soft'}, `Nothing has happened to it. ${why}`);
  }
  return make('ol', {class: 'events'}, lines.map(([at, words, outcome]) => make('li', {class: outcome || null},
    make('time', {title: dayAndClock(at)}, offset(at)), make('span', {}, words))));
}

function neighbours(title, [count, ...some]) {
  if (!count) return null;
  const chips = some.map((task) => make('li', {}, make('span', {class: `sign ${tasks.state[task]}`, title: looks[tasks.state[task]][1]},
    looks[tasks.state[task]][0]), taskLink(task)));
  if (count > some.length) chips.push(make('li', {class: 'soft'}, `and ${number(count - some.length)} more`));
  return [make('h4', {}, title), make('ul', {class: 'chips'}, chips)];
}

function storyOutputs([count, bytes, ...files]) {
  if (!count) return null;
  const rows = files.map(([path, length]) => make('li', {}, make('code', {}, path), make('span', {class: 'soft'}, size(length))));
  if (count > files.length) rows.push(make('li', {class: 'soft'}, `and ${number(count - files.length)} more, ${size(bytes)} in all`));
  return [make('h4', {}, 'Outputs'), make('ul', {class: 'files'}, rows)];
}

function storyTexts(task) {
  const wrote = tasks.wrote[task] ?? [];
  return wrote.map(([attempt, out, err]) => {
    const which = wrote.length > 1 ? `, attempt ${attempt}` : '';
    if (out === null) return make('p', {class: 'soft'}, `What it wrote${which} is left out to keep this file small; sureline logs has it.`);
    return [
      err ? [make('h4', {}, `Standard error${which}`), make('pre', {tabindex: 0}, err)] : null,
      out ? [make('h4', {}, `Standard output${which}`), make('pre', {tabindex: 0}, out)] : null,
    ];
  });
}

function storyFacts(task) {
  const facts = [['Kind', kindOf(task)]];
  const k = latest(task);
  if (k !== null) {
    const likely = tasks.likely[task];
    facts.push(['Took', duration(took(task)) + (likely === null ? '' : ` (estimated ${duration(likely)})`)]);
    facts.push(['Waited', `${duration(waited(task))} after it was ready`]);
    facts.push(['Attempts', String(attemptsOf[task].length)]);
    facts.push(['Machine', slots[bars.slot[k]][0]]);
  }
  return make('dl', {class: 'facts'}, facts.map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
}

let storyTask = null;
let storyOpener = null;

function showStory(task) {
  const panel = byId('story');
  if (panel.hidden) storyOpener = document.activeElement;
  storyTask = task;
  replace(panel,
    make('button', {class: 'close', type: 'button', 'aria-label': 'Close the story', onclick: closeStory}, '✕'),
    make('h3', {id: 'story-title'}, tasks.name[task]),
    badge(tasks.state[task]),
    storyFacts(task),
    tasks.does[task] ? [make('h4', {}, 'What it does'), make('pre', {class: 'does', tabindex: 0}, tasks.does[task])] : null,
    make('h4', {}, 'What happened'),
    storyEvents(task),
    storyOutputs(tasks.outputs[task]),
    storyTexts(task),
    neighbours('Waits for', tasks.parents[task]),
    neighbours('Is awaited by', tasks.children[task]));
  panel.hidden = false;
  panel.scrollTop = 0;
  panel.focus({preventScroll: true});
  document.body.classList.add('with-story');
  markChosen();
  const address = `#task=${encodeURIComponent(tasks.name[task])}`;
  if (location.hash !== address) history.replaceState(null, '', address);
}

function closeStory() {
  byId('story').hidden = true;
  document.body.classList.remove('with-story');
  storyTask = null;
  markChosen();
  history.replaceState(null, '', '#');
  if (storyOpener && storyOpener.isConnected) storyOpener.focus({preventScroll: true});
}

// Show everywhere which task the story is of.
function markChosen() {
  for (const element of document.querySelectorAll('.chosen')) element.classList.remove('chosen');
  if (storyTask === null) return;
  for (const element of document.querySelectorAll(`[data-task="${storyTask}"]`)) element.classList.add('chosen');
}

// Open the story that the address names: report.html#task=NAME.
function storyFromAddress() {
  const match = /^#task=(.*)$/.exec(location.hash);
  if (!match) return;
  let name = match[1];
  try { name = decodeURIComponent(name); } catch { /* a lone % is taken as it stands */ }
  const task = tasks.name.indexOf(name);
  if (task >= 0 && task !== storyTask) showStory(task);
}
