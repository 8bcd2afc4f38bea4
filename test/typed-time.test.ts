import { expect, test } from 'vitest'
import { typedTime } from '../src/ops/page/typed-time.ts'

const NOW = new Date('2026-01-10T12:00:00Z')

test.each([
  ['2026-11-29 22:00', 'Europe/Berlin', '2026-11-29T21:00:00.000Z'],
  ['2026-07-01 22:00:05', 'Europe/Berlin', '2026-07-01T20:00:05.000Z'],
  ['2026-11-29', 'America/New_York', '2026-11-29T05:00:00.000Z'],
  ['2026-11-29 22:00', 'UTC', '2026-11-29T22:00:00.000Z'],
  ['2026-11-29 14:02:07 UTC', 'Europe/Berlin', '2026-11-29T14:02:07.000Z'],
  ['2026-11-29 15:02:07 UTC+01:00', 'Asia/Tokyo', '2026-11-29T14:02:07.000Z'],
  ['28 Nov 2025 14:02', 'Europe/Berlin', '2025-11-28T13:02:00.000Z'],
  ['28 Nov 14:02', 'UTC', '2025-11-28T14:02:00.000Z'],
  ['9 Jan 14:02', 'UTC', '2026-01-09T14:02:00.000Z'],
])('%s in %s is %s', (text, zone, expected) => {
  expect(typedTime(text, zone, NOW)).toBe(expected)
})

test.each([
  '24h',
  '2026-11-29T22:00',
  '2026-11-29T22:00:00.000Z',
  '2026-02-30 10:00',
  '2026-13-01',
  '31 Abc 10:00',
  '2026-01-01 25:00',
  '',
  'x',
])('%s stays as it came, for the filter to judge', (text) => {
  expect(typedTime(text, 'Europe/Berlin', NOW)).toBe(text)
})
