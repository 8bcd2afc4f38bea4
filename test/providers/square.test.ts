import { expect, test } from 'vitest'
import { createProvider } from '../../src/providers/registry.ts'
import { BODY_H, judge } from '../support/judge.ts'

const GOOD = 'bYaqef2d9vG+mEYTWzcqXw0NS31//AM2vEDpdJKJrSE='

const square = (signature: string | string[], notificationUrl = 'https://hooks.example.com/webhooks/square') =>
  judge('square', {
    // What the request says of its own address must not count.
    headers: { host: '10.0.0.5:3000', 'x-forwarded-proto': 'http', 'X-Square-HmacSha256-Signature': signature },
    body: BODY_H,
    secrets: ['sq_sig_key'],
    options: { notificationUrl },
  }).verdict

test('C-21 checks the signature over the configured address', () => {
  expect(square(GOOD)).toEqual({ ok: true, secretIndex: 0 })
  expect(square('SL403qzhWk+mm40BfpSTr7KVNfBVSDqA3cm3T+61Cwo=')).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(square('UeBpwVp0GsI8Xx73c1OAjcCw3WyjlLnI7Y5p0UR21Qg=')).toEqual({ ok: false, reason: 'signature_mismatch' })
})

test('C-21 takes the configured address byte for byte', () => {
  expect(square('SL403qzhWk+mm40BfpSTr7KVNfBVSDqA3cm3T+61Cwo=', 'http://hooks.example.com/webhooks/square').ok).toBe(true)
  expect(square('UeBpwVp0GsI8Xx73c1OAjcCw3WyjlLnI7Y5p0UR21Qg=', 'https://hooks.example.com/webhooks/square/').ok).toBe(true)
  expect(square(GOOD, 'https://HOOKS.example.com/webhooks/square').ok).toBe(false)
  expect(square(GOOD, 'https://hooks.example.com:443/webhooks/square').ok).toBe(false)
})

test('the address is needed and must be one', () => {
  expect(() => createProvider('square')).toThrow(/notificationUrl/)
  expect(() => createProvider('square', { notificationUrl: 'hooks.example.com' })).toThrow(/notificationUrl/)
  expect(() => createProvider('square', { notificationUrl: 'ftp://hooks.example.com' })).toThrow(/notificationUrl/)
})

test.each([
  ['in hex', '6d86aa79fd9df6f1be9846135b372a5f0d0d4b7d7ffc0336bc40e9749289ad21'],
  ['in base64url', GOOD.replaceAll('+', '-').replaceAll('/', '_')],
  ['without its padding', GOOD.slice(0, -1)],
  // The same bytes, as the last two bits of the E are not used.
  ['with other spare bits', GOOD.replace('E=', 'F=')],
  ['under a prefix', `sha256=${GOOD}`],
  ['doubled', [GOOD, GOOD]],
])('a signature %s is refused', (_name, signature) => {
  expect(square(signature)).toMatchObject({ ok: false })
})

test.each([
  ['Production', true],
  ['Sandbox', false],
  ['__proto__', null],
])('C-32 the header says the environment: %s', (environment, livemode) => {
  const body = JSON.stringify({
    type: 'payment.updated',
    event_id: 'e1',
    created_at: '2026-09-21T14:13:09.064Z',
    data: { type: 'payment', id: 'KkAk', object: {} },
  })
  const { events } = judge('square', {
    headers: { 'Square-Environment': environment },
    body,
    options: { notificationUrl: 'https://hooks.example.com/webhooks/square' },
  })

  expect(events).toMatchObject([
    { id: 'e1', type: 'payment.updated', livemode, occurredAt: new Date('2026-09-21T14:13:09.064Z'), objectRef: 'KkAk' },
  ])
})
