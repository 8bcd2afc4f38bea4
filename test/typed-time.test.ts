import { expect, test } from 'vitest'
import { sharedTime, shownTime, typedTime } from '../src/ops/page/typed-time.ts'

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
  // Clocks skip midnight: the day begins at 01:00.
  ['2026-09-06', 'America/Santiago', '2026-09-06T04:00:00.000Z'],
  ['2026-03-08', 'America/Havana', '2026-03-08T05:00:00.000Z'],
  ['2026-03-29', 'Atlantic/Azores', '2026-03-29T01:00:00.000Z'],
  ['2026-04-24', 'Africa/Cairo', '2026-04-23T22:00:00.000Z'],
  // They show midnight twice: the day begins at the first.
  ['2026-11-01', 'America/Havana', '2026-11-01T04:00:00.000Z'],
  ['2026-03-29 02:30', 'Europe/Berlin', '2026-03-29T01:30:00.000Z'],
  ['2026-03-08 02:30', 'America/New_York', '2026-03-08T07:30:00.000Z'],
  ['2026-10-04 02:15', 'Australia/Lord_Howe', '2026-10-03T15:45:00.000Z'],
  ['2026-10-25 02:30', 'Europe/Berlin', '2026-10-25T00:30:00.000Z'],
  ['2026-11-01 01:30', 'America/New_York', '2026-11-01T05:30:00.000Z'],
  ['2026-03-08 01:59:59', 'America/New_York', '2026-03-08T06:59:59.000Z'],
  ['2026-03-08 03:00', 'America/New_York', '2026-03-08T07:00:00.000Z'],
  // This day no clock there showed.
  ['2011-12-30', 'Pacific/Apia', '2011-12-30T10:00:00.000Z'],
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

test.each([
  ['2026-11-29T21:00:00.000Z', 'Europe/Berlin', '2026-11-29 22:00:00'],
  ['2026-11-29T21:00:00.000Z', 'UTC', '2026-11-29 21:00:00'],
  ['2026-11-29T21:00:00.000Z', 'America/New_York', '2026-11-29 16:00:00'],
  // Clocks go forward at 01:00 UTC of 29 March, and back at that of 25 October.
  ['2026-03-29T00:59:59.000Z', 'Europe/Berlin', '2026-03-29 01:59:59'],
  ['2026-03-29T01:00:00.000Z', 'Europe/Berlin', '2026-03-29 03:00:00'],
  ['2026-10-25T00:30:00.000Z', 'Europe/Berlin', '2026-10-25 02:30:00'],
  ['2026-10-25T01:30:00.000Z', 'Europe/Berlin', '2026-10-25 02:30:00 UTC+01:00'],
])('%s is shown in %s as %s, and read again as it was', (instant, zone, shown) => {
  expect(shownTime(instant, zone)).toBe(shown)
  expect(typedTime(shown, zone, NOW)).toBe(instant)
})

test.each([
  ['2026-11-29T22:00:00+01:00', '2026-11-29 22:00:00'],
  // Without a zone a filter reads it in UTC.
  ['2026-07-01T20:00', '2026-07-01 22:00:00'],
])('%s is shown in Europe/Berlin as %s', (text, shown) => {
  expect(shownTime(text, 'Europe/Berlin')).toBe(shown)
})

test.each([
  '24h',
  '2026-11-29',
  '2026-11-29 22:00',
  '2026-11-29T22:00:00.123Z',
  '2026-13-01T00:00:00Z',
  '2026-02-30T00:00:00Z',
  'x',
])('%s is shown as it came', (text) => {
  expect(shownTime(text, 'Europe/Berlin')).toBe(text)
})

test.each([
  ['2026-11-29 22:00', '2026-11-29T21:00:00.000Z'],
  ['2026-11-29', '2026-11-28T23:00:00.000Z'],
  // Several ways to write one instant are the same to who compares them.
  ['2026-11-29T22:00:00+01:00', '2026-11-29T21:00:00.000Z'],
  ['2026-11-29T21:00:00Z', '2026-11-29T21:00:00.000Z'],
  ['2026-11-29T21:00', '2026-11-29T21:00:00.000Z'],
  ['2026-11-29T21:00:00.123Z', '2026-11-29T21:00:00.123Z'],
  ['24h', '24h'],
  ['2026-02-30T00:00:00Z', '2026-02-30T00:00:00Z'],
])('%s of Europe/Berlin is shared as %s', (text, expected) => {
  expect(sharedTime(text, 'Europe/Berlin', NOW)).toBe(expected)
})
