import { expect, test } from 'vitest'
import { Inboxili, InboxiliConnectionError, InboxiliError } from '#inboxili'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { type CallEnd, outcomeOf } from '../src/sends/outcome.ts'

const now = new Date('2026-10-21T07:27:30.500Z')
const thrown = (error: unknown): CallEnd => ({ thrown: error })
const refusal = (status: number, retryAfter?: string) => thrown(new InboxiliError(status, 'a_code', 'a message', retryAfter))

test('status sent is accepted, with its message_id', () => {
  expect(outcomeOf({ answer: { status: 'sent', message_id: 'm5' } }, now)).toEqual({ kind: 'accepted', messageId: 'm5' })
})

test.for([
  ['null', null],
  ['empty', ''],
  ['too long for an index', 'm'.repeat(501)],
  ['not storable', 'm\u0000'],
] as const)('C-55 status sent is accepted when its message_id is %s', ([, id]) => {
  expect(outcomeOf({ answer: { status: 'sent', message_id: id } }, now)).toEqual({ kind: 'accepted', messageId: null })
})

test.for(['Sent', 'sent ', 'queued', ''])('A 2xx with status %j is unknown and keeps its message_id', (status) => {
  expect(outcomeOf({ answer: { status, message_id: 'm6' } }, now)).toEqual({
    kind: 'unknown',
    reason: 'unknown_status',
    messageId: 'm6',
    error: `unknown status "${status}" in a 2xx answer`,
  })
})

test('A 2xx with an unknown status and no message_id has none', () => {
  expect(outcomeOf({ answer: { status: 'weird', message_id: null } }, now)).toEqual({
    kind: 'unknown',
    reason: 'unknown_status',
    error: 'unknown status "weird" in a 2xx answer',
  })
})

test.for([400, 401, 403, 404, 422])('C-56 %i is a refusal', (status) => {
  expect(outcomeOf(refusal(status), now)).toEqual({
    kind: 'refused',
    httpStatus: status,
    code: 'a_code',
    message: 'a message',
    error: `${status} a_code: a message`,
  })
})

test.for([301, 302, 307, 308, 402, 405, 406, 408, 409, 410, 413, 415, 418, 425, 500, 501, 502, 503, 504, 599])(
  'C-53 %i is no proof that nothing was sent',
  (status) => {
    expect(outcomeOf(refusal(status), now)).toEqual({
      kind: 'unknown',
      reason: 'http_status',
      httpStatus: status,
      error: `${status} after the request`,
    })
  },
)

test('A 2xx that can not be read is unknown', () => {
  expect(outcomeOf(thrown(new InboxiliError(200, 'unreadable_answer', 'what')), now)).toEqual({
    kind: 'unknown',
    reason: 'unreadable_answer',
    httpStatus: 200,
    error: '200 with an unreadable answer',
  })
})

test.for([
  ['0', 0],
  ['2', 2],
  ['99999', 99999],
  ['9999999999', 9_999_999_999],
  ['9'.repeat(30), 1e30],
  ['Wed, 21 Oct 2026 07:28:00 GMT', 30],
  ['Wed, 21 Oct 2026 07:27:31 GMT', 1],
  ['Wednesday, 21-Oct-26 07:28:00 GMT', 30],
  ['Saturday, 21-Oct-06 07:28:00 GMT', 0],
  ['Wed, 21 Oct 2026 07:00:00 GMT', 0],
] as const)('C-54 Retry-After %s is %i seconds', ([header, seconds]) => {
  expect(outcomeOf(refusal(429, header), now)).toEqual({
    kind: 'rate_limited',
    retryAfterSeconds: seconds,
    code: 'a_code',
    message: 'a message',
    error: '429 a_code: a message',
  })
})

test.for([
  undefined,
  '',
  '-1',
  '1.5',
  '1e3',
  'soon',
  '0x10',
  '2026-10-21T07:28:00Z',
  'Wed, 99 Oct 2026 07:28:00 GMT',
  'Wednesday, 99-Oct-26 07:28:00 GMT',
  'Wednesday, 21-Okt-26 07:28:00 GMT',
])('C-54 Retry-After %j says nothing', (header) => {
  expect(outcomeOf(refusal(429, header), now)).toEqual({
    kind: 'rate_limited',
    code: 'a_code',
    message: 'a message',
    error: '429 a_code: a message',
  })
})

test('An error before the first request byte means not sent', () => {
  const error = new InboxiliConnectionError('connection refused', { code: 'ECONNREFUSED', requestStarted: false })

  expect(outcomeOf(thrown(error), now)).toEqual({ kind: 'not_sent', code: 'ECONNREFUSED', error: 'connection refused' })
})

test('The code ECONNREFUSED proves nothing when the request had started', () => {
  const error = new InboxiliConnectionError('connection refused', { code: 'ECONNREFUSED', requestStarted: true })

  expect(outcomeOf(thrown(error), now)).toEqual({ kind: 'unknown', reason: 'connection_lost', error: 'connection refused' })
})

test('A connection error that does not say whether the request had started is unknown', () => {
  const error = new InboxiliConnectionError('who knows', { code: 'ECONNREFUSED' } as never) // as another client could throw it

  expect(outcomeOf(thrown(error), now)).toEqual({ kind: 'unknown', reason: 'connection_lost', error: 'who knows' })
})

test('C-52 a timeout after the request is unknown', () => {
  const error = new InboxiliConnectionError('no answer in 15 s', { code: 'timeout', requestStarted: true })

  expect(outcomeOf(thrown(error), now)).toEqual({ kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' })
})

test.for([
  [new TypeError('x is not a function'), 'unexpected TypeError in the call'],
  ['a text', 'unexpected string in the call'],
  [undefined, 'unexpected undefined in the call'],
  [Object.assign(new Error('no'), { code: 'ECONNREFUSED', requestStarted: false }), 'unexpected Error in the call'],
] as const)('Anything else that is thrown is unknown: %s', ([error, text]) => {
  expect(outcomeOf(thrown(error), now)).toEqual({ kind: 'unknown', reason: 'unexpected_error', error: text })
})

test('C-70 texts of the API are cut to 500 characters that the database takes', () => {
  const outcome = outcomeOf(thrown(new InboxiliError(422, 'a\u0000b', `line\n${'x'.repeat(494)}😀`)), now)

  expect(outcome).toEqual({
    kind: 'refused',
    httpStatus: 422,
    code: 'a b',
    message: `line ${'x'.repeat(494)}\ufffd`,
    error: `422 a b: line ${'x'.repeat(486)}`,
  })
})

test('Each way a call to the sandbox can end has its outcome', async () => {
  const inboxili = await startInboxiliSandbox({ apiKey: 'ik_test' })
  const client = new Inboxili('ik_test', { baseUrl: inboxili.url, timeout: 300, maxRetries: 0 })
  const message = { to: 'ada@example.com', from_email: 'b@example.com', template_id: 't1' }
  const call = () =>
    client.emails.send(message).then(
      (answer) => outcomeOf({ answer }, now),
      (error: unknown) => outcomeOf({ thrown: error }, now),
    )
  inboxili.arm([
    { kind: 'ok', messageId: 'm1' },
    { kind: 'null_id' },
    { kind: 'status', status: 422, code: 'sender_not_verified', message: 'nope' },
    { kind: 'rate_limited', retryAfter: 2 },
    { kind: 'status', status: 502, accepted: true },
    { kind: 'status', status: 302, headers: { location: '/' } },
    { kind: 'unreadable' },
    { kind: 'odd_status', messageId: 'm8' },
    { kind: 'hold' },
    { kind: 'cut_after_accept' },
    { kind: 'cut_before_accept' },
  ])

  const outcomes = []
  for (let i = 0; i < 11; i++) outcomes.push(await call())
  await inboxili.close()
  outcomes.push(await call())

  expect(outcomes).toEqual([
    { kind: 'accepted', messageId: 'm1' },
    { kind: 'accepted', messageId: null },
    { kind: 'refused', httpStatus: 422, code: 'sender_not_verified', message: 'nope', error: '422 sender_not_verified: nope' },
    {
      kind: 'rate_limited',
      retryAfterSeconds: 2,
      code: 'rate_limited',
      message: 'too many requests',
      error: '429 rate_limited: too many requests',
    },
    { kind: 'unknown', reason: 'http_status', httpStatus: 502, error: '502 after the request' },
    { kind: 'unknown', reason: 'http_status', httpStatus: 302, error: '302 after the request' },
    { kind: 'unknown', reason: 'unreadable_answer', httpStatus: 200, error: '200 with an unreadable answer' },
    { kind: 'unknown', reason: 'unknown_status', messageId: 'm8', error: 'unknown status "weird" in a 2xx answer' },
    { kind: 'unknown', reason: 'timeout', error: 'no answer in 0.3 s' },
    { kind: 'unknown', reason: 'connection_lost', error: 'connection closed before the whole answer' },
    { kind: 'unknown', reason: 'connection_lost', error: 'connection closed before the whole answer' },
    { kind: 'not_sent', code: 'ECONNREFUSED', error: 'connection refused' },
  ])
  expect(inboxili.ledger.map((one) => one.accepted)).toEqual([
    true,
    true,
    false,
    false,
    true,
    false,
    true,
    true,
    true,
    true,
    false,
  ])
})
