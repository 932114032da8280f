import { fireEvent, render, screen } from '@testing-library/svelte';
import { tick } from 'svelte';
import { expect, test } from 'vitest';

import type { Facts } from '../lib/facts';
import { said, saidOf, show } from '../testing/shell';
import { facts, snapshot } from '../testing/snapshots';
import Detail from './Detail.svelte';

async function open(index = 0, facts: Partial<Facts> = {}, organization?: string) {
  const shown = snapshot('five');
  if (organization) shown.seats[index]!.organization = organization;
  const now = shown.now;
  await show(shown, facts, {
    usageHistory: [{ at: now - 86_400, window: 'weekly', usedBp: 5_000 }],
    requests: [
      { number: 1, at: now - 60, device: 'MacBook Pro', seat: 'Work', status: 200, wholeMs: 900 },
      { number: 2, at: now - 90, device: 'MacBook Pro', seat: 'Work', status: 200, wholeMs: 900 },
      { number: 3, at: now - 120, device: 'dev-box', seat: 'Work', status: 200, wholeMs: 900 },
      { number: 4, at: now - 90_000, device: 'dev-box', seat: 'Work', status: 200, wholeMs: 900 },
    ],
  });
  render(Detail, { snapshot: shown, seat: shown.seats[index]! });
  await new Promise((done) => setTimeout(done));
}

test('it asks for the week and the log of this seat, once', async () => {
  await open();
  expect(said).toEqual([
    { verb: 'usageHistory', seat: 'acc-0/org-0', hours: 168 },
    { verb: 'requests', limit: 500, seat: 'acc-0/org-0' },
  ]);
});

test("today's requests are told by device; yesterday's are not", async () => {
  await open();
  const text = document.body.textContent?.replace(/\s+/g, ' ');
  expect(text).toContain('3 requests');
  expect(text).toContain('MacBook Pro 2');
  expect(text).toContain('dev-box 1');
});

test('the reserve is said when the slider is let go', async () => {
  await open();
  const slider = screen.getByRole('slider');
  await fireEvent.input(slider, { target: { value: '35' } });
  expect(document.body.textContent).toContain('35%');
  expect(saidOf('reserve')).toEqual([]);
  await fireEvent.change(slider);
  expect(saidOf('reserve')).toEqual([{ verb: 'reserve', seat: 'acc-0/org-0', percent: 35 }]);
});

test('a new name is said at Enter, and not at Esc', async () => {
  await open();
  const edit = async (name: string, key: string) => {
    screen.getByRole('button', { name: 'Rename' }).click();
    await tick();
    const field = screen.getByRole('textbox');
    await fireEvent.input(field, { target: { value: name } });
    await fireEvent.keyDown(field, { key });
  };
  await edit('Studio', 'Escape');
  expect(saidOf('rename')).toEqual([]);
  await edit(' Studio ', 'Enter');
  expect(saidOf('rename')).toEqual([{ verb: 'rename', seat: 'acc-0/org-0', name: 'Studio' }]);
});

test('what the foot offers it also explains', async () => {
  await open(2);
  expect(document.body.textContent).toContain('Drain finishes running requests, then rests.');
  expect(document.body.textContent).toContain('Try now lets it serve before its limit has reset.');
});

test('up and down say the whole order', async () => {
  await open();
  expect(screen.getByRole('button', { name: 'Move up' })).toHaveProperty('disabled', true);
  screen.getByRole('button', { name: 'Move down' }).click();
  expect(saidOf('order')[0]?.['seats']).toEqual(['acc-1/org-1', 'acc-0/org-0', 'acc-2/org-2', 'acc-3/org-3', 'acc-4/org-4']);
});

test('a resting seat may be tried, a paused one resumed', async () => {
  await open(2);
  screen.getByRole('button', { name: 'Try now' }).click();
  expect(saidOf('tryNow')).toEqual([{ verb: 'tryNow', seat: 'acc-2/org-2' }]);
  document.body.innerHTML = '';
  await open(3);
  screen.getByRole('button', { name: 'Resume' }).click();
  expect(saidOf('resume')).toEqual([{ verb: 'resume', seat: 'acc-3/org-3' }]);
});

test('an organisation that names a person is not shown, nor any where names are hidden', async () => {
  const line = () => document.querySelector('.facts')?.textContent;
  await open(0, {}, 'jane@example.com’s Organization');
  expect(line()).not.toContain('jane');
  document.body.innerHTML = '';
  await open(0, {}, 'Acme');
  expect(line()).toContain('Acme');
  document.body.innerHTML = '';
  await open(0, { preferences: { ...facts.preferences, hideNames: true } }, 'Acme');
  expect(line()).not.toContain('Acme');
});
