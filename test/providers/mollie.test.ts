import { expect, test } from 'vitest'
import { readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { BODY_H, judge } from '../support/judge.ts'

const PASSED = { ok: true, secretIndex: 0 }
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISMATCH = { ok: false, reason: 'signature_mismatch' }
const GOOD = 'e0b26fcc26e03ac1cefa8d632cfa45d30c9d8473595ef47c0a77cbbb756047d5'
const OLD = '484af0b6e937480a54549ae1e14c13206b8dce409aee024162f29dfea6217a5c'
const mollie = (signature: string | string[], secrets = ['mollie_test']) =>
  judge('mollie', { headers: { 'X-Mollie-Signature': signature }, body: BODY_H, secrets }).verdict

test.each([
  [`sha256=${GOOD}`, PASSED],
  [GOOD, PASSED],
  [[`sha256=${OLD}`, `sha256=${GOOD}`], PASSED],
  [['junk', GOOD], PASSED],
  [`sha256=${OLD}, sha256=${GOOD}`, PASSED],
  [`${GOOD},${OLD}`, PASSED],
  [[`sha256=${OLD}`, OLD], MISMATCH],
  [`sha256=${OLD}`, MISMATCH],
  [`sha256=${GOOD.slice(1)}`, MALFORMED],
  [`sha256=${GOOD}0`, MALFORMED],
  [`SHA256=${GOOD}`, MALFORMED],
  [`sha512=${GOOD}`, MALFORMED],
  [`sha256=sha256=${GOOD}`, MALFORMED],
  [GOOD.toUpperCase(), MALFORMED],
  [['', ''], MISSING],
  ['', MISSING],
  [[], MISSING],
])('the signature %j', (signature, verdict) => {
  expect(mollie(signature)).toEqual(verdict)
})

test('C-15 takes either of two secrets, and refuses more signatures than anybody sends', () => {
  expect(mollie(OLD, ['mollie_test', 'mollie_old'])).toEqual({ ok: true, secretIndex: 1 })
  expect(mollie([...Array<string>(16).fill(OLD), GOOD])).toEqual(MALFORMED)
})

test('C-32 reads mode, time and object of the event', () => {
  const body = (embedded: string) =>
    `{"resource":"event","id":"whe_1","type":"payment-link.paid","entityId":"pl_1","createdAt":"2026-09-21T14:13:05.0Z","_embedded":${embedded}}`
  const modes = ['{"entity":{"mode":"live"}}', '{"entity":{"mode":"test"}}', '{"entity":{"mode":"other"}}', 'null'].map(
    (embedded) => judge('mollie', { body: body(embedded) }).events[0]?.livemode,
  )

  expect(modes).toEqual([true, false, null, null])
  expect(judge('mollie', { body: body('{}') }).events).toMatchObject([
    {
      id: 'whe_1',
      idBasis: 'provider',
      type: 'payment-link.paid',
      objectRef: 'pl_1',
      occurredAt: new Date('2026-09-21T14:13:05Z'),
    },
  ])
})

test('the classic webhook is unsigned: each delivery is an event, and nothing happens without confirm', () => {
  const attempt = { options: { classic: true }, body: 'id=tr_5B8cwPMGnU6qLbRvo7qEZo' }
  const { verdict, provider, request, events } = judge('mollie', attempt)

  expect(verdict).toEqual({ ok: true })
  expect(provider).toMatchObject({ secrets: 'none', requiresConfirm: true, contentIsSigned: false, idIsSigned: false })
  expect(events).toMatchObject([
    { id: expect.stringMatching(/^tr_5B8cwPMGnU6qLbRvo7qEZo:./), idBasis: 'delivery', type: 'classic' },
  ])
  expect(events).toMatchObject([{ objectRef: 'tr_5B8cwPMGnU6qLbRvo7qEZo', livemode: null, occurredAt: null }])
  expect(provider.jsonText?.(request)).toBe('{"id":"tr_5B8cwPMGnU6qLbRvo7qEZo"}')
  expect(readEvents(provider, request).events[0]?.id).not.toBe(events[0]?.id)
})

test.each([
  '',
  'id=',
  '{"id":"tr_1"}',
  'payment=tr_1',
  'id=%00',
  'id=%FF',
  'id=%20',
  'id=tr_',
  'id=tr_1%0A',
  'id=tr_1%20',
  'id=TR_1',
  'id=hello',
  'id=tr_%C3%A9',
  `id=tr_${'1'.repeat(65)}`,
  'id=tr_1&id=tr_2',
  'id=tr_1&id=tr_1',
  `id=tr_1${'&'.repeat(1_000)}`,
])('nobody is known, so a classic webhook in any other form is refused: %j', (body) => {
  expect(judge('mollie', { options: { classic: true }, body }).verdict).toEqual(MALFORMED)
})

test.each(['id=tr_d0b0E3EA3v', 'id=ord_kEn1PlbGa', `id=tr_${'a'.repeat(64)}`, 'id=tr_1&subscriptionId=sub_1', 'id=tr%5F1'])(
  'a classic webhook names one object: %j',
  (body) => {
    expect(judge('mollie', { options: { classic: true }, body }).verdict).toEqual({ ok: true })
  },
)

test('of a classic webhook a thousand bytes are read', () => {
  expect(createProvider('mollie', { classic: true }).maxBodyBytes).toBe(1024)
})

test('a source for signed webhooks refuses a classic one, and the other way round there is no signature to check', () => {
  expect(judge('mollie', { body: 'id=tr_1', secrets: ['mollie_test'] }).verdict).toEqual(MISSING)
  expect(() => createProvider('mollie', { classic: 'yes' })).toThrow(/classic/)
})
