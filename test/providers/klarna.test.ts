import { expect, test } from 'vitest'
import { BODY_H, judge } from '../support/judge.ts'

const PASSED = { ok: true, secretIndex: 0 }
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISMATCH = { ok: false, reason: 'signature_mismatch' }
const NO_KEY = { ok: false, reason: 'no_matching_key' }
const GOOD = '816f41931987332c7b57dcce8005222650cb0e79dac41249022af44b7f5aa8de'
const BASE64 = 'gW9BkxmHMyx7V9zOgAUiJlDLDnnaxBJJAir0S39aqN4='
const KEY_B = 'd6ff0b58334a05cdace0285cec7b1ca113b0e22141c8e414214405c5dbef57e6'
const ID_A = 'krn:partner:global:notification:signing-key:49bcd37b-79a7-4e6e-b067-2903b45fef42'
const ID_B = 'krn:partner:global:notification:signing-key:120e5b7e-dee8-43ca-9858-dca726e639b5'
const klarna = (signature: string | string[], secrets: string[], keyId: string | string[] = [], options = {}) =>
  judge('klarna', {
    headers: { 'Klarna-Signature': signature, 'Klarna-Signing-Key-Id': keyId },
    body: BODY_H,
    secrets,
    options,
  }).verdict

test.each([
  ['the key alone', GOOD, ['klarna_test'], [], PASSED],
  ['the key alone, whatever ID is named', GOOD, ['klarna_test'], ID_A, PASSED],
  ['the named key', GOOD, [`${ID_A}:klarna_test`], ID_A, PASSED],
  ['the named key of two', KEY_B, [`${ID_A}:klarna_test`, `${ID_B}:klarna_b`], ID_B, { ok: true, secretIndex: 1 }],
  ['no key named, of two', KEY_B, [`${ID_A}:klarna_test`, `${ID_B}:klarna_b`], [], { ok: true, secretIndex: 1 }],
  ['another key of ours named', GOOD, [`${ID_A}:klarna_test`, `${ID_B}:klarna_b`], ID_B, MISMATCH],
  ['an unknown key named', GOOD, [`${ID_A}:klarna_test`], ID_B, NO_KEY],
  ['a part of the ID named', GOOD, [`${ID_A}:klarna_test`], 'krn', NO_KEY],
  ['a flipped bit', GOOD.replace(/e$/, 'f'), ['klarna_test'], [], MISMATCH],
  ['63 digits', GOOD.slice(1), ['klarna_test'], [], MALFORMED],
  ['upper case', GOOD.toUpperCase(), ['klarna_test'], [], MALFORMED],
  ['base64', BASE64, ['klarna_test'], [], MALFORMED],
  ['twice', [GOOD, GOOD], ['klarna_test'], [], MALFORMED],
  ['empty', '', ['klarna_test'], ID_A, MISSING],
  ['no signature', [], ['klarna_test'], ID_A, MISSING],
  ['an ID without a key', GOOD, [`${ID_A}:`], ID_A, NO_KEY],
  ['an ID and a blank', GOOD, [`${ID_A}: `], ID_A, NO_KEY],
])('%s', (_name, signature, secrets, keyId, verdict) => {
  expect(klarna(signature, secrets, keyId)).toEqual(verdict)
})

test('reads base64 only where it is told to', () => {
  expect(klarna(BASE64, ['klarna_test'], [], { encoding: 'base64' })).toEqual(PASSED)
  expect(klarna(GOOD, ['klarna_test'], [], { encoding: 'base64' })).toEqual(MALFORMED)
  // The same bytes, as the last two bits of the 4 are not used.
  expect(klarna(BASE64.replace('4=', '5='), ['klarna_test'], [], { encoding: 'base64' })).toEqual(MISMATCH)
})

test('C-32 reads the metadata', () => {
  const body = (live: string) =>
    `{"metadata":{"event_id":"k1","event_type":"payment.request.state-change.expired","occurred_at":"2026-09-21T14:13:05Z","live":${live}},"event_id":"outer"}`

  expect(judge('klarna', { body: body('false') }).events).toMatchObject([
    {
      id: 'k1',
      type: 'payment.request.state-change.expired',
      livemode: false,
      occurredAt: new Date('2026-09-21T14:13:05Z'),
    },
  ])
  expect(judge('klarna', { body: body('true') }).events).toMatchObject([{ livemode: true }])
  expect(judge('klarna', { body: body('"yes"') }).events).toMatchObject([{ livemode: null }])
  expect(judge('klarna', { body: '{"event_id":"outer"}' })).toMatchObject({ events: [], unusable: 'no_id' })
})
