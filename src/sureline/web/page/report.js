// Start the page, and answer clicks and keys wherever a task or a kind is shown.

function press(event) {
  const task = event.target.closest('[data-task]');
  const kind = event.target.closest('[data-kind]');
  if (task) {
    if (task.dataset.bar) timeline.chosen = Number(task.dataset.bar);
    showStory(Number(task.dataset.task));
  } else if (kind) listKind(kind.dataset.kind);
}

function key(event) {
  if (event.key === 'Escape' && storyTask !== null) closeStory();
  // Boxes of the drawing are no buttons by nature: give them a button's keys.
  else if ((event.key === 'Enter' || event.key === ' ') && event.target.closest('g.box')) {
    event.preventDefault();
    press(event);
  } else if (event.target.closest('#lanes')) moveInTimeline(event);
}

function hover(event) {
  const bar = event.target.closest?.('.bar');
  hintAt(bar ? Number(bar.dataset.bar) : null, event);
}

showHead();
showFailures();
showSurety();
showTimeline();
showGraph();
showPath();
showLosses();
showKinds();
showSlowest();
showTable();
document.addEventListener('click', press);
document.addEventListener('keydown', key);
if (bars.task.length <= BARS_MAX) {
  byId('timeline').addEventListener('pointermove', hover);
  byId('timeline').addEventListener('pointerleave', () => hintAt(null));
}
for (const [name, printing] of [['beforeprint', true], ['afterprint', false]]) {
  window.addEventListener(name, () => { timeline.printing = printing; if (timeline.repaint) timeline.repaint(); });
}
window.addEventListener('resize', () => { if (timeline.repaint) timeline.repaint(); });
window.addEventListener('hashchange', storyFromAddress);
storyFromAddress();
