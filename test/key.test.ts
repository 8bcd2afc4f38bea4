import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { KeyError, key, period } from '../src/sends/key.ts'

const messageOf = (build: () => unknown): string => {
  try {
    return `built ${String(build())}`
  } catch (error) {
    return error instanceof KeyError ? error.message : `not a KeyError: ${String(error)}`
  }
}
// What a payload holds has no type that would keep it out.
const anyKey = (...parts: unknown[]) => key(...(parts as string[]))

test('a key names the business fact, part by part', () => {
  expect(key('invoice', 'INV-1042', 'paid')).toBe('invoice:INV-1042:paid')
  expect(key('order', 17, 9007199254740993n)).toBe('order:17:9007199254740993')
  expect(key('été', '発票 1')).toBe('été:発票 1')
})

test.each([
  [undefined, 'cannot build key: part 2 is missing'],
  [null, 'cannot build key: part 2 is null'],
  ['', 'cannot build key: part 2 is empty'],
  [' \t', 'cannot build key: part 2 is empty'],
  [Number.NaN, 'cannot build key: part 2 is NaN'],
  [Number.POSITIVE_INFINITY, 'cannot build key: part 2 is not an exact integer'],
  [1.5, 'cannot build key: part 2 is not an exact integer'],
  [2 ** 53, 'cannot build key: part 2 is not an exact integer'],
  [{}, 'cannot build key: part 2 is of type object'],
  [['in_1'], 'cannot build key: part 2 is of type object'],
  [true, 'cannot build key: part 2 is of type boolean'],
  ['in\u00001', 'cannot build key: part 2 is a text with control characters'],
  ['in\n1', 'cannot build key: part 2 is a text with control characters'],
  ['in\ud8001', 'cannot build key: part 2 is a text with control characters'],
])('C-64 a key with the part %j is an error', (part, message) => {
  expect(messageOf(() => anyKey('invoice', part, 'paid'))).toBe(message)
})

test('C-64 a key without parts, or longer than a row holds, is an error', () => {
  expect(messageOf(() => key())).toBe('cannot build key: no parts')
  expect(messageOf(() => key('a'.repeat(513)))).toBe('cannot build key: 513 characters, at most 512')
  expect(key('a'.repeat(512))).toHaveLength(512)
})

test('C-64 a key that a path would take for a step is an error, so that each send can be asked for', () => {
  expect(messageOf(() => key('.'))).toBe('cannot build key: "." can\'t be a part of a path')
  expect(messageOf(() => key('..'))).toBe('cannot build key: ".." can\'t be a part of a path')
  expect([key('...'), key('a', '..'), key('.', '.')]).toEqual(['...', 'a:..', '.:.'])
})

test('a colon or percent sign inside a part is encoded, so that different facts never share a key', () => {
  expect(key('a:b', 'c')).toBe('a%3Ab:c')
  expect(key('a', 'b:c')).toBe('a:b%3Ac')
  expect(key('a%3Ab', 'c')).toBe('a%253Ab:c')
  expect(key('100%')).toBe('100%25')
})

test('two lists of parts have one key only if they are the same', () => {
  const part = fc.string({ unit: fc.constantFrom(':', '%', '3', 'A', '2', '5', 'x'), minLength: 1, maxLength: 6 })
  const parts = fc.array(part, { minLength: 1, maxLength: 4 })

  fc.assert(
    fc.property(parts, parts, (one, other) => {
      expect(key(...one) === key(...other)).toBe(JSON.stringify(one) === JSON.stringify(other))
    }),
    { numRuns: 2_000 },
  )
})

describe('C-65', () => {
  const instants = [
    '2026-03-01T03:30:00Z',
    '2026-01-31T12:00:00Z',
    '2026-10-25T00:30:00Z',
    '2026-10-25T01:30:00Z',
    '2026-03-01T00:30:00',
    '2026-03-01 00:30:00',
    '2026-03-01',
  ]

  test.each(['UTC', 'America/New_York', 'Pacific/Auckland', 'Europe/Berlin'])('periods are the same on a server in %s', (TZ) => {
    const program = `import { period } from ${JSON.stringify(join(import.meta.dirname, '../src/sends/key.ts'))}
      console.log(JSON.stringify(${JSON.stringify(instants)}.map((it) => [period(it), period(it, { unit: 'day' }), period(it, { unit: 'week' })])))`

    const printed = execFileSync(process.execPath, ['--input-type=module', '--eval', program], { env: { ...process.env, TZ } })

    expect(JSON.parse(printed.toString())).toEqual([
      ['2026-03', '2026-03-01', '2026-W09'],
      ['2026-01', '2026-01-31', '2026-W05'],
      ['2026-10', '2026-10-25', '2026-W43'],
      ['2026-10', '2026-10-25', '2026-W43'],
      ['2026-03', '2026-03-01', '2026-W09'],
      ['2026-03', '2026-03-01', '2026-W09'],
      ['2026-03', '2026-03-01', '2026-W09'],
    ])
  })

  test('a billing zone is used when the rule names it', () => {
    const instant = '2026-03-01T03:30:00Z'

    expect(period(instant, { zone: 'America/New_York' })).toBe('2026-02')
    expect(period(instant, { zone: 'America/New_York', unit: 'day' })).toBe('2026-02-28')
    expect(period(instant, { zone: 'Europe/Berlin' })).toBe('2026-03')
    expect(period('2026-12-31T11:00:00Z', { zone: 'Pacific/Auckland' })).toBe('2027-01')
  })

  test('both half past twos of the night when the clocks go back are one day in Berlin', () => {
    const days = ['2026-10-25T00:30:00Z', '2026-10-25T01:30:00Z'].map((it) => period(it, { zone: 'Europe/Berlin', unit: 'day' }))

    expect(days).toEqual(['2026-10-25', '2026-10-25'])
  })
})

test('a period reads unix seconds, dates, and texts with an offset', () => {
  expect(period(1_772_335_800)).toBe('2026-03')
  expect(period(0)).toBe('1970-01')
  expect(period(new Date('2026-11-29T00:00:00Z'), { unit: 'day' })).toBe('2026-11-29')
  expect(period('2026-03-01T00:30:00+01:00')).toBe('2026-02')
  expect(period('2026-02-28T23:30:00.123456-0200')).toBe('2026-03')
})

test('weeks are those of ISO 8601: a week belongs to the year of its Thursday', () => {
  const week = (day: string) => period(day, { unit: 'week' })

  expect(['2026-11-29', '2026-12-31', '2027-01-03', '2027-01-04', '2024-12-30', '2021-01-03', '2020-12-31'].map(week)).toEqual([
    '2026-W48',
    '2026-W53',
    '2026-W53',
    '2027-W01',
    '2025-W01',
    '2020-W53',
    '2020-W53',
  ])
})

test.each([
  undefined,
  null,
  '',
  'soon',
  '03/01/2026',
  '1772335800',
  '2026-13-01',
  Number.NaN,
  -1,
  1_772_335_800_000,
  new Date(Number.NaN),
  true,
  {},
])('C-64 %s is no instant', (instant) => {
  expect(messageOf(() => period(instant as string))).toBe('cannot build period: not an instant')
})

test('a zone that does not exist is an error of the key', () => {
  expect(messageOf(() => period(0, { zone: 'Europe/Nowhere' }))).toBe(
    'cannot build period: there is no time zone "Europe/Nowhere"',
  )
})
