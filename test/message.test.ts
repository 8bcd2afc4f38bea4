import { expect, test } from 'vitest'
import { differingFields, type Message, messageHash, messageSchema } from '../src/sends/message.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

const plain = { to: 'ada@example.com', from_email: 'billing@example.com', subject: 'Your receipt', html_body: '<p>Thanks</p>' }
const read = (fields: object): Message => messageSchema.parse({ ...plain, ...fields })
const problemOf = (fields: object): string | undefined =>
  messageSchema.safeParse({ ...plain, ...fields }).error?.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`)[0]

test.each([
  ['Ada\r\nBcc: evil@example.net', 'Ada Bcc: evil@example.net'],
  ['Ada\nX: y', 'Ada X: y'],
  ['Ada\u2028b', 'Ada b'],
  ['Ada\u2029b', 'Ada b'],
  ['Ada\u0085b', 'Ada b'],
  ['Ada\u0000', 'Ada'],
  ['\tAda\u0000\u001b[31m', 'Ada [31m'],
  ['Ada\ud800', 'Ada\ufffd'],
])('C-72 the name %j becomes %j', (name, cleaned) => {
  const message = read({ from_name: name, subject: name })

  expect(message.from_name).toBe(cleaned)
  expect(message.subject).toBe(cleaned)
  expect(message.to).toBe('ada@example.com')
})

test('C-72 a long subject or name is cut, never through the middle of a character', () => {
  expect(read({ subject: 'x'.repeat(10_000) }).subject).toBe('x'.repeat(500))
  expect(read({ from_name: 'x'.repeat(10_000) }).from_name).toBe('x'.repeat(200))
  expect(read({ subject: `${'x'.repeat(499)}😀` }).subject).toBe(`${'x'.repeat(499)}\ufffd`)
})

test('C-72 an address with a line break is refused, not cleaned', () => {
  expect(problemOf({ to: 'ada@example.com\r\nBcc: evil@example.net' })).toBe('to: not an email address')
  expect(problemOf({ to: 'ada@exam\nple.com' })).toBe('to: not an email address')
  expect(problemOf({ from_email: 'b@example.com\u0000' })).toBe('from_email: not an email address')
  expect(problemOf({ to: 'Ada <ada@example.com>' })).toBe('to: not an email address')
  expect(problemOf({ to: 'ada@example.com,eve@example.com' })).toBe('to: not an email address')
})

const hostile = {
  'fifty a': [`${'a'.repeat(50)}@test.c`, undefined],
  dots: ['.'.repeat(5_000), 'to: longer than 254 characters'],
  brackets: ['<'.repeat(50_000), 'to: longer than 254 characters'],
  labels: [`a@${'a.'.repeat(20_000)}`, 'to: longer than 254 characters'],
  blanks: [' '.repeat(200_000), 'to: not an email address'],
  '254 characters': [`${'a'.repeat(64)}@${'a.'.repeat(94)}b`, undefined],
  '255 characters': [`${'a'.repeat(64)}@${'a.'.repeat(95)}`, 'to: longer than 254 characters'],
} as const

test.each(Object.keys(hostile) as (keyof typeof hostile)[])('C-71 the address of %s gets its answer', (name) => {
  const [to, problem] = hostile[name]

  expect(problemOf({ to })).toBe(problem)
})

// Quadratic work on a million characters would run into the time limit of the test by far.
test.each(['.', '<', ' ', '\\', '\0', 'a.', '\r\n', 'a@'])('C-71 a million characters of %j are read in linear time', (unit) => {
  const text = unit.repeat(1_000_000 / unit.length)

  expect(messageSchema.safeParse({ ...plain, to: text, from_email: text }).success).toBe(false)
  expect(read({ subject: text, from_name: text, html_body: text, template_data: { [text]: text } }).to).toBe('ada@example.com')
})

test('texts and template data that PostgreSQL would refuse are cleaned, and stored as they then are', async () => {
  const message = read({
    html_body: 'a\u0000b\ud800c',
    template_id: 't\u00001',
    template_data: {
      nul: 'a\u0000b',
      surrogate: 'a\udc00b',
      literal: 'a\\u0000b',
      mixed: '\\\u0000\u0000\\\\',
      deep: [{ 'k\u0000ey\ud800': [null, 1, true, '😀'] }],
    },
  })

  const { rows } = await pool.query<{ message: Message }>('select $1::jsonb as message', [JSON.stringify(message)])

  expect(rows[0]?.message).toEqual({
    ...plain,
    html_body: 'ab\ufffdc',
    template_id: 't1',
    template_data: {
      nul: 'ab',
      surrogate: 'a\ufffdb',
      literal: 'a\\u0000b',
      mixed: '\\\\\\',
      deep: [{ 'key\ufffd': [null, 1, true, '😀'] }],
    },
  })
})

test.each([
  ['an unknown field', { bcc: 'eve@example.com' }, ': Unrecognized key: "bcc"'],
  ['no body', { html_body: undefined }, ': needs template_id, html_body or text_body'],
  ['a recipient that is no text', { to: 42 }, 'to: Invalid input: expected string, received number'],
  ['template data that is no JSON', { template_data: { at: new Date() } }, 'template_data.at: Invalid input'],
  [
    'a body over a million characters',
    { html_body: 'x'.repeat(1_000_001) },
    'html_body: Too big: expected string to have <=1000000 characters',
  ],
])('a message with %s is refused', (_, fields, problem) => {
  expect(problemOf(fields)).toBe(problem)
})

test.each([
  ['2,001 values', { list: Array.from({ length: 2_000 }, () => 0) }, 'template_data: has more than 2,000 values'],
  ['a million values', { list: Array.from({ length: 1_000_000 }, () => 0) }, 'template_data: has more than 2,000 values'],
  ['201 levels', nestedIn(201), 'template_data: is nested too deeply'],
  [
    'an integer beyond 2^53',
    { id: 2 ** 53 },
    'template_data: has an integer beyond 2^53, which would lose digits: write it as a string',
  ],
  ['a list instead', [1], 'template_data: Invalid input: expected record, received array'],
])('template data of %s is refused', (_, template_data, problem) => {
  expect(problemOf({ template_data })).toBe(problem)
})

test('template data of 2,000 values and of 200 levels is taken', () => {
  const list = Array.from({ length: 1_999 }, (_, index) => index)

  expect(read({ template_data: { list } }).template_data).toEqual({ list })
  expect(read({ template_data: nestedIn(200) }).template_data).toEqual(nestedIn(200))
})

/** An object in so many levels. */
function nestedIn(levels: number): object {
  return levels === 1 ? {} : { a: nestedIn(levels - 1) }
}

test('the order of fields is no difference; the names of the different ones are told', () => {
  const one = read({ template_data: { a: 1, b: { c: 2, d: [3, 4] } } })
  const same = messageSchema.parse({
    template_data: { b: { d: [3, 4], c: 2 }, a: 1 },
    ...Object.fromEntries(Object.entries(plain).reverse()),
  })
  const other = read({ to: 'eve@example.com', template_data: { a: 1, b: { c: 2, d: [4, 3] } }, from_name: 'Eve' })

  expect(messageHash(same)).toEqual(messageHash(one))
  expect(messageHash(other)).not.toEqual(messageHash(one))
  expect(differingFields(one, same)).toEqual([])
  expect(differingFields(one, other)).toEqual(['from_name', 'template_data', 'to'])
})
