import { expect, test } from 'vitest'
import { isSameEvent } from '../../src/providers/read-events.ts'
import { type Attempt, BODY_H, judge } from '../support/judge.ts'

const H1 = 'b9805a52b23e2ccf425e5149203a75600046c74a10c2665a1caa5ec79ecfc9dd'
const OTHER = '50a2596be39f4a649d155254deb3d93c97ff4d7ec3bc0ae57f47d6d0e4b3e5b8'
const GOOD = `ts=1700000000;h1=${H1}`

const paddle = (signature: string | string[], attempt: Attempt = {}) =>
  judge('paddle', {
    headers: { 'Paddle-Signature': signature },
    body: BODY_H,
    secrets: ['pdl_ntfset_test'],
    now: 1_700_000_000,
    ...attempt,
  }).verdict

test('C-16 refuses one second after the bound, and at the bound not yet, in both directions', () => {
  const tooOld = { ok: false, reason: 'timestamp_too_old', signedAt: 1_700_000_000 }

  expect(paddle(GOOD, { now: 1_700_000_300 })).toMatchObject({ ok: true, signedAt: 1_700_000_000 })
  expect(paddle(GOOD, { now: 1_700_000_301 })).toEqual(tooOld)
  expect(paddle(GOOD, { now: 1_700_000_005, tolerance: 5 }).ok).toBe(true)
  expect(paddle(GOOD, { now: 1_700_000_006, tolerance: 5 })).toEqual(tooOld)
  expect(paddle(GOOD, { now: 1_699_999_700 }).ok).toBe(true)
  expect(paddle(GOOD, { now: 1_699_999_699 })).toMatchObject({ ok: false, reason: 'timestamp_too_new' })
})

// Each signature is right for the literal time.
test.each([
  ['abc', 'da0949513163964a625bbbf6dd2a983c2979ece6f8373e154b871d770579dc85'],
  ['', '66caaf49e6ce57221ce50f206c0addf476395839ebe3df000ce76444964bc35c'],
  ['1700000000abc', 'ba122d02d3026d9c95d0fbc8d0c056157230e5ea7d46d9ebdfead606817934bb'],
  ['1e99', '720cbd8ec40248304509304a45fa0f856c08dd855653ab903f7d0905bfcac1cf'],
  ['-1', 'a68dff6c752362592f64e175c3abd7b48a682665daa1066e216f1155f8471674'],
  ['0x65', 'c9c0aefb2a4deaa8570ee2fed46b35cb59480dfb3ab6a1a558c7e69cfd551fc2'],
  [' 1700000000', 'cbdbfc749b30a0480464c66ad59e359a8074362c3d1c076f1464effab13232fc'],
  ['Infinity', '4e1909f60be3c19f1667e386cd8f78ca7b5266c124bdf4cfbb2522b6f92853dc'],
])('C-17 refuses the time "%s" however rightly it is signed', (time, h1) => {
  expect(paddle(`ts=${time};h1=${h1}`, { tolerance: Number.MAX_SAFE_INTEGER })).toEqual({
    ok: false,
    reason: 'malformed_signature',
  })
})

test('any of several h1 does, in whatever place', () => {
  expect(paddle(`ts=1700000000;h1=${OTHER};h1=${H1}`).ok).toBe(true)
  expect(paddle(`ts=1700000000;h1=${H1};h1=${OTHER}`).ok).toBe(true)
  expect(paddle(`h1=${H1};ts=1700000000`).ok).toBe(true)
  expect(paddle(`ts=1700000000;h1=${H1};h2=${OTHER};new`).ok).toBe(true)
  expect(paddle(`ts=1700000000;h1=${OTHER};h1=${OTHER}`)).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test.each([
  ['only a time', 'ts=1700000000'],
  ['only a signature', `h1=${H1}`],
  ['two times', `ts=1700000000;ts=1700000000;h1=${H1}`],
  ['another version', `ts=1700000000;h2=${H1}`],
  ['commas', `ts=1700000000,h1=${H1}`],
  ['upper case', `ts=1700000000;h1=${H1.toUpperCase()}`],
  ['one digit less', GOOD.slice(0, -1)],
  ['one digit more', `${GOOD}0`],
  ['a prefix', `ts=1700000000;h1=sha256=${H1}`],
  ['a name that ends like ours', `ts=1700000000;xh1=${H1}`],
  ['the header of Stripe', `t=1700000000,v1=${H1}`],
  ['many signatures', `ts=1700000000${`;h1=${OTHER}`.repeat(1_000)};h1=${H1}`],
])('a header with %s is refused', (_name, header) => {
  expect(paddle(header)).toMatchObject({ ok: false })
})

test('C-10 a header that is missing, empty or doubled is refused', () => {
  expect(judge('paddle', { body: BODY_H, secrets: ['pdl_ntfset_test'] }).verdict).toEqual({
    ok: false,
    reason: 'missing_signature',
  })
  expect(paddle('')).toEqual({ ok: false, reason: 'missing_signature' })
  expect(paddle([GOOD, GOOD])).toEqual({ ok: false, reason: 'malformed_signature' })
})

test('a replay to the same address under a new notification ID is the same event', () => {
  const event = (notification: string, total: string) =>
    judge('paddle', {
      body: JSON.stringify({
        event_id: 'evt_1',
        event_type: 'transaction.completed',
        occurred_at: '2026-09-21T14:13:11.121824Z',
        notification_id: notification,
        data: { id: 'txn_1', details: { totals: { total } } },
      }),
    })
  const [first, again, other] = [event('ntf_1', '1'), event('ntf_2', '1'), event('ntf_1', '2')]

  expect(first.events).toMatchObject([
    {
      id: 'evt_1',
      idBasis: 'provider',
      idIsSigned: true,
      type: 'transaction.completed',
      livemode: null,
      occurredAt: new Date('2026-09-21T14:13:11.121Z'),
      objectRef: 'txn_1',
    },
  ])
  expect(isSameEvent(first.provider, first.request, again.request, 'evt_1')).toBe(true)
  expect(isSameEvent(first.provider, first.request, other.request, 'evt_1')).toBe(false)
})
