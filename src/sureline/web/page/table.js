// The list of all tasks: filtered, sorted, a page at a time.

const PAGE_ROWS = 50;
const COLUMNS = [
  {title: 'Task', value: (i) => tasks.name[i], cell: (i) => taskLink(i)},
  {title: 'Kind', value: kindOf},
  {title: 'State', value: (i) => tasks.state[i], cell: (i) => badge(tasks.state[i])},
  {title: 'Attempts', value: (i) => attemptsOf[i].length, right: true},
  {title: 'Began', value: (i) => (latest(i) === null ? Infinity : bars.began[latest(i)]), right: true,
    cell: (i) => (latest(i) === null ? '–' : when(bars.began[latest(i)]))},
  {title: 'Waited', value: (i) => (latest(i) === null ? -1 : waited(i)), right: true, cell: (i) => (latest(i) === null ? '–' : duration(waited(i)))},
  {title: 'Took', value: (i) => took(i) ?? -1, right: true, cell: (i) => duration(took(i))},
  {title: 'Output', value: (i) => tasks.outputs[i][1] ?? -1, right: true, cell: (i) => (tasks.outputs[i].length ? size(tasks.outputs[i][1]) : '–')},
];
const list = {text: '', state: '', kind: '', sort: null, down: false, page: 0};

function showTable() {
  const states = Object.keys(looks).filter((state) => counts[state]);
  const choice = (id, label, all, values, words, set) => make('label', {}, label, make('select', {id, onchange: (event) => { set(event.target.value); refill(); }},
    make('option', {value: ''}, all), values.map((value) => make('option', {value}, words(value)))));
  const kinds = [...tasks.kinds].sort().slice(0, 500);
  replace(body('tasks'),
    make('div', {class: 'tools filters'},
      make('label', {}, 'Name contains', make('input', {type: 'search', id: 'filter', oninput: (event) => { list.text = event.target.value.toLowerCase(); refill(); }})),
      choice('state-choice', 'State', 'all', states, (state) => `${looks[state][1]} (${number(counts[state])})`, (value) => { list.state = value; }),
      choice('kind-choice', 'Kind', 'all', kinds, (kind) => kind, (value) => { list.kind = value; }),
      make('span', {class: 'spring'}), make('span', {id: 'found', class: 'soft', role: 'status'})),
    make('div', {class: 'scroll plain'}, make('table', {class: 'tasks'}, make('thead', {}, make('tr', {}, COLUMNS.map(headCell))), make('tbody', {id: 'rows'}))),
    make('div', {class: 'tools', id: 'pages'}));
  refill();
}

function headCell(column, k) {
  return make('th', {scope: 'col', class: column.right ? 'right' : null, 'aria-sort': 'none'},
    make('button', {type: 'button', class: 'sort', onclick: (event) => {
      list.down = list.sort === k ? !list.down : Boolean(column.right);
      list.sort = k;
      for (const cell of document.querySelectorAll('table.tasks th')) cell.setAttribute('aria-sort', 'none');
      event.currentTarget.parentElement.setAttribute('aria-sort', list.down ? 'descending' : 'ascending');
      refill();
    }}, column.title));
}

function chosenTasks() {
  const found = [];
  for (let i = 0; i < tasks.name.length; i += 1) {
    if (list.state && tasks.state[i] !== list.state) continue;
    if (list.kind && kindOf(i) !== list.kind) continue;
    if (list.text && !tasks.name[i].toLowerCase().includes(list.text)) continue;
    found.push(i);
  }
  if (list.sort !== null) {
    const {value} = COLUMNS[list.sort];
    const keys = new Map(found.map((i) => [i, value(i)]));
    const sign = list.down ? -1 : 1;
    found.sort((a, b) => {
      const [one, other] = [keys.get(a), keys.get(b)];
      return sign * (typeof one === 'string' ? one.localeCompare(other, 'en', {numeric: true}) : (one > other) - (one < other));
    });
  }
  return found;
}

function refill() {
  list.page = 0;
  list.found = chosenTasks();
  fillPage();
}

function fillPage() {
  const {found} = list;
  const first = list.page * PAGE_ROWS;
  const shown = found.slice(first, first + PAGE_ROWS);
  replace(byId('rows'), shown.map((i) => make('tr', {'data-task': i}, COLUMNS.map((column) => make('td', {class: column.right ? 'right' : null},
    column.cell ? column.cell(i) : String(column.value(i)))))));
  byId('found').textContent = found.length === tasks.name.length ? several(found.length, 'task') : `${number(found.length)} of ${several(tasks.name.length, 'task')}`;
  const last = Math.max(0, Math.ceil(found.length / PAGE_ROWS) - 1);
  const turn = (words, page, off) => make('button', {type: 'button', class: 'tool', disabled: off, onclick: () => { list.page = page; fillPage(); }}, words);
  replace(byId('pages'), last ? [
    turn('First', 0, list.page === 0), turn('Back', list.page - 1, list.page === 0),
    make('span', {class: 'soft'}, `${number(first + 1)}–${number(first + shown.length)} of ${number(found.length)}`),
    turn('Next', list.page + 1, list.page === last), turn('Last', last, list.page === last)] : '');
  markChosen();
}

// Show the tasks of one kind: what a click on a folded box does.
function listKind(kind) {
  list.kind = kind;
  byId('kind-choice').value = kind;
  refill();
  byId('tasks').scrollIntoView();
  byId('kind-choice').focus({preventScroll: true});
}
