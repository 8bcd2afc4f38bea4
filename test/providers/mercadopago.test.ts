import { expect, test } from 'vitest'
import { type Attempt, judge } from '../support/judge.ts'

// The digests are of the texts that stand beside them, keyed with `mp_test`.
const ALL = '836debe3a84ed27477dfcdd32e89bb9d8d1c8b0e68e631637e7625cfe9245a6a' // id:123;request-id:r1;ts:1700000000;
const NO_REQUEST_ID = 'e6c417cb31bfe1e907f6f1c6f16d9912aef43a3a7381ede330d49ab1dc9920e4' // id:123;ts:1700000000;
const NO_ID = '9fa371b9d4b5f1b1b37deb64807de3a7caf1a49d38da2dbfc4f81d66528de8e8' // request-id:r1;ts:1700000000;
const NEITHER = 'e9b14aa4cac88d32db1f1a5285eabb213b8e256cb4701cef07be7d21ad8c3a00' // ts:1700000000;
const LETTERS = 'e381d1a10c166e194af2f1ad0deadf82322da08e580eec26d71c4f222b9042e5' // id:abc;request-id:r1;ts:1700000000;
const WORD_TIME = 'c0e4b62bf515a06d2861d09c84a16f6302453073429d3340eb0cda78230e5af5' // id:123;request-id:r1;ts:abc;
const MS = 'cfb325551691d3c4760427d82a58f1e7e7010432b51047830798f386220004aa' // id:123;request-id:r1;ts:1700000000000;
const ODD_ID = '9a2c71a9dffba9aec8a50ede487c00c5016fc815cbb4c01480f7acb448cf09a9' // id:a b/c;request-id:r1;ts:1700000000;
const LATER = '0104bdd1651a4fc883effb68f72b09a37ae143fa20fa0502e11097e18c6d116c' // id:123;request-id:r1;ts:1700000001;

const BODY = '{"id":12345678901,"action":"payment.updated","type":"payment","live_mode":true,"data":{"id":"123"}}'
const PASSED = { ok: true, secretIndex: 0, signedAt: 1_700_000_000 }
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISMATCH = { ok: false, reason: 'signature_mismatch' }

const mercadopago = (signature: string | string[], attempt: Attempt & { requestId?: string | string[] } = {}) =>
  judge('mercadopago', {
    headers: { 'X-Signature': signature, 'X-Request-Id': attempt.requestId ?? 'r1' },
    query: 'data.id=123&type=payment',
    body: BODY,
    secrets: ['mp_test'],
    now: 1_800_000_000,
    ...attempt,
  })

test.each([
  `ts=1700000000,v1=${ALL}`,
  `v1=${ALL},ts=1700000000`,
  ` ts = 1700000000 , v1 = ${ALL} `,
  `TS=1700000000,V1=${ALL}`,
  `ts=1700000000,v2=abc,foo,v1=${ALL},bar=`,
  `ts=1700000000,v1=${LATER},v1=${ALL}`,
  `ts=1700000001,v1=${ALL},ts=1700000000`,
])('takes %s', (signature) => {
  expect(mercadopago(signature).verdict).toEqual(PASSED)
})

test.each([
  ['', MISSING],
  ['   ', MISSING],
  [[], MISSING],
  ['this-is-garbage', MISSING],
  ['ts=1700000000', MISSING],
  [`ts=1700000000,v2=${ALL}`, MISSING],
  [`ts=1700000000,v11=${ALL}`, MISSING],
  [`ts=1700000000,xv1=${ALL}`, MISSING],
  [`ts=1700000000,v1=${ALL.slice(1)}`, MISSING],
  [`ts=1700000000,v1=${ALL}0`, MISSING],
  [`ts=1700000000,v1=${ALL.toUpperCase()}`, MISSING],
  [`v1=${ALL}`, MALFORMED],
  [`ts=,v1=${ALL}`, MALFORMED],
  [`ts=-1,v1=${ALL}`, MALFORMED],
  [`ts=1e9,v1=${ALL}`, MALFORMED],
  [[`ts=1700000000,v1=${ALL}`, `ts=1700000000,v1=${ALL}`], MALFORMED],
  [`ts=1700000000,v1=${LATER}`, MISMATCH],
  [`ts=1700000001,v1=${ALL}`, MISMATCH],
  [`ts=1700000000,v1=${ALL.replace(/a$/, 'b')}`, MISMATCH],
])('refuses %j', (signature, verdict) => {
  expect(mercadopago(signature).verdict).toEqual(verdict)
})

test('C-17 refuses a time that is no number although it is signed', () => {
  expect(mercadopago(`ts=abc,v1=${WORD_TIME}`).verdict).toEqual(MALFORMED)
})

test.each([
  ['all parts', ALL, 'data.id=123', 'r1'],
  ['an encoded name', ALL, 'type=payment&data%2Eid=123', 'r1'],
  ['blanks around', ALL, 'data.id=+123+', ' r1 '],
  ['no request ID', NO_REQUEST_ID, 'data.id=123', []],
  ['an empty request ID', NO_REQUEST_ID, 'data.id=123', ''],
  ['no data.id', NO_ID, 'type=payment&id=123', 'r1'],
  ['an empty data.id', NO_ID, 'data.id=&type=payment', 'r1'],
  ['neither', NEITHER, '', []],
  ['upper-case letters', LETTERS, 'data.id=ABC', 'r1'],
  ['lower-case letters', LETTERS, 'data.id=abc', 'r1'],
  ['characters that are encoded in a query', ODD_ID, 'data.id=a%20B%2Fc', 'r1'],
])('the signed text has the parts that are there: %s', (_name, digest, query, requestId) => {
  expect(mercadopago(`ts=1700000000,v1=${digest}`, { query, requestId }).verdict).toEqual(PASSED)
})

test.each([
  ['data.id dropped', 'type=payment', 'r1', MISMATCH],
  ['data.id changed', 'data.id=124', 'r1', MISMATCH],
  ['data.id twice', 'data.id=123&data.id=123', 'r1', MALFORMED],
  ['the request ID dropped', 'data.id=123', [], MISMATCH],
  ['the request ID twice', 'data.id=123', ['r1', 'r1'], MALFORMED],
  ['broken escapes', 'data.id=%ZZ%', 'r1', MISMATCH],
])('refuses a request with %s', (_name, query, requestId, verdict) => {
  expect(mercadopago(`ts=1700000000,v1=${ALL}`, { query, requestId }).verdict).toEqual(verdict)
})

test('C-16 bounds no age by itself, and both ways when it is told to, in seconds and milliseconds', () => {
  const at = (now: number, tolerance?: number) =>
    [`ts=1700000000,v1=${ALL}`, `ts=1700000000000,v1=${MS}`].map(
      (signature) => mercadopago(signature, { now, ...(tolerance !== undefined && { tolerance }) }).verdict,
    )
  const both = (verdict: object) => [verdict, verdict].map((each) => ({ ...each, signedAt: 1_700_000_000 }))

  expect(at(4_000_000_000)).toEqual(both({ ok: true, secretIndex: 0 }))
  expect(at(1_700_000_300, 300)).toEqual(both({ ok: true, secretIndex: 0 }))
  expect(at(1_700_000_301, 300)).toEqual(both({ ok: false, reason: 'timestamp_too_old' }))
  expect(at(1_699_999_700, 300)).toEqual(both({ ok: true, secretIndex: 0 }))
  expect(at(1_699_999_699, 300)).toEqual(both({ ok: false, reason: 'timestamp_too_new' }))
})

test('the body is not signed, and says so', () => {
  const { verdict, events, provider } = mercadopago(`ts=1700000000,v1=${ALL}`, {
    body: '{"id":9007199254740993,"type":"payment"}',
  })

  expect(verdict).toEqual(PASSED)
  expect(events).toMatchObject([{ id: '9007199254740993', type: 'payment', idBasis: 'provider', idIsSigned: false }])
  expect(provider).toMatchObject({ idIsSigned: false, contentIsSigned: false })
})

test('C-32 reads mode, time and object', () => {
  const body = (live: boolean) =>
    `{"id":1,"action":"payment.created","live_mode":${live},"date_created":"2026-09-21T10:13:05.000-04:00","data":{"id":"99"}}`

  expect(mercadopago('', { body: body(true) }).events).toMatchObject([
    { livemode: true, objectRef: '99', occurredAt: new Date('2026-09-21T14:13:05Z') },
  ])
  expect(mercadopago('', { body: body(false) }).events).toMatchObject([{ livemode: false }])
})

test('an IPN has no ID of its own', () => {
  expect(mercadopago('', { body: '{"resource":"123","topic":"payment"}' })).toMatchObject({ events: [], unusable: 'no_id' })
})

test('C-15 tells which of the secrets signed', () => {
  const signature = `ts=1700000000,v1=${ALL}`

  expect(mercadopago(signature, { secrets: ['other', 'mp_test'] }).verdict).toEqual({ ...PASSED, secretIndex: 1 })
  expect(mercadopago(signature, { secrets: ['', '  '] }).verdict).toEqual({ ok: false, reason: 'no_matching_key' })
})

test('a hostile header is refused quickly', () => {
  for (const header of [
    'v1='.repeat(5_000),
    ' '.repeat(16_000),
    `${', '.repeat(8_000)}v1=`,
    `ts=${'1'.repeat(16_000)}`,
    '\0\u00ff,=',
  ]) {
    const started = performance.now()
    expect(mercadopago(header).verdict.ok).toBe(false)
    expect(performance.now() - started).toBeLessThan(1_000)
  }
  expect(mercadopago(`ts=1700000000${`,v1=${LATER}`.repeat(17)}`).verdict).toEqual(MALFORMED)
})
