import { createHash, createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { payloadOf } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { isUsableSecret } from '../../src/providers/signature.ts'
import { sampleRequest } from '../../src/sandbox/samples.ts'
import { judge } from '../support/judge.ts'
import { requestOf } from '../support/provider-setups.ts'

const SECRET = 'integration_public_key:integration_private_key'
const XML =
  '<notification><timestamp type="datetime">2026-09-21T14:13:05Z</timestamp><kind>subscription_canceled</kind><subject><subscription><id>sub_1</id></subscription></subject></notification>'
const PAYLOAD = `${Buffer.from(XML).toString('base64')}\n`
const XML_ID = 'sha256:58f95920b24f6f7a1bc3f687c0c21eea6c0f0f8ecac28001cff30411357877af'

function digest(payload: string, privateKey = 'integration_private_key'): string {
  return createHmac('sha1', createHash('sha1').update(privateKey).digest()).update(payload).digest('hex')
}

const ours = (payload: string) => `integration_public_key|${digest(payload)}`
const post = (payload: string, signature = ours(payload), secrets = [SECRET]) =>
  judge('braintree', { body: new URLSearchParams({ bt_signature: signature, bt_payload: payload }).toString(), secrets })
const postXml = (xml: string) => post(Buffer.from(xml).toString('base64'))

test('reads what the signed XML says', () => {
  const { verdict, events } = post(PAYLOAD)

  expect(verdict).toEqual({ ok: true, secretIndex: 0 })
  expect(events).toEqual([
    {
      id: XML_ID,
      idBasis: 'body_hash',
      idIsSigned: true,
      type: 'subscription_canceled',
      livemode: null,
      occurredAt: new Date('2026-09-21T14:13:05Z'),
      objectRef: 'sub_1',
      replayKey: null,
      needsPerson: undefined,
    },
  ])
})

test('one event is one, however its form and its base64 are written', () => {
  const lines = PAYLOAD.replace(/.{60}/g, '$&\n')
  const swapped = judge('braintree', {
    body: `bt_payload=${encodeURIComponent(lines)}&other=1&bt_signature=${encodeURIComponent(ours(lines))}`,
    secrets: [SECRET],
  })

  expect(swapped.verdict.ok).toBe(true)
  expect([swapped, post(PAYLOAD.trim()), post(PAYLOAD)].map(({ events }) => events[0]?.id)).toEqual([XML_ID, XML_ID, XML_ID])
})

test('a newline lost on the way is made up for, and nothing else', () => {
  expect(post(PAYLOAD.trim(), ours(PAYLOAD)).verdict.ok).toBe(true)
  expect(post(`${PAYLOAD}\n`, ours(PAYLOAD)).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
  expect(post(PAYLOAD, ours(PAYLOAD.trim())).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
})

describe('pairs', () => {
  test('any of those with our public key counts, wherever it stands', () => {
    const { ok } = post(PAYLOAD, `junk&other_key|${digest(PAYLOAD, 'other')}&${ours(PAYLOAD)}&x|`).verdict

    expect(ok).toBe(true)
    expect(post(PAYLOAD, ours(PAYLOAD), ['new:n', SECRET]).verdict).toEqual({ ok: true, secretIndex: 1 })
  })

  test.each([
    ['another public key over our digest', `other_key|${digest(PAYLOAD)}`, 'no_matching_key'],
    ['another private key', `integration_public_key|${digest(PAYLOAD, 'other')}`, 'signature_mismatch'],
    [
      'the private key itself as the key',
      `integration_public_key|${createHmac('sha1', 'integration_private_key').update(PAYLOAD).digest('hex')}`,
      'signature_mismatch',
    ],
    ['upper case', ours(PAYLOAD).toUpperCase(), 'no_matching_key'],
    ['upper case of the digest', `integration_public_key|${digest(PAYLOAD).toUpperCase()}`, 'signature_mismatch'],
    ['a short digest', ours(PAYLOAD).slice(0, -1), 'signature_mismatch'],
    ['no public key', `|${digest(PAYLOAD)}`, 'malformed_signature'],
    ['no bar', digest(PAYLOAD), 'malformed_signature'],
    ['nothing', '', 'missing_signature'],
    ['white space', ' ', 'missing_signature'],
    ['more pairs than anybody has keys', `${'a|b&'.repeat(16)}${ours(PAYLOAD)}`, 'malformed_signature'],
  ])('refuses %s', (_name, signature, reason) => {
    expect(post(PAYLOAD, signature).verdict).toEqual({ ok: false, reason })
  })
})

const CHALLENGE = '20f9f8ed05f77439fe955c977e4c8a53'

test.each([CHALLENGE, `${CHALLENGE}\n`, `${CHALLENGE.slice(0, 16)}\n${CHALLENGE.slice(16)}\n\n`])(
  'what is signed for whoever asks by GET is no payload, with whatever else is posted: %j',
  (payload) => {
    const answered = createProvider('braintree').challenge?.(`bt_challenge=${CHALLENGE}`, [SECRET]) ?? ''
    const malformed = { ok: false, reason: 'malformed_signature' }

    for (const signature of [answered, ours(payload), ours(`${payload}\n`)]) {
      const body = new URLSearchParams({ bt_signature: signature, bt_payload: payload, more: 'x'.repeat(100_000) }).toString()
      expect(judge('braintree', { body, secrets: [SECRET] })).toMatchObject({ verdict: malformed, events: [] })
    }
  },
)

test.each([
  ['CRLF', PAYLOAD.replace('\n', '\r\n')],
  ['a space', PAYLOAD.replace('P', ' ')],
  ['base64url', PAYLOAD.replace('P', '-')],
  ['nothing', ''],
])('refuses a payload with %s although it is signed', (_name, payload) => {
  expect(post(payload).verdict).toEqual({ ok: false, reason: 'malformed_signature' })
})

test('refuses fields that come twice, and bodies that are no such form', () => {
  const form = (text: string) => judge('braintree', { body: text, secrets: [SECRET] }).verdict
  const [signature, payload] = [encodeURIComponent(ours(PAYLOAD)), encodeURIComponent(PAYLOAD)]

  expect(form(`bt_signature=${signature}&bt_payload=${payload}&bt_payload=${payload}`).ok).toBe(false)
  expect(form(`bt_signature=${signature}&bt_payload=${payload}&bt_signature=${signature}`).ok).toBe(false)
  expect(form(`bt_signature=${signature}`)).toEqual({ ok: false, reason: 'malformed_signature' })
  for (const body of ['', '%', '&&&=', '{"bt_signature":1}', XML])
    expect(form(body)).toEqual({ ok: false, reason: 'missing_signature' })
})

test.each([
  ['no XML', 'kind: check'],
  ['a DOCTYPE', `<!DOCTYPE n [<!ENTITY a "b">]>${XML}`],
  ['another root', '<other><kind>check</kind></other>'],
  ['no kind', '<notification/>'],
  ['too many levels', `<notification>${'<a>'.repeat(300)}${'</a>'.repeat(300)}</notification>`],
])('C-29 signed XML that is no event is kept for people: %s', (_name, xml) => {
  const { verdict, events, unusable } = postXml(xml)

  expect(verdict.ok).toBe(true)
  expect(events).toEqual([])
  expect(unusable).toBeDefined()
})

describe('the check of the endpoint', () => {
  const { challenge } = createProvider('braintree')
  const hex = CHALLENGE

  test('is answered by the first secret that can', () => {
    expect(challenge?.(`a=1&bt_challenge=${hex}`, ['no colon', SECRET, 'other:key'])).toBe(
      'integration_public_key|d9b899556c966b3f06945ec21311865d35df3ce4',
    )
  })

  test.each([
    '',
    `bt_challenge=${hex}0`,
    'bt_challenge=',
    `bt_challenge=${hex.toUpperCase()}`,
    `bt_challenge=${hex.slice(13)}`,
    `bt_challenge=${hex}%0A`,
    `bt_challenge=${hex}&bt_challenge=${hex}`,
    `challenge=${hex}`,
  ])('is not taken for one: %s', (query) => {
    expect(challenge?.(query, [SECRET])).toBeUndefined()
  })

  test('is not answered without a secret', () => {
    expect(challenge?.(`bt_challenge=${hex}`, [])).toBeUndefined()
  })
})

test('a secret needs both of its keys', () => {
  const { scheme } = createProvider('braintree')

  expect([SECRET, 'public:', 'public: ', ':private', 'private', ''].map((secret) => isUsableSecret(scheme, secret))).toEqual([
    true,
    false,
    false,
    false,
    false,
    false,
  ])
})

test.each(['subscription_charged_successfully', 'disbursement'])('a sample of %s gives rules its recipient', (type) => {
  const email = 'a&b<c@example.com'
  const made = sampleRequest({ provider: 'braintree', secret: SECRET, type, nowSeconds: 1_790_000_000, email, id: 'sub_1' })
  const provider = createProvider('braintree')
  const element = type === 'disbursement' ? 'disbursement' : 'subscription'

  expect(payloadOf(provider, requestOf(made), 'whatever')).toMatchObject({
    kind: type,
    subject: { [element]: { id: 'sub_1', transactions: [{ customer: { email } }] } },
  })
})
